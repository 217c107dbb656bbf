# SPDX-License-Identifier: Apache-2.0
"""A small gateway for the tests of the command line.

It speaks the public API over HTTP/1.1 and WebSocket, keeps "sandboxes" as folders of this machine and runs
their commands as ordinary child processes in those folders, so that what the command line does can be seen end to
end without a machine. It was written from the description of the API, not from the C code, and shares nothing
with it.

A test reaches into it: `requests` is what came, `faults` what is to go wrong, `hostile` what a
sandbox lies about.
"""
import base64
import hashlib
import json
import os
import pty
import random
import select
import signal
import socket
import socketserver
import stat
import struct
import subprocess
import tempfile
import shutil
import termios
import fcntl
import threading
import time
import urllib.parse

ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"


def new_id(kind):
    return kind + "".join(random.choice(ALPHABET) for _ in range(19))


class ApiError(Exception):
    def __init__(self, status, code, message, field=None):
        self.status, self.code, self.message, self.field = status, code, message, field


class Command:
    """One command: its process, its output with offsets, its end."""

    def __init__(self, sandbox, body):
        self.id = new_id("c")
        self.body = body
        self.cond = threading.Condition()
        self.output = []  # (type, bytes)
        self.size = 0
        self.first = 0  # offset of what is still kept
        self.ended = None
        self.started_ms = int(time.time() * 1000)
        self.signals = []
        self.resizes = []
        self.pty_fd = None
        argv = body.get("argv") or ["/bin/sh", "-c", body["shell"]]
        env = {"PATH": os.environ["PATH"], "HOME": sandbox.home}
        env.update(body.get("env") or {})
        cwd = body.get("cwd") or sandbox.home
        self.process = None
        self.error = None
        if "pty" in body:
            self.start_pty(argv, env, cwd, body["pty"])
        else:
            self.start_pipes(argv, env, cwd, body.get("stdin"))
        threading.Thread(target=self.collect, daemon=True).start()

    def start_pipes(self, argv, env, cwd, stdin):
        try:
            self.process = subprocess.Popen(
                argv, env=env, cwd=cwd, stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, bufsize=0)
        except FileNotFoundError:
            self.error, self.code = "there is no program '%s'" % argv[0], 127
        except PermissionError:
            self.error, self.code = "'%s' cannot be executed" % argv[0], 126

    def start_pty(self, argv, env, cwd, size):
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", size["rows"], size["cols"], 0, 0))
        self.pty_fd = master
        try:
            self.process = subprocess.Popen(
                argv, env=env, cwd=cwd, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        except FileNotFoundError:
            self.error, self.code = "there is no program '%s'" % argv[0], 127
        os.close(slave)

    def add(self, kind, data):
        with self.cond:
            self.output.append((kind, self.size, data))
            self.size += len(data)
            self.cond.notify_all()

    def collect(self):
        if self.process is not None:
            fds = {self.pty_fd: b"P"} if self.pty_fd is not None else {
                self.process.stdout.fileno(): b"O", self.process.stderr.fileno(): b"R"}
            while fds:
                ready, _, _ = select.select(list(fds), [], [], 0.05)
                for fd in ready:
                    try:
                        data = os.read(fd, 65536)
                    except OSError:
                        data = b""
                    if data:
                        self.add(fds[fd], data)
                    else:
                        del fds[fd]
                if not ready and self.process.poll() is not None:
                    break
            self.process.wait()
        with self.cond:
            self.ended = int(time.time() * 1000)
            self.cond.notify_all()

    def object(self):
        code, sig = None, None
        if self.ended:
            if self.process is None:
                code = self.code
            else:
                code = self.process.returncode
                if code < 0:
                    sig = signal.Signals(-code).name[3:]
                    code = 128 - code
        return {"id": self.id, "pid": self.process.pid if self.process else 0,
                "argv": self.body.get("argv") or ["/bin/sh", "-c", self.body["shell"]],
                "user": self.body.get("user") or "user", "cwd": "/", "tag": self.body.get("tag"),
                "pty": self.pty_fd is not None, "state": "exited" if self.ended else "running",
                "started_at_ms": self.started_ms, "ended_at_ms": self.ended, "exit_code": code, "signal": sig,
                "timed_out": False, "oom_killed": False, "error": self.error, "output_bytes": self.size,
                "output_offset": self.first}

    def kill(self, signo):
        self.signals.append(signo)
        if self.process and self.process.poll() is None:
            try:
                os.killpg(self.process.pid, signo)
            except ProcessLookupError:
                pass


class Sandbox:
    def __init__(self, body):
        self.id = new_id("s")
        self.root = tempfile.mkdtemp(prefix="fake-sandbox-")
        self.home = os.path.join(self.root, "home/user")
        os.makedirs(self.home)
        os.makedirs(os.path.join(self.root, "tmp"))
        self.commands = {}
        self.object = {"id": self.id, "template": body.get("template", "debian"), "state": "running",
                       "vcpus": body.get("vcpus", 1), "memory_mib": body.get("memory_mib", 256),
                       "disk_mib": body.get("disk_mib", 4096), "metadata": body.get("metadata", {}),
                       "timeout_s": body.get("timeout_s", 3600), "accel": "tcg",
                       "created_at_ms": int(time.time() * 1000), "policy": body.get("policy", {"keep_day": 24})}
        self.snapshots = []  # (object, folder)
        self.paused_how = None
        self.origin = None  # of a fork: {"sandbox": ..., "snapshot": ...}

    def snapshot(self, body, made_by, listed=True):
        folder = tempfile.mkdtemp(prefix="fake-snapshot-", dir=os.path.dirname(self.root))
        subprocess.run(["cp", "-a", self.root + "/.", folder], check=True)
        obj = {"id": new_id("n"), "kind": body.get("kind", "disk"), "keep": body.get("keep", False),
               "name": body.get("name"), "made_by": made_by, "command": body.get("command"), "parent": None, "past": True,
               "created_at_ms": int(time.time() * 1000), "private_bytes": 1 << 20}
        self.folders.append(folder)
        if listed:
            self.snapshots.append((obj, folder))
            return obj
        return (obj, folder)

    folders = []

    def find_snapshot(self, id):
        for s in self.snapshots:
            if s[0]["id"] == id:
                return s
        raise ApiError(404, "snapshot_not_found", "the sandbox has no such snapshot")

    def restore(self, root, snapshot):
        subprocess.run(["find", root, "-mindepth", "1", "-delete"], check=True)
        subprocess.run(["cp", "-a", snapshot[1] + "/.", root], check=True)

    def path(self, text):
        """Bytes of a path in the sandbox to bytes here; links at the end are left alone."""
        if isinstance(text, str):
            text = os.fsencode(text)
        base = os.fsencode(self.root) if text.startswith(b"/") else os.fsencode(self.home)
        return os.path.normpath(os.path.join(base, text.lstrip(b"/")))

    def shown(self, path):
        rest = path[len(self.root):]
        return rest or b"/"

    def remove(self):
        for c in self.commands.values():
            c.kill(signal.SIGKILL)
        subprocess.run(["chmod", "-R", "u+rwx", self.root], check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(self.root, ignore_errors=True)


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            while self.one():
                pass
        except (ConnectionError, BrokenPipeError, TimeoutError, OSError):
            pass

    # ---- HTTP/1.1 ----

    def one(self):
        line = self.rfile.readline(65537)
        if not line:
            return False
        self.method, self.target, _ = line.decode("latin-1").split()
        self.headers = {}
        while True:
            line = self.rfile.readline(65537).decode("latin-1").rstrip("\r\n")
            if not line:
                break
            name, _, value = line.partition(":")
            self.headers[name.lower()] = value.strip()
        path, _, query = self.target.partition("?")
        self.path = path
        self.query = {}
        for pair in query.split("&"):
            name, _, value = pair.partition("=")
            if name:
                self.query[urllib.parse.unquote(name)] = urllib.parse.unquote_to_bytes(value)
        self.body_read = False
        self.replied = False
        gw = self.server.gateway
        gw.requests.append((self.method, self.target, dict(self.headers)))
        try:
            fault = gw.take_fault(self.method, self.path)
            if fault == "cut":
                return False
            if isinstance(fault, ApiError):
                raise fault
            if fault == "hang":
                self.connection.recv(1, socket.MSG_PEEK)
                return False
            self.route()
        except ApiError as e:
            error = {"code": e.code, "message": e.message}
            if e.field:
                error["field"] = e.field
            self.drain()
            self.reply(e.status, {"error": error})
        except FileNotFoundError as e:
            self.drain()
            self.reply(404, {"error": {"code": "not_found", "message": "no such file"}})
        except PermissionError as e:
            self.drain()
            self.reply(403, {"error": {"code": "forbidden", "message": "permission denied"}})
        if not self.body_read:
            self.drain()
        return self.headers.get("connection", "").lower() != "close" and self.keep

    keep = True

    def body_chunks(self):
        self.body_read = True
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            while True:
                size = int(self.rfile.readline().split(b";")[0], 16)
                if size == 0:
                    while self.rfile.readline().strip():
                        pass
                    return
                data = self.rfile.read(size)
                if len(data) < size:
                    raise ConnectionError("cut")
                self.rfile.readline()
                yield data
        else:
            left = int(self.headers.get("content-length", "0"))
            while left > 0:
                data = self.rfile.read1(min(left, 65536))
                if not data:
                    raise ConnectionError("cut")
                left -= len(data)
                yield data

    def drain(self):
        if not self.body_read:
            for _ in self.body_chunks():
                pass

    def json_body(self):
        data = b"".join(self.body_chunks())
        return json.loads(data) if data else {}

    def head(self, status, fields):
        reason = {200: "OK", 201: "Created", 204: "No Content", 404: "Not Found"}.get(status, "X")
        text = "HTTP/1.1 %d %s\r\n" % (status, reason)
        for name, value in fields.items():
            text += "%s: %s\r\n" % (name, value)
        self.wfile.write(text.encode("latin-1") + b"\r\n")
        self.replied = True

    def reply(self, status, obj=None, data=None, fields=None):
        fields = dict(fields or {})
        if status == 204:
            self.head(status, fields)
            return
        if data is None:
            data = json.dumps(obj).encode()
            fields["Content-Type"] = "application/json"
        fields["Content-Length"] = len(data)
        self.head(status, fields)
        self.wfile.write(data)

    def chunk(self, data):
        if data:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    # ---- routes ----

    def route(self):
        gw = self.server.gateway
        parts = self.path.strip("/").split("/")
        if self.path == "/v1/health":
            return self.reply(200, {"ok": True})
        key = self.headers.get("x-api-key") or self.headers.get("authorization", "").replace("Bearer ", "")
        if key not in gw.keys:
            raise ApiError(401, "unauthorized", "the key is not known")
        if parts[:2] == ["v1", "sandboxes"]:
            return self.route_sandboxes(gw, parts[2:])
        if parts[:2] == ["v1", "templates"]:
            return self.reply(200, {"templates": [{"id": "debian", "name": "debian", "size_bytes": 300 << 20,
                                                   "default_user": "user", "description": "Debian"},
                                                  {"id": "tiny", "name": "tiny", "size_bytes": 2 << 20}]})
        if parts[:2] == ["v1", "keys"]:
            return self.route_keys(gw, parts[2:])
        raise ApiError(404, "not_found", "no such route")

    def route_keys(self, gw, parts):
        if self.method == "POST":
            body = self.json_body()
            key = "e2b_" + os.urandom(20).hex()
            gw.keys[key] = {"id": new_id("k"), "name": body.get("name"), "prefix": key[:12],
                            "created_at_ms": int(time.time() * 1000), "project": "p"}
            return self.reply(201, dict(gw.keys[key], key=key))
        if self.method == "GET":
            return self.reply(200, {"keys": [k for k in gw.keys.values() if k]})
        for key, value in list(gw.keys.items()):
            if value and value["id"] == parts[0]:
                del gw.keys[key]
                return self.reply(204)
        raise ApiError(404, "not_found", "there is no such key")

    def route_sandboxes(self, gw, parts):
        if not parts:
            if self.method == "POST":
                return self.create(gw)
            return self.list(gw)
        sandbox = gw.sandboxes.get(parts[0])
        if sandbox is None:
            raise ApiError(404, "sandbox_not_found", "there is no such sandbox")
        rest = parts[1:]
        if not rest:
            if self.method == "GET":
                return self.reply(200, sandbox.object)
            if self.method == "DELETE":
                del gw.sandboxes[sandbox.id]
                sandbox.remove()
                return self.reply(204)
            if self.method == "PATCH":
                sandbox.object.update(self.json_body())
                return self.reply(200, sandbox.object)
        if rest[0] in ("pause", "resume", "snapshots", "rollback", "fork", "history", "trace", "run"):
            return self.route_time(gw, sandbox, rest)
        if rest[0] in ("stop", "start"):
            sandbox.object["state"] = "stopped" if rest[0] == "stop" else "running"
            return self.reply(200, sandbox.object)
        if rest[0] == "logs":
            return self.reply(200, data=gw.log_text, fields={"Content-Type": "text/plain"})
        if rest[0] == "metrics":
            gw.metrics_ms += 100
            return self.reply(200, {"cpu": {"user_ms": gw.metrics_ms, "system_ms": 0, "idle_ms": 0, "count": 1},
                                    "memory": {"total_bytes": 256 << 20, "available_bytes": 200 << 20},
                                    "load": [0.5, 0.1, 0.1], "threads": 42})
        if rest[0] == "commands":
            return self.route_commands(gw, sandbox, rest[1:])
        if rest[0] == "files":
            return self.route_files(gw, sandbox, rest[1:])
        raise ApiError(404, "not_found", "no such route")

    def route_time(self, gw, sandbox, rest):
        """Snapshots are copies of the folder; a fork is a sandbox with such a copy."""
        if rest[0] in ("pause", "resume"):
            sandbox.object["state"] = "paused" if rest[0] == "pause" else "running"
            sandbox.paused_how = self.json_body()
            return self.reply(200, sandbox.object)
        if rest[0] == "history":
            return self.reply(200, {"history": [{"at_ms": 1000, "event": "created", "text": "\x1b[2J"}]})
        if rest[0] == "trace":
            return self.reply(200, {"operations": [
                {"operation": "create", "at_ms": 1000, "took_us": 1500, "ok": True,
                 "steps": [{"step": "disk", "took_us": 500}]}]})
        if rest[0] == "snapshots":
            return self.route_snapshots(sandbox, rest[1:])
        if rest[0] == "run":
            return self.run(sandbox, self.json_body())
        body = self.json_body()
        if rest[0] == "rollback":
            before = sandbox.snapshot({"kind": "full"}, "rollback")
            sandbox.restore(sandbox.root, sandbox.find_snapshot(body["snapshot"]))
            return self.reply(200, dict(sandbox.object, before=before["id"], cold=True))
        children = []
        for _ in range(body.get("count", 1)):
            child = Sandbox(dict(sandbox.object, **{k: body[k] for k in ("metadata", "timeout_s") if k in body}))
            source = sandbox.find_snapshot(body["snapshot"]) if "snapshot" in body else None
            child.restore(child.root, source or sandbox.snapshot({"kind": "full"}, "fork", listed=False))
            child.object["parent"] = sandbox.id
            gw.sandboxes[child.id] = child
            gw.all_sandboxes.append(child)
            children.append(child.object)
        gw.forks += len(children)
        return self.reply(201, {"sandboxes": children})

    def run(self, sandbox, body):
        """To its end; a client that goes has it killed."""
        command = Command(sandbox, body)
        sandbox.commands[command.id] = command
        while not command.ended:
            ready, _, _ = select.select([self.connection], [], [], 0.02)
            if ready and not self.connection.recv(1, socket.MSG_PEEK):
                command.kill(signal.SIGKILL)
                raise ConnectionError("client gone")
        text = {kind: b"".join(d for k, _, d in command.output if k == kind).decode() for kind in (b"O", b"R")}
        return self.reply(200, {"exit_code": command.object()["exit_code"], "stdout": text[b"O"], "stderr": text[b"R"],
                                "timed_out": False})

    def route_snapshots(self, sandbox, parts):
        if not parts and self.method == "POST":
            return self.reply(201, sandbox.snapshot(self.json_body(), "request"))
        if not parts:
            return self.reply(200, {"snapshots": [s for s, _ in reversed(sandbox.snapshots)], "origin": sandbox.origin})
        found = sandbox.find_snapshot(parts[0])
        if self.method == "DELETE":
            sandbox.snapshots.remove(found)
            return self.reply(204)
        if self.method == "PATCH":
            found[0].update(self.json_body())
        return self.reply(200, dict(found[0], exclusive_bytes=4096))

    def create(self, gw):
        body = self.json_body()
        key = self.headers.get("idempotency-key")
        if body.get("template", "debian") not in ("debian", "tiny"):
            raise ApiError(400, "template_not_found", "there is no template '%s'; GET /v1/templates lists them"
                           % body["template"], "template")
        if body.get("memory_mib", 256) > 16384:
            raise ApiError(400, "out_of_range", "'memory_mib' must be from 128 to 16384", "memory_mib")
        if gw.create_gate is not None:
            # A slow create; given up when the client goes.
            while not gw.create_gate.is_set():
                ready, _, _ = select.select([self.connection], [], [], 0.02)
                if ready and not self.connection.recv(1, socket.MSG_PEEK):
                    gw.given_up += 1
                    raise ConnectionError("client gone")
        if key and key in gw.idempotency:
            sandbox = gw.idempotency[key]
        else:
            sandbox = Sandbox(body)
            gw.sandboxes[sandbox.id] = sandbox
            gw.all_sandboxes.append(sandbox)
            if key:
                gw.idempotency[key] = sandbox
        fault = gw.take_fault("CREATED", self.path)
        if fault == "cut":
            raise ConnectionError("cut after create")
        self.reply(201, sandbox.object)

    def list(self, gw):
        rows = sorted((s.object for s in gw.sandboxes.values()), key=lambda o: o["id"])
        state = self.query.get("state", b"").decode()
        rows = [r for r in rows if not state or r["state"] == state]
        for name, value in self.query.items():
            if name.startswith("metadata."):
                rows = [r for r in rows if r["metadata"].get(name[9:]) == value.decode()]
        start = int(self.query.get("cursor", b"0"))
        limit = min(int(self.query.get("limit", b"100")), gw.page_max)
        page = rows[start:start + limit]
        more = str(start + limit) if start + limit < len(rows) else None
        self.reply(200, {"sandboxes": page, "next_cursor": more})

    # ---- commands ----

    def route_commands(self, gw, sandbox, parts):
        if not parts:
            if self.method == "POST":
                body = self.json_body()
                if body.get("user") == "nobody-here":
                    raise ApiError(400, "unknown_user", "there is no user 'nobody-here' in the sandbox", "user")
                command = Command(sandbox, body)
                sandbox.commands[command.id] = command
                if self.query.get("stream") == b"1":
                    return self.stream(gw, command, 0, start=True)
                return self.reply(201, command.object())
            return self.reply(200, {"commands": [c.object() for c in sandbox.commands.values()]})
        command = sandbox.commands.get(parts[0])
        if command is None:
            raise ApiError(404, "command_not_found", "there is no such command")
        what = parts[1] if len(parts) > 1 else ""
        if what == "" and self.method == "DELETE":
            command.kill(signal.SIGKILL)
            del sandbox.commands[command.id]
            return self.reply(204)
        if what == "":
            return self.reply(200, command.object())
        if what == "output":
            return self.stream(gw, command, int(self.query.get("offset", b"0")))
        if what == "stdin":
            return self.stdin(command)
        if what == "signal":
            body = self.json_body()
            name = body["signal"]
            command.kill(name if isinstance(name, int) else getattr(signal, "SIG" + name))
            return self.reply(200, command.object())
        if what == "terminal":
            return self.terminal(gw, command)
        raise ApiError(404, "not_found", "no such route")

    def stdin(self, command):
        if command.process is None or command.process.stdin is None or command.process.stdin.closed:
            raise ApiError(409, "stdin_closed", "standard input is not open")
        for data in self.body_chunks():
            try:
                command.process.stdin.write(data)
            except BrokenPipeError:
                self.keep = False
                raise ApiError(409, "stdin_closed", "the command reads no more")
        if self.query.get("eof") == b"1":
            command.process.stdin.close()
        self.reply(200, {})

    def frame(self, kind, payload):
        self.chunk(kind + b"\0\0\0" + struct.pack(">I", len(payload)) + payload)

    def stream(self, gw, command, offset, start=False):
        self.head(200, {"Content-Type": "application/vnd.space.frames", "Transfer-Encoding": "chunked"})
        sent = 0
        if start:
            self.frame(b"S", json.dumps(command.object()).encode())
        if offset < command.first:
            self.frame(b"G", json.dumps({"from": offset, "to": command.first}).encode())
            offset = command.first
        while True:
            with command.cond:
                while command.size <= offset and not command.ended:
                    command.cond.wait(1)
                pieces = [(k, o, d) for k, o, d in command.output if o + len(d) > offset]
                ended = command.ended and not pieces
            for kind, at, data in pieces:
                data = data[max(0, offset - at):]
                limit = gw.cut_stream_after
                if limit is not None and sent + len(data) > limit:
                    gw.cut_stream_after = gw.cut_again
                    self.frame(kind, data[:limit - sent])
                    raise ConnectionError("cut as asked")
                self.frame(kind, data)
                sent += len(data)
                offset += len(data)
            if ended:
                break
        self.frame(b"E", json.dumps(command.object()).encode())
        self.wfile.write(b"0\r\n\r\n")

    # ---- WebSocket ----

    def terminal(self, gw, command):
        key = self.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        self.body_read = True
        self.keep = False
        self.head(101, {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Accept": accept})
        offset = int(self.query.get("offset", b"0"))
        lock = threading.Lock()

        def send(opcode, data):
            size = len(data)
            head = struct.pack("!BB", 0x80 | opcode, size) if size < 126 else \
                struct.pack("!BBH", 0x80 | opcode, 126, size) if size < 65536 else \
                struct.pack("!BBQ", 0x80 | opcode, 127, size)
            with lock:
                self.connection.sendall(head + data)

        def reader():
            try:
                while True:
                    b0, b1 = self.rfile.read(2)
                    size = b1 & 127
                    if size == 126:
                        size = struct.unpack("!H", self.rfile.read(2))[0]
                    elif size == 127:
                        size = struct.unpack("!Q", self.rfile.read(8))[0]
                    mask = self.rfile.read(4)
                    data = bytes(c ^ mask[i % 4] for i, c in enumerate(self.rfile.read(size)))
                    if b0 & 15 == 2:
                        left = data
                        while left:
                            left = left[os.write(command.pty_fd, left):]
                    elif b0 & 15 == 1:
                        message = json.loads(data)
                        if "resize" in message:
                            size = message["resize"]
                            command.resizes.append((size["rows"], size["cols"]))
                            fcntl.ioctl(command.pty_fd, termios.TIOCSWINSZ,
                                        struct.pack("HHHH", size["rows"], size["cols"], 0, 0))
                    elif b0 & 15 == 9:
                        send(10, data)
                    elif b0 & 15 == 8:
                        return
            except (OSError, ValueError, TypeError):
                pass

        threading.Thread(target=reader, daemon=True).start()
        sent = 0
        while True:
            with command.cond:
                while command.size <= offset and not command.ended:
                    command.cond.wait(1)
                pieces = [(o, d) for _, o, d in command.output if o + len(d) > offset]
                ended = command.ended and not pieces
            for at, data in pieces:
                data = data[max(0, offset - at):]
                limit = gw.cut_stream_after
                if limit is not None and sent + len(data) > limit:
                    gw.cut_stream_after = gw.cut_again
                    send(2, data[:limit - sent])
                    self.connection.shutdown(socket.SHUT_RDWR)
                    raise ConnectionError("cut as asked")
                send(2, data)
                sent += len(data)
                offset += len(data)
            if ended:
                break
        send(1, json.dumps(dict(command.object(), type="end")).encode())
        send(8, b"")

    # ---- files ----

    def body_path(self, body, name):
        if name + "_base64" in body:
            return base64.b64decode(body[name + "_base64"])
        return body[name].encode()

    def entry(self, sandbox, path):
        st = os.lstat(path)
        kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "dir", stat.S_IFLNK: "symlink", stat.S_IFIFO: "fifo",
                 stat.S_IFSOCK: "socket"}
        shown = path[len(os.fsencode(sandbox.root)):] or b"/"
        e = {"type": kinds.get(stat.S_IFMT(st.st_mode), "char"), "size": st.st_size,
             "mode": "%04o" % stat.S_IMODE(st.st_mode), "uid": 0, "gid": 0, "mtime_ms": int(st.st_mtime * 1000)}
        texts = {"name": os.path.basename(shown) or b"/", "path": shown}
        if e["type"] == "symlink":
            texts["target"] = os.readlink(path)
        for name, value in texts.items():
            try:
                e[name] = value.decode("utf-8")
            except UnicodeDecodeError:
                e[name + "_base64"] = base64.b64encode(value).decode()
        return e

    def walk(self, sandbox, path, depth):
        for name in sorted(os.listdir(path)):
            child = os.path.join(path, name)
            yield self.entry(sandbox, child)
            if depth > 1 and os.path.isdir(child) and not os.path.islink(child):
                yield from self.walk(sandbox, child, depth - 1)

    def route_files(self, gw, sandbox, parts):
        what = parts[0] if parts else ""
        if self.method == "POST":
            return self.change_file(gw, sandbox, what, self.json_body())
        path = sandbox.path(self.query["path"])
        if self.query["path"].endswith(b"/.") and what == "stat":
            path = os.path.realpath(path)
        if self.method == "PUT":
            return self.put_file(sandbox, path)
        if what == "stat":
            return self.reply(200, self.entry(sandbox, path))
        if what == "list":
            depth = int(self.query.get("depth", b"1"))
            entries = gw.hostile.get("list")
            if callable(entries):
                entries = entries(self.query["path"].decode(), depth)
            elif entries is None:
                entries = list(self.walk(sandbox, path, depth))
            start = int(self.query.get("cursor", b"0"))
            limit = min(int(self.query.get("limit", b"1000")), gw.page_max)
            more = str(start + limit) if start + limit < len(entries) else None
            return self.reply(200, {"entries": entries[start:start + limit], "next_cursor": more, "errors": []})
        if gw.hostile.get("content") is not None:
            return self.reply(200, data=gw.hostile["content"])
        if os.path.isdir(path):
            raise ApiError(400, "is_a_directory", "the path is a directory")
        with open(path, "rb") as f:
            size = os.fstat(f.fileno()).st_size
            self.head(200, {"Content-Length": size, "Content-Type": "application/octet-stream"})
            sent = 0
            while sent < size:
                data = f.read(65536)
                if gw.cut_get_after is not None and sent + len(data) > gw.cut_get_after:
                    gw.cut_get_after = None
                    raise ConnectionError("cut as asked")
                self.wfile.write(data)
                sent += len(data)
                if gw.slow_get:
                    time.sleep(gw.slow_get)

    def put_file(self, sandbox, path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if os.path.isdir(path):
            raise ApiError(400, "is_a_directory", "the path is a directory")
        new = not os.path.exists(path)
        temp = os.path.join(os.path.dirname(path), b".temp-" + os.urandom(6).hex().encode())
        gw = self.server.gateway
        total = 0
        try:
            with open(temp, "wb") as f:
                for data in self.body_chunks():
                    f.write(data)
                    total += len(data)
                    if gw.disk_full_after is not None and total > gw.disk_full_after:
                        self.keep = False
                        self.body_read = True
                        raise ApiError(507, "no_space", "the sandbox's disk is full")
            os.chmod(temp, int(self.query.get("mode", b"0644"), 8))
            os.rename(temp, path)
        except BaseException:
            os.unlink(temp)
            raise
        self.reply(201 if new else 200, self.entry(sandbox, path))

    def change_file(self, gw, sandbox, what, body):
        path = sandbox.path(self.body_path(body, "path"))
        if what == "mkdir":
            if not os.path.isdir(path):
                os.makedirs(path)
                os.chmod(path, int(body.get("mode", "0755"), 8))
        elif what == "symlink":
            try:
                os.symlink(self.body_path(body, "target"), path)
            except FileExistsError:
                raise ApiError(409, "already_exists", "there is something at the path")
        elif what == "remove":
            if os.path.isdir(path) and not os.path.islink(path):
                if not body.get("recursive"):
                    raise ApiError(409, "not_empty", "it is a directory")
                shutil.rmtree(path)
            else:
                os.unlink(path)
            return self.reply(204)
        elif what == "chmod":
            os.chmod(path, int(body["mode"], 8))
        self.reply(200, self.entry(sandbox, path))


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, client_address):
        pass


class Gateway:
    def __init__(self):
        self.keys = {"e2b_test": None}
        self.sandboxes = {}
        self.all_sandboxes = []
        self.idempotency = {}
        self.requests = []
        self.faults = []  # [method, path suffix, what, times]
        self.hostile = {}
        self.page_max = 1000
        self.cut_stream_after = None
        self.cut_again = None
        self.cut_get_after = None
        self.slow_get = 0
        self.disk_full_after = None
        self.create_gate = None
        self.given_up = 0
        self.log_text = b"booted\n"
        self.metrics_ms = 0
        self.forks = 0
        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.gateway = self
        self.url = "http://127.0.0.1:%d" % self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def fault(self, method, suffix, what, times=1):
        self.faults.append([method, suffix, what, times])

    def take_fault(self, method, path):
        for f in self.faults:
            if f[0] == method and path.endswith(f[1]) and f[3] > 0:
                f[3] -= 1
                return f[2]
        return None

    def add_sandbox(self, **body):
        sandbox = Sandbox(body)
        self.sandboxes[sandbox.id] = sandbox
        self.all_sandboxes.append(sandbox)
        return sandbox

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        for sandbox in self.all_sandboxes:
            sandbox.remove()
        while Sandbox.folders:
            shutil.rmtree(Sandbox.folders.pop(), ignore_errors=True)
