# SPDX-License-Identifier: Apache-2.0
"""SSH with a key that the guest never sees: OpenSSH's client and git in the guest's namespace, OpenSSH's server in the internet's,
the network gateway between them. As root."""
import atexit

from netns import *  # pylint: disable=wildcard-import,unused-wildcard-import

GATEWAY, ISLAND, MANAGER = sys.argv[1:4]
FOLDER = tempfile.mkdtemp(prefix="space-ssh-")
os.chmod(FOLDER, 0o755)
HOST, GIT, RSA, ECDSA, FALSE, OTHER, PLAIN = ("%s.example.com" % n for n in
                                              ("host", "git", "rsa", "ecdsa", "false", "other", "plain"))
AT, OTHER_AT, PLAIN_AT, EVIL_AT = libinternet.SERVERS
NAMES = {HOST: [AT], GIT: [AT], RSA: [AT], ECDSA: [AT], FALSE: [EVIL_AT], OTHER: [OTHER_AT], PLAIN: [PLAIN_AT]}
POLICY = {"preset": "custom", "rules": [{"host": OTHER, "ports": "1-65535", "action": "deny"},
                                        {"host": "*.example.com", "ports": "1-65535", "action": "allow"}]}
SANITIZED = os.environ.get("SPACE_TEST_SLOWNESS", "1") != "1"


def path(*parts):
    return os.path.join(FOLDER, *parts)


def read(name):
    with open(name) as f:
        return f.read()


def make_key(name, kind="ed25519", bits=None):
    run("ssh-keygen", "-q", "-t", kind, *(["-b", bits] if bits else []), "-N", "", "-C", name, "-f", path(name))
    return read(path(name))


def public(name):
    return " ".join(read(path(name + ".pub")).split()[:2])


class Sshd:
    """A real server in the internet."""

    def __init__(self, net, name, address, port, keys):
        make_key(name)
        self.log_file = path(name + ".log")
        with open(path(name + ".allowed"), "w") as f:
            f.writelines(public(k) + "\n" for k in keys)
        with open(path(name + ".conf"), "w") as f:
            f.write("Port %d\nListenAddress %s\nHostKey %s\nAuthorizedKeysFile %s\nStrictModes no\nUsePAM no\n"
                    "PermitRootLogin yes\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nAcceptEnv GIT_PROTOCOL X\n"
                    "LogLevel DEBUG1\nPidFile none\nSubsystem sftp internal-sftp\n"
                    % (port, address, path(name), path(name + ".allowed")))
        os.makedirs("/run/sshd", exist_ok=True)
        self.process = subprocess.Popen(["nsenter", "--net=" + net.internet.path, shutil.which("sshd") or "/usr/sbin/sshd", "-D",
                                         "-f", path(name + ".conf"), "-E", self.log_file], stdin=subprocess.DEVNULL)
        atexit.register(self.stop)
        until(lambda: "Server listening" in self.log(), "sshd listens")

    def log(self):
        return read(self.log_file) if os.path.exists(self.log_file) else ""

    def stop(self):
        self.process.kill()
        self.process.wait()


class World:
    def __init__(self):
        self.keys = {"key": make_key("key"), "rsa-key": make_key("rsa-key", "rsa", "3072"),
                     "ecdsa-key": make_key("ecdsa-key", "ecdsa", "384"), "unknown": make_key("unknown")}
        self.manager = Manager(MANAGER, FOLDER, "--network-user", "daemon")
        atexit.register(self.manager.stop, "kill")
        self.net = Net(GATEWAY, FOLDER, None, NAMES)
        self.good = Sshd(self.net, "good", AT, 22, ["key", "rsa-key", "ecdsa-key"])
        self.false = Sshd(self.net, "false", EVIL_AT, 22, ["key"])
        self.plain = Sshd(self.net, "plain", PLAIN_AT, 22, ["key"])
        self.island = Island(self.net, ISLAND, SANDBOX, POLICY, path("none"))
        _, answer = self.manager.ask("GET", "/v1/authority?organisation=" + ORG)
        self.host_key = answer["ssh_host_key"]
        with open(path("known"), "w") as f:
            f.write("*.example.com %s\n" % self.host_key)
        self.add("for-host", HOST)
        self.add("for-git", GIT, commands=["git"])
        self.add("for-rsa", RSA, key="rsa-key")
        self.add("for-ecdsa", ECDSA, key="ecdsa-key")
        self.add("for-false", FALSE)
        self.add("for-other", OTHER)
        until(lambda: self.ssh("true").returncode == 0, "a login")

    def add(self, name, host, key="key", user="root", keys=None, commands=None, **more):
        inject = {"type": "ssh", "user": user, "host_keys": keys or [public("good")]}
        if commands:
            inject["commands"] = commands
        return self.manager.add(name, inject, value=self.keys[key], host=host, **dict({"port": 22}, **more))

    def command(self, *args, host=HOST, options=()):
        return ["ssh", "-F", "/dev/null", "-o", "UserKnownHostsFile=" + path("known"), "-o", "StrictHostKeyChecking=yes",
                "-o", "BatchMode=yes", "-o", "IdentityFile=/nonexistent", "-l", "root", *options, host, *args]

    def ssh(self, *args, host=HOST, options=(), **kw):
        return self.island.run(*self.command(*args, host=host, options=options), **kw)

    def close(self):
        self.manager.stop()
        for s in (self.good, self.false, self.plain):
            s.stop()
        return self.net.close()


W = None


def said(r, text):
    check(text in r.stderr.decode(), "not said %r but %r, status %d" % (text, r.stderr.decode()[-800:], r.returncode))


def entry(**want):
    found = []

    def there():
        found[:] = W.island.log_entries(kind="request", **want)
        return found
    until(there, "an entry in the log with %s" % want)
    return found[-1]


# ---- what works ----

def a_command_with_its_output_errors_and_status():
    r = W.ssh("cat; echo out; echo err >&2; exit 7", stdin=b"in\n")
    equal((r.stdout, r.stderr, r.returncode), (b"in\nout\n", b"err\n", 7))
    e = entry(path="cat")
    equal((e["method"], e["host"], e["port"], e["status"], e["credential"], e["action"]),
          ("SSH", HOST, 22, 7, "for-host", "allow"))
    use = W.manager.events(event="use", credential="for-host")[-1]
    equal((use["host"], use["port"], use["method"], use["path"], use["sandbox"]), (HOST, 22, "SSH", "root", SANDBOX))
    equal(W.ssh("kill -9 $$").returncode, 255)


def keys_of_each_kind():
    for host in (RSA, ECDSA):
        r = W.ssh("echo hello", host=host)
        equal((r.stdout, r.returncode), (b"hello\n", 0), host + r.stderr.decode())


def much_both_ways():
    n = 24 << 20
    r = W.ssh("head -c %d /dev/zero" % n)
    equal((len(r.stdout), r.returncode), (n, 0))
    r = W.ssh("wc -c", stdin=os.urandom(n))
    equal((r.stdout.strip(), r.returncode), (b"%d" % n, 0))
    data = os.urandom(8 << 20)
    r = W.ssh("cat", stdin=data)
    check(r.stdout == data, "%d bytes came back, or others" % len(r.stdout))
    down = [e["bytes_down"] for e in W.island.log_entries(kind="connection", host=HOST)]
    check(max(down) >= n, "the log's bytes: %s" % down)


def git_clones_and_pushes():
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "init.defaultBranch=main", "-c", "safe.directory=*"]
    env = W.island.environment(GIT_SSH_COMMAND=" ".join(W.command(host="")[:-1]), GIT_CONFIG_NOSYSTEM="1")
    run(*git, "init", "-q", "--bare", path("repo.git"))
    url = "ssh://root@%s%s" % (GIT, path("repo.git"))
    W.island.good(*git, "clone", "-q", url, path("work"), env=env)
    with open(path("work", "it's"), "wb") as f:
        f.write(os.urandom(3 << 20))
    for args in (["add", "."], ["commit", "-q", "-m", "x"], ["push", "-q", "origin", "HEAD:main"]):
        W.island.good(*git, "-C", path("work"), *args, env=env)
    W.island.good(*git, "clone", "-q", "-b", "main", url, path("again"), env=env)
    check(os.path.getsize(path("again", "it's")) == 3 << 20, "what was pushed does not come back")
    entry(path="git-receive-pack", credential="for-git")
    entry(path="git-upload-pack", credential="for-git")


def several_channels_on_one_connection():
    control = ["-o", "ControlPath=" + path("mux"), "-o", "ControlMaster=auto", "-o", "ControlPersist=20"]
    outs = []

    def one(i):
        outs.append(W.ssh("sleep 0.3; echo %d" % i, options=control).stdout)
    one(9)
    threads = [threading.Thread(target=one, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    equal(sorted(outs), [b"%d\n" % i for i in (0, 1, 2, 3, 4, 5, 9)])
    W.ssh(options=["-O", "exit", "-o", "ControlPath=" + path("mux")])


def a_shell_and_sftp_where_they_are_named():
    r = W.ssh("-tt", "tty", options=["-tt"])
    check(b"/dev/pts" not in r.stdout, "a terminal without being named")
    r = W.ssh(stdin=b"echo shell\n")
    said(r, "space: the credential 'for-host' does not allow '@shell'")
    equal(r.returncode, 255)
    made = W.add("shell", HOST, commands=["@shell", "@sftp"], scope="sandbox", sandbox=SANDBOX)
    try:
        r = W.ssh(stdin=b"echo $((40+2))\n", options=["-T"])
        equal((r.stdout, r.returncode), (b"42\n", 0), "a shell")
        r = W.ssh(stdin=b"tty; exit 3\n", options=["-tt"])
        check(b"/dev/pts" in r.stdout and r.returncode == 3, "a terminal: %s" % r)
        r = W.ssh("true")
        said(r, "does not allow 'true'")
        r = W.island.run("sftp", "-F", "/dev/null", "-o", "UserKnownHostsFile=" + path("known"), "-o", "BatchMode=yes", "-b", "-",
                         "root@" + HOST, stdin=b"get %s %s\n" % (path("known").encode(), path("fetched").encode()))
        equal((r.returncode, read(path("fetched"))), (0, read(path("known"))), "sftp: %s" % r)
    finally:
        W.manager.remove(made)
    r = W.ssh("-s", "sftp", options=["-s"])
    check(r.returncode != 0, "a subsystem without being named")


def a_guest_whose_client_asks_a_script():
    """As the daemon sets it up (trust.c): one key is anybody's, every other one is as unknown as it was."""
    with open(path("known-host"), "w") as f:
        f.write("#!/bin/sh\n[ \"$1 $2\" != \"%s\" ] || echo \"* $1 $2\"\n" % W.host_key)
    os.chmod(path("known-host"), 0o755)
    with open(path("config"), "w") as f:
        f.write("IgnoreUnknown KnownHostsCommand\nKnownHostsCommand %s %%t %%K\n" % path("known-host"))

    def ssh(host):
        return W.island.run("ssh", "-F", path("config"), "-o", "UserKnownHostsFile=/dev/null", "-o", "StrictHostKeyChecking=yes",
                            "-o", "BatchMode=yes", "-l", "root", host, "echo hello")
    equal(ssh(HOST).stdout, b"hello\n")
    r = ssh(PLAIN)
    said(r, "host key is known for " + PLAIN)
    check("CHANGED" not in r.stderr.decode(), "a host is taken for another: %s" % r.stderr)


# ---- what does not ----

def a_host_with_another_key_gets_nothing():
    uses = len(W.manager.events(event="use"))
    r = W.ssh("true", host=FALSE)
    said(r, "space: %s shows a host key that the credential 'for-false' does not name: SHA256:" % FALSE)
    equal(r.returncode, 255)
    equal(len(W.manager.events(event="use")), uses, "signatures")
    check("publickey" not in W.false.log().split("Server listening")[1].replace("methods", ""), "it was offered a key: " + W.false.log()[-600:])
    e = entry(host=FALSE)
    equal((e["action"], e["reason"]), ("deny", "host_key_mismatch"))


def commands_that_are_not_named():
    for command in ("true", "git-upload-pack '/x'; id", "git-upload-pack $(id)", "git-upload-pack `id`", "git-upload-pack '/x' && id",
                    "git-upload-pack '/x\n' | id", "git-upload-pack-x '/x'", "git upload-pack x", "/usr/bin/git-upload-pack x",
                    "'git-upload-pack' x", " git-upload-pack x", "git-upload-pack\nid"):
        r = W.ssh(command, host=GIT)
        said(r, "does not allow")
        equal((r.stdout, r.returncode), (b"", 255), command)


def forwarding_of_any_kind():
    r = W.ssh("-N", "-W", "127.0.0.1:22", options=["-W", "127.0.0.1:22"])
    check(r.returncode != 0 and b"SSH-2.0" not in r.stdout, "-W: %s" % r)
    r = W.ssh("true", options=["-R", "0:127.0.0.1:22", "-o", "ExitOnForwardFailure=yes"])
    check(r.returncode != 0, "-R")
    r = W.island.run("sh", "-c", "eval $(ssh-agent -s) >/dev/null; \"$@\"; kill $SSH_AGENT_PID", "sh",
                     *W.command("echo agent=$SSH_AUTH_SOCK display=$DISPLAY", options=["-A", "-X", "-o", "ForwardX11=yes"]))
    equal(r.stdout.strip(), b"agent= display=", "forwarding")
    r = W.ssh("echo x=$X", options=["-o", "SetEnv=X=1"])
    equal(r.stdout, b"x=\n", "a variable")


def another_user_and_a_policy_that_denies():
    r = W.island.run(*["daemon" if a == "root" else a for a in W.command("true")])
    said(r, "space: the credential 'for-host' logs in as 'root', not as 'daemon'")
    r = W.ssh("true", host=OTHER)
    equal(r.returncode, 255)
    check("space:" not in r.stderr.decode(), "it was let in")
    W.island.set_policy({"preset": "custom", "rules": [{"host": OTHER, "ports": "443", "action": "allow"}]})
    r = W.ssh("true", host=OTHER)  # its name is looked up now
    W.island.set_policy(POLICY)
    equal((r.returncode, b"space:" in r.stderr), (255, False))
    entries = W.island.log_entries(kind="connection", host=OTHER, port=22)
    equal([e["action"] for e in entries], ["deny"])


def without_a_credential_it_is_passed_on_as_it_is():
    with open(path("known-plain"), "w") as f:
        f.write("%s %s\n" % (PLAIN, public("plain")))
    command = [a.replace(path("known"), path("known-plain")).replace("/nonexistent", path("key")) for a in W.command("echo own", host=PLAIN)]
    r = W.island.run(*command)
    equal((r.stdout, r.returncode), (b"own\n", 0), r.stderr.decode())


def a_credential_that_has_ended_or_is_used_up():
    made = W.add("short", PLAIN, keys=[public("plain")], expires_at_ms=int(time.time() * 1000) + 3000)
    until(lambda: b"space:" in W.ssh("true", host=PLAIN).stderr or W.manager.events(event="use", credential="short"), "it is wanted")
    p = subprocess.Popen(W.island.command(*W.command("sleep 60", host=PLAIN)), stdin=subprocess.DEVNULL, env=W.island.environment(),
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    check(p.wait(WAIT_S) != 0, "it goes on after its time")
    said(W.ssh("true", host=PLAIN), "space: the credential 'short' has expired")
    W.manager.remove(made)
    made = W.add("few", PLAIN, keys=[public("plain")], rate={"uses": 1, "per_s": 3600})
    until(lambda: W.manager.events(event="use", credential="few") or not W.ssh("true", host=PLAIN), "its one use")
    said(W.ssh("true", host=PLAIN), "space: the credential 'few' may be used 1 times in 3600 seconds")
    check(W.manager.events(event="refuse", credential="few", reason="credential_rate"), "no row of the refusal")
    W.manager.remove(made)
    made = W.add("stranger", PLAIN, key="unknown", keys=[public("plain")])
    until(lambda: b"does not let 'root' in with the credential 'stranger'" in W.ssh("true", host=PLAIN).stderr, "it is refused by the host")
    W.manager.remove(made)


def one_that_is_revoked_or_rotated_ends_what_is_open():
    for how in ("remove", "rotate", "policy"):
        made = W.add("going", HOST, scope="sandbox", sandbox=SANDBOX)
        until(lambda: W.ssh("true").returncode == 0 and W.manager.events(event="use", credential_id=made["id"]), "it is used")
        p = subprocess.Popen(W.island.command(*W.command("echo begun; sleep 60")), stdin=subprocess.DEVNULL,
                             env=W.island.environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        equal(p.stdout.readline(), b"begun\n")
        if how == "rotate":
            W.manager.change(made, value=W.keys["rsa-key"])
        elif how == "policy":
            W.island.set_policy({"preset": "none"})
        else:
            W.manager.remove(made)
        check(p.wait(WAIT_S) != 0, "it goes on after: " + how)
        W.island.set_policy(POLICY)
        if how != "remove":
            W.manager.remove(made)


def garbage_and_silence():
    out = W.island.python("""import socket, os, sys
for first in (b'GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n', os.urandom(100000), b'SSH-2.0-x\\r\\n' + os.urandom(5000), b'SSH-2.0-' + b'A' * 100000,
              b'\\x16\\x03\\x01' + os.urandom(300), b'SSH-1.5-old\\r\\n'):
    s = socket.create_connection((sys.argv[1], 22), timeout=20)
    try:
        s.sendall(first)
        s.shutdown(socket.SHUT_WR)
        while s.recv(65536):
            pass
    except (ConnectionResetError, BrokenPipeError):
        pass
    s.close()
idle = [socket.create_connection((sys.argv[1], 22), timeout=20) for _ in range(20)]
assert all(s.recv(8) == b'SSH-2.0-' for s in idle)
print('done')""", HOST, timeout=6 * WAIT_S)
    equal(out, "done\n")
    equal(W.ssh("echo still").stdout, b"still\n")
    check(W.net.process.poll() is None, "the gateway is gone")


def ends():
    return [d for d in os.listdir("/proc") if d.isdigit() and comm(d) == "space-ssh-end" and parent(d) == gateway_pid()]


def memory_mib(pid):
    with open("/proc/%s/status" % pid) as f:
        return sum(int(line.split()[1]) for line in f if line.startswith("VmRSS")) / 1024


def a_sandbox_has_so_many_connections():
    until(lambda: not ends(), "the last connections are over")
    out = W.island.python("""import socket, sys
conns = []
for _ in range(60):
    try:
        conns.append(socket.create_connection((sys.argv[1], 22), timeout=20))
    except ConnectionResetError:
        pass
had = 0
for c in conns:
    try:
        had += c.recv(8) == b'SSH-2.0-'
    except ConnectionResetError:
        pass
print(had)""", HOST, timeout=6 * WAIT_S)
    equal(out, "32\n", "connections that were served")
    until(lambda: W.ssh("echo again").stdout == b"again\n", "there is room again")


def who_does_not_read_holds_the_sender_up():
    """In both directions, also where it reads slowly: what waits is in the windows of the channel, and in no heap of ours."""
    until(lambda: not ends(), "the last connections are over")
    sender = subprocess.Popen(W.island.command(*W.command("head -c 300000000 /dev/zero")), stdin=subprocess.DEVNULL,
                              env=W.island.environment(), stdout=subprocess.PIPE)
    equal(sender.stdout.read(4), bytes(4))
    other = subprocess.Popen(W.island.command(*W.command("sleep 60")), stdin=open("/dev/zero", "rb"),
                             env=W.island.environment(), stdout=subprocess.PIPE)
    slow = subprocess.Popen(W.island.command(*W.command("read x; sleep 60")), stdin=open("/dev/zero", "rb"),  # byte by byte
                            env=W.island.environment(), stdout=subprocess.PIPE)
    until(lambda: len(ends()) == 3, "the connections")
    end = time.monotonic() + 3
    until(lambda: time.monotonic() > end, "three seconds of it")
    check(max(memory_mib(pid) for pid in ends()) < (400 if SANITIZED else 40), "who reads slowly: memory")
    slow.kill()
    slow.wait()
    until(lambda: len(ends()) == 2, "it is gone")
    read_so_far = []

    def stands_still():
        read_so_far.append(sum(int(read("/proc/%s/io" % pid).split()[1]) for pid in ends()))
        return len(read_so_far) > 50 and len(set(read_so_far[-50:])) == 1
    until(stands_still, "nothing more is read")
    most = max(memory_mib(pid) for pid in ends())
    check(most < (400 if SANITIZED else 40), "%.1f MiB" % most)
    for p in (sender, other):
        p.kill()
        p.wait()


def the_end_of_a_connection_holds_little():
    r = subprocess.Popen(W.island.command(*W.command("echo begun; sleep 5")), stdin=subprocess.DEVNULL,
                         env=W.island.environment(), stdout=subprocess.PIPE)
    equal(r.stdout.readline(), b"begun\n")
    check(ends(), "there is no such process")
    for pid in ends():
        check("libasan" in read("/proc/%s/maps" % pid) or "Seccomp:\t2" in read("/proc/%s/status" % pid), "its system calls are not limited")
        fds = [os.readlink("/proc/%s/fd/%s" % (pid, fd)) for fd in os.listdir("/proc/%s/fd" % pid)]
        check(all(not f.startswith("/") or f in ("/dev/null",) or FOLDER in f for f in fds), "it has files: %s" % fds)
    r.kill()
    r.wait()


def comm(pid):
    try:
        return read("/proc/%s/comm" % pid).strip()
    except OSError:
        return ""


def parent(pid):
    try:
        return int(read("/proc/%s/stat" % pid).rpartition(")")[2].split()[1])
    except OSError:
        return 0


def gateway_pid():
    return W.net.process.pid


def the_key_is_nowhere():
    """Neither in a log nor in the memory of the gateway or of the guest's side."""
    secret = "".join(W.keys["key"].split("\n")[4:-2])[:40]
    raw = base64.b64decode("".join(W.keys["key"].split("\n")[1:-2]))
    at = raw.index(b"ssh-ed25519", raw.index(b"ssh-ed25519") + 1) + 11 + 4 + 32 + 4
    seed = raw[at:at + 32]
    for folder, _, files in os.walk(FOLDER):
        for name in files:
            if name in W.keys or not os.path.isfile(os.path.join(folder, name)):
                continue
            with open(os.path.join(folder, name), "rb") as f:
                data = f.read()
            check(seed not in data and secret.encode() not in data, "the key is in " + name)
    maps = read("/proc/%d/maps" % gateway_pid()).split("\n")
    with open("/proc/%d/mem" % gateway_pid(), "rb") as mem:
        for line in maps:
            if " rw" in line:
                begin, end = (int(x, 16) for x in line.split()[0].split("-"))
                if end - begin > 1 << 30:  # a sanitizer's
                    continue
                try:
                    mem.seek(begin)
                    data = mem.read(end - begin)
                except (OSError, ValueError, OverflowError):
                    continue
                check(seed not in data, "the key is in the gateway's memory")
    check("PRIVATE KEY" not in json.dumps(W.manager.as_actor("/v1/credentials/list")[1]), "the list shows it")


def only_logins_are_signed():
    def string(b):
        return len(b).to_bytes(4, "big") + b
    key = base64.b64decode(public("key").split()[1])

    def login(user=b"root", service=b"ssh-connection", method=b"publickey", blob=key, session=b"s" * 32):
        return (string(session) + b"\x32" + string(user) + string(service) + string(method) + b"\x01" + string(b"ssh-ed25519")
                + string(blob))
    def ask(data):
        r = subprocess.run(["setpriv", "--reuid=daemon", "--clear-groups", sys.executable, "-B", "-c", """import http.client, socket, sys
c = http.client.HTTPConnection('localhost')
c.sock = socket.socket(socket.AF_UNIX)
c.sock.connect(sys.argv[1])
c.request('POST', '/v1/ssh/sign', sys.argv[2], {'Content-Type': 'application/json'})
print(c.getresponse().status)""", W.manager.path, json.dumps(
            {"organisation": ORG, "project": PROJECT, "sandbox": SANDBOX, "host": HOST, "port": 22,
             "data": base64.b64encode(data).decode()})], capture_output=True, check=False)
        return r.stdout.decode().strip() or r.stderr.decode()
    equal(ask(login()), "200")
    for bad in (b"anything", login(user=b"admin"), login(service=b"x"), login(method=b"hostbased"), login(blob=key[:-1] + b"x"),
                login(session=b""), login() + b"x", login()[:-1]):
        equal(ask(bad), "403", repr(bad))
    equal(W.manager.ask("POST", "/v1/ssh/sign", {})[0], 403, "not for root")


def the_end_of_the_gateway_is_the_end_of_all():
    p = subprocess.Popen(W.island.command(*W.command("echo begun; sleep 60")), stdin=subprocess.DEVNULL,
                         env=W.island.environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    equal(p.stdout.readline(), b"begun\n")
    pids = ends()
    check(pids, "there is no process")
    W.net.process.kill()
    W.net.process.wait()
    check(p.wait(WAIT_S) != 0, "it goes on")
    until(lambda: not any(comm(pid) == "space-ssh-end" for pid in pids), "the process has ended")
    W.net.start()


CASES = [a_guest_whose_client_asks_a_script, a_command_with_its_output_errors_and_status, keys_of_each_kind, much_both_ways, git_clones_and_pushes,
         several_channels_on_one_connection, a_shell_and_sftp_where_they_are_named, a_host_with_another_key_gets_nothing,
         commands_that_are_not_named, forwarding_of_any_kind, another_user_and_a_policy_that_denies,
         without_a_credential_it_is_passed_on_as_it_is, a_credential_that_has_ended_or_is_used_up,
         one_that_is_revoked_or_rotated_ends_what_is_open, garbage_and_silence, a_sandbox_has_so_many_connections, who_does_not_read_holds_the_sender_up, the_end_of_a_connection_holds_little,
         only_logins_are_signed, the_key_is_nowhere,
         the_end_of_the_gateway_is_the_end_of_all]


def main():
    global W  # pylint: disable=global-statement
    missing = [p for p in ("ssh", "sshd", "git") if not shutil.which(p) and not os.path.exists("/usr/sbin/" + p)]
    if os.geteuid() != 0 or missing:
        print("1..0 # SKIP " + ("there is no " + missing[0] if missing else "needs root"))
        return 1 if os.environ.get("MUST_WORK") == "1" else 0
    atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
    result = 1
    W = World()
    try:
        result = run_all(CASES)
    finally:
        code = W.close()
        for log in ("gateway.log", "manager.log", "good.log") if os.environ.get("SPACE_TEST_KEEP") else ():
            shutil.copy(path(log), os.environ["SPACE_TEST_KEEP"])
        if code != 0:
            print("# the network gateway ended with %d" % code)
            result = 1
    return result


if __name__ == "__main__":
    sys.exit(main())
