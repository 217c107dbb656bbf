# SPDX-License-Identifier: Apache-2.0
"""The network gateway alone, between namespaces, without a guest:

    "guest" ── tap ── island (island-on-host) ══ sockets ══ space-network-gateway in "node" ── veth ── "internet"

Servers of the internet run in the test's process, on sockets that were made in there; a name server keeps a log of what it
was asked, and another thread one of every packet that is neither TCP nor a question. Root only."""
import atexit
import ctypes
import threading

from harness import *  # pylint: disable=wildcard-import,unused-wildcard-import

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "e2e"))
import libinternet  # pylint: disable=wrong-import-position

CLONE_NEWNET = 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)
NODE_END = libinternet.HOST_END
NET = libinternet.NET
SEQPACKET_MAX = 1 << 18


def run(*args):
    r = subprocess.run(args, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    check(r.returncode == 0, "%s: %s" % (" ".join(args), r.stderr.decode()))


def setns(path):
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if LIBC.setns(fd, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns " + path)
    finally:
        os.close(fd)


class Namespace:
    """One with a name, so that ip(8) finds it."""

    def __init__(self, word):
        self.name = "space-%s-%d" % (word, os.getpid())
        self.path = "/run/netns/" + self.name
        run("ip", "netns", "add", self.name)
        atexit.register(self.close)
        self.ip("link", "set", "lo", "up")

    def ip(self, *args):
        run("ip", "-n", self.name, *args)

    def call(self, fn, *args):
        """In a thread that is in there; what it makes stays in there."""
        out = []

        def work():
            try:
                setns(self.path)
                out.append((fn(*args), None))
            except BaseException as e:  # pylint: disable=broad-except
                out.append((None, e))
        t = threading.Thread(target=work)
        t.start()
        t.join()
        if out[0][1]:
            raise out[0][1]
        return out[0][0]

    def listen(self, address, port):
        return self.call(lambda: socket.create_server((address, port), backlog=1024))

    def close(self):
        subprocess.run(["ip", "netns", "del", self.name], check=False, capture_output=True)


class Net:
    """All of it but the guests."""

    def __init__(self, gateway, folder, upstream_ca, names, workers=2):
        self.folder = folder
        self.node = Namespace("node")
        self.internet = Namespace("net")
        self.islands = []
        self.node.ip("link", "add", "wan0", "type", "veth", "peer", "name", "up0", "netns", self.internet.name)
        self.node.ip("addr", "add", NODE_END + "/24", "dev", "wan0")
        self.node.ip("link", "set", "wan0", "up")
        for address in [libinternet.RESOLVER] + libinternet.SERVERS:
            self.internet.ip("addr", "add", address + "/24", "dev", "up0")
        self.internet.ip("link", "set", "up0", "up")
        self.log_file = os.path.join(folder, "internet.log")
        libinternet._log = open(self.log_file, "a")  # pylint: disable=protected-access
        self.names_file = os.path.join(folder, "names.json")
        with open(self.names_file, "w") as f:
            json.dump(names, f)
        self.internet.call(libinternet.serve_dns, self.names_file)
        threading.Thread(target=self.watch, daemon=True).start()
        self.run_dir = os.path.join(folder, "run")
        own = os.path.join(self.run_dir, "network")
        os.makedirs(own, exist_ok=True)
        self.user = pwd.getpwnam("daemon")
        os.chown(own, self.user.pw_uid, self.user.pw_gid)
        self.socket = os.path.join(own, "gateway.sock")
        self.state_dir = os.path.join(folder, "egress")
        os.makedirs(self.state_dir, mode=0o700)
        os.chown(self.state_dir, self.user.pw_uid, self.user.pw_gid)
        self.gateway_log = open(os.path.join(folder, "gateway.log"), "ab")
        self.args = ["nsenter", "--net=" + self.node.path, "setpriv", "--reuid=%d" % self.user.pw_uid,
                     "--regid=%d" % self.user.pw_gid, "--clear-groups", gateway, "--state-dir", self.state_dir,
                     "--run-dir", self.run_dir, "--peer-user",
                     "root", "--resolver", libinternet.RESOLVER, "--workers", str(workers)]
        if upstream_ca:
            self.args += ["--upstream-ca", upstream_ca]
        self.process = None
        self.start()

    def watch(self):
        try:
            setns(self.internet.path)
            libinternet.watch_packets()
        except OSError:
            pass

    def start(self):
        self.process = subprocess.Popen(self.args, stdin=subprocess.DEVNULL, stdout=self.gateway_log, stderr=self.gateway_log)
        atexit.register(self.process.kill)
        until(self.answers, "the network gateway answers")

    def answers(self):
        check(self.process.poll() is None, "the network gateway has ended: " + open(self.gateway_log.name).read()[-2000:])
        try:
            self.ask(op="totals")
            return True
        except OSError:
            return False

    def ask(self, **request):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            s.settimeout(WAIT_S)
            s.connect(self.socket)
            s.sendall(json.dumps(request).encode())
            return json.loads(s.recv(SEQPACKET_MAX))

    def internet_log(self, kind):
        with open(self.log_file) as f:
            return [line.split()[1:] for line in f if line.split()[:1] == [kind]]

    def close(self):
        for island in self.islands:
            island.close()
        self.process.terminate()
        code = self.process.wait(WAIT_S)
        self.node.close()
        self.internet.close()
        return code


class Island:
    """One sandbox: a namespace as its guest."""

    def __init__(self, net, program, sandbox, policy, ca_file, owner=(PROJECT, ORG)):
        self.net = net
        self.sandbox = sandbox
        self.ca_file = ca_file
        self.guest = Namespace("guest%d" % len(net.islands))
        net.islands.append(self)
        self.log = open(os.path.join(net.folder, "island.log"), "ab")
        self.process = subprocess.Popen([program, self.guest.path, net.socket, sandbox, *owner, json.dumps(policy)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log)
        line = self.process.stdout.readline()
        check(line == b"ready\n", "the island does not come up: " + open(self.log.name).read()[-2000:])
        self.guest.ip("link", "set", "eth0", "address", "02:53:50:00:00:02")
        self.guest.ip("addr", "add", "10.0.0.2/30", "dev", "eth0")
        self.guest.ip("link", "set", "eth0", "up")
        self.guest.ip("route", "add", "default", "via", "10.0.0.1")
        self.resolv = os.path.join(net.folder, "resolv.conf")
        with open(self.resolv, "w") as f:
            f.write("nameserver 10.0.0.1\n")

    def set_policy(self, policy):
        answer = self.net.ask(op="policy", sandbox=self.sandbox, policy=policy)
        check("error" not in answer, "setting the policy: %s" % answer)

    def log_entries(self, **want):
        entries = self.net.ask(op="log", sandbox=self.sandbox)["entries"]
        return [e for e in entries if all(e.get(k) == v for k, v in want.items())]

    def command(self, *args):
        return ["nsenter", "--net=" + self.guest.path, "unshare", "--mount", "--propagation", "private", "sh", "-c",
                "mount --bind %s /etc/resolv.conf && exec \"$@\"" % self.resolv, "sh", *args]

    def environment(self, **more):
        """A guest's: our authority where programs look for it, nothing of the test's own."""
        return dict({"PATH": os.environ["PATH"], "HOME": self.net.folder, "LC_ALL": "C.UTF-8", "SSL_CERT_FILE": self.ca_file,
                     "REQUESTS_CA_BUNDLE": self.ca_file, "NODE_EXTRA_CA_CERTS": self.ca_file, "CURL_CA_BUNDLE": self.ca_file,
                     "GIT_SSL_CAINFO": self.ca_file, "GIT_TERMINAL_PROMPT": "0"}, **more)

    def run(self, *args, stdin=b"", timeout=3 * WAIT_S, env=None):
        return subprocess.run(self.command(*args), input=stdin, capture_output=True, check=False, timeout=timeout,
                              env=env or self.environment())

    def good(self, *args, **kw):
        r = self.run(*args, **kw)
        check(r.returncode == 0, "%s ended with %d: %s %s" % (args, r.returncode, r.stdout.decode()[-1500:],
                                                              r.stderr.decode()[-1500:]))
        return r.stdout.decode()

    def python(self, text, *args, **kw):
        return self.good(sys.executable, "-B", "-c", text, *args, **kw)

    def close(self):
        self.process.stdin.close()
        self.process.wait(WAIT_S)
        self.guest.close()
