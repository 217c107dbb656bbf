# SPDX-License-Identifier: Apache-2.0
"""Interception of HTTP/2: a raw client and a raw server, and real clients."""
import atexit

from harness import *  # pylint: disable=wildcard-import,unused-wildcard-import

try:
    from http2 import Http2Guest, Http2Server
except ImportError:
    if os.environ.get("MUST_WORK") == "1":
        raise
    print("1..0 # SKIP there is no python3-h2")
    sys.exit(0)

MANAGER, BETWEEN = sys.argv[1], sys.argv[2]
FOLDER = tempfile.mkdtemp(prefix="space-http2-")
os.chmod(FOLDER, 0o755)
POLICY = {"preset": "custom", "rules": [
    {"host": NAME, "ports": "1-65535", "methods": ["DELETE"], "path": "/denied", "action": "deny"},
    {"host": "*.example.com", "ports": "1-65535", "path": "/", "action": "inspect"},
    {"cidr": "127.0.0.0/8", "ports": "1-65535", "action": "allow"}]}
NEVER = "never.example.com"
OLD = "old.example.com"
EVIL = "evil.example.com"


class World:
    def __init__(self):
        outside = Authority(FOLDER, "outside")
        self.server = Http2Server(outside.leaf(NAME))
        self.old_server = Server(outside.leaf(OLD))
        self.evil_server = Http2Server(Authority(FOLDER, "evil").leaf(EVIL))
        self.manager = Manager(MANAGER, FOLDER)
        self.ca = self.manager.authority()
        self.ca_file = os.path.join(FOLDER, "guest-ca.pem")
        with open(self.ca_file, "w") as f:
            f.write(self.ca)
        with socket.create_server(("127.0.0.1", 0)) as s:
            nobody = s.getsockname()[1]
        self.between = Between(BETWEEN, self.manager, outside.cert, POLICY, (NAME, self.server.port),
                               (OLD, self.old_server.port), (NEVER, nobody), (EVIL, self.evil_server.port))
        self.port = self.between.ports[NAME]
        self.made = None

    def guest(self, **kw):
        return Http2Guest(self.port, self.ca, **kw)

    def credential(self, inject, **kw):
        """Until the interceptor has heard of it."""
        if self.made:
            self.manager.remove(self.made)
        self.made = self.manager.add("c" + os.urandom(4).hex(), inject, port=self.server.port, **kw)

        def used():
            guest = self.guest()
            guest.post("/settle", b"{}", [("content-type", "application/json")])
            guest.close()
            return self.manager.events(credential_id=self.made["id"], event="use")
        until(used, "the credential is used")

    def memory(self):
        with open("/proc/%d/status" % self.between.process.pid) as f:
            return [int(line.split()[1]) for line in f if line.startswith("VmHWM")][0]


W = None


def requests_pass_on_one_connection():
    guest = W.guest()
    before = len(W.server.peers)
    for i in range(3):
        s = guest.get("/a%d?x=%%20y" % i)
        equal((s.status, s.data), (200, b"hello /a%d?x=%%20y" % i))
    equal(len(W.server.peers), before + 0 if before else 1, "connections to the server")
    s = guest.post("/p", b"x" * 300000)
    equal((s.status, W.server.bodies[-1]), (200, b"x" * 300000))
    head = W.server.requests[-1]
    equal(head.all(":authority"), ["%s:%d" % (NAME, W.server.port)])
    equal(head.all(":scheme"), ["https"])
    equal([n for n, _ in head.headers if n in ("host", "connection", "transfer-encoding")], [])
    guest.close()


def the_versions_are_mirrored():
    guest = Guest(W.between.ports[OLD], W.ca, name=OLD, alpn=["h2", "http/1.1"])
    equal(guest.sock.selected_alpn_protocol(), "http/1.1", "with a server of HTTP/1.1")
    equal(guest.get("/x", host=OLD)[2], b"hello /x")
    equal(W.old_server.connections, 1, "connections")
    guest.close()
    for where, why in ((NEVER, "connect_failed"), (EVIL, "tls_not_trusted")):
        guest = Http2Guest(W.between.ports[where], W.ca, name=where)
        s = guest.get("/x")
        equal((s.status, json.loads(s.data)["error"]["code"]), (502, why))
        guest.close()
    equal(W.evil_server.requests, [], "what a server without a good certificate got")


def secrets_are_put_in_and_taken_out():
    W.credential({"type": "bearer"})

    def echo(_server, stream):
        got = dict(stream.headers)["authorization"]
        body = b"".join(stream.body())
        stream.reply(("you sent %s, in base64 %s" % (got, base64.b64encode(got.encode()).decode())).encode() + body,
                     fields=[("x-debug", got)], trailers=[("x-trailer", got), ("grpc-status", "0")])
    W.server.routes["/echo"] = echo
    guest = W.guest()
    s = guest.get("/echo", fields=[("authorization", "Bearer mine"), ("te", "trailers"), ("accept-encoding", "gzip"),
                                   ("grpc-accept-encoding", "gzip"), ("cookie", "a=1"), ("cookie", "b=2")])
    seen = W.server.requests[-1]
    equal(seen.all("authorization"), ["Bearer " + SECRET])
    equal(seen.all("te"), ["trailers"])
    equal(seen.all("accept-encoding"), ["identity"])
    equal(seen.all("grpc-accept-encoding"), [])
    equal("; ".join(seen.all("cookie")), "a=1; b=2")
    everything = repr(s.headers) + s.data.decode() + repr(s.trailers)
    check(SECRET not in everything and base64.b64encode(SECRET.encode()).decode()[:-4] not in everything,
          "the secret came back: " + everything)
    equal(dict(s.trailers)["grpc-status"], "0")
    check("*" * len(SECRET) in s.one("x-debug"), "no mask in the field")
    for encoding in ("content-encoding", "grpc-encoding"):
        W.server.routes["/packed"] = lambda _s, stream: stream.reply(b"x", fields=[(encoding, "gzip")])
        equal(guest.get("/packed").status, 502, encoding)
    s = guest.post("/x", b"abc", trailers=[("authorization", "mine")])
    equal(s.reset, 1, "a trailer that is a credential")
    guest.close()
    W.credential({"type": "header", "name": "x-api-key"})
    guest = W.guest()
    guest.post("/x", b"abc", fields=[("x-api-key", "mine")], trailers=[("x-api-key", "mine"), ("x-other", "stays")])
    seen = W.server.requests[-1]
    equal((seen.all("x-api-key"), seen.trailers), ([SECRET], [("x-other", "stays")]))
    guest.close()


def bodies_get_secrets():
    W.credential({"type": "body", "name": "token"}, target={"methods": ["POST"]})
    guest = W.guest()
    number = guest.begin("/b", "POST", [("content-type", "application/json"), ("expect", "100-continue")], end=False)
    equal(guest.wait(number, lambda s: s.interim).interim, [100])
    guest.send_data(number, b'{"a":')
    guest.send_data(number, b'1}', end=True)
    equal(guest.wait(number).status, 200)
    equal(json.loads(W.server.bodies[-1]), {"a": 1, "token": SECRET})
    equal(W.server.requests[-1].all("content-length"), [str(len(W.server.bodies[-1]))])
    s = guest.begin("/b", "POST", [("content-type", "application/json")], end=False)
    try:
        guest.send_data(s, b"x" * (9 << 20), end=True)
    except EOFError:
        pass
    equal(guest.wait(s).status, 413)
    guest.close()


def many_streams_at_once_with_credentials():
    W.credential({"type": "bearer"})
    guest = W.guest()
    numbers = [guest.begin("/m%d" % i, "POST", end=False) for i in range(60)]
    for n in numbers:
        guest.send_data(n, b"%d" % n, end=True)
    for i, n in enumerate(numbers):
        equal(guest.wait(n).data, b"hello /m%d" % i)
    equal([r.all("authorization") for r in W.server.requests[-60:]], [["Bearer " + SECRET]] * 60)
    guest.close()


def each_request_is_judged():
    guest = W.guest()
    before = len(W.server.requests)
    s = guest.get("/denied/x", method="DELETE")
    equal((s.status, json.loads(s.data)["error"]["code"]), (403, "denied_by_policy"))
    s = guest.get("/x", fields=[("host", "other.example.com")])
    equal(s.status, 400)
    guest.authority = "other.example.com"
    equal(guest.get("/x").status, 421)
    guest.authority = NAME + "."
    equal(guest.get("/x").status, 421)
    equal(len(W.server.requests), before, "requests")
    guest.authority = NAME
    equal(guest.get("/x").status, 200)
    # One that is refused while it still sends is stopped, and the connection goes on.
    number = guest.begin("/denied/y", "DELETE", end=False)
    s = guest.wait(number, lambda s: s.ended and s.reset is not None)
    equal((s.status, s.reset), (403, 0))
    equal(guest.get("/x").status, 200)
    guest.close()


def what_could_be_read_differently_is_refused():
    good = [(":method", "POST"), (":scheme", "https"), (":authority", NAME), (":path", "/hidden")]
    cases = {
        "transfer-encoding": good + [("transfer-encoding", "chunked")],
        "connection": good + [("connection", "close")],
        "upgrade": good + [("upgrade", "h2c")],
        "te": good + [("te", "gzip")],
        "upper case": good + [("X-Upper", "x")],
        "line in value": good + [("x", "a\r\nTransfer-Encoding: chunked")],
        "zero in value": good + [("x", "a\0b")],
        "line in path": good[:3] + [(":path", "/ HTTP/1.1\r\nHost: x\r\n\r\nGET /hidden HTTP/1.1")],
        "space in path": good[:3] + [(":path", "/x HTTP/1.1")],
        "line in method": [(":method", "GET / HTTP/1.1\r\nx:")] + good[1:],
        "two paths": good + [(":path", "/hidden2")],
        "pseudo last": good[:3] + [("x", "y"), (":path", "/hidden")],
        "no path": good[:3],
        "other scheme": [good[0], (":scheme", "http")] + good[2:],
        "two lengths": good + [("content-length", "1"), ("content-length", "2")],
        "length with a sign": good + [("content-length", "+1")],
        "colon in name": good + [("x:y", "z")],
        "empty name": good + [("", "z")],
        "status": good + [(":status", "200")],
        "protocol": [(":method", "CONNECT"), (":protocol", "websocket")] + good[1:],
        "connect": [(":method", "CONNECT"), (":authority", NAME + ":443")],
        "huge": good + [("x%d" % i, "y" * 3000) for i in range(12)],
    }
    before = len(W.server.requests)
    for name, head in cases.items():
        guest = W.guest()
        number = guest.begin(head=head, end=False)
        s = guest.wait(number)
        check(guest.closed or s.reset is not None or (s.status or 0) >= 400, "%s: status %s" % (name, s.status))
        guest.close()
    # More or less body than was announced.
    for length, body in (("5", b"abc"), ("2", b"abc")):
        guest = W.guest()
        number = guest.begin("/x", "POST", [("content-length", length)], end=False)
        guest.send_data(number, body, end=True)
        s = guest.wait(number)
        check(guest.closed or s.reset is not None, "a body that differs from its length passes: %s" % s.status)
        guest.close()
    time.sleep(0.05)
    hidden = [r for r in W.server.requests[before:] if b"hidden" in repr(r.headers).encode()]
    equal([r.headers for r in hidden], [], "what came through")


def answers_that_break_the_rules_are_refused():
    cases = {
        "transfer-encoding": [(":status", "200"), ("transfer-encoding", "chunked")],
        "connection": [(":status", "200"), ("connection", "close")],
        "line": [(":status", "200"), ("x", "a\r\nSet-Cookie: b")],
        "101": [(":status", "101")],
        "no status": [("x", "y")],
        "odd status": [(":status", "2000")],
        "request": [(":status", "200"), (":path", "/")],
    }
    for name, head in cases.items():
        def bad(_server, stream, head=head):
            stream.peer.send_headers(stream.number, head)
            stream.peer.send_data(stream.number, b"x", end=True)
        W.server.routes["/bad"] = bad
        guest = W.guest()
        s = guest.get("/bad")
        check(s.reset is not None or s.status == 502 or guest.closed, "%s: status %s" % (name, s.status))
        guest.close()


def interim_answers_pass():
    def early(_server, stream):
        stream.peer.send_headers(stream.number, [(":status", "103"), ("link", "</a>")])
        stream.peer.send_headers(stream.number, [(":status", "100")])
        body = b"".join(stream.body())
        stream.reply(body)
    W.server.routes["/early"] = early
    guest = W.guest()
    number = guest.begin("/early", "POST", [("expect", "100-continue")], end=False)
    equal(guest.wait(number, lambda s: len(s.interim) == 2).interim, [103, 100])
    guest.send_data(number, b"now", end=True)
    equal(guest.wait(number).data, b"now")

    def flood(_server, stream):
        for _ in range(40):
            stream.peer.send_headers(stream.number, [(":status", "103")])
        stream.reply(b"x")
    W.server.routes["/flood"] = flood
    s = guest.get("/flood")
    check(s.status == 502 or s.reset is not None, "interim answers without end: %s" % s.status)
    guest.close()


def both_directions_flow_at_once():
    def pong(_server, stream):
        stream.peer.send_headers(stream.number, [(":status", "200"), ("content-type", "application/grpc")])
        for part in stream.body():
            if part:
                stream.peer.send_data(stream.number, b"pong " + part)
        stream.peer.send_headers(stream.number, [("grpc-status", "0")], end=True)
    W.server.routes["/pkg.S/Pong"] = pong
    guest = W.guest()
    number = guest.begin("/pkg.S/Pong", "POST", [("te", "trailers"), ("content-type", "application/grpc")], end=False)
    want = b""
    for i in range(50):
        guest.send_data(number, b"ping %d;" % i)
        want += b"pong ping %d;" % i
        guest.wait(number, lambda s, want=want: s.data == want)
    guest.send_data(number, b"", end=True)
    s = guest.wait(number)
    equal(s.trailers, [("grpc-status", "0")])
    equal(s.data, want)

    def only_trailers(_server, stream):
        stream.peer.send_headers(stream.number, [(":status", "200"), ("grpc-status", "12")], end=True)
    W.server.routes["/pkg.S/Nothing"] = only_trailers
    s = guest.get("/pkg.S/Nothing")
    equal((s.status, s.one("grpc-status"), s.n_data), (200, "12", 0))
    guest.close()


def large_bodies_pass_in_constant_memory():
    size = int(os.environ.get("SPACE_TEST_BODY_MIB", "300")) << 20
    block = bytes(1 << 20)

    def giant(_server, stream):
        n = 0
        for part in stream.body():
            n += len(part)
        stream.peer.send_headers(stream.number, [(":status", "200"), ("x-got", str(n))])
        for _ in range(size >> 20):
            stream.peer.send_data(stream.number, block)
        stream.peer.send_data(stream.number, b"", end=True)
    W.server.routes["/giant"] = giant
    guest = W.guest()
    guest.keep = False
    number = guest.begin("/giant", "POST", end=False)
    up = size // 4
    for _ in range(up >> 20):
        guest.send_data(number, block)
    guest.send_data(number, b"", end=True)
    end = time.monotonic() + 20 * WAIT_S
    while not guest.streams[number].ended and not guest.closed and time.monotonic() < end:
        guest.wait(number, lambda s, n=guest.streams[number].n_data: s.ended or s.n_data > n)
    equal(guest.streams[number].n_data, size)
    equal(guest.streams[number].one("x-got"), str(up))
    guest.close()
    slack = 10 if os.environ.get("SPACE_TEST_SLOWNESS", "1") != "1" else 1
    check(W.memory() < 96 * 1024 * slack, "the interceptor took %d KiB" % W.memory())


def a_slow_reader_slows_its_server():
    sent = [0]

    def pour(_server, stream):
        stream.peer.send_headers(stream.number, [(":status", "200")])
        for _ in range(64):
            stream.peer.send_data(stream.number, bytes(1 << 20))
            sent[0] += 1 << 20
        stream.peer.send_data(stream.number, b"", end=True)
    W.server.routes["/pour"] = pour
    guest = W.guest(window=65535)
    guest.acknowledge = False
    numbers = [guest.begin("/pour") for _ in range(20)]
    guest.wait(numbers[0], lambda _s: any(s.n_data for s in guest.streams.values()))
    time.sleep(0.3)
    check(sent[0] < 16 << 20, "the server could send %d bytes that nobody reads" % sent[0])
    # Those that are not read do not hold up what is: another connection, and this one once they are given up.
    for n in numbers:
        guest.reset(n)
    with guest.lock:
        guest.h2.increment_flow_control_window(1 << 20)
        guest.flush()
    guest.acknowledge = True
    equal(guest.get("/x").status, 200)
    guest.close()


def resets_and_goodbyes_are_passed_on():
    seen = []

    def wait(_server, stream):
        seen.append(stream)
        for _ in stream.body():
            pass
    W.server.routes["/wait"] = wait
    guest = W.guest()
    number = guest.begin("/wait", "POST", end=False)
    until(lambda: seen, "the server has it")
    guest.reset(number)
    until(lambda: seen[0].reset is not None, "the server hears of it")

    W.server.routes["/cancel"] = lambda _s, stream: stream.peer.reset(stream.number, 8)
    equal(guest.get("/cancel").reset, 8)
    W.server.routes["/refuse"] = lambda _s, stream: stream.peer.reset(stream.number, 7)
    equal(guest.get("/refuse").reset, 7)

    def leave(_server, stream):
        with stream.peer.lock:
            stream.peer.h2.close_connection(last_stream_id=stream.number)
            stream.peer.flush()
    W.server.routes["/leave"] = leave
    guest.begin("/leave")
    with guest.lock:
        check(guest.lock.wait_for(lambda: guest.goaway == 0, WAIT_S), "no GOAWAY")
    guest.close()
    W.server.routes["/die"] = lambda _s, stream: stream.peer.close()
    guest = W.guest()
    s = guest.get("/die")
    check(s.status == 502 or s.reset is not None, "a server that dies: status %s" % s.status)
    with guest.lock:
        check(guest.lock.wait_for(lambda: guest.closed, WAIT_S), "the connection stays open without a server")


def floods_end_the_connection():
    guest = W.guest()
    for _ in range(100):
        with guest.lock:
            for _ in range(200):
                guest.h2.ping(b"floods!!")
            guest.flush()
        if guest.closed:
            break
    with guest.lock:
        check(guest.lock.wait_for(lambda: guest.closed, WAIT_S), "resets without end are borne")
    until(lambda: any(e["refused"] == "http2_flood" for e in W.between.ended), "the flood is told of")
    guest = W.guest()
    equal(guest.get("/x").status, 200)
    guest.close()


def dropping_ends_what_is_open():
    W.server.routes["/hold"] = lambda _s, stream: stream.peer.send_headers(stream.number, [(":status", "200")])
    guest = W.guest()
    number = guest.begin("/hold")
    guest.wait(number, lambda s: s.status)
    W.between.drop()
    with guest.lock:
        check(guest.lock.wait_for(lambda: guest.closed, WAIT_S), "it stays open")


# ---- real clients ----

def curl_gets_through():
    if not shutil.which("curl"):
        raise Skip("there is no curl")
    W.credential({"type": "bearer"})
    base = ["curl", "-sS", "--http2", "--max-time", str(int(WAIT_S)), "--cacert", W.ca_file, "--connect-to",
            "%s:%d:127.0.0.1:%d" % (NAME, W.server.port, W.port), "-w", " %{http_version} %{http_code}"]
    url = "https://%s:%d/" % (NAME, W.server.port)
    r = subprocess.run(base + [url + "c"], capture_output=True, check=False)
    equal((r.returncode, r.stdout), (0, b"hello /c 2 200"), r.stderr.decode())
    equal(W.server.requests[-1].all("authorization"), ["Bearer " + SECRET])
    r = subprocess.run(base + ["--data-binary", "@/bin/sh", "-H", "Expect: 100-continue", "--expect100-timeout", "0.1", url + "d"],
                       capture_output=True, check=False)
    equal((r.returncode, r.stdout), (0, b"hello /d 2 200"), r.stderr.decode())
    with open("/bin/sh", "rb") as f:
        equal(hashlib.sha256(W.server.bodies[-1]).hexdigest(), hashlib.sha256(f.read()).hexdigest())


def main():
    global W
    atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
    W = World()
    try:
        return run_all(CASES)
    finally:
        W.manager.stop()
        try:
            W.between.stop()
        finally:
            for log in ("between.log", "manager.log") if os.environ.get("SPACE_TEST_KEEP") else ():
                shutil.copy(os.path.join(FOLDER, log), os.environ["SPACE_TEST_KEEP"])


CASES = [
    requests_pass_on_one_connection, the_versions_are_mirrored, each_request_is_judged,
    what_could_be_read_differently_is_refused, answers_that_break_the_rules_are_refused, interim_answers_pass,
    both_directions_flow_at_once, large_bodies_pass_in_constant_memory, a_slow_reader_slows_its_server,
    resets_and_goodbyes_are_passed_on, floods_end_the_connection, dropping_ends_what_is_open, secrets_are_put_in_and_taken_out,
    bodies_get_secrets, many_streams_at_once_with_credentials, curl_gets_through,
]

if __name__ == "__main__":
    sys.exit(main())
