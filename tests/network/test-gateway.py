# SPDX-License-Identifier: Apache-2.0
"""The network gateway between namespaces: real clients through TPROXY, DNS, interception, credentials; and what must not
get through. As root, without a guest: seconds, not minutes."""
import atexit
import asyncio
import hmac

from netns import *  # pylint: disable=wildcard-import,unused-wildcard-import
from http2 import Http2Server

GATEWAY, ISLAND, MANAGER = sys.argv[1:4]
HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = tempfile.mkdtemp(prefix="space-gateway-")
os.chmod(FOLDER, 0o755)
GOOD, H2, GRPC, WS, PINNED = ("good.example.com", "h2.example.com", "grpc.example.com", "ws.example.com", "pass.example.com")
EVIL = "evil.example.net"
GOOD_AT, H2_AT, GRPC_AT, EVIL_AT = libinternet.SERVERS
NAMES = {GOOD: [GOOD_AT], H2: [H2_AT], GRPC: [GRPC_AT], WS: [GRPC_AT], PINNED: [GOOD_AT], EVIL: [EVIL_AT],
         "inside.example.com": ["10.9.8.7"], "alias.example.com": ["cname:" + GOOD]}
POLICY = {"preset": "custom", "rules": [
    {"host": GOOD, "ports": "443", "methods": ["DELETE"], "action": "deny"},
    {"host": GOOD, "ports": "443", "path": "/", "action": "inspect"},
    {"host": H2, "ports": "443", "path": "/", "action": "inspect"},
    {"host": "*.example.com", "ports": "443", "action": "allow"},
    {"host": GOOD, "ports": "80", "path": "/", "action": "inspect"}]}


class World:
    def __init__(self):
        self.outside = Authority(FOLDER, "outside")
        for path in (self.outside.cert,):
            os.chmod(path, 0o644)
        self.manager = Manager(MANAGER, FOLDER, "--network-user", "daemon", "--token-ca-file", self.outside.cert,
                               "--token-private")
        self.hook = Server(self.outside.leaf("localhost"))
        atexit.register(self.manager.stop, "kill")
        self.net = Net(GATEWAY, FOLDER, self.outside.cert, NAMES)
        self.ca_file = os.path.join(FOLDER, "guest-ca.pem")
        with open(self.ca_file, "w") as f, open(self.outside.cert) as outside:
            f.write(self.manager.authority() + outside.read())  # the second for what is not looked into
        listen = self.net.internet.listen
        self.good = Server(self.outside.leaf(GOOD), listen(GOOD_AT, 443))
        self.plain = Server(None, listen(GOOD_AT, 80))
        self.evil = Server(Authority(FOLDER, "evil").leaf(EVIL), listen(EVIL_AT, 443))
        self.h2 = Http2Server(self.outside.leaf(H2), listen(H2_AT, 443))
        self.helpers = []
        self.island = Island(self.net, ISLAND, SANDBOX, POLICY, self.ca_file)
        for name in (GOOD, H2, GRPC, WS):
            self.manager.add("for-" + name.split(".")[0], {"type": "bearer"}, host=name)
        self.settle()

    def settle(self):
        """Until the gateway has heard of the last one."""
        def used():
            self.island.run("curl", "-s", "-o", "/dev/null", "--max-time", "5", "https://%s/settle" % H2)
            return self.manager.events(event="use")
        until(used, "the credentials are used")

    def helper(self, *args):
        p = subprocess.Popen(["ip", "netns", "exec", self.net.internet.name, sys.executable, "-B", *args],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             env={k: v for k, v in os.environ.items() if k != "GLIBC_TUNABLES"})
        self.helpers.append(p)
        equal(p.stdout.readline(), b"ready\n", "the first line of %s" % args[0])

    def close(self):
        for p in self.helpers:
            p.stdin.close()
            p.wait(WAIT_S)
        self.manager.stop()
        return self.net.close()


W = None


def need(module):
    try:
        __import__(module)
    except ImportError:
        raise Skip("there is no Python module " + module) from None


def need_program(name):
    if not shutil.which(name):
        raise Skip("there is no " + name)


def last():
    return Request(None, W.good.heads[-1], b"")


# ---- real clients ----

def curl_of_both_versions():
    out = W.island.good("curl", "-sS", "--http1.1", "-w", " %{http_version} %{http_code}", "https://%s/a" % GOOD)
    equal(out, "hello /a 1.1 200")
    equal(last().all("authorization"), ["Bearer " + SECRET])
    out = W.island.good("curl", "-sS", "-w", " %{http_version} %{http_code}", "https://%s/a" % H2)
    equal(out, "hello /a 2 200")
    equal(W.h2.requests[-1].all("authorization"), ["Bearer " + SECRET])
    equal(W.island.good("curl", "-sS", "https://alias.example.com/", "-k"), "hello /", "what is passed through")
    equal(W.island.good("curl", "-sS", "http://%s/p" % GOOD), "hello /p")
    equal(W.island.good("curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "-X", "DELETE", "https://%s/a" % GOOD), "403")
    entry = W.island.log_entries(host=H2, action="inspect")[-1]
    equal((entry["credential"], entry["status"], entry["requests"]), ("for-h2", 200, 1), "the log's entry")


def each_request_is_in_the_log():
    for host in (GOOD, H2):
        W.island.run("curl", "-sS", "-o", "/dev/null", "https://%s/one?secret=1" % host, "-o", "/dev/null", "-d", "x",
                     "https://%s/two" % host)
        requests = [e for e in W.island.log_entries(kind="request", host=host) if e["path"] in ("/one", "/two")]
        equal([(e["method"], e["path"], e["status"], e["credential"], e["action"], e["port"]) for e in requests],
              [("POST", p, 200, "for-" + host.split(".")[0], "allow", 443) for p in ("/one", "/two")], "requests to " + host)
        equal([(e["level"], e["reason"]) for e in requests], [("sandbox", None)] * 2)
    W.island.run("curl", "-sS", "-o", "/dev/null", "-X", "DELETE", "https://%s/three" % GOOD)
    e = W.island.log_entries(kind="request", path="/three")[-1]
    equal((e["method"], e["status"], e["action"], e["rule"], e["reason"], e.get("credential")),
          ("DELETE", 403, "deny", 0, "denied_by_policy", None), "one that is refused")
    check("secret=1" not in json.dumps(W.net.ask(op="log", sandbox=SANDBOX)), "a query is in the log")


def python_requests():
    need("requests")
    out = W.island.python("""import requests, sys
with requests.Session() as s:
    for i in range(3):
        r = s.post(sys.argv[1] + str(i), data=iter([b'a', b'b']), auth=('dummy', 'dummy'))
        print(r.status_code, r.text)""", "https://%s/r" % GOOD)
    equal(out, "".join("200 hello /r%d\n" % i for i in range(3)))
    equal(W.good.bodies[-1], b"ab")
    equal(last().all("authorization"), ["Bearer " + SECRET])


def python_httpx():
    need("httpx")
    out = W.island.python("""import httpx, ssl, sys, os
with httpx.Client(http2=True, verify=ssl.create_default_context(cafile=os.environ['SSL_CERT_FILE'])) as c:
    for i in range(3):
        r = c.post(sys.argv[1] + str(i), content=b'x' * 100000)
        print(r.http_version, r.status_code, r.text)""", "https://%s/x" % H2)
    equal(out, "".join("HTTP/2 200 hello /x%d\n" % i for i in range(3)))
    equal(W.h2.bodies[-1], b"x" * 100000)
    equal(W.h2.requests[-1].all("authorization"), ["Bearer " + SECRET])


def node_fetch():
    need_program("node")
    out = W.island.good("node", "-e", """
if (!globalThis.fetch) { console.log('old'); process.exit(0); }
(async () => {
  for (let i = 0; i < 3; i++) {
    const r = await fetch(process.argv[1] + i, { method: 'POST', body: 'n' });
    console.log(r.status, await r.text());
  }
})();""", "https://%s/n" % GOOD)
    if out == "old\n":
        raise Skip("this Node has no fetch")
    equal(out, "".join("200 hello /n%d\n" % i for i in range(3)))
    equal(last().all("authorization"), ["Bearer " + SECRET])


def git_over_https():
    need_program("git")
    work = os.path.join(FOLDER, "work")
    env = dict(os.environ, GIT_CONFIG_GLOBAL="/dev/null", GIT_CONFIG_NOSYSTEM="1")

    def git(*args):
        r = subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@example.com", *args], env=env,
                           capture_output=True, check=False)
        check(r.returncode == 0, r.stderr.decode())
    git("init", "-q", work)
    with open(os.path.join(work, "file"), "wb") as f:
        f.write(os.urandom(300000))
    git("-C", work, "add", "file")
    git("-C", work, "commit", "-q", "-m", "one")
    bare = os.path.join(FOLDER, "repo.git")
    git("clone", "-q", "--bare", work, bare)
    git("-C", bare, "update-server-info")
    seen = []

    def serve(_server, request):
        path = os.path.realpath(os.path.join(FOLDER, request.path[1:]))
        seen.append(request.all("authorization"))
        if not os.path.isfile(path):
            request.reply(b"", "404 Not Found")
            return
        with open(path, "rb") as f:
            request.reply(f.read())

    class Files(dict):
        def get(self, path, other=None):
            return serve if path.startswith("/repo.git/") else dict.get(self, path, other)
    W.good.routes = Files(W.good.routes)
    copy = os.path.join(FOLDER, "copy")
    W.island.good("git", "clone", "-q", "https://%s/repo.git" % GOOD, copy)
    with open(os.path.join(work, "file"), "rb") as a, open(os.path.join(copy, "file"), "rb") as b:
        check(a.read() == b.read(), "the file is another one")
    check(seen and all(s == ["Bearer " + SECRET] for s in seen), "requests without the credential: %s" % seen)


def openssl_s_client():
    out = W.island.run("openssl", "s_client", "-connect", GOOD + ":443", "-servername", GOOD, "-alpn", "h2,http/1.1",
                       "-CAfile", W.ca_file, "-verify_return_error", "-verify_hostname", GOOD, "-quiet", "-ign_eof",
                       stdin=("GET /s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % GOOD).encode())
    check(out.stdout.endswith(b"hello /s"), "%r %r" % (out.stdout, out.stderr))
    out = W.island.run("openssl", "s_client", "-connect", H2 + ":443", "-servername", H2, "-alpn", "h2,http/1.1",
                       "-CAfile", W.ca_file, "-verify_return_error")
    check(b"ALPN protocol: h2" in out.stdout, "no h2: %r" % out.stdout)


def websocket_client():
    need("websockets")
    import websockets
    listener = W.net.internet.listen(GRPC_AT, 8443)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(W.outside.leaf(WS))
    seen = []
    started = threading.Event()

    async def echo(ws, _path=None):
        headers = ws.request_headers if hasattr(ws, "request_headers") else ws.request.headers
        seen.append(headers.get("Authorization"))
        async for message in ws:
            await ws.send(message)

    async def main():
        async with websockets.serve(echo, sock=listener, ssl=context, max_size=1 << 22):
            started.set()
            await asyncio.Future()
    threading.Thread(target=lambda: asyncio.run(main()), daemon=True).start()
    check(started.wait(WAIT_S), "the WebSocket server does not start")
    policy = dict(POLICY, rules=[{"host": WS, "ports": "8443", "path": "/", "action": "inspect"}] + POLICY["rules"])
    W.island.set_policy(policy)
    W.manager.add("ws-8443", {"type": "bearer"}, host=WS, port=8443)

    def connected():
        out = W.island.python("""import asyncio, ssl, sys, os, websockets
async def main():
    c = ssl.create_default_context(cafile=os.environ['SSL_CERT_FILE'])
    async with websockets.connect(sys.argv[1], ssl=c, max_size=1 << 22) as ws:
        for size in (1, 125, 70000, 1 << 20):
            await ws.send(bytes(size))
            assert len(await ws.recv()) == size
        pong = await ws.ping()
        await pong
    print('closed', ws.close_code)
asyncio.run(main())""", "wss://%s:8443/chat" % WS)
        equal(out, "closed 1000\n")
        return seen[-1] == "Bearer " + SECRET
    until(connected, "the handshake has the credential")
    W.island.set_policy(POLICY)


def grpc_with_a_credential_it_does_not_have():
    need("grpc")
    W.helper(os.path.join(HERE, "grpc-echo.py"), "server", GRPC_AT + ":443", W.outside.leaf(GRPC))
    out = W.island.good(sys.executable, "-B", os.path.join(HERE, "grpc-echo.py"), "client", GRPC, W.ca_file, timeout=120)
    mask = "*" * len(SECRET)
    equal(out.splitlines(), ["unary one hello Bearer %s Bearer %s" % (mask, mask), "both 40 yes OK", "fail NOT_FOUND nothing here"])


def who_begins_late_is_looked_into_all_the_same():
    out = W.island.python("""import socket, ssl, sys, time
s = socket.create_connection((sys.argv[1], 443))
time.sleep(1.5)
s = ssl.create_default_context(cafile=sys.argv[2]).wrap_socket(s, server_hostname=sys.argv[1])
s.sendall(b'GET /late HTTP/1.1\\r\\nHost: %s\\r\\nConnection: close\\r\\n\\r\\n' % sys.argv[1].encode())
print(s.recv(65536)[:15], s.getpeercert()['issuer'][0][0][1])""", GOOD, W.ca_file)
    equal(out, "b'HTTP/1.1 200 OK' SPACE\n")
    equal(last().all("authorization"), ["Bearer " + SECRET])


def events_come_as_they_are_sent():
    gate = threading.Event()

    def events(_server, request):
        request.conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        request.conn.sendall(b"d\r\ndata: first\n\n\r\n")
        check(gate.wait(WAIT_S), "nobody has read the first")
        request.conn.sendall(b"e\r\ndata: second\n\n\r\n0\r\n\r\n")
    W.good.routes["/events"] = events
    p = subprocess.Popen(W.island.command("curl", "-sSN", "https://%s/events" % GOOD), stdout=subprocess.PIPE,
                         env=W.island.environment())
    equal(p.stdout.read(13), b"data: first\n\n")
    gate.set()
    equal(p.communicate(timeout=WAIT_S)[0], b"data: second\n\n")


# ---- what must not get through ----

def names_that_no_rule_allows_are_not_asked_for():
    before = len(W.evil.heads)
    for name in (EVIL, "secret-data." + EVIL, "x" * 60 + "." + EVIL):
        r = W.island.run("curl", "-sS", "-k", "--max-time", "5", "https://%s/" % name)
        equal(r.returncode, 6, "curl to " + name)
    r = W.island.run("curl", "-sS", "-k", "--max-time", "5", "--resolve", "%s:443:%s" % (EVIL, EVIL_AT), "https://%s/" % EVIL)
    check(r.returncode != 0, "an address instead of the name")
    r = W.island.run("curl", "-sS", "-k", "--max-time", "5", "https://%s/" % EVIL_AT)
    check(r.returncode != 0, "an address alone")
    # An allowed name in the hello, the evil address below: it goes to where the name is.
    out = W.island.good("curl", "-sS", "--resolve", "%s:443:%s" % (GOOD, EVIL_AT), "https://%s/where" % GOOD)
    equal(out, "hello /where")
    r = W.island.run("curl", "-sS", "-k", "--max-time", "5", "https://inside.example.com/")
    check(r.returncode != 0, "a public name with a private address")
    equal(len(W.evil.heads), before, "requests that the evil server got")
    equal([q for q in W.net.internet_log("dns") if EVIL in q[0]], [], "questions that left")
    status = W.island.good("curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "-H", "Host: " + EVIL, "https://%s/" % GOOD)
    equal(status, "421", "another name in the request")
    status = W.island.good("curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "-H", "Host: " + EVIL, "https://%s/" % H2)
    equal(status, "421", "another name in a stream")


def servers_with_other_certificates_get_nothing():
    policy = dict(POLICY, rules=[{"host": EVIL, "ports": "443", "path": "/", "action": "inspect"}] + POLICY["rules"])
    W.island.set_policy(policy)
    before = len(W.evil.heads)
    for version in ("--http1.1", "--http2"):
        out = W.island.good("curl", "-sS", version, "-o", "/dev/null", "-w", "%{http_code}", "https://%s/" % EVIL)
        equal(out, "502", version)
    equal(len(W.evil.heads), before, "requests")
    W.island.set_policy(POLICY)


def nothing_but_tcp_and_questions_leaves():
    W.island.python("""import os, socket, struct
def quietly(fn):
    try:
        fn()
    except OSError:
        pass
def udp(address, port, family=socket.AF_INET):
    with socket.socket(family, socket.SOCK_DGRAM) as s:
        s.sendto(b'x' * 100, (address, port))
for address in ('45.67.89.66', '45.67.89.1', '169.254.169.254', '255.255.255.255', '224.0.0.1', '10.0.0.1'):
    for port in (443, 123, 5353):
        quietly(lambda: udp(address, port))
quietly(lambda: udp('ff02::1', 5353, socket.AF_INET6))
quietly(lambda: udp('2001:db8::1', 443, socket.AF_INET6))
def icmp():
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as s:
        s.sendto(b'\\x08\\0\\xf7\\xff\\0\\0\\0\\0', ('45.67.89.66', 0))
quietly(icmp)
def raw(frame):
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as s:
        s.bind(('eth0', 0x0800))
        s.send(frame)
mac = bytes.fromhex('025350000001')
for source_mac, source in ((b'\\x02SP\\0\\0\\2', '45.67.89.1'), (b'\\2\\0\\0\\0\\0\\1', '10.0.0.2'), (b'\\x02SP\\0\\0\\2', '127.0.0.1')):
    for protocol in (6, 17, 47, 132):
        ip = struct.pack('>BBHHHBBH4s4s', 0x45, 0, 40, 7, 0, 64, protocol, 0, socket.inet_aton(source), socket.inet_aton('45.67.89.66'))
        total = sum(struct.unpack('>10H', ip)); total = (total & 0xffff) + (total >> 16); total = (total & 0xffff) + (total >> 16)
        ip = ip[:10] + struct.pack('>H', ~total & 0xffff) + ip[12:]
        quietly(lambda: raw(mac + source_mac + b'\\x08\\0' + ip + struct.pack('>HHIIBBHHH', 1000, 443, 1, 0, 0x50, 2, 1000, 0, 0)))
for address in ('10.0.0.1', '127.0.0.1', '45.67.89.1', '169.254.169.254'):
    for port in (22, 80, 443, 7777, 15001):
        with socket.socket() as s:
            s.settimeout(3)
            if s.connect_ex((address, port)) == 0 and address != '127.0.0.1':
                s.sendall(b'GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')
                got = b''
                try:
                    got = s.recv(100)
                except OSError:
                    pass
                assert not got or got.startswith(b'HTTP/1.1 403 '), (address, port, got)
""")
    equal(W.net.internet_log("packet"), [], "what was seen on the wire")


def a_policy_that_changes_judges_what_is_open():
    hold = threading.Event()

    def wait(_server, request):
        request.conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345")
        hold.wait(WAIT_S)
    W.good.routes["/hold"] = wait
    p = subprocess.Popen(W.island.command("curl", "-sSN", "https://%s/hold" % GOOD), stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, env=W.island.environment())
    equal(p.stdout.read(5), b"12345")
    W.island.set_policy({"preset": "none"})
    p.communicate(timeout=WAIT_S)
    check(p.returncode != 0, "the open connection went on")
    r = W.island.run("curl", "-sS", "--max-time", "5", "https://%s/" % GOOD)
    equal(r.returncode, 6, "after that")
    W.island.set_policy(POLICY)
    hold.set()
    equal(W.island.good("curl", "-sS", "https://%s/again" % GOOD), "hello /again")


def levels_around_a_sandbox_judge_what_is_open_too():
    inherit = {"preset": "inherit"}
    everything = dict(POLICY, outer={"organisation": inherit, "project": inherit})
    W.island.set_policy(everything)
    equal(W.island.good("curl", "-sS", "https://%s/a" % GOOD), "hello /a", "with levels that say nothing")
    hold = threading.Event()

    def wait(_server, request):
        request.conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345")
        hold.wait(WAIT_S)
    W.good.routes["/held"] = wait
    held = {host: subprocess.Popen(W.island.command("curl", "-sSNk", "https://%s/held" % host), stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, env=W.island.environment()) for host in (GOOD, PINNED)}
    for p in held.values():
        equal(p.stdout.read(5), b"12345")
    # One of them is looked into, the other one is not; the organisation denies both.
    denial = {"preset": "inherit", "rules": [{"host": PINNED, "action": "deny"}, {"host": GOOD, "action": "deny"}]}
    W.island.set_policy(dict(everything, outer={"organisation": denial, "project": inherit}))
    for host, p in held.items():
        p.communicate(timeout=WAIT_S)
        check(p.returncode != 0, "the open connection to %s went on" % host)
    for host in held:
        r = W.island.run("curl", "-sSk", "--max-time", "5", "https://%s/" % host)
        check(r.returncode != 0, "%s is reached all the same" % host)
        entry = W.island.log_entries(host=host, action="deny")[-1]
        equal(entry["level"], "organisation", "who has denied %s" % host)
    equal(W.island.good("curl", "-sS", "https://%s/a" % H2), "hello /a", "what is not denied")
    # The project denies a kind of request, within a connection that the sandbox allows whole.
    posts = {"preset": "inherit", "rules": [{"host": GOOD, "ports": "443", "methods": ["POST"], "action": "deny"}]}
    W.island.set_policy({"rules": [{"host": GOOD, "action": "allow"}], "outer": {"project": posts}})
    code = ("curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "https://%s/c" % GOOD)
    equal(W.island.good(*code), "200")
    equal(W.island.good(*code, "-d", "x"), "403")
    # The sandbox says nothing by itself: it has what its project allows.
    W.island.set_policy(dict(inherit, outer={"project": POLICY}))
    equal(W.island.good("curl", "-sS", "https://%s/a" % GOOD), "hello /a", "inherited")
    hold.set()
    W.island.set_policy(POLICY)


def a_person_is_asked_about_requests():
    rules = [{"host": h, "ports": "443", "methods": ["POST"], "path": "/pay", "action": "ask"} for h in (GOOD, H2)]
    W.island.set_policy(dict(POLICY, rules=rules + POLICY["rules"]))

    def asks():
        return W.net.ask(op="status", sandbox=SANDBOX)["asks"]

    def post(host, path, *more):
        return subprocess.Popen(W.island.command("curl", "-sS", "-w", " %{http_code}", "-d", "x", "https://" + host + path, *more),
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=W.island.environment())
    for host, server in ((GOOD, W.good.heads), (H2, W.h2.requests)):
        equal(W.island.good("curl", "-sS", "https://%s/pay/1" % host), "hello /pay/1", "another method")
        before = len(server)
        for allow, want in ((False, b" 403"), (True, b"hello /pay/%d 200")):
            number = 1 if allow else 2
            p = post(host, "/pay/%d" % number)
            until(asks, "the ask is there")
            ask = asks()[0]
            equal((ask["host"], ask["port"], ask["method"], ask["path"]), (host, 443, "POST", "/pay/%d" % number))
            equal(len(server), before, "requests that went out unasked")
            answer = W.net.ask(op="answer", sandbox=SANDBOX, ask=ask["id"], allow=allow)
            check("error" not in answer, "answering: %s" % answer)
            out, err = p.communicate(timeout=WAIT_S)
            check(out.endswith(want % number if allow else want), "%r %r" % (out, err))
        # What was said counts for the same request, and for no other.
        equal(post(host, "/pay/1").communicate(timeout=WAIT_S)[0], b"hello /pay/1 200")
        p = post(host, "/pay/3")
        until(asks, "the other one is asked about")
        W.island.set_policy(dict(POLICY, rules=rules + POLICY["rules"][::-1]))
        out = p.communicate(timeout=WAIT_S)[0]
        check(p.returncode != 0 or out.endswith(b" 403"), "a held request outlives its policy: %r" % out)
        until(lambda: not [e for e in W.island.log_entries() if e.get("open")], "connections end")
        W.net.ask(op="answer", sandbox=SANDBOX, ask=asks()[0]["id"], allow=False)
        W.island.set_policy(dict(POLICY, rules=rules + POLICY["rules"]))
    W.island.set_policy(POLICY)


def a_webhook_is_told_and_its_token_answers_once():
    key = "the key of the webhook"
    told = []

    def hook(_server, request):
        told.append((request.one("space-signature"), b"".join(request.body())))
        if len(told) == 1:
            request.reply(b"not now", "503 Later")
        else:
            request.reply(b"{}")
    W.hook.routes["/hook/ask"] = hook
    made = W.manager.add("approver", {"type": "webhook"}, value=key, host="localhost", port=W.hook.port, scope="organisation",
                         target={"path": "/hook/ask"})
    W.island.set_policy(dict(POLICY, rules=[{"host": GOOD, "ports": "443", "methods": ["POST"], "path": "/hooked",
                                             "action": "ask"}] + POLICY["rules"]))

    def post(path):
        return subprocess.Popen(W.island.command("curl", "-sS", "-w", " %{http_code}", "-d", "x", "https://" + GOOD + path),
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=W.island.environment())

    def answer(token, allow):
        sandbox, ask, secret = token.split(".")
        return W.net.ask(op="answer", sandbox=sandbox, ask=int(ask), allow=allow, token=secret)
    p = post("/hooked/1")
    until(lambda: len(told) == 2, "the webhook is told again after it has refused")
    equal(told[0][1], told[1][1], "what it was told the second time")
    signature, body = told[1]
    fields = dict(part.split("=") for part in signature.split(","))
    equal(fields["v1"], hmac.new(key.encode(), fields["t"].encode() + b"." + body, "sha256").hexdigest(), "the signature")
    check(abs(int(fields["t"]) - time.time()) < 60, "the time in it")
    notice = json.loads(body)
    equal([notice[k] for k in ("event", "sandbox", "host", "port", "method", "path")],
          ["network.ask", SANDBOX, GOOD, 443, "POST", "/hooked/1"])
    token = notice["token"]
    for wrong in (token[:-1] + ("0" if token[-1] != "0" else "1"), token[:-1], token.rsplit(".", 1)[0] + "."):
        equal(answer(wrong, True)["error"]["code"], "no_such_ask", "with another token")
    check("error" not in answer(token, True), "the token is refused")
    equal(p.communicate(timeout=WAIT_S)[0], b"hello /hooked/1 200")
    equal(answer(token, True)["error"]["code"], "no_such_ask", "the second time")
    # The next question has a token of its own, and who lists what waits does not see it.
    p = post("/hooked/2")
    until(lambda: len(told) == 3, "the webhook is told of the second")
    again = json.loads(told[2][1])
    check(again["token"] != token, "the same token again")
    check(again["token"].split(".")[2] not in json.dumps(W.net.ask(op="status", sandbox=SANDBOX)), "the token is shown")
    check("error" not in answer(again["token"], False), "the token is refused")
    equal(p.communicate(timeout=WAIT_S)[0].split()[-1], b"403")

    def events():
        return [(e["event"], e.get("reason")) for e in W.manager.events(credential="approver")][::-1]
    until(lambda: len(events()) == 4, "the notices are in the log")
    equal(events(), [("add", None), ("refuse", "webhook_failed"), ("notify", None), ("notify", None)])
    for name in ("gateway.log", "manager.log"):
        with open(os.path.join(FOLDER, name), "rb") as f:
            text = f.read()
        check(key.encode() not in text and token.split(".")[2].encode() not in text, "a secret is in " + name)
    W.manager.remove(made)
    W.island.set_policy(POLICY)


def the_egress_log_outlives_the_gateway():
    W.island.good("curl", "-sS", "https://%s/before" % GOOD)
    until(lambda: not [e for e in W.island.log_entries() if e.get("open")], "connections end")
    before = W.island.log_entries()
    W.net.process.kill()
    W.net.process.wait(WAIT_S)
    W.island.close()
    W.net.start()
    W.island = Island(W.net, ISLAND, SANDBOX, POLICY, W.ca_file)
    after = W.island.log_entries()
    equal(after[:len(before)], before, "the log")
    until(lambda: W.island.run("curl", "-sS", "https://%s/after" % GOOD).stdout == b"hello /after", "it goes on")
    until(lambda: not [e for e in W.island.log_entries() if e.get("open")], "connections end")
    last_entry = W.island.log_entries()[-1]
    check(last_entry["seq"] > before[-1]["seq"], "numbers begin anew")
    # Bounded, whatever a guest does.
    path = os.path.join(W.net.state_dir, SANDBOX)
    W.island.python("""import socket
for i in range(3000):
    with socket.socket() as s:
        s.settimeout(5)
        try:
            s.connect(('45.67.89.66', 80))
            s.sendall(b'GET / HTTP/1.1\\r\\nHost: h%d.example.org\\r\\n\\r\\n' % i)
            s.recv(100)
        except OSError:
            pass""", timeout=200)
    sizes = [os.path.getsize(path + end) for end in ("", ".old")]
    check(max(sizes) < 260 * 1024 and sizes[1] > 200 * 1024, "files of %s bytes" % sizes)
    entries = W.island.log_entries(host="h2999.example.org")
    equal([(e["action"], e["reason"]) for e in entries], [("deny", None)])


def secrets_are_in_no_log():
    for name in ("gateway.log", "manager.log", "island.log", "internet.log"):
        with open(os.path.join(FOLDER, name), "rb") as f:
            check(SECRET.encode() not in f.read(), "the secret is in " + name)
    for name in os.listdir(W.net.state_dir):
        with open(os.path.join(W.net.state_dir, name), "rb") as f:
            check(SECRET.encode() not in f.read(), "the secret is in an egress log")
    check(SECRET not in json.dumps(W.net.ask(op="log", sandbox=SANDBOX)), "the secret is in the egress log")


def main():
    global W
    if os.geteuid() != 0:
        print("1..0 # SKIP needs root")
        return 1 if os.environ.get("MUST_WORK") == "1" else 0
    atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
    result = 1
    W = World()
    try:
        result = run_all(CASES)
    finally:
        code = W.close()
        for log in ("gateway.log", "manager.log") if os.environ.get("SPACE_TEST_KEEP") else ():
            shutil.copy(os.path.join(FOLDER, log), os.environ["SPACE_TEST_KEEP"])
        if code != 0:
            print("# the network gateway ended with %d" % code)
            result = 1
    return result


CASES = [
    curl_of_both_versions, each_request_is_in_the_log, python_requests, python_httpx, node_fetch, git_over_https, openssl_s_client, websocket_client,
    grpc_with_a_credential_it_does_not_have, who_begins_late_is_looked_into_all_the_same, events_come_as_they_are_sent, names_that_no_rule_allows_are_not_asked_for,
    servers_with_other_certificates_get_nothing, nothing_but_tcp_and_questions_leaves,
    a_policy_that_changes_judges_what_is_open, levels_around_a_sandbox_judge_what_is_open_too,
    a_person_is_asked_about_requests, a_webhook_is_told_and_its_token_answers_once, the_egress_log_outlives_the_gateway, secrets_are_in_no_log,
]

if __name__ == "__main__":
    sys.exit(main())
