# SPDX-License-Identifier: Apache-2.0
"""up, down, status, doctor: the supervisor with small services that are killed, deaf, or will not end."""
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time

from harness import Failed, Skip, check, contains, equal, main, until, WAIT_S

PROGRAMS = ("space-setup", "space-node-manager", "space-sandbox-manager", "space-credential-manager",
            "space-volume-manager", "space-network-gateway", "space-gateway")
SERVICES = ("node manager", "sandbox manager", "credential manager", "volume manager", "network gateway", "gateway")


class Host:
    """Folders of its own, services of its own."""

    def __init__(self, env):
        if os.geteuid() != 0:
            raise Skip("only root can 'space up'")
        self.env = env
        self.libexec = env.home + "/libexec"
        self.run_dir = env.home + "/run"
        self.state = env.home + "/state"
        for d in (self.libexec, self.run_dir, self.state + "/gateway"):
            os.makedirs(d)
        os.chmod(env.home, 0o755)
        os.chmod(self.run_dir, 0o777)
        fake = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fakeservice.py")
        body = open(fake).read().split("\n", 1)[1]
        for p in PROGRAMS:
            # The services' PATH is the system's own; say which python3 runs the tests.
            with open(self.libexec + "/" + p, "w") as f:
                f.write("#!%s -B\n%s" % (os.path.realpath(sys.executable), body))
            os.chmod(self.libexec + "/" + p, 0o755)
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.listen = "127.0.0.1:%d" % s.getsockname()[1]

    def args(self):
        return ["--run-dir", self.run_dir, "--state-dir", self.state]

    def up_args(self, *more):
        return ["up", *self.args(), "--listen", self.listen, "--libexec-dir", self.libexec, "--log-dir",
                self.env.home + "/log", "--gateway-user", "root", "--sandbox-user", "root", "--credential-user",
                "root", "--volume-user", "root", "--network-user", "root", *more]

    def how(self, program, **how):
        json.dump(how, open(self.run_dir + "/test-%s.json" % program, "w"))

    def starts(self, program):
        try:
            return [int(l.split()[0]) for l in open(self.run_dir + "/test-%s.log" % program)]
        except FileNotFoundError:
            return []

    def status(self):
        return json.loads(self.env.run("status", "--json", *self.args()).out)

    def supervisor(self):
        return int(open(self.run_dir + "/up.lock").read())

    def down(self):
        self.env.run("down", *self.args())


def running(pid):
    try:
        return open("/proc/%d/stat" % pid).read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def ns_popen(env, *args):
    """`space` where root's home is another one, so that the real configuration of root is left alone."""
    import harness
    home = env.home + "/roothome"
    os.makedirs(home, exist_ok=True)
    with open(env.home + "/passwd", "w") as f:
        f.write("root:x:0:0:root:%s:/bin/sh\n" % home)
    script = "mount --bind \"$0\" /etc/passwd && exec \"$@\""
    return subprocess.Popen(["unshare", "-m", "sh", "-c", script, env.home + "/passwd", harness.SPACE, *args], cwd="/",
                            env=env.environ(SPACE_URL=None, SPACE_API_KEY=None), stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def ns_run(env, *args, code=0):
    p = ns_popen(env, *args)
    try:
        out, err = p.communicate(timeout=WAIT_S)
    except subprocess.TimeoutExpired:
        p.kill()
        raise Failed("space %s does not end: %r" % (args[0], p.communicate()))
    if b"Sanitizer" in err:
        raise Failed(err.decode()[-3000:])
    if code is not None and p.returncode != code:
        raise Failed("space %s ended with %d: %r" % (args[0], p.returncode, err))
    return p.returncode, out.decode(), err.decode()


def with_host(case):
    def run(env):
        host = Host(env)
        try:
            case(env, host)
        finally:
            host.down()
    run.__name__ = case.__name__
    return run


@with_host
def up_starts_all_and_says_so(env, host):
    _, out, err = ns_run(env, *host.up_args("--detach"))
    equal(out.strip(), "e2b_" + "1" * 40, "the first key")
    for name in SERVICES + ("users, folders, pool", "key"):
        contains(err, name)
    contains(err, "http://" + host.listen)
    path = env.home + "/roothome/.config/space/config.json"
    equal(json.load(open(path)), {"url": "http://" + host.listen, "key": "e2b_" + "1" * 40})
    equal(stat.S_IMODE(os.stat(path).st_mode), 0o600)
    s = host.status()
    equal((s["up"], s["healthy"], s["node"]["accel"]), (True, True, "tcg"))
    equal([x["name"] for x in s["services"]], list(SERVICES))
    check(all(x["pid"] > 0 and x["restarts"] == 0 for x in s["services"]), str(s))
    contains(env.ok("status", *host.args()).text, "SPACE is up")


@with_host
def up_twice_is_well(env, host):
    ns_run(env, *host.up_args("--detach"))
    starts = [host.starts(p) for p in PROGRAMS]
    _, out, err = ns_run(env, *host.up_args("--detach"))
    contains(err, "up already")
    equal(out, "")
    _, out, _ = ns_run(env, *host.up_args("--detach", "--json"))
    equal(json.loads(out)["already_up"], True)
    equal([host.starts(p) for p in PROGRAMS], starts, "nothing was started again")


@with_host
def a_known_key_is_kept(env, host):
    ns_run(env, *host.up_args("--detach"))
    host.down()
    _, out, _ = ns_run(env, *host.up_args("--detach"))
    equal(out, "")
    equal(len([1 for l in open(host.run_dir + "/test-space-gateway.log") if "create-key" in l]), 1)


@with_host
def a_killed_service_is_started_again(env, host):
    ns_run(env, *host.up_args("--detach"))
    for program in PROGRAMS[1:]:
        before = host.starts(program)
        os.kill(before[-1] if program != "space-gateway" else before[0], signal.SIGKILL)
        until(lambda: len(host.starts(program)) > len(before), program + " starts again")
    until(lambda: host.status()["healthy"], "all is well again")
    equal([s["restarts"] for s in host.status()["services"]], [1] * len(SERVICES))
    contains(open(env.home + "/log/space-up.log").read(), "SIGKILL")


@with_host
def a_service_that_ends_again_and_again_waits_longer(env, host):
    ns_run(env, *host.up_args("--detach"))
    host.how("space-gateway", exit=3)
    before = len(host.starts("space-gateway"))
    os.kill(host.starts("space-gateway")[0], signal.SIGKILL)
    until(lambda: len(host.starts("space-gateway")) >= before + 4, "several starts")
    waits = [l for l in open(env.home + "/log/space-up.log") if "starting it again in" in l]
    times = [int(l.split("starting it again in ")[1].split()[0]) for l in waits]
    equal(times[:4], [200, 400, 800, 1600])
    s = host.status()
    equal(s["healthy"], False)
    equal(env.run("status", *host.args()).code, 1)
    os.unlink(host.run_dir + "/test-space-gateway.json")
    until(lambda: host.status()["healthy"], "all is well again")


@with_host
def down_ends_all(env, host):
    ns_run(env, *host.up_args("--detach"))
    pids = [x["pid"] for x in host.status()["services"]] + [host.supervisor()]
    r = env.ok("down", *host.args())
    contains(r.errors, "sandboxes go on running")
    check(not any(running(p) for p in pids), "a process is left")
    equal(env.run("status", *host.args()).code, 1)
    r = env.ok("down", *host.args())
    contains(r.errors, "not up")
    check(not os.path.exists(host.run_dir + "/test-posts.log"), "no sandbox was stopped")


@with_host
def down_all_stops_the_sandboxes(env, host):
    ns_run(env, *host.up_args("--detach"))
    env.ok("down", "--all", *host.args())
    equal(open(host.run_dir + "/test-posts.log").read(), "".join("/v1/sandboxes/s%s/stop\n" % (str(n) * 19) for n in (0, 2, 4)))


@with_host
def the_death_of_the_supervisor_leaves_nothing(env, host):
    ns_run(env, *host.up_args("--detach"))
    pids = [x["pid"] for x in host.status()["services"]]
    os.kill(host.supervisor(), signal.SIGKILL)
    until(lambda: not any(running(p) for p in pids), "the services end with it")
    equal(host.status()["up"], False)
    ns_run(env, *host.up_args("--detach"))
    equal(host.status()["healthy"], True)


@with_host
def a_failure_at_start_is_explained_and_undone(env, host):
    host.how("space-sandbox-manager", exit=4)
    _, _, err = ns_run(env, *host.up_args("--detach"), code=1)
    for part in ("sandbox manager", "ended with code 4", "told to fail with 4", env.home + "/log"):
        contains(err, part)
    check(not running(host.starts("space-node-manager")[-1]), "the node manager is left")
    equal(host.status()["up"], False)
    host.how("space-setup", exit=1)
    _, _, err = ns_run(env, *host.up_args("--detach"), code=1)
    contains(err, "told to fail with 1")
    os.unlink(host.libexec + "/space-setup")
    _, _, err = ns_run(env, *host.up_args("--detach", "--json"), code=1)
    contains(json.loads(err.strip().split("\n")[-1])["error"]["message"], "space-setup")


@with_host
def a_taken_port_is_named(env, host):
    with socket.socket() as s:
        s.bind(("127.0.0.1", int(host.listen.split(":")[1])))
        s.listen()
        _, _, err = ns_run(env, *host.up_args("--detach"), code=1)
        contains(err, host.listen)
        contains(err, "--listen")
    equal(host.starts("space-setup"), [], "nothing was touched")
    for bad in ("nonsense:port:x", "999.1.1.1:80", "unix:/x"):
        _, _, err = ns_run(env, *host.up_args("--detach", "--listen", bad), code=1)
        contains(err, bad)


@with_host
def in_the_foreground_a_signal_ends_it(env, host):
    p = ns_popen(env, *host.up_args())
    until(lambda: host.starts("space-gateway") and host.status()["healthy"], "it is up")
    key = p.stdout.readline()
    equal(key, b"e2b_" + b"1" * 40 + b"\n")
    pids = [x["pid"] for x in host.status()["services"]]
    p.send_signal(signal.SIGINT)
    equal(p.wait(WAIT_S), 0)
    check(not any(running(x) for x in pids), "a service is left")
    p.stdout.close()
    p.stderr.close()


@with_host
def interrupted_at_the_start_it_leaves_nothing(env, host):
    host.how("space-sandbox-manager", deaf=True)
    p = ns_popen(env, *host.up_args())
    until(lambda: host.starts("space-sandbox-manager"), "it waits")
    p.send_signal(signal.SIGTERM)
    equal(p.wait(WAIT_S), 1)
    check(not running(host.starts("space-sandbox-manager")[0]), "a service is left")
    check(not running(host.starts("space-node-manager")[0]), "a service is left")
    p.stdout.close()
    p.stderr.close()


def not_root_is_told(env):
    if os.geteuid() != 0:
        raise Skip("the tests themselves must be root to become somebody else")
    import harness
    r = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", harness.SPACE, "up"],
                       capture_output=True, cwd="/", env={"PATH": os.environ["PATH"]})
    if r.returncode == 127 or b"failed to execute" in r.stderr:
        raise Skip("the program cannot be read by others here")
    equal(r.returncode, 1)
    contains(r.stderr.decode(), "sudo space up")


@with_host
def a_run_dir_too_long_for_sockets_is_told(env, host):
    at_most = 107 - len("/m/" + 20 * "x" + "/channel")
    base = env.home + "/long/"
    for n in (at_most + 1, at_most + 40):
        host.run_dir = base + "x" * (n - len(base))
        _, out, err = ns_run(env, *host.up_args("--detach"), code=1)
        contains(err, "--run-dir is %d bytes too long" % (n - at_most))
        check(not os.path.exists(base), "nothing was made")
    host.run_dir = base + "x" * (at_most - len(base))
    os.makedirs(host.run_dir)
    ns_run(env, *host.up_args("--detach"))


def doctor_checks(env):
    args = ["--run-dir", env.home + "/run", "--state-dir", env.home + "/state", "--libexec-dir", env.home]
    r = env.run("doctor", "--json", *args)
    o = json.loads(r.out)
    names = [c["check"] for c in o["checks"]]
    for name in ("kernel", "btrfs", "loop", "tun", "namespaces", "seccomp", "cgroups", "qemu", "kvm", "memory", "disk", "network",
                 "clock", "programs", "templates", "port", "services", "key"):
        check(name in names, name)
    for c in o["checks"]:
        check(c["level"] in ("ok", "warn", "fail"), str(c))
        equal(c["fix"] is None, c["level"] == "ok", str(c))
    by = {c["check"]: c for c in o["checks"]}
    equal((by["programs"]["level"], o["ok"], r.code), ("fail", False, 1))
    r = env.run("doctor", *args)
    equal(r.code, 1)
    contains(r.text, "there is no program")
    os.makedirs(env.home + "/rel")
    by = {c["check"]: c for c in json.loads(env.run("doctor", "--json", "--run-dir", "rel").out)["checks"]}
    contains(by["paths"]["message"], env.home + "/rel")
    long = env.home + "/" + "x" * 100
    by = {c["check"]: c for c in json.loads(env.run("doctor", "--json", "--run-dir", long).out)["checks"]}
    equal(by["paths"]["level"], "fail")
    contains(by["paths"]["message"], "bytes too long")


main([up_starts_all_and_says_so, up_twice_is_well, a_known_key_is_kept, a_killed_service_is_started_again,
      a_service_that_ends_again_and_again_waits_longer, down_ends_all, down_all_stops_the_sandboxes,
      the_death_of_the_supervisor_leaves_nothing, a_failure_at_start_is_explained_and_undone, a_taken_port_is_named,
      in_the_foreground_a_signal_ends_it, interrupted_at_the_start_it_leaves_nothing, not_root_is_told,
      a_run_dir_too_long_for_sockets_is_told, doctor_checks])
