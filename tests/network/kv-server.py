# SPDX-License-Identifier: Apache-2.0
"""A server that speaks the published HTTP API of HashiCorp Vault's secrets engine KV version 2, as far as we use it, with the
checks that the real one makes: token, namespace, cas, soft deletion. Runs the program given with its address, then checks what no case
of the suite could see."""
import http.server
import json
import os
import subprocess
import sys
import tempfile
import threading

TOKEN = "hvs.test-token"
store = {}
lock = threading.Lock()
refused = []


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=None):
        data = json.dumps(body).encode() if body is not None else b""
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def body(self):
        return json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")

    def path_of(self, kind):
        prefix = "/v1/secret/%s/" % kind
        if self.headers.get("X-Vault-Token") != TOKEN:
            self.answer(403, {"errors": ["permission denied"]})
            return None
        if self.headers.get("X-Vault-Namespace") != "team/a" or not self.path.startswith(prefix):
            refused.append(self.path)
            self.answer(404, {"errors": []})
            return None
        return self.path[len(prefix):]

    def do_GET(self):
        path = self.path_of("data")
        if path is None:
            return
        with lock:
            versions = store.get(path, [])
            if not versions:
                self.answer(404, {"errors": []})
            elif versions[-1] is None:
                self.answer(404, {"data": {"data": None, "metadata": {"version": len(versions), "deletion_time": "2026"}}})
            else:
                self.answer(200, {"request_id": "x", "lease_id": "", "renewable": False, "lease_duration": 0,
                                  "data": {"data": versions[-1], "metadata": {"version": len(versions), "destroyed": False}}})

    def do_POST(self):
        body = self.body()
        path = self.path_of("data")
        if path is None:
            return
        with lock:
            versions = store.setdefault(path, [])
            cas = body.get("options", {}).get("cas")
            if cas is not None and cas != len(versions):
                self.answer(400, {"errors": ["check-and-set parameter did not match the current version"]})
                return
            versions.append(body["data"])
            self.answer(200, {"data": {"version": len(versions)}})

    def do_DELETE(self):
        path = self.path_of("metadata")
        if path is None:
            return
        with lock:
            store.pop(path, None)
        self.answer(204)


def main():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.NamedTemporaryFile("w") as token:
        token.write(TOKEN + "\n")
        token.flush()
        env = dict(os.environ, TEST_KV_URL="http://127.0.0.1:%d" % server.server_address[1], TEST_KV_TOKEN_FILE=token.name)
        code = subprocess.run(sys.argv[1:], env=env, check=False).returncode
    for path in list(store):
        if not path.startswith("space/"):
            print("# '%s' is not below our prefix" % path)
            code = 1
    if refused:
        print("# asked for %s" % refused)
        code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
