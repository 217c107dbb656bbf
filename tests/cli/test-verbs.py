# SPDX-License-Identifier: Apache-2.0
"""Everything else that talks to the gateway: lists, ids, keys, configuration, usage, help, completion."""
import json
import os
import re
import subprocess

from harness import SPACE, check, contains, equal, main


def create_and_look(env):
    r = env.ok("create", "-T", "tiny", "-m", "512", "--disk", "2G", "-l", "a=b", "-e", "X=1", "--timeout", "2h")
    id = r.text.strip()
    o = env.gw.sandboxes[id].object
    equal((o["template"], o["memory_mib"], o["disk_mib"], o["metadata"], o["timeout_s"]),
          ("tiny", 512, 2048, {"a": "b"}, 7200))
    equal(json.loads(env.ok("create", "--template", "tiny", "--json").out)["template"], "tiny")
    contains(env.ok("info", id[:6]).text, "512 MiB")
    equal(json.loads(env.ok("info", id, "--json").out), o)
    r = env.run("create", "-T", "nope")
    equal(r.code, 1)
    contains(r.errors, "there is no template 'nope'")
    r = env.run("create", "-m", "100G", "--json")
    error = json.loads(r.err)["error"]
    equal((r.code, r.out, error["code"], error["field"]), (1, b"", "out_of_range", "memory_mib"))


def lists_of_any_length(env):
    env.gw.page_max = 7
    ids = sorted(env.gw.add_sandbox(metadata={"n": str(i % 2)}).id for i in range(30))
    equal(sorted(env.ok("ls", "-q").text.split()), ids)
    equal(len(env.ok("ls", "-q", "-n", "10").text.split()), 10)
    equal(len(env.ok("ls", "-q", "-l", "n=1").text.split()), 15)
    equal(len(json.loads(env.ok("ls", "--json").out)["sandboxes"]), 30)
    env.gw.sandboxes[ids[0]].object["state"] = "stopped"
    equal(env.ok("ls", "-q", "--state", "stopped").text.split(), [ids[0]])
    equal(len(env.ok("ls").text.strip().split("\n")), 31)


def the_start_of_an_id_is_enough(env):
    a = env.gw.add_sandbox()
    env.gw.sandboxes["sbcdefghijklmnopqrst"] = env.gw.sandboxes.pop(a.id)
    a.id = a.object["id"] = "sbcdefghijklmnopqrst"
    b = env.gw.add_sandbox()
    env.gw.sandboxes["sbczefghijklmnopqrst"] = env.gw.sandboxes.pop(b.id)
    b.id = b.object["id"] = "sbczefghijklmnopqrst"
    equal(json.loads(env.ok("info", "--json", "sbcd").out)["id"], a.id)
    r = env.run("info", "sbc")
    equal(r.code, 1)
    contains(r.errors, "more than one sandbox")
    contains(env.run("info", "zz").errors, "there is no sandbox 'zz'")
    contains(env.run("info", "No/Id").errors, "not a sandbox id")
    contains(env.run("info", "").errors, "not a sandbox id")


def life_of_a_sandbox(env):
    s = env.gw.add_sandbox()
    t = env.gw.add_sandbox()
    equal(env.ok("stop", s.id, t.id[:10]).text.split(), [s.id, t.id])
    equal(s.object["state"], "stopped")
    env.ok("start", s.id)
    equal(s.object["state"], "running")
    r = env.run("rm", s.id, "sabcdefghijklmnopqrs", t.id)
    equal(r.code, 1)
    contains(r.errors, "no such sandbox")
    equal(env.gw.sandboxes, {})
    env.ok("rm", "-f", s.id)
    for _ in range(3):
        env.gw.add_sandbox()
    equal(env.run("rm").code, 2)
    equal(env.run("rm", "--all", "x").code, 2)
    env.ok("rm", "--all")
    equal(env.gw.sandboxes, {})


def commands_are_listed_and_ended(env):
    s = env.gw.add_sandbox()
    id = env.ok("exec", "-d", s.id, "--", "sleep", "1000").text.strip()
    env.run("exec", s.id, "--", "sh", "-c", "exit 3")
    text = env.ok("ps", s.id).text
    contains(text, "sleep 1000")
    contains(text, "sh -c 'exit 3'")
    equal(len(json.loads(env.ok("ps", "--json", s.id).out)["commands"]), 2)
    command = s.commands[id]
    env.ok("kill", "-s", "USR1", s.id, id[:5])
    equal(command.signals[0], 10)
    env.ok("kill", s.id, id)
    check(id not in s.commands, "killed and forgotten")
    equal(env.run("kill", s.id, id).code, 1)


def keys_are_made_and_revoked(env):
    key = env.ok("key", "create", "--name", "ci").text.strip()
    check(key in env.gw.keys, "the key itself")
    o = json.loads(env.ok("key", "create", "--name", "x", "--json").out)
    check(o["key"] in env.gw.keys, ".key")
    contains(env.ok("key", "ls").text, key[:12])
    check(key not in env.ok("key", "ls").text, "never the whole key")
    env.ok("key", "rm", o["id"])
    check(o["key"] not in env.gw.keys, "revoked")
    equal(env.run("key", "rm", "../x").code, 1)
    contains(env.ok("template", "ls").text, "debian")


def logs_and_top(env):
    s = env.gw.add_sandbox()
    env.gw.log_text = b"one\ntwo\n"
    equal(env.ok("logs", s.id).out, b"one\ntwo\n")
    p = env.popen("logs", "-f", s.id)
    equal(p.stdout.readline(), b"one\n")
    equal(p.stdout.readline(), b"two\n")
    env.gw.log_text = b"one\ntwo\nthree\n"
    equal(p.stdout.readline(), b"three\n")
    p.stdout.close()
    equal(p.wait(10), 0)
    p.stderr.close()
    r = env.ok("top")
    contains(r.text, s.id)
    o = json.loads(env.ok("top", "--json").out)["sandboxes"][0]
    equal((o["sandbox"]["id"], o["metrics"]["threads"]), (s.id, 42))
    check(o["cpu_percent"] > 0, "a figure")


def configuration(env):
    none = {"SPACE_URL": None, "SPACE_API_KEY": None}
    path = env.home + "/.config/space/config.json"
    os.makedirs(os.path.dirname(path))
    json.dump({"url": env.gw.url, "key": "e2b_test"}, open(path, "w"))
    os.chmod(path, 0o600)
    env.ok("ls", env=none)
    os.chmod(path, 0o644)
    contains(env.ok("ls", env=none).errors, "chmod 600")
    os.chmod(path, 0o600)
    # The key of the file goes to the address of the file only.
    from fakegateway import Gateway
    other = Gateway()
    r = env.run("ls", "--url", other.url, env=none)
    equal(r.code, 1)
    contains(r.errors, "wants a key")
    check(not any("authorization" in h for _, _, h in other.requests), "the key was not sent")
    other.close()
    equal(env.run("ls", "--key", "e2b_wrong", env=none).code, 1)
    contains(env.run("ls", env={"SPACE_API_KEY": "e2b_wrong"}).errors, "SPACE_API_KEY")
    open(path, "w").write("{\"url\": 7}")
    r = env.run("ls", env=none)
    equal(r.code, 1)
    contains(r.errors, "config.json")
    os.makedirs(env.home + "/xdg/space")
    json.dump({"url": env.gw.url, "key": "e2b_test"}, open(env.home + "/xdg/space/config.json", "w"))
    os.chmod(env.home + "/xdg/space/config.json", 0o600)
    env.ok("ls", env=dict(none, XDG_CONFIG_HOME=env.home + "/xdg"))


def nobody_answers(env):
    r = env.run("ls", env={"SPACE_URL": "http://127.0.0.1:1"})
    equal(r.code, 1)
    contains(r.errors, "space up")
    for url in ("http://", "ftp://x", "http://a b", ""):
        check(env.run("ls", "--url", url).code in (1, 2), url)


def mistakes_in_options(env):
    for args, part in [(["ls", "--jsn"], "did you mean '--json'"), (["ls", "-z"], "'-z'"), (["ls", "--limit"], "N"),
                       (["ls", "--limit", "x"], "number"), (["create", "-m", "12Q"], "512M"),
                       (["create", "--timeout", "soon"], "90s"), (["ls", "--json=1"], "no value"),
                       (["ls", "extra"], "too many"), (["info"], "missing"), (["lst"], "did you mean 'ls'"),
                       (["key", "mak"], "no 'key mak'"), (["--bogus", "ls"], "--bogus"),
                       (["ls", "-l", "novalue"], "NAME=VALUE")]:
        r = env.run(*args)
        check(r.code in (1, 2), "%s: %d" % (args, r.code))
        equal(r.out, b"", str(args))
        contains(r.errors, part)
    equal(env.run().code, 2)
    equal(env.run("key").code, 2)
    equal(env.run("--json", "ls", "--bogus").err[:9], b'{"error":')


def options_of_every_form(env):
    for args in (["create", "-m512", "-Ttiny"], ["create", "--memory=512", "--template=tiny"],
                 ["create", "--memory", "512M", "-T", "tiny"], ["--quiet", "create", "-q", "-T", "tiny", "-m", "512"]):
        o = env.gw.sandboxes[env.ok(*args).text.strip()].object
        equal((o["memory_mib"], o["template"]), (512, "tiny"), str(args))
    equal(json.loads(env.ok("--json", "ls").out)["next_cursor"], None)


def help_is_complete(env):
    verbs = json.loads(env.ok("help", "--json").out)["verbs"]
    check(len(verbs) > 20, "many verbs")
    overview = env.ok("help").text
    for v in verbs:
        contains(overview, "  " + v["name"])
        text = env.ok(*v["name"].split(), "--help").text
        equal(env.ok("help", *v["name"].split()).text, text)
        contains(text, "Usage: space " + v["name"])
        for o in v["options"]:
            contains(text, "--" + o["name"])
        for line in text.split("\n"):
            check(len(line) <= 100, "a long line: " + line)
    contains(env.ok("--help").text, "Usage")
    contains(env.ok("--version").text, "space 0")
    equal(list(json.loads(env.ok("version", "--json").out)), ["version"])
    contains(env.ok("key", "--help").text, "key create")


def man_options(text, verbs):
    """verb -> {option: (letter, value)} from the page's own words."""
    found = {}
    verb = None
    lines = text.split("\n")
    for i, line in enumerate(lines):
        m = re.match(r'\.SS "?space ([a-z]+(?: [a-z]+)?)', line)
        if m:
            verb = m.group(1)
            if verb not in verbs:
                verb = verb.split(" ")[0]
            found[verb] = {}
        elif line.startswith(".SH"):
            verb = None
        elif line == ".TP" and verb:
            head = re.sub(r"\\f[BIRP]", "", lines[i + 1]).replace("\\-", "-")
            head = re.sub(r"^\.[BIR]+ ", "", head).replace('"', "")
            m = re.match(r"(?:-(\w), )?--([a-z-]+)(?: (\S+))?$", head.strip())
            if m:
                found[verb][m.group(2)] = (m.group(1) or "", m.group(3))
    return found


def the_man_page_is_true(env):
    top = os.environ.get("SPACE_SOURCE") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
    text = open(os.path.join(top, "man/space.1"), encoding="utf-8").read()
    verbs = json.loads(env.ok("help", "--json").out)["verbs"]
    page = man_options(text, [v["name"] for v in verbs])
    equal(sorted(page), sorted(v["name"] for v in verbs), "the verbs of the page")
    shared = {"help", "json", "quiet", "url", "key"}
    plain = re.sub(r"\\f[BIRP]", "", text).replace("\\-", "-").replace("\\(aq", "'").replace("\\&", "")
    for v in verbs:
        table = {o["name"]: (o["letter"], o["value"]) for o in v["options"] if o["name"] not in shared}
        equal(page[v["name"]], table, "options of '%s' in the page" % v["name"])
        contains(plain, v["summary"][0].upper() + v["summary"][1:])
        for o in v["options"]:
            if o["name"] not in shared:
                contains(plain.replace("\n", " "), o["help"][0].upper() + o["help"][1:])
    for name in shared:
        contains(plain, "--" + name)
    for code in ("125", "126", "127"):
        contains(plain, code)


def completion_knows_the_table(env):
    script = env.ok("completion", "bash").text
    open(env.home + "/completion", "w").write(script)
    equal(subprocess.run(["bash", "-n", env.home + "/completion"]).returncode, 0)
    s = env.gw.add_sandbox()
    os.symlink(SPACE, env.home + "/space")

    def complete(*words):
        line = "source completion; COMP_WORDS=(%s); COMP_CWORD=%d; _space; printf '%%s\\n' \"${COMPREPLY[@]}\"" % (
            " ".join("'%s'" % w for w in words), len(words) - 1)
        p = subprocess.run(["bash", "-c", line], cwd=env.home, capture_output=True,
                           env=env.environ(PATH=env.home + ":" + os.environ["PATH"]))
        equal(p.stderr, b"")
        return p.stdout.decode().split()

    check({"ls", "run", "exec", "key"} <= set(complete("space", "")), "verbs")
    equal(complete("space", "ke"), ["key"])
    equal(sorted(complete("space", "key", "")), ["create", "ls", "rm"])
    contains(complete("space", "run", "--co"), "--copy-in")
    contains(complete("space", "key", "create", "--na"), "--name")
    equal(complete("space", "exec", ""), [s.id])


main([create_and_look, lists_of_any_length, the_start_of_an_id_is_enough, life_of_a_sandbox,
      commands_are_listed_and_ended, keys_are_made_and_revoked, logs_and_top, configuration, nobody_answers,
      mistakes_in_options, options_of_every_form, help_is_complete, the_man_page_is_true,
      completion_knows_the_table])
