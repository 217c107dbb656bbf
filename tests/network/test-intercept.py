# SPDX-License-Identifier: Apache-2.0
"""TLS interception and the use of credentials, end to end between plain sockets: real servers, real clients."""
import atexit

from harness import *  # pylint: disable=wildcard-import,unused-wildcard-import

MANAGER, BETWEEN = sys.argv[1], sys.argv[2]
FOLDER = tempfile.mkdtemp(prefix="space-intercept-")
os.chmod(FOLDER, 0o755)
INTERNET = {"preset": "custom", "rules": [
    {"host": NAME, "ports": "1-65535", "methods": ["DELETE"], "path": "/denied", "action": "deny"},
    {"host": "*.example.com", "ports": "1-65535", "path": "/", "action": "inspect"},
    {"cidr": "127.0.0.0/8", "ports": "1-65535", "action": "allow"}]}


class World:
    def __init__(self):
        self.outside = Authority(FOLDER, "outside")
        self.evil = Authority(FOLDER, "evil")
        self.good_server = Server(self.outside.leaf(NAME))
        self.evil_server = Server(self.evil.leaf(NAME))
        self.other_server = Server(self.outside.leaf("other.example.com"))
        self.plain_server = Server(None)
        self.token_server = Server(self.outside.leaf("localhost"))
        self.manager = Manager(MANAGER, FOLDER, "--token-ca-file", self.outside.cert, "--token-private")
        self.ca = self.manager.authority()
        self.ca_file = os.path.join(FOLDER, "guest-ca.pem")
        with open(self.ca_file, "w") as f:
            f.write(self.ca)
        self.between = Between(BETWEEN, self.manager, self.outside.cert, INTERNET, (NAME, self.good_server.port),
                               ("other.example.com", self.other_server.port), ("evil.example.com", self.evil_server.port),
                               ("+plain.example.com", self.plain_server.port))
        self.port = self.between.ports[NAME]

    def guest(self, **kw):
        return Guest(self.port, self.ca, **kw)

    def add(self, name, inject, **kw):
        kw.setdefault("port", self.good_server.port)
        made = self.manager.add(name, inject, **kw)
        self.settle(made)
        return made

    def settle(self, made):
        """Until the interceptor has heard of it: its first use is in the log."""
        method = (made["target"]["methods"] or ["POST"])[0]
        body = "{}" if method == "POST" else ""
        fields = "X-Settle: {{%s}}\r\nContent-Type: application/json\r\n" % made["name"]
        fields += "Content-Length: 2\r\n" if body else ""

        def used():
            guest = self.guest()
            guest.send("%s %s HTTP/1.1\r\nHost: %s\r\n%s\r\n%s" % (method, made["target"]["path"], NAME, fields, body))
            guest.answer()
            guest.close()
            return self.manager.events(credential_id=made["id"], event="use")

        if made["target"]["host"] == NAME:
            until(used, "the credential '%s' is used" % made["name"])

    def last(self):
        return Request(None, self.good_server.heads[-1], b"")


W = None


def with_credential(inject, **kw):
    """Decorates a case: runs it with a credential that is removed afterwards."""

    def decorate(fn):
        def case():
            made = W.add("c-" + fn.__name__.replace("_", "-")[:50], inject, **kw)
            try:
                fn(made)
            finally:
                W.manager.remove(made)
        case.__name__ = fn.__name__
        return case
    return decorate


# ---- injection ----

@with_credential({"type": "bearer"})
def bearer_goes_out_once_in_place_of_the_guests_own(_made):
    guest = W.guest()
    for fields in ("", "Authorization: Bearer mine\r\n", "AUTHORIZATION: a\r\nauthorization: b\r\n",
                   "Authorization: Bearer x  \r\nConnection: authorization, close-not\r\n",
                   "Authorization: %s\r\n" % ("x" * 16000)):
        status, _, _ = guest.get("/x", fields=fields)
        equal(status, 200)
        equal(W.last().all("authorization"), ["Bearer " + SECRET])
        equal(W.last().all("host"), ["%s:%d" % (NAME, W.good_server.port)])
    for fields in ("Authorization : x\r\n", "Authorization: a\r\n b\r\n"):
        bad = W.guest()
        equal(bad.get("/x", fields=fields)[0], 400)
        bad.close()
    guest.close()


@with_credential({"type": "header", "name": "X-Api-Key", "prefix": "key "})
def any_header(_made):
    guest = W.guest()
    guest.get("/", fields="x-API-key: a\r\nAuthorization: stays\r\n")
    equal(W.last().all("x-api-key"), ["key " + SECRET])
    equal(W.last().all("authorization"), ["stays"])


@with_credential({"type": "basic", "user": "git"})
def basic(_made):
    W.guest().get("/")
    equal(W.last().all("authorization"), ["Basic " + base64.b64encode(("git:" + SECRET).encode()).decode()])


@with_credential({"type": "query", "name": "api_key"})
def query_parameter_replaces_all_of_its_name(_made):
    W.guest().get("/q?a=1&api_key=mine&%61pi_key=2&b=%20c")
    from urllib.parse import quote
    equal(W.last().target, "/q?a=1&b=%20c&api_key=" + quote(SECRET, safe=""))


@with_credential({"type": "cookie", "name": "session"}, value="cookie-value-4711")
def cookie_replaces_all_of_its_name(_made):
    W.guest().get("/", fields="Cookie: a=1; session=mine\r\nCookie: session=2;b=2\r\n")
    equal(W.last().all("cookie"), ["a=1; b=2; session=cookie-value-4711"])


@with_credential({"type": "body", "name": "token"})
def body_fields(_made):
    guest = W.guest()
    body = b'{"token":"mine","n":1}'
    guest.send("POST /b HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" %
               (NAME, len(body))).send(body)
    equal(guest.answer()[0], 200)
    equal(json.loads(W.good_server.bodies[-1]), {"token": SECRET, "n": 1})
    guest.send("POST /b HTTP/1.1\r\nHost: %s\r\nContent-Type: application/x-www-form-urlencoded\r\n"
               "Transfer-Encoding: chunked\r\n\r\n8\r\ntoken=x&\r\n3\r\na=1\r\n0\r\n\r\n" % NAME)
    equal(guest.answer()[0], 200)
    from urllib.parse import parse_qs
    equal(parse_qs(W.good_server.bodies[-1].decode()), {"token": [SECRET], "a": ["1"]})
    guest.send("POST /b HTTP/1.1\r\nHost: %s\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nhi" % NAME)
    status, _, text = guest.answer()
    equal((status, json.loads(text)["error"]["code"]), (400, "body_not_injectable"))


@with_credential({"type": "placeholder", "in": ["header", "query", "body"]})
def placeholders_only_where_they_are_meant(made):
    mark = "{{%s}}" % made["name"]
    guest = W.guest()
    basic = base64.b64encode(("me:" + mark).encode()).decode()
    body = '{"a":"%s","b":"{{other}}"}' % mark
    guest.send("POST /p?k=%s HTTP/1.1\r\nHost: %s\r\nX-A: a %s b\r\nAuthorization: Basic %s\r\nX-B: {{unknown}}\r\n"
               "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" %
               (mark.replace("{", "%7B").replace("}", "%7D"), NAME, mark, basic, len(body), body))
    equal(guest.answer()[0], 200)
    equal(W.last().all("x-a"), ["a %s b" % SECRET])
    equal(W.last().all("x-b"), ["{{unknown}}"])
    equal(base64.b64decode(W.last().one("authorization").split(" ")[1]).decode(), "me:" + SECRET)
    equal(json.loads(W.good_server.bodies[-1]), {"a": SECRET, "b": "{{other}}"})
    from urllib.parse import parse_qs, urlsplit
    equal(parse_qs(urlsplit(W.last().target).query), {"k": [SECRET]})
    # Another server gets the placeholder, not the secret.
    elsewhere = Guest(W.between.ports["other.example.com"], W.ca, name="other.example.com")
    elsewhere.get("/", host="other.example.com", fields="X-A: %s\r\n" % mark)
    equal(Request(None, W.other_server.heads[-1], b"").all("x-a"), [mark])


@with_credential({"type": "bearer"}, target={"path": "/v1/repos", "methods": ["GET", "HEAD"]})
def target_decides(_made):
    guest = W.guest()
    for path, method, want in (("/v1/repos", "GET", True), ("/v1/repos/a?x=1", "GET", True), ("/v1/repos", "PUT", False),
                               ("/v1/repository", "GET", False), ("/v1/repos/../admin", "GET", False),
                               ("/v1/repos/%2e%2e/admin", "GET", False), ("/v1/repos//x", "GET", False),
                               ("/v1/repos/a%2fb", "GET", False), ("/v1/repos/a%5cb", "GET", False), ("/", "GET", False)):
        guest.get(path, method=method)
        equal(bool(W.last().all("authorization")), want, "%s %s" % (method, path))


def a_redirect_does_not_carry_the_secret():
    made = W.add("redirecting", {"type": "bearer"})
    try:
        W.good_server.routes["/away"] = lambda s, r: r.reply(status="302 Found", fields=[
            ("Location", "https://other.example.com:%d/caught" % W.other_server.port)])
        status, answer, _ = W.guest().get("/away")
        equal(status, 302)
        check(SECRET not in str(answer.fields), "the redirect shows the secret")
        Guest(W.between.ports["other.example.com"], W.ca, name="other.example.com").get("/caught", host="other.example.com")
        equal(Request(None, W.other_server.heads[-1], b"").all("authorization"), [])
    finally:
        W.manager.remove(made)


def nearest_scope_wins_and_never_falls_back():
    org = W.add("scoped", {"type": "bearer"}, value="of-the-organisation", scope="organisation")
    project = W.add("scoped", {"type": "bearer"}, value="of-the-project", scope="project")
    own = W.manager.add("scoped", {"type": "bearer"}, value="of-the-sandbox", scope="sandbox", sandbox=SANDBOX,
                        port=W.good_server.port)
    W.guest().get("/")
    equal(W.last().all("authorization"), ["Bearer of-the-sandbox"])
    W.manager.change(own, target={"host": "elsewhere.example.com"})
    W.guest().get("/")
    equal(W.last().all("authorization"), [])
    W.manager.remove(own)
    W.guest().get("/")
    equal(W.last().all("authorization"), ["Bearer of-the-project"])
    W.manager.change(project, expires_at_ms=1)
    status, _, body = W.guest().get("/")
    equal((status, json.loads(body)["error"]["code"]), (403, "credential_expired"))
    W.manager.remove(project)
    W.guest().get("/")
    equal(W.last().all("authorization"), ["Bearer of-the-organisation"])
    W.manager.remove(org)


def rotation_and_removal_reach_an_open_connection():
    made = W.add("rotating", {"type": "bearer"})
    guest = W.guest()
    guest.get("/")
    equal(W.last().all("authorization"), ["Bearer " + SECRET])
    W.manager.change(made, value="the-next-secret")
    guest.get("/")
    equal(W.last().all("authorization"), ["Bearer the-next-secret"])
    W.manager.remove(made)
    guest.get("/")
    equal(W.last().all("authorization"), [])


def rate_is_held():
    made = W.manager.add("slow", {"type": "bearer"}, port=W.good_server.port, rate={"uses": 3, "per_s": 86400})
    got = []

    def limited():
        got.append(W.guest().get("/")[0])
        return got[-1] == 429
    until(limited, "the limit")
    equal(len(W.manager.events(event="use", credential="slow")), 3)
    equal(W.manager.events(event="refuse", credential="slow")[0]["reason"], "credential_rate")
    W.manager.remove(made)


# ---- what is fetched or made for a secret ----

def token_url(path=""):
    return "https://localhost:%d%s" % (W.token_server.port, path)


def oauth2_tokens_are_fetched_once_and_renewed():
    from urllib.parse import parse_qs, quote
    asked = []

    def give(_server, request):
        form = parse_qs(b"".join(request.body()).decode())
        asked.append((request.one("authorization"), form))
        # The first lasts no longer than what is spare: it is used once.
        lasts = 60 if len(asked) == 1 else 3600
        request.reply(json.dumps({"access_token": "token-number-%d" % len(asked), "token_type": "bearer",
                                  "expires_in": lasts}).encode())
    W.token_server.routes["/token"] = give
    made = W.manager.add("oauth", {"type": "oauth2", "token_url": token_url("/token"), "client_id": "me:too", "scope": "a b"},
                         port=W.good_server.port)
    W.settle(made)
    guest = W.guest()
    for _ in range(3):
        guest.get("/")
    equal(W.last().all("authorization"), ["Bearer token-number-2"])
    equal(len(asked), 2, "tokens that were fetched")
    equal(asked[0], ("Basic " + base64.b64encode(("me%3Atoo:" + quote(SECRET, safe="")).encode()).decode(),
                     {"grant_type": ["client_credentials"], "scope": ["a b"]}))
    W.manager.change(made, value="another-client-secret")
    guest.get("/")
    equal(W.last().all("authorization"), ["Bearer token-number-3"])
    W.token_server.routes["/token"] = lambda s, r: r.reply(b"{}", status="401 Unauthorized")
    W.manager.change(made, value="a-wrong-client-secret")
    status, _, body = guest.get("/")
    equal((status, json.loads(body)["error"]["code"]), (403, "token_refused"))
    W.manager.remove(made)


def refresh_tokens_that_change_are_kept():
    from urllib.parse import parse_qs
    asked = []

    def give(_server, request):
        asked.append(parse_qs(b"".join(request.body()).decode())["refresh_token"][0])
        request.reply(json.dumps({"access_token": "access-%d-token" % len(asked), "expires_in": 1,
                                  "refresh_token": "refresh-%d-token" % len(asked)}).encode())
    W.token_server.routes["/refresh"] = give
    made = W.manager.add("refreshing", {"type": "oauth2", "token_url": token_url("/refresh"), "client_id": "me", "refresh": True},
                         port=W.good_server.port, value="refresh-0-token")
    W.settle(made)
    W.guest().get("/")
    equal(asked[:2], ["refresh-0-token", "refresh-1-token"])
    W.manager.remove(made)


def github_apps_get_installation_tokens():
    key = os.path.join(FOLDER, "app.pem")
    openssl("genrsa", "-out", key, "2048")
    openssl("rsa", "-in", key, "-pubout", "-out", key + ".pub")
    with open(key) as f:
        pem = f.read()

    def give(_server, request):
        part = lambda s: base64.urlsafe_b64decode(s + "=" * (-len(s) % 4))  # noqa: E731
        head, claims, signature = request.one("authorization").split(" ")[1].split(".")
        with open(key + ".sig", "wb") as f:
            f.write(part(signature))
        with open(key + ".txt", "w") as f:
            f.write(head + "." + claims)
        openssl("dgst", "-sha256", "-verify", key + ".pub", "-signature", key + ".sig", key + ".txt")
        c = json.loads(part(claims))
        check(c["iss"] == "12345" and c["iat"] <= time.time() < c["exp"] <= time.time() + 600, c)
        request.reply(json.dumps({"token": "ghs_installation_token", "expires_at": "2030-01-01T00:00:00Z"}).encode(),
                      status="201 Created")
    W.token_server.routes["/app/installations/77/access_tokens"] = give
    made = W.manager.add("app", {"type": "github_app", "token_url": token_url(), "client_id": "12345", "installation": "77"},
                         port=W.good_server.port, value=pem)
    W.settle(made)
    equal(W.last().all("authorization"), ["Basic " + base64.b64encode(b"x-access-token:ghs_installation_token").decode()])
    W.manager.remove(made)


def aws_requests_are_signed_anew():
    import hmac
    made = W.manager.add("aws", {"type": "sigv4", "client_id": "AKIDREAL"}, port=W.good_server.port, value=SECRET)
    body = b'{"TableName":"t"}'
    dummy = "AWS4-HMAC-SHA256 Credential=AKIDDUMMY/20200101/eu-west-1/dynamodb/aws4_request, SignedHeaders=host, Signature=00"

    def signed():
        guest = W.guest()
        guest.send("POST /?b=2&a=1 HTTP/1.1\r\nHost: %s\r\nAuthorization: %s\r\nX-Amz-Date: 20200101T000000Z\r\n"
                   "X-Amz-Target: X.Y\r\nX-Amz-Security-Token: mine\r\nContent-Length: %d\r\n\r\n" %
                   (NAME, dummy, len(body))).send(body)
        guest.answer()
        return "AKIDREAL" in W.last().one("authorization")
    until(signed, "it is signed")
    last = W.last()
    when = last.one("x-amz-date")
    digest = hashlib.sha256(body).hexdigest()
    names = "host;x-amz-content-sha256;x-amz-date;x-amz-target"
    canonical = "POST\n/\na=1&b=2\nhost:%s\nx-amz-content-sha256:%s\nx-amz-date:%s\nx-amz-target:X.Y\n\n%s\n%s" % (
        last.one("host"), digest, when, names, digest)
    scope = "%s/eu-west-1/dynamodb/aws4_request" % when[:8]
    to_sign = "AWS4-HMAC-SHA256\n%s\n%s\n%s" % (when, scope, hashlib.sha256(canonical.encode()).hexdigest())
    k = ("AWS4" + SECRET).encode()
    for step in scope.split("/"):
        k = hmac.new(k, step.encode(), hashlib.sha256).digest()
    want = hmac.new(k, to_sign.encode(), hashlib.sha256).hexdigest()
    equal(last.all("authorization"), ["AWS4-HMAC-SHA256 Credential=AKIDREAL/%s, SignedHeaders=%s, Signature=%s" % (
        scope, names, want)])
    equal(last.all("x-amz-security-token"), [])
    equal(W.good_server.bodies[-1], body)
    W.manager.remove(made)


# ---- what comes back ----

@with_credential({"type": "bearer"})
def echoes_are_redacted_in_all_promised_forms(_made):
    from urllib.parse import quote, quote_plus
    raw = SECRET.encode()
    forms = [raw, json.dumps(SECRET)[1:-1].encode(), base64.b64encode(raw), base64.b64encode(b"user:" + raw),
             base64.b64encode(b"x" + raw), base64.urlsafe_b64encode(b"xy" + raw), quote(SECRET, safe="").encode(),
             quote_plus(SECRET).encode(), raw.hex().encode(), raw.hex().upper().encode()]
    text = b"|".join(forms)

    def echo(_server, request):
        body = request.head + text
        fields = [("X-Debug", SECRET), ("Set-Cookie", "a=%s; Path=/" % base64.b64encode(raw).decode())]
        head = "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n" % len(body) + "".join("%s: %s\r\n" % f for f in fields) + "\r\n"
        data = head.encode() + body
        step = 7
        for i in range(0, len(data), step):
            request.conn.sendall(data[i:i + step])

    W.good_server.routes["/echo"] = echo
    guest = W.guest()
    guest.send("GET /echo HTTP/1.1\r\nHost: %s\r\n\r\n" % NAME)
    head = guest.head()
    length = int([line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")][0].split(b":")[1])
    body = guest.rest
    while len(body) < length:
        body += guest.sock.recv(65536)
    for form in forms[:3] + forms[6:]:
        check(form not in head + body, "%r came back" % form)
    for part in (base64.b64encode(b"user:" + raw)[8:-2], base64.b64encode(b"x" + raw)[4:-4]):
        check(part not in body, "%r came back" % part)
    equal(W.last().all("accept-encoding"), ["identity"])


@with_credential({"type": "bearer"})
def what_cannot_be_searched_is_not_passed_on(_made):
    W.good_server.routes["/zip"] = lambda s, r: r.reply(gzip.compress(SECRET.encode()), fields=[("Content-Encoding", "gzip")])
    status, _, body = W.guest().get("/zip")
    equal(status, 502)
    check(SECRET.encode() not in body, "it came back")


@with_credential({"type": "bearer"})
def chunks_cut_anywhere_are_redacted(_made):
    def cut(_server, request):
        request.conn.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for byte in b"<" + SECRET.encode() + b">":
            request.conn.sendall(b"1\r\n%c\r\n" % byte)
        request.conn.sendall(b"0\r\nX-Trailer: %s\r\n\r\n" % SECRET.encode())
    W.good_server.routes["/cut"] = cut
    _, answer, body = W.guest().get("/cut")
    equal((body, answer.trailers), (b"<" + b"*" * len(SECRET) + b">", [b"X-Trailer: " + b"*" * len(SECRET)]))


@with_credential({"type": "header", "name": "X-Api-Key"})
def trailers_pass_both_ways(_made):
    seen = []

    def echo(_server, request):
        body = b"".join(request.body())
        seen.append((request, body, request.trailers))
        request.conn.sendall(b"HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n"
                             b"X-Sum: 1\r\nGrpc-Status:0\r\n\r\n" % (len(body), body))
    W.good_server.routes["/trailers"] = echo
    guest = W.guest()
    for _ in range(2):
        guest.send("POST /trailers HTTP/1.1\r\nHost: %s\r\nConnection: TE\r\nTE: trailers, deflate\r\nTrailer: X-Mine\r\n"
                   "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX-Mine: 5\r\nx-api-KEY: mine\r\nY:\r\n\r\n" % NAME)
        status, answer, body = guest.answer()
        equal((status, body, answer.trailers, answer.all("trailer")), (200, b"hi", [b"X-Sum: 1", b"Grpc-Status: 0"], ["X-Sum"]))
        request, body, trailers = seen.pop()
        equal((body, trailers), (b"hi", [b"X-Mine: 5", b"Y: "]), "what the server got")
        equal((request.all("te"), request.all("connection"), request.all("trailer")), (["trailers"], ["TE"], ["X-Mine"]))
        equal(request.all("x-api-key"), [SECRET])


def trailers_that_belong_into_a_head_are_refused():
    got = []

    def take(_server, request):
        b"".join(request.body())
        got.append(request.trailers)
        request.reply(b"taken")
    W.good_server.routes["/take"] = take
    for line in ("Content-Length: 5", "Transfer-Encoding: chunked", "Host: evil.example.com", "Authorization: x", "Cookie: a=b",
                 "A : b", " folded", "A: \0", "A: b\nC: d", "X: " + "x" * 9000):
        guest = W.guest().send("POST /take HTTP/1.1\r\nHost: %s\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n%s\r\n\r\n"
                               "GET /hidden HTTP/1.1\r\nHost: %s\r\n\r\n" % (NAME, line, NAME))
        data = guest.all()
        check(b"200 OK" not in data and data.count(b"HTTP/1.1") <= 1, "%r gave %r" % (line[:40], data[:80]))
    equal(got, [], "whole requests")
    for line in (b"Content-Length: 5", b"Set-Cookie: a=b", b"A : b"):
        def answer(_server, request, line=line):
            request.conn.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n%s\r\n\r\n" % line)
        W.good_server.routes["/answer"] = answer
        data = W.guest().send("GET /answer HTTP/1.1\r\nHost: %s\r\n\r\n" % NAME).all()
        check(not data.endswith(b"0\r\n\r\n") and line not in data, "%r gave %r" % (line, data))
    check(not any(b"/hidden" in h for h in W.good_server.heads), "a hidden request got through")


@with_credential({"type": "bearer"})
def events_are_not_held_back(_made):
    go_on = threading.Event()

    def stream(_server, request):
        request.conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        request.conn.sendall(b"data: 1\n\n")
        go_on.wait(WAIT_S)
        request.conn.sendall(b"data: 2\n\n")
        return "close"
    W.good_server.routes["/events"] = stream
    guest = W.guest().send("GET /events HTTP/1.1\r\nHost: %s\r\n\r\n" % NAME)
    guest.head()
    data = guest.rest
    while b"data: 1\n\n" not in data:
        data += guest.sock.recv(4096)
    check(b"data: 2" not in data, "it cannot know yet")
    go_on.set()
    data += guest.all()
    check(b"data: 2\n\n" in data, "the second event is missing")


def no_log_and_no_list_has_the_secret():
    made = W.add("quiet", {"type": "bearer"}, value="never-written-anywhere-4711")
    W.guest().get("/")
    listed = json.dumps(W.manager.as_actor("/v1/credentials/list")) + json.dumps(W.manager.events())
    check("never-written" not in listed, "an answer has it")
    W.manager.remove(made)
    for folder, _, files in os.walk(FOLDER):
        for name in files:
            path = os.path.join(folder, name)
            if os.path.isfile(path):
                with open(path, "rb") as f:
                    check(b"never-written-anywhere" not in f.read(), path + " has it")


# ---- HTTP as strict as it can be ----

def framing_that_two_parsers_could_read_differently_is_refused():
    end = "0\r\n\r\n"
    hidden = "GET /hidden HTTP/1.1\r\nHost: %s\r\n\r\n" % NAME
    post = "POST /smuggle HTTP/1.1\r\nHost: %s\r\n" % NAME
    before = len(W.good_server.heads)
    for fields in ("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", "Content-Length: 4\r\nContent-Length: 5\r\n",
                   "Content-Length: 5, 5\r\n", "Content-Length: +5\r\n", "Content-Length: 0x5\r\n",
                   "Content-Length: 99999999999999999999\r\n", "Transfer-Encoding: xchunked\r\n",
                   "Transfer-Encoding: identity, chunked\r\n", "Transfer-Encoding : chunked\r\n", "A: b\nTransfer-Encoding: chunked\r\n",
                   "A: b\r\n Transfer-Encoding: chunked\r\n", "A: \0\r\n", "Host: other.example.com\r\n"):
        guest = W.guest().send(post + fields + "\r\n" + end + hidden)
        data = guest.all()
        check(data.startswith(b"HTTP/1.1 4") or data.startswith(b"HTTP/1.1 501"), "%r gave %r" % (fields, data[:80]))
        check(data.count(b"HTTP/1.1") == 1, "%r was answered twice" % fields)
    equal(len(W.good_server.heads), before, "requests that got through")
    for size in ("FFFFFFFFFFFFFFFF", "8000000000000000", "1;ext=1", "-1", " 1"):
        guest = W.guest().send(post + "Transfer-Encoding: chunked\r\n\r\n%s\r\n" % size + hidden)
        guest.all()
    check(not any(b"/hidden" in h for h in W.good_server.heads), "a hidden request got through")
    guest = W.guest()
    try:
        guest.send("GET / HTTP/1.1\r\nHost: %s\r\nX: %s\r\n\r\n" % (NAME, "x" * 1000000))
    except OSError:
        pass  # it does not read all of that
    check(guest.all().startswith(b"HTTP/1.1 431"), "a head of 1 MB")


def answers_that_two_parsers_could_read_differently_are_refused():
    for number, head in enumerate((
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "Content-Length: 5\r\nContent-Length: 6\r\n",
            "Content-Length: +5\r\n", "Transfer-Encoding: xchunked\r\n", "A : b\r\n", "A: b\r\n c\r\n", "A: \0\r\n")):
        def bad(_server, request, head=head):
            request.conn.sendall(("HTTP/1.1 200 OK\r\n%s\r\nhello" % head).encode())
            return "close"
        W.good_server.routes["/bad%d" % number] = bad
        equal(W.guest().get("/bad%d" % number)[0], 502, repr(head))

    def two(_server, request):
        request.conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison")
    W.good_server.routes["/two"] = two
    guest = W.guest()
    equal(guest.get("/two")[2], b"ok")
    equal(guest.get("/after")[2], b"hello /after")


def names_must_agree():
    guest = W.guest()
    equal(guest.get("/", host="other.example.com")[0], 421)
    for host in (NAME + ".", NAME + ":1", "x" + NAME):
        equal(W.guest().get("/", host=host)[0], 421, host)
    equal(W.guest().get("/", host="%s:%d" % (NAME.upper(), W.good_server.port))[0], 200)
    equal(W.guest().get("https://%s/abs" % NAME)[0], 200)
    equal(W.last().target, "/abs")
    equal(W.guest().get("%s:%d" % (NAME, W.good_server.port), method="CONNECT")[0], 400)
    equal(W.guest().get("%s:443" % NAME, method="CONNECT", host=NAME + ":443")[0], 405)


def policy_judges_each_request():
    guest = W.guest()
    equal(guest.get("/fine")[0], 200)
    status, _, body = guest.get("/denied/x", method="DELETE")
    equal((status, json.loads(body)["error"]["code"]), (403, "denied_by_policy"))


def servers_that_cannot_be_verified_get_nothing():
    made = W.add("for-evil", {"type": "bearer"}, port=W.evil_server.port, host="evil.example.com")
    guest = Guest(W.between.ports["evil.example.com"], W.ca, name="evil.example.com")
    status, _, body = guest.get("/", host="evil.example.com")
    equal((status, json.loads(body)["error"]["code"]), (502, "tls_not_trusted"))
    equal(W.evil_server.heads, [])
    W.manager.remove(made)


def interim_answers_and_expect():
    body = b"x" * (10 * 1024 * 1024)
    digest = hashlib.sha256(body).hexdigest()

    def read_and_tell(request, first):
        for line in first:
            request.conn.sendall(b"HTTP/1.1 %s\r\n\r\n" % line)
        h = hashlib.sha256()
        for part in request.body():
            h.update(part)
        request.reply(h.hexdigest().encode())

    W.good_server.routes["/100"] = lambda s, r: read_and_tell(r, [b"100 Continue"])
    W.good_server.routes["/100twice"] = lambda s, r: read_and_tell(r, [b"100 Continue", b"100 Continue"])
    W.good_server.routes["/103"] = lambda s, r: read_and_tell(r, [b"103 Early Hints"])
    W.good_server.routes["/never"] = lambda s, r: read_and_tell(r, [])

    def refuse(status):
        def route(_server, request):
            request.reply(b"no", status=status)
            return "close"
        return route
    W.good_server.routes["/417"] = refuse("417 Expectation Failed")
    W.good_server.routes["/403"] = refuse("403 Forbidden")
    path = os.path.join(FOLDER, "big")
    with open(path, "wb") as f:
        f.write(body)
    for where, want in (("/100", "200 " + digest), ("/100twice", "200 " + digest), ("/103", "200 " + digest),
                        ("/never", "200 " + digest), ("/403", "403 no")):
        r = curl(where, "-H", "Expect: 100-continue", "--data-binary", "@" + path, "-w", "%{http_code}")
        equal(r[-3:] + " " + r[:-3], want, where)
    guest = W.guest().send("POST /417 HTTP/1.1\r\nHost: %s\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n" % NAME)
    equal(guest.answer()[0], 417)


def large_bodies_pass_in_constant_memory():
    size = 300 * 1024 * 1024

    def giant(_server, request):
        for _ in request.body():
            pass
        request.conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        block = b"y" * (1 << 20)
        for _ in range(size >> 20):
            request.conn.sendall(block)
    W.good_server.routes["/giant"] = giant
    made = W.add("giant", {"type": "bearer"})
    guest = W.guest().send("GET /giant HTTP/1.1\r\nHost: %s\r\n\r\n" % NAME)
    guest.head()
    left = size - len(guest.rest)
    while left:
        left -= len(guest.sock.recv(1 << 20))
    with open("/proc/%d/status" % W.between.process.pid) as f:
        peak = [int(line.split()[1]) for line in f if line.startswith("VmHWM")][0]
    slack = 10 if os.environ.get("SPACE_TEST_SLOWNESS", "1") != "1" else 1
    check(peak < 64 * 1024 * slack, "the interceptor took %d KiB" % peak)
    W.manager.remove(made)


def kept_connections_that_the_server_closes_are_replaced():
    def last(_server, request):
        request.reply(b"bye")
        return "close"
    W.good_server.routes["/last"] = last
    guest = W.guest()
    for _ in range(5):
        equal(guest.get("/last")[2], b"bye")
        equal(guest.get("/x")[2], b"hello /x")
    before = W.good_server.connections
    for _ in range(5):
        guest.get("/x")
    equal(W.good_server.connections, before, "connections")


def websocket_is_bytes_after_101():
    made = W.add("ws", {"type": "bearer"})

    def upgrade(_server, request):
        if not request.one("upgrade"):
            request.reply()
            return None
        request.conn.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nfirst")
        if request.rest:
            request.conn.sendall(request.rest)
        while True:
            data = request.conn.recv(65536)
            if not data:
                request.conn.sendall(b"bye")
                return "close"
            request.conn.sendall(data)
    W.good_server.routes["/ws"] = upgrade
    W.good_server.routes["/nows"] = lambda s, r: r.reply(b"no", status="403 Forbidden")
    ask = "GET %s HTTP/1.1\r\nHost: " + NAME + "\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n" \
        "Sec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n\r\n"
    equal(W.guest().send(ask % "/nows").answer()[0], 403)
    guest = W.guest().send(ask % "/ws" + "early")
    head = guest.head()
    check(head.startswith(b"HTTP/1.1 101"), head)
    equal(W.last().all("authorization"), ["Bearer " + SECRET])
    data = guest.rest
    want = b"firstearly"
    # In turns: Python's TLS sockets are not for a thread that sends and one that receives.
    # The last is a message that ends like the beginning of a secret.
    for piece in [os.urandom(1 << 15) for _ in range(32)] + [b"more " + SECRET[:4].encode()]:
        guest.send(piece)
        want += piece
        while len(data) < len(want):
            data += guest.sock.recv(65536)
    check(data == want, "bytes were changed")
    W.manager.remove(made)


def dropping_ends_what_is_open():
    W.good_server.routes["/hang"] = lambda s, r: time.sleep(WAIT_S)
    guest = W.guest().send("GET /hang HTTP/1.1\r\nHost: %s\r\n\r\n" % NAME)
    until(lambda: W.good_server.heads[-1].startswith(b"GET /hang"), "the request arrives")
    W.between.drop()
    equal(guest.all(), b"")


def silent_connections_have_no_thread_and_come_back():
    closed = threading.Semaphore(0)

    def first(_server, request):
        request.reply(b"first")
        if not request.conn.recv(1):
            closed.release()
        return "close"

    def threads():
        return len(os.listdir("/proc/%d/task" % W.between.process.pid))
    W.good_server.routes["/first"] = first
    guests = [W.guest() for _ in range(2)]
    for guest in guests:
        equal(guest.get("/first")[2], b"first")
    before = threads()
    for _ in guests:
        check(closed.acquire(timeout=WAIT_S), "the server's connection is kept for ever")
    until(lambda: threads() <= before - 2, "the threads of two silent connections end")
    equal(guests[0].get("/second")[2], b"hello /second")
    equal(guests[0].get("/third")[2], b"hello /third")
    W.between.drop()
    equal([g.all() for g in guests], [b"", b""], "what is dropped")


def plain_http_is_judged_but_gets_no_secret():
    made = W.add("plain", {"type": "bearer"}, port=W.plain_server.port, host="plain.example.com")
    guest = Guest(W.between.ports["+plain.example.com"], None)
    equal(guest.get("/x", host="plain.example.com")[0], 200)
    equal(Request(None, W.plain_server.heads[-1], b"").all("authorization"), [])
    W.manager.remove(made)


# ---- real clients ----

def curl(path, *more):
    r = subprocess.run(["curl", "-sS", "--max-time", str(int(WAIT_S)), "--cacert", W.ca_file, "--connect-to",
                        "%s:%d:127.0.0.1:%d" % (NAME, W.good_server.port, W.port),
                        "https://%s:%d%s" % (NAME, W.good_server.port, path), *more], capture_output=True, check=False)
    check(r.returncode == 0, "curl %s: %s" % (path, r.stderr.decode()))
    return r.stdout.decode()


@with_credential({"type": "bearer"})
def curl_and_requests_get_through(_made):
    if not shutil.which("curl"):
        raise Skip("there is no curl")
    equal(curl("/curl"), "hello /curl")
    equal(W.last().all("authorization"), ["Bearer " + SECRET])
    try:
        import requests
        import urllib3.util.connection as connection
    except ImportError:
        raise Skip("there is no python3-requests") from None
    real = connection.create_connection
    connection.create_connection = lambda address, *a, **kw: real(
        ("127.0.0.1", W.port) if address[0] == NAME else address, *a, **kw)
    try:
        with requests.Session() as session:
            session.trust_env = False  # its variables would win over verify
            session.verify = W.ca_file
            for i in range(3):
                r = session.post("https://%s:%d/r%d" % (NAME, W.good_server.port, i), data=iter([b"a", b"b"]),
                                 auth=("dummy", "dummy"))
                equal((r.status_code, r.text), (200, "hello /r%d" % i))
                equal(W.good_server.bodies[-1], b"ab")
                equal(W.last().all("authorization"), ["Bearer " + SECRET])
    finally:
        connection.create_connection = real


def certificates_are_as_they_should_be():
    guest = W.guest(alpn=["h2", "http/1.1"])
    equal(guest.sock.selected_alpn_protocol(), "http/1.1")
    cert = guest.sock.getpeercert()
    equal(cert["subjectAltName"], (("DNS", NAME),))
    other = W.manager.authority(OTHER_ORG)
    check(other != W.ca, "two organisations share an authority")
    try:
        Guest(W.port, other)
        raise Failed("another organisation's authority is trusted")
    except ssl.SSLCertVerificationError:
        pass
    until(lambda: any(e["refused"] == "guest_tls_failed" for e in W.between.ended), "the refusal is told")


# ---- the manager ----

def everything_is_there_after_a_crash():
    made = W.add("lasting", {"type": "bearer"})
    W.manager.stop("kill")
    status, _, body = W.guest().get("/")
    equal(status, 503, body)
    W.manager.start()
    until(lambda: W.guest().get("/")[0] == 200 and W.last().all("authorization") == ["Bearer " + SECRET], "it is used again")
    equal(W.manager.authority(), W.ca)
    W.manager.remove(made)
    status, found = W.manager.ask("GET", "/v1/verify")
    equal((status, found["intact"]), (200, True))


def the_audit_log_tells_when_it_was_changed():
    made = W.add("audited", {"type": "bearer"})
    W.guest().get("/seen?secret=query")
    row = W.manager.events(event="use", credential="audited")[0]
    equal((row["host"], row["method"], row["path"], row["sandbox"]), (NAME, "GET", "/seen", SANDBOX))
    check(W.manager.events(event="add", credential="audited")[0]["key"], "who added it")
    W.manager.remove(made)
    path = os.path.join(W.manager.state_dir, "audit.log")
    with open(path, "rb") as f:
        text = f.read()
    lines = text.splitlines(True)

    def broken(changed):
        W.manager.stop()
        with open(path, "wb") as f:
            f.write(changed)
        W.manager.start()
        found = W.manager.ask("GET", "/v1/verify")[1]
        return not found["intact"]
    check(broken(b"".join(lines[:2] + lines[3:])), "a missing line is not seen")
    check(broken(text.replace(b'"credential":"audited"', b'"credential":"Audited"', 1)), "a changed line is not seen")
    check(not broken(text), "the log itself is not intact")
    check(not broken(text + b'{"n":1,"torn'), "a line that a crash cut short is taken for a change")


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
    certificates_are_as_they_should_be, bearer_goes_out_once_in_place_of_the_guests_own, any_header, basic,
    query_parameter_replaces_all_of_its_name, cookie_replaces_all_of_its_name, body_fields,
    placeholders_only_where_they_are_meant, target_decides, a_redirect_does_not_carry_the_secret,
    nearest_scope_wins_and_never_falls_back, rotation_and_removal_reach_an_open_connection, rate_is_held,
    oauth2_tokens_are_fetched_once_and_renewed, refresh_tokens_that_change_are_kept, github_apps_get_installation_tokens,
    aws_requests_are_signed_anew,
    echoes_are_redacted_in_all_promised_forms, what_cannot_be_searched_is_not_passed_on, chunks_cut_anywhere_are_redacted,
    trailers_pass_both_ways, trailers_that_belong_into_a_head_are_refused,
    events_are_not_held_back, no_log_and_no_list_has_the_secret,
    framing_that_two_parsers_could_read_differently_is_refused, answers_that_two_parsers_could_read_differently_are_refused,
    names_must_agree, policy_judges_each_request, servers_that_cannot_be_verified_get_nothing, interim_answers_and_expect,
    large_bodies_pass_in_constant_memory, kept_connections_that_the_server_closes_are_replaced, websocket_is_bytes_after_101,
    dropping_ends_what_is_open, silent_connections_have_no_thread_and_come_back,
    plain_http_is_judged_but_gets_no_secret, curl_and_requests_get_through,
    everything_is_there_after_a_crash, the_audit_log_tells_when_it_was_changed,
]

if __name__ == "__main__":
    sys.exit(main())
