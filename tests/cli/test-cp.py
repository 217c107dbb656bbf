# SPDX-License-Identifier: Apache-2.0
"""cp: trees both ways, hostile names, nothing half done."""
import hashlib
import json
import os
import signal
import stat
import subprocess

from harness import check, contains, equal, main, until, WAIT_S


def tree(top):
    """Everything below a folder: path -> (type, mode, content or target)."""
    top = os.fsencode(top)
    found = {}
    for folder, dirs, files in os.walk(top):
        for name in dirs + files:
            path = os.path.join(folder, name)
            st = os.lstat(path)
            rest = path[len(top) + 1:]
            if stat.S_ISLNK(st.st_mode):
                found[rest] = ("link", os.readlink(path))
            elif stat.S_ISDIR(st.st_mode):
                found[rest] = ("dir", stat.S_IMODE(st.st_mode))
            else:
                found[rest] = ("file", stat.S_IMODE(st.st_mode), hashlib.sha256(open(path, "rb").read()).hexdigest())
    return found


def plant(top):
    """A tree with everything that a copy must keep."""
    os.makedirs(os.path.join(top, "a/b/c"))
    os.makedirs(os.path.join(top, "empty"))
    names = [b"plain", b"with space", b"new\nline", b"\xff\xfe", b"-rf", b"quote'\"", b"~", b"%41", b"a?b&c=d#e+f",
             "naïve-☕".encode(), b"x" * 255, b".hidden", b"back\\slash", b"\x1b[31m"]
    for i, name in enumerate(names):
        path = os.path.join(os.fsencode(top), b"a", name)
        with open(path, "wb") as f:
            f.write(b"content of %d\n" % i)
        os.chmod(path, 0o600 + (i % 8) * 8)
    open(os.path.join(top, "a/b/c/big"), "wb").write(os.urandom(3 << 20))
    open(os.path.join(top, "zero"), "wb").close()
    os.chmod(os.path.join(top, "a/b/c/big"), 0o755)
    os.symlink("../plain", os.path.join(top, "a/b/link"))
    os.symlink("/etc/passwd", os.path.join(top, "a/outside"))
    os.symlink(b"gone-\xff", os.path.join(os.fsencode(top), b"a", b"dangling"))
    os.chmod(os.path.join(top, "a/b"), 0o750)
    os.makedirs(os.path.join(top, "locked"))
    open(os.path.join(top, "locked/f"), "w").write("x")
    os.chmod(os.path.join(top, "locked"), 0o555)


def a_tree_goes_in_and_out_unchanged(env):
    s = env.gw.add_sandbox()
    src = env.home + "/src"
    plant(src)
    r = env.ok("cp", "src", s.id + ":copy")
    contains(r.errors, "17 files")
    equal(tree(s.home + "/copy"), tree(src))
    env.ok("cp", s.id + ":copy", "back")
    equal(tree(env.home + "/back"), tree(src))
    env.ok("cp", "-j", "1", s.id + ":/home/user/copy", "again")
    equal(tree(env.home + "/again"), tree(src))


def where_a_copy_goes(env):
    s = env.gw.add_sandbox()
    os.makedirs(env.home + "/d/e")
    open(env.home + "/d/e/f", "w").write("1")
    open(env.home + "/f", "w").write("2")
    env.ok("cp", "f", s.id + ":g")
    equal(open(s.home + "/g").read(), "2", "a file by its new name")
    env.ok("cp", "f", s.id + ":")
    equal(open(s.home + "/f").read(), "2", "into the home")
    env.ok("cp", "f", s.id + ":new/")
    equal(open(s.home + "/new/f").read(), "2", "into a new folder")
    env.ok("cp", "f", s.id + ":/tmp")
    equal(open(s.root + "/tmp/f").read(), "2", "into a folder")
    env.ok("cp", "d", s.id + ":/tmp")
    equal(open(s.root + "/tmp/d/e/f").read(), "1", "a folder into a folder")
    env.ok("cp", "d/.", s.id + ":/tmp/c")
    equal(open(s.root + "/tmp/c/e/f").read(), "1", "what is in a folder")
    env.ok("cp", "f", "d", s.id + ":/tmp/both")
    equal(sorted(os.listdir(s.root + "/tmp/both")), ["d", "f"])
    os.makedirs(env.home + "/out")
    env.ok("cp", s.id + ":g", "out")
    equal(open(env.home + "/out/g").read(), "2")
    env.ok("cp", s.id + ":/tmp/d", "out")
    equal(open(env.home + "/out/d/e/f").read(), "1")
    env.ok("cp", s.id + ":/tmp/d/.", "out")
    equal(open(env.home + "/out/e/f").read(), "1")
    env.ok("cp", s.id + ":/tmp/d/.", "fresh/deep")
    equal(open(env.home + "/fresh/deep/e/f").read(), "1")
    env.ok("cp", s.id + ":g", s.id + ":/tmp/d/e/f", "several")
    equal(sorted(os.listdir(env.home + "/several")), ["f", "g"])
    env.ok("cp", s.id[:6] + ":g", ".")
    equal(open(env.home + "/g").read(), "2")


def what_is_there_is_replaced_not_followed(env):
    s = env.gw.add_sandbox()
    open(s.home + "/f", "w").write("new")
    os.makedirs(s.home + "/d")
    open(s.home + "/d/l", "w").write("new")
    open(env.home + "/victim", "w").write("old")
    os.makedirs(env.home + "/d")
    os.symlink(env.home + "/victim", env.home + "/d/l")
    env.ok("cp", s.id + ":d", ".")
    equal(open(env.home + "/victim").read(), "old")
    equal((os.path.islink(env.home + "/d/l"), open(env.home + "/d/l").read()), (False, "new"))
    os.makedirs(env.home + "/outside")
    os.makedirs(env.home + "/t/d")
    os.rmdir(env.home + "/t/d")
    os.symlink(env.home + "/outside", env.home + "/t/d")
    r = env.run("cp", s.id + ":d", "t")
    equal((r.code, os.listdir(env.home + "/outside")), (1, []))
    os.symlink(env.home + "/victim", env.home + "/named")
    env.ok("cp", s.id + ":f", "named")
    equal((os.path.islink(env.home + "/named"), open(env.home + "/victim").read()), (True, "new"),
          "a link named as the target is the user's own")


def devices_are_written_to(env):
    s = env.gw.add_sandbox()
    open(s.home + "/f", "w").write("data")
    before = os.stat("/dev/null")
    env.ok("cp", s.id + ":f", "/dev/null")
    after = os.stat("/dev/null")
    check(stat.S_ISCHR(after.st_mode) and before.st_ino == after.st_ino, "/dev/null is what it was")
    equal(env.ok("cp", s.id + ":f", "/dev/stdout").out[:4], b"data")
    equal(env.ok("cp", s.id + ":f", "-").out, b"data")
    env.ok("cp", "-", s.id + ":g", input=b"from a pipe")
    equal(open(s.home + "/g").read(), "from a pipe")


def entry(path, type="file", **more):
    return dict({"name": path.split("/")[-1], "path": path, "type": type, "size": 3, "mode": "0644"}, **more)


def hostile_names_stay_inside(env):
    s = env.gw.add_sandbox()
    os.makedirs(s.home + "/d")
    env.gw.hostile["content"] = b"bad"
    os.makedirs(env.home + "/t")
    outside = env.home + "/victim"
    os.makedirs(outside)
    base = "/home/user/d"
    lists = [
        [entry(base + "/../escape")],
        [entry(base + "/..")],
        [entry(base + "/.")],
        [entry(base + "//escape")],
        [entry(base + "/x/../../escape")],
        [entry("/etc/passwd")],
        [entry("escape")],
        [entry("")],
        [entry(base)],
        [entry(base + "escape")],
        [entry(base + "/")],
        [entry(base + "/a\0b")],
        [dict(entry(base + "/x"), path_base64="L2hvbWUvdXNlci9kLy4uL2VzY2FwZQ==")],
        [dict(entry(base + "/x"), path_base64="!!!")],
        [dict(entry(base + "/x"), path=7)],
        [7, None, "x"],
        # A link first, then something below it.
        [entry(base + "/l", "symlink", target=outside), entry(base + "/l/escape")],
        [entry(base + "/l", "symlink", target=".."), entry(base + "/l/escape")],
        [entry(base + "/l", "symlink", target=outside), entry(base + "/l", "dir"), entry(base + "/l/escape")],
        [entry(base + "/l", "dir"), entry(base + "/l", "symlink", target=outside), entry(base + "/l/escape")],
        [entry(base + "/l", "symlink", target=outside), entry(base + "/l/sub", "dir"),
         entry(base + "/l/sub/escape")],
        [entry(base + "/l", "symlink", target=outside), entry(base + "/l/escape", "symlink", target="x")],
        # The parent is a file; a folder where a file is.
        [entry(base + "/f"), entry(base + "/f/escape")],
    ]
    before = tree(env.home)
    for i, hostile in enumerate(lists):
        env.gw.hostile["list"] = hostile
        for jobs in ("1", "8"):
            r = env.run("cp", "-j", jobs, s.id + ":d", "t/%d-%s" % (i, jobs))
            check(r.code in (0, 1), "list %d: %d %s" % (i, r.code, r.errors))
            now = {k: v for k, v in tree(env.home).items() if not k.startswith(b"t/%d-%s" % (i, jobs.encode()))}
            equal(now, before, "what is outside after list %d" % i)
            subprocess.run(["rm", "-rf", env.home + "/t/%d-%s" % (i, jobs)], check=True)
        if i < 14:
            equal(r.code, 1, "list %d is told" % i)
    check(not os.path.exists("/escape") and not os.path.exists(env.home + "/escape"), "nothing escaped")


def setuid_does_not_come_along(env):
    s = env.gw.add_sandbox()
    os.makedirs(s.home + "/d")
    open(s.home + "/d/tool", "w").write("x")
    os.chmod(s.home + "/d/tool", 0o6755)
    os.chmod(s.home + "/d", 0o3777)
    env.ok("cp", s.id + ":d", "d")
    equal(stat.S_IMODE(os.stat(env.home + "/d/tool").st_mode), 0o755)
    equal(stat.S_IMODE(os.stat(env.home + "/d").st_mode), 0o777)


def an_endless_listing_ends(env):
    s = env.gw.add_sandbox()
    os.makedirs(s.home + "/d")
    env.gw.hostile["list"] = lambda path, depth: [
        entry(path + "/" + "/".join(["x"] * i), "dir") for i in range(1, depth + 1)]
    r = env.run("cp", s.id + ":d", "d")
    equal(r.code, 1)
    contains(r.errors, "folders within folders")


def names_are_shown_clean(env):
    s = env.gw.add_sandbox()
    os.makedirs(s.home + "/d")
    os.mkfifo(os.fsencode(s.home) + b"/d/\x1b]0;owned\x07")
    r = env.run("cp", s.id + ":d", "d")
    equal(r.code, 1)
    check(b"\x1b" not in r.err and b"\x07" not in r.err, "escapes in %r" % r.err)
    contains(r.errors, "\\x1b]0;owned\\x07")


def one_bad_entry_does_not_stop_the_rest(env):
    s = env.gw.add_sandbox()
    os.makedirs(env.home + "/d")
    for name in ("a", "b", "z"):
        open(env.home + "/d/" + name, "w").write(name)
    os.mkfifo(env.home + "/d/fifo")
    r = env.run("cp", "d", s.id + ":d")
    equal(r.code, 1)
    contains(r.errors, "d/fifo")
    equal(sorted(os.listdir(s.home + "/d")), ["a", "b", "z"])
    r = env.run("cp", "--json", "d", s.id + ":d2")
    o = json.loads(r.out)
    equal((o["files"], o["errors"], o["bytes"]), (3, 1, 3))


def sparse_stays_sparse(env):
    s = env.gw.add_sandbox()
    with open(s.home + "/f", "wb") as f:
        f.write(b"start")
        f.seek(64 << 20)
        f.write(b"end")
        f.truncate((64 << 20) + 100000)
    env.ok("cp", s.id + ":f", "f")
    equal(subprocess.run(["cmp", env.home + "/f", s.home + "/f"]).returncode, 0)
    check(os.stat(env.home + "/f").st_blocks * 512 < 4 << 20, "it takes the space of its data")


def a_cut_download_is_tried_again(env):
    s = env.gw.add_sandbox()
    data = os.urandom(1 << 20)
    open(s.home + "/f", "wb").write(data)
    env.gw.cut_get_after = 300000
    env.ok("cp", s.id + ":f", "f")
    check(open(env.home + "/f", "rb").read() == data, "the file is whole")


def a_full_disk_stops_and_cleans(env):
    s = env.gw.add_sandbox()
    os.makedirs(env.home + "/d")
    for i in range(20):
        open(env.home + "/d/%d" % i, "wb").write(b"x" * 300000)
    open(s.home + "/keep", "w").write("OLD")
    env.gw.disk_full_after = 200000
    r = env.run("cp", "d", s.id + ":d")
    equal(r.code, 1)
    contains(r.errors, "disk is full")
    equal(sorted(os.listdir(s.home)), ["keep"])
    r = env.run("cp", "d/1", s.id + ":keep")
    equal((r.code, open(s.home + "/keep").read()), (1, "OLD"))


def an_interrupted_copy_leaves_nothing(env):
    s = env.gw.add_sandbox()
    os.makedirs(s.home + "/d")
    for i in range(50):
        open(s.home + "/d/%d" % i, "wb").write(b"x" * 500000)
    env.gw.slow_get = 0.02
    p = env.popen("cp", s.id + ":d", "d")
    until(lambda: os.path.isdir(env.home + "/d") and len(os.listdir(env.home + "/d")) > 5, "some files")
    p.send_signal(signal.SIGINT)
    equal(p.wait(WAIT_S), 130)
    equal(os.listdir(env.home), [])
    # Into what was there before: the files that are whole stay, no part of one does.
    os.makedirs(env.home + "/d")
    open(env.home + "/d/mine", "w").write("x")
    p2 = env.popen("cp", s.id + ":d/.", "d")
    until(lambda: len([n for n in os.listdir(env.home + "/d") if not n.startswith(".")]) > 2, "some files")
    p2.send_signal(signal.SIGTERM)
    check(p2.wait(WAIT_S) > 128, "ended by the signal")
    check(not [n for n in os.listdir(env.home + "/d") if n.startswith(".")], "temporary files are left")
    check(os.path.exists(env.home + "/d/mine"), "what was there before stays")
    for q in (p, p2):
        q.stdout.close()
        q.stderr.close()


def usage_is_explained(env):
    s = env.gw.add_sandbox()
    for args in (["a", "b"], [s.id + ":a", s.id + ":b"], [s.id + ":a", "sxyz:b", "c"],
                 [s.id + ":a", s.id + ":b", "-"], ["only"]):
        r = env.run("cp", *args)
        equal(r.code, 2, str(args))
    r = env.run("cp", "not-here", s.id + ":x")
    equal(r.code, 1)
    contains(r.errors, "not-here")
    r = env.run("cp", s.id + ":not-here", ".")
    equal(r.code, 1)
    open(env.home + "/a:b", "w").write("colon")
    env.ok("cp", "./a:b", s.id + ":c")
    equal(open(s.home + "/c").read(), "colon")


main([a_tree_goes_in_and_out_unchanged, where_a_copy_goes, what_is_there_is_replaced_not_followed,
      devices_are_written_to, hostile_names_stay_inside, setuid_does_not_come_along, an_endless_listing_ends,
      names_are_shown_clean, one_bad_entry_does_not_stop_the_rest, sparse_stays_sparse, a_cut_download_is_tried_again,
      a_full_disk_stops_and_cleans, an_interrupted_copy_leaves_nothing, usage_is_explained])
