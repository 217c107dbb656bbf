#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A service for the tests of the supervisor: node manager, sandbox manager, credential manager, gateway or set-up, by its name.

It listens where the real one would and answers /v1/health. RUN-DIR/test-NAME.json says how it is to
behave: {"exit": 3} ends at once, {"deaf": true} never listens, {"ignore_term": true} does not end when asked.
RUN-DIR/test-NAME.log gets a line for each start.
"""
import http.server
import json
import os
import signal
import socket
import socketserver
import sys

name = os.path.basename(sys.argv[0])
args = dict(zip(sys.argv[1::2], sys.argv[2::2])) if name != "space-setup" else dict(zip(sys.argv[2::2], sys.argv[3::2]))
run_dir = args.get("--run-dir") or os.path.join(args["--state-dir"], "../../run")
try:
    how = json.load(open(os.path.join(run_dir, "test-%s.json" % name)))
except OSError:
    how = {}
with open(os.path.join(run_dir, "test-%s.log" % name), "a") as log:
    log.write("%d %s\n" % (os.getpid(), json.dumps(sys.argv[1:])))
if how.get("exit") is not None:
    print("%s: error: told to fail with %d" % (name, how["exit"]), file=sys.stderr)
    sys.exit(how["exit"])
if name == "space-setup":
    sys.exit(0)
if "--create-key" in args:
    print(json.dumps({"id": "k" * 20, "key": "e2b_" + "1" * 40, "name": args["--create-key"]}))
    sys.exit(0)
signal.signal(signal.SIGTERM, signal.SIG_IGN if how.get("ignore_term") else lambda *_: os._exit(0))
if how.get("deaf"):
    signal.pause()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        answers = {"/v1/health": {"ok": True}, "/v1/node": {"accel": "tcg", "accel_why": "a test", "sandboxes": 1,
                                                           "pool_free_bytes": 1 << 30},
                   "/v1/sandboxes": {"sandboxes": [{"id": "s" + str(n) * 19, "state": state} for n, state in enumerate(
                       ("running", "stopped", "paused", "failed", "creating", "deleting"))]}}
        path = self.path.split("?")[0]
        body = json.dumps(answers.get(path, {"error": {"code": "not_found", "message": "?"}})).encode()
        self.send_response(200 if path in answers else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        with open(os.path.join(run_dir, "test-posts.log"), "a") as log:
            log.write(self.path + "\n")
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def address_string(self):
        return "peer"

    def log_message(self, *_):
        pass


packets = {"space-node-manager": "node-manager.sock", "space-volume-manager": "volume/manager.sock",
           "space-network-gateway": "network/gateway.sock"}
if name in packets:
    path = os.path.join(run_dir, packets[name])
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.exists(path):
        os.unlink(path)
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.bind(path)
    s.listen()
    while True:
        s.accept()[0].close()
elif name in ("space-sandbox-manager", "space-credential-manager"):
    path = os.path.join(run_dir, {"space-sandbox-manager": "sandbox-manager.sock"}.get(name, "credential/manager.sock"))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.exists(path):
        os.unlink(path)

    class UnixServer(socketserver.ThreadingUnixStreamServer):
        daemon_threads = True

    UnixServer(path, Handler).serve_forever()
else:
    host, _, port = args["--listen"].rpartition(":")
    http.server.ThreadingHTTPServer.allow_reuse_address = True
    http.server.ThreadingHTTPServer((host, int(port)), Handler).serve_forever()
