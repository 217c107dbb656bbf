# SPDX-License-Identifier: Apache-2.0
"""What the tests of interception share: an authority for the servers' certificates, a server that does what its path says, the
credential manager and the interceptor between plain sockets, a raw TLS client."""
import base64
import gzip
import hashlib
import http.client
import json
import os
import pwd
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import traceback

WAIT_S = 20 * float(os.environ.get("SPACE_TEST_SLOWNESS", "1"))
ORG = "o" + "2" * 19
OTHER_ORG = "o" + "3" * 19
PROJECT = "p" + "2" * 19
OTHER_PROJECT = "p" + "3" * 19
SANDBOX = "s" + "2" * 19
NAME = "api.example.com"
SECRET = "sk-live/4711+\"quoted\"&more=yes"


class Failed(Exception):
    pass


class Skip(Exception):
    pass


def check(condition, text):
    if not condition:
        raise Failed(text)


def equal(got, want, what="it"):
    if got != want:
        raise Failed("%s is %.600r, not %.600r" % (what, got, want))


def until(condition, what):
    """Waits for what happens in another process; the only place where tests look again and again."""
    end = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > end:
            raise Failed("never happened: " + what)
        time.sleep(0.01)


def run_all(cases):
    only = sys.argv[-1] if sys.argv[-1] in [c.__name__ for c in cases] else None
    failed = 0
    print("1..%d" % len(cases), flush=True)
    for number, case in enumerate(cases, 1):
        name = "%d - %s" % (number, case.__name__)
        if only and case.__name__ != only:
            print("ok %s # SKIP not asked for" % name, flush=True)
            continue
        try:
            case()
            print("ok " + name, flush=True)
        except Skip as why:
            print("ok %s # SKIP %s" % (name, why), flush=True)
        except Exception as e:  # pylint: disable=broad-except
            failed += 1
            text = str(e) if isinstance(e, Failed) else traceback.format_exc()
            print("".join("# %s\n" % line for line in text.split("\n")), end="")
            print("not ok " + name, flush=True)
    return 1 if failed else 0


# ---- certificates of the outside world ----

class Authority:
    def __init__(self, folder, name):
        self.folder = folder
        self.name = name
        self.cert = os.path.join(folder, name + ".pem")
        self.key = os.path.join(folder, name + ".key")
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", self.key,
                "-out", self.cert, "-days", "30", "-subj", "/CN=" + name)

    def leaf(self, host, days="5"):
        """Certificate and key of a server for that host, as one file."""
        base = os.path.join(self.folder, "%s-%s" % (self.name, host))
        with open(base + ".ext", "w") as ext:
            ext.write("subjectAltName=DNS:" + host)
        openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", base + ".key",
                "-out", base + ".csr", "-subj", "/CN=x")
        openssl("x509", "-req", "-in", base + ".csr", "-CA", self.cert, "-CAkey", self.key, "-CAcreateserial", "-days", days,
                "-extfile", base + ".ext", "-out", base + ".crt")
        with open(base + ".both", "wb") as both:
            for part in (".key", ".crt"):
                with open(base + part, "rb") as f:
                    both.write(f.read())
        return base + ".both"


def openssl(*args):
    r = subprocess.run(("openssl",) + args, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    check(r.returncode == 0, "openssl %s: %s" % (args[0], r.stderr.decode()))


# ---- the server ----

def read_head(conn):
    data = b""
    while b"\r\n\r\n" not in data:
        more = conn.recv(65536)
        if not more:
            return data, b""
        data += more
    end = data.index(b"\r\n\r\n") + 4
    return data[:end], data[end:]


class Request:
    def __init__(self, conn, head, rest):
        self.conn = conn
        self.head = head
        self.rest = rest
        self.trailers = []
        lines = head.decode("latin-1").split("\r\n")
        self.method, self.target, _ = lines[0].split(" ")
        self.path = self.target.split("?")[0]
        self.fields = [(n.lower(), v.strip()) for n, _, v in (line.partition(":") for line in lines[1:] if line)]

    def all(self, name):
        return [v for n, v in self.fields if n == name.lower()]

    def one(self, name):
        values = self.all(name)
        return values[0] if len(values) == 1 else None

    def take(self, n):
        while len(self.rest) < n:
            more = self.conn.recv(65536)
            if not more:
                raise EOFError
            self.rest += more
        out, self.rest = self.rest[:n], self.rest[n:]
        return out

    def line(self):
        while b"\r\n" not in self.rest:
            more = self.conn.recv(65536)
            if not more:
                raise EOFError
            self.rest += more
        out, _, self.rest = self.rest.partition(b"\r\n")
        return out

    def body(self):
        """In pieces."""
        if self.one("transfer-encoding") == "chunked":
            while True:
                size = int(self.line(), 16)
                if size == 0:
                    self.trailers = list(iter(self.line, b""))
                    return
                yield self.take(size)
                self.line()
        left = int(self.one("content-length") or 0)
        while left:
            if not self.rest:
                self.rest = self.conn.recv(65536)
                if not self.rest:
                    raise EOFError
            part = self.rest[:left]
            self.rest = self.rest[len(part):]
            left -= len(part)
            yield part

    def reply(self, body=b"", status="200 OK", fields=()):
        head = "HTTP/1.1 %s\r\nContent-Length: %d\r\n" % (status, len(body))
        head += "".join("%s: %s\r\n" % f for f in fields)
        self.conn.sendall(head.encode("latin-1") + b"\r\n" + body)


class Server:
    """TLS (or not) on a free port; answers by path; keeps what it saw."""

    def __init__(self, cert, listener=None):
        self.heads = []
        self.bodies = []
        self.connections = 0
        self.routes = {}
        self.listener = listener or socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.context = None
        if cert:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(cert)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            conn, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(conn,), daemon=True).start()

    def serve(self, conn):
        try:
            if self.context:
                conn = self.context.wrap_socket(conn, server_side=True)
            self.connections += 1
            rest = b""
            while True:
                if not rest or b"\r\n\r\n" not in rest:
                    head, more = read_head(conn) if not rest else read_head(Ahead(conn, rest))
                else:
                    end = rest.index(b"\r\n\r\n") + 4
                    head, more = rest[:end], rest[end:]
                if b"\r\n\r\n" not in head:
                    return
                self.heads.append(head)
                request = Request(conn, head, more)
                route = self.routes.get(request.path, Server.hello)
                if route(self, request) == "close":
                    return
                rest = request.rest
        except (OSError, EOFError, ValueError):
            pass
        finally:
            conn.close()

    @staticmethod
    def hello(server, request):
        body = b"".join(request.body())
        server.bodies.append(body)
        request.reply(b"hello " + request.path.encode())


class Ahead:
    def __init__(self, conn, first):
        self.conn = conn
        self.first = first

    def recv(self, n):
        out, self.first = self.first, b""
        return out or self.conn.recv(n)


# ---- ours ----

class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=WAIT_S)
        self.unix = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(WAIT_S)
        self.sock.connect(self.unix)


class Manager:
    def __init__(self, program, folder, *options):
        self.run_dir = os.path.join(folder, "run")
        self.state_dir = os.path.join(folder, "state")
        me = pwd.getpwuid(os.geteuid()).pw_name
        user = []
        own = os.path.join(self.run_dir, "credential")
        for d in (self.run_dir, own, self.state_dir):
            os.makedirs(d, exist_ok=True)
            os.chmod(d, 0o700 if d == self.state_dir else 0o755)
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            os.chown(self.state_dir, nobody.pw_uid, nobody.pw_gid)
            os.chown(own, nobody.pw_uid, nobody.pw_gid)
            user = ["--user", "nobody"]
        self.args = [program, "--state-dir", self.state_dir, "--run-dir", self.run_dir, "--gateway-user", me,
                     "--network-user", me, "--sandbox-user", me] + user + list(options)
        self.path = os.path.join(own, "manager.sock")
        self.log = open(os.path.join(folder, "manager.log"), "ab")
        self.process = None
        self.start()

    def start(self, **env):
        environ = dict(os.environ, **env)
        environ.pop("GLIBC_TUNABLES", None)
        self.process = subprocess.Popen(self.args, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, env=environ)
        until(self.answers, "the credential manager answers")

    def answers(self):
        check(self.process.poll() is None, "the credential manager has ended: " + self.words())
        try:
            return self.ask("GET", "/v1/health")[0] == 200
        except OSError:
            return False

    def words(self):
        with open(self.log.name, "rb") as f:
            return f.read().decode()[-2000:]

    def stop(self, how="terminate"):
        if self.process:
            getattr(self.process, how)()
            self.process.wait(WAIT_S)
            self.process = None

    def ask(self, method, target, body=None):
        conn = UnixConnection(self.path)
        conn.request(method, target, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
        answer = conn.getresponse()
        text = answer.read()
        conn.close()
        return answer.status, json.loads(text) if text else None

    def as_actor(self, what, body=None, organisation=ORG, project=PROJECT, whole=True):
        return self.ask("POST", what, {"actor": {"organisation": organisation, "project": project, "key": "k" + "2" * 19,
                                                  "whole_organisation": whole}, "body": body or {}})

    def add(self, name, inject, value=SECRET, host=NAME, port=443, scope="project", **more):
        target = dict({"host": host, "port": port}, **more.pop("target", {}))
        body = dict({"name": name, "scope": scope, "target": target, "inject": inject}, **more)
        if value is not None:
            body["value"] = value
        status, answer = self.as_actor("/v1/credentials/add", body)
        equal(status, 201, "adding %s: %s" % (name, answer))
        return answer

    def change(self, what, **body):
        status, answer = self.as_actor("/v1/credentials/%s/change" % what["id"], body)
        equal(status, 200, "changing: %s" % answer)
        return answer

    def remove(self, what):
        equal(self.as_actor("/v1/credentials/%s/remove" % what["id"])[0], 204, "removing")

    def authority(self, organisation=ORG):
        status, answer = self.ask("GET", "/v1/authority?organisation=" + organisation)
        equal(status, 200, "the authority")
        return answer["certificate"]

    def events(self, **want):
        _, answer = self.as_actor("/v1/log", {"limit": 1000})
        return [e for e in answer["events"] if all(e.get(k) == v for k, v in want.items())]


class Between:
    """The interceptor; ports maps each name to the port where its guests connect."""

    def __init__(self, program, manager, ca, policy, *maps, owner=(ORG, PROJECT, SANDBOX)):
        self.log = open(os.path.join(os.path.dirname(ca), "between.log"), "ab")
        self.process = subprocess.Popen(
            [program, "unix:" + manager.path, ca, *owner, json.dumps(policy),
             *["%s=%d" % m for m in maps]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log)
        self.ports = {}
        for name, _ in maps:
            line = self.process.stdout.readline()
            check(line, "the interceptor does not start")
            self.ports[name] = int(line)
        self.ended = []
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.ended.append(dict(w.split("=", 1) for w in line.decode().split()[1:]))

    def drop(self):
        self.process.stdin.write(b"d")
        self.process.stdin.flush()

    def stop(self):
        self.process.stdin.close()
        code = self.process.wait(WAIT_S)
        equal(code, 0, "the interceptor's end")


class Guest:
    """A raw client of the intercepted connection."""

    def __init__(self, port, ca_pem, name=NAME, alpn=None):
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
        self.context = ssl.create_default_context(cadata=ca_pem) if ca_pem else None
        if self.context:
            if alpn:
                self.context.set_alpn_protocols(alpn)
            self.sock = self.context.wrap_socket(self.sock, server_hostname=name)

    def send(self, data):
        self.sock.sendall(data if isinstance(data, bytes) else data.encode("latin-1"))
        return self

    def head(self):
        head, self.rest = read_head(self.sock)
        return head

    def answer(self):
        """Status, fields, body of one answer with a length or chunks."""
        head, rest = read_head(self.sock)
        check(b"\r\n\r\n" in head, "no answer but %r" % head)
        line = head.split(b"\r\n")[0].decode()
        request = Request(self.sock, b"GET / x\r\n" + head.split(b"\r\n", 1)[1], rest)
        status = int(line.split(" ")[1])
        body = b"" if status in (204, 304) or status < 200 else b"".join(request.body())
        self.rest = request.rest
        return status, request, body

    def get(self, path="/", host=NAME, fields="", method="GET"):
        self.send("%s %s HTTP/1.1\r\nHost: %s\r\n%s\r\n" % (method, path, host, fields))
        return self.answer()

    def all(self):
        data = b""
        while True:
            try:
                more = self.sock.recv(65536)
            except (ConnectionResetError, ssl.SSLError):
                return data
            if not more:
                return data
            data += more

    def close(self):
        self.sock.close()
