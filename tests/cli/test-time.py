# SPDX-License-Identifier: Apache-2.0
"""The verbs that move a sandbox through time, against the small gateway."""
import json
import os

from harness import check, contains, equal, main


def put(sandbox, name, text, mtime=None):
    path = os.path.join(sandbox.root, name.lstrip("/"))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    if mtime:
        os.utime(path, (mtime, mtime))


def pause_and_resume(env):
    s = env.gw.add_sandbox()
    t = env.gw.add_sandbox()
    equal(env.ok("pause", s.id, t.id[:10], "--light", "--wake").text.split(), [s.id, t.id])
    equal((s.object["state"], s.paused_how), ("paused", {"durable": False, "wake_on_request": True}))
    equal(json.loads(env.ok("resume", s.id, "--json").out)[0]["state"], "running")
    env.ok("pause", s.id)
    equal(s.paused_how, {"durable": True, "wake_on_request": False})


def snapshots_by_id_start_and_name(env):
    s = env.gw.add_sandbox()
    first = env.ok("snapshot", s.id).text.strip()
    full = json.loads(env.ok("snapshot", s.id, "--full", "-n", "before upgrade", "--keep", "--json").out)
    equal((full["kind"], full["name"], full["keep"]), ("full", "before upgrade", True))
    equal(env.run("snapshot", s.id, "--full", "--disk").code, 2)
    equal(env.ok("snapshot", "ls", s.id, "-q").text.split(), [full["id"], first])
    equal(len(json.loads(env.ok("snapshot", "ls", s.id, "--json").out)["snapshots"]), 2)
    text = env.ok("snapshot", "ls", s.id).text
    contains(text, "before upgrade")
    contains(text, "1.0 MiB")
    contains(env.ok("snapshot", "info", s.id, first[:8]).text, "exclusive")
    equal(json.loads(env.ok("snapshot", "info", s.id, "before upgrade", "--json").out)["id"], full["id"])
    env.ok("snapshot", "keep", s.id, first)
    env.ok("snapshot", "keep", "--off", s.id, full["id"])
    env.ok("snapshot", "name", s.id, first, "first one")
    equal([(o["name"], o["keep"]) for o, _ in s.snapshots], [("first one", True), ("before upgrade", False)])
    r = env.run("snapshot", "rm", s.id, "no such", "first one")
    equal(r.code, 1)
    contains(r.errors, "there is no snapshot 'no such'")
    equal([o["id"] for o, _ in s.snapshots], [full["id"]])
    contains(env.run("snapshot", "info", s.id, "nzzzzzzzzzzzzzzzzzzz").errors, "no such snapshot")


def rollback_goes_back(env):
    s = env.gw.add_sandbox()
    put(s, "home/user/f", "v1")
    snapshot = env.ok("snapshot", s.id, "-n", "v1").text.strip()
    put(s, "home/user/f", "v2")
    r = env.ok("rollback", s.id, "v1")
    equal(r.text.strip(), s.id)
    equal(open(s.home + "/f", encoding="utf-8").read(), "v1")
    o = json.loads(env.ok("rollback", s.id, snapshot, "--json").out)
    check(o["id"] == s.id and o["before"].startswith("n") and o["cold"], "the API's object")
    equal(env.run("rollback", s.id).code, 2)


def fork_is_an_array(env):
    s = env.gw.add_sandbox(metadata={"a": "b"})
    put(s, "home/user/f", "x")
    children = json.loads(env.ok("fork", s.id, "--count", "3", "--json").out)
    equal([c["parent"] for c in children], [s.id] * 3)
    equal(children[0]["metadata"], {"a": "b"})
    one = env.ok("fork", s.id, "-l", "a=c", "--timeout", "1m").text.strip()
    o = env.gw.sandboxes[one].object
    equal((o["metadata"], o["timeout_s"]), ({"a": "c"}, 60))
    equal(open(env.gw.sandboxes[one].home + "/f", encoding="utf-8").read(), "x")
    env.ok("snapshot", s.id, "-n", "x")
    put(s, "home/user/f", "y")
    one = env.ok("fork", s.id, "-s", "x").text.strip()
    equal(open(env.gw.sandboxes[one].home + "/f", encoding="utf-8").read(), "x")
    env.gw.fault("POST", "/fork", "cut")
    env.ok("fork", s.id)  # with an Idempotency-Key it may be repeated
    check(all("idempotency-key" in h for m, t, h in env.gw.requests if m == "POST" and t.endswith("/fork")), "keys")


def history_and_trace(env):
    s = env.gw.add_sandbox()
    text = env.ok("history", s.id).text
    contains(text, "created")
    check("\x1b" not in text, "foreign text is cleaned")
    equal(json.loads(env.ok("history", s.id, "--json").out)["history"][0]["event"], "created")
    contains(env.ok("trace", s.id).text, "  disk")


def policies_in_words_and_files(env):
    id = env.ok("create", "-T", "tiny", "--policy", "disk_every_s=5m,keep_day=48,recover=disk").text.strip()
    equal(env.gw.sandboxes[id].object["policy"], {"disk_every_s": 300, "keep_day": 48, "recover": "disk"})
    with open(env.home + "/p.json", "w", encoding="utf-8") as f:
        f.write('{"idle_pause_s": 60}')
    id = env.ok("create", "-T", "tiny", "--policy", env.home + "/p.json").text.strip()
    equal(env.gw.sandboxes[id].object["policy"], {"idle_pause_s": 60})
    env.ok("policy", id, "full_every_s=1h")
    equal(env.gw.sandboxes[id].object["policy"], {"idle_pause_s": 60, "full_every_s": 3600})
    contains(env.ok("policy", id).text, "3600")
    for bad in ("disk_every_s=often", "keep_day=x", "=1", "a=1,b", "/no/such/file"):
        r = env.run("create", "-T", "tiny", "--policy", bad)
        check(r.code in (1, 2) and r.errors, bad)
    equal(len(env.gw.sandboxes), 2)


def lines(r):
    return sorted(r.text.strip().split("\n")) if r.text.strip() else []


def diff_lists_what_differs(env):
    s = env.gw.add_sandbox()
    put(s, "etc/same", "same", 1000)
    put(s, "etc/touched", "same", 1000)
    put(s, "etc/edited", "aaaa", 1000)
    put(s, "etc/grown", "a", 1000)
    put(s, "etc/gone", "x", 1000)
    put(s, "etc/mode", "x", 1000)
    put(s, "etc/hostname", "one", 1000)
    put(s, "proc/x", "one")
    os.symlink("a", s.root + "/etc/link")
    a = env.ok("snapshot", s.id, "-n", "a").text.strip()
    put(s, "etc/touched", "same", 2000)
    put(s, "etc/edited", "aaab", 2000)
    put(s, "etc/grown", "ab", 1000)
    os.unlink(s.root + "/etc/gone")
    os.chmod(s.root + "/etc/mode", 0o600)
    put(s, "etc/new\x1b[2J", "x")
    put(s, "etc/hostname", "two")
    put(s, "proc/x", "two")
    os.unlink(s.root + "/etc/link")
    os.symlink("b", s.root + "/etc/link")
    b = env.ok("snapshot", s.id, "-n", "b").text.strip()
    want = sorted(["M /etc/edited", "M /etc/grown", "D /etc/gone", "m /etc/mode", "A /etc/new\\x1b[2J",
                   "M /etc/link"])
    equal(lines(env.ok("diff", s.id + "@a", s.id + "@b")), want)
    equal(lines(env.ok("diff", s.id + "@a", "@b")), want)
    equal(lines(env.ok("diff", a, b)), want)
    equal(lines(env.ok("diff", s.id + "@a", s.id)), want)
    equal(lines(env.ok("diff", s.id + "@b", s.id)), [])
    found = json.loads(env.ok("diff", b, a, "--json").out)["differences"]
    check({"change": "added", "path": "/etc/gone"} in found, "the other way round")
    equal(sorted(env.gw.sandboxes), [s.id], "what is left of the forks")
    equal(len(s.snapshots), 2, "what is left of the snapshots")
    r = env.run("diff", s.id + "@a", s.id + "@zzz")
    equal((r.code, len(env.gw.sandboxes)), (1, 1))
    env.gw.page_max = 2
    equal(lines(env.ok("diff", a, b)), want)


def diff_that_breaks_leaves_nothing(env):
    s = env.gw.add_sandbox()
    env.gw.fault("GET", "/files/list", "cut", times=9)
    equal(env.run("diff", s.id, s.id).code, 1)
    equal((sorted(env.gw.sandboxes), s.snapshots), ([s.id], []))


def bisect_finds_the_first_bad_one(env):
    s = env.gw.add_sandbox()
    ids = []
    for i in range(9):
        put(s, "home/user/n", str(i))
        ids.append(env.ok("snapshot", s.id).text.strip())
    s.snapshots[5][0]["command"] = "c0123456789012345678"
    for first_bad in (0, 1, 6, 8):
        env.gw.forks = 0
        test = ["sh", "-c", "test $(cat n) -lt %d" % first_bad]
        r = env.ok("bisect", s.id, "--", *test)
        equal(r.text.strip(), ids[first_bad])
        check(env.gw.forks <= 5, "by halves: %d" % env.gw.forks)
    o = json.loads(env.ok("bisect", s.id, "--json", "--", "sh", "-c", "test $(cat n) -lt 6").out)
    equal((o["first_bad"]["id"], o["last_good"]["id"], o["command"]), (ids[6], ids[5], "c0123456789012345678"))
    check(all(t["good"] == ((ids + ["present"]).index(t["id"]) < 6) for t in o["tested"]), "what was tested")
    r = env.run("bisect", s.id, "--", "true")
    equal((r.code, r.out), (1, b""))
    contains(r.errors, "nothing to find")
    r = env.run("bisect", s.id, "--", "sh", "-c", "exit 127")
    equal(r.code, 1)
    contains(r.errors, "could not be run")
    equal(env.run("bisect", s.id).code, 2)
    contains(env.run("bisect", env.gw.add_sandbox().id, "--", "true").errors, "no snapshots")
    contains(env.ok("bisect", s.id, "-v", "--", "sh", "-c", "echo seen; exit 1").errors, "seen")
    equal(len(env.gw.sandboxes), 2, "what is left of the forks")


def bisect_walks_the_path_to_the_present(env):
    parent = env.gw.add_sandbox()
    child = env.gw.add_sandbox()
    ids = {}
    # The parent: 0, 1, 2; then rolled back to 1, which leaves 2 on a branch of its own; the child was forked from 1.
    for s, steps in ((parent, (0, 1, 2)), (child, (3, 4, 5, 6))):
        last = None
        for n in steps:
            put(s, "home/user/n", str(n))
            ids[n] = env.ok("snapshot", s.id).text.strip()
            s.find_snapshot(ids[n])[0]["parent"] = last
            last = ids[n]
    parent.find_snapshot(ids[2])[0]["past"] = False
    child.find_snapshot(ids[5])[0]["past"] = False
    child.origin = {"sandbox": parent.id, "snapshot": ids[1]}
    looked = {}
    for first_bad in (0, 1, 3, 4, 6):
        o = json.loads(env.ok("bisect", child.id, "--json", "--", "sh", "-c", "test $(cat n) -lt %d" % first_bad).out)
        equal(o["first_bad"]["id"], ids[first_bad])
        looked.update({t["id"]: t["good"] for t in o["tested"]})
    check(ids[2] not in looked and ids[5] not in looked, "what was rolled back from is on no path")
    equal(env.ok("bisect", parent.id, "--", "sh", "-c", "test $(cat n) -lt 1").text.strip(), ids[1])
    # Broken since the newest snapshot, by the command that it was taken before.
    put(child, "home/user/n", "7")
    child.find_snapshot(ids[6])[0]["command"] = "c0123456789012345678"
    o = json.loads(env.ok("bisect", child.id, "--json", "--", "sh", "-c", "test $(cat n) -lt 7").out)
    equal((o["first_bad"]["id"], o["last_good"]["id"], o["command"]), ("present", ids[6], "c0123456789012345678"))
    # Without its parent the path is shorter, and still one.
    env.gw.sandboxes.pop(parent.id).remove()
    equal(env.ok("bisect", child.id, "--", "sh", "-c", "test $(cat n) -lt 4").text.strip(), ids[4])
    equal(len(child.snapshots), 4, "snapshots of the present that are left")


def bisect_that_is_interrupted_leaves_nothing(env):
    import signal
    from harness import until
    s = env.gw.add_sandbox()
    env.ok("snapshot", s.id)
    p = env.popen("bisect", s.id, "--", "sleep", "5")
    until(lambda: env.gw.forks == 1 and any(t.endswith("/run") for _, t, _ in env.gw.requests), "the test runs")
    p.send_signal(signal.SIGINT)
    p.communicate()
    equal(p.returncode, 130)
    equal(sorted(env.gw.sandboxes), [s.id])


main([pause_and_resume, snapshots_by_id_start_and_name, rollback_goes_back, fork_is_an_array, history_and_trace,
      policies_in_words_and_files, diff_lists_what_differs, diff_that_breaks_leaves_nothing,
      bisect_finds_the_first_bad_one, bisect_walks_the_path_to_the_present, bisect_that_is_interrupted_leaves_nothing])
