#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small Vault Transit for the tests, written after the published API.

    transitserver.py PROGRAM [ARG...]

runs the program with TRANSIT_TEST_URL and TRANSIT_TEST_TOKEN_FILE set, and ends as it ends. Its cipher is a keyed hash over what
it keeps in memory: what matters is what is refused. GET /-/revoke?key=NAME&revoked=0|1 forbids a key's use.
"""
import base64
import hashlib
import http.server
import json
import os
import secrets
import socketserver
import subprocess
import sys
import tempfile
import threading
import urllib.parse

TOKEN = 'hvs.test-token'
keys, revoked, lock = {}, set(), threading.Lock()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def answer(self, status, data=None):
        body = b'' if data is None else json.dumps(data).encode()
        self.send_response(status)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def serve(self):
        url = urllib.parse.urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get('Content-Length') or 0))
        if url.path == '/-/revoke':
            q = dict(urllib.parse.parse_qsl(url.query))
            (revoked.add if q['revoked'] == '1' else revoked.discard)(q['key'])
            return self.answer(200, {})
        if self.headers.get('X-Vault-Token') != TOKEN or self.headers.get('X-Vault-Namespace') != 'team':
            return self.answer(403, {'errors': ['permission denied']})
        parts = url.path.split('/')
        if parts[:3] != ['', 'v1', 'transit'] or len(parts) not in (5, 6):
            return self.answer(404, {'errors': []})
        try:
            asked = json.loads(body) if body else {}
        except ValueError:
            return self.answer(400, {'errors': ['bad JSON']})
        with lock:
            return self.answer(*self.do(parts[3], parts[4], parts[5] if len(parts) == 6 else '', asked))

    def do(self, what, name, rest, asked):
        if name in revoked:
            return 403, {'errors': ['permission denied']}
        key = keys.get(name)
        if what == 'keys' and self.command == 'POST' and not rest:
            assert asked == {'type': 'aes256-gcm96'}
            keys.setdefault(name, {'versions': [{}], 'deletable': False})
            return 200, {'data': {'name': name}}
        if key is None:
            # Vault itself makes a key that encrypt does not find; a policy may forbid that.
            return (404 if what == 'keys' else 400), {'errors': ['encryption key not found']}
        if what == 'keys':
            return self.manage(name, key, rest, asked)
        bound = hashlib.sha256(asked.get('associated_data', '').encode()).hexdigest()
        if what == 'encrypt':
            handle = secrets.token_bytes(48)
            key['versions'][-1][handle] = (asked['plaintext'], bound)
            return 200, {'data': {'ciphertext': f'vault:v{len(key["versions"])}:{base64.b64encode(handle).decode()}'}}
        try:
            _, version, text = asked['ciphertext'].split(':')
            plain, was_bound = key['versions'][int(version[1:]) - 1][base64.b64decode(text, validate=True)]
        except (ValueError, IndexError, KeyError):
            return 400, {'errors': ['invalid ciphertext']}
        if was_bound != bound:
            return 400, {'errors': ['cipher: message authentication failed']}
        return 200, {'data': {'plaintext': plain}}

    def manage(self, name, key, rest, asked):
        if self.command == 'GET':
            return 200, {'data': {'name': name, 'latest_version': len(key['versions'])}}
        if self.command == 'DELETE':
            if not key['deletable']:
                return 400, {'errors': ['deletion is not allowed for this key']}
            del keys[name]
            return 204, None
        if rest == 'rotate':
            key['versions'].append({})
        elif rest == 'config':
            key['deletable'] = asked['deletion_allowed']
        else:
            return 404, {'errors': []}
        return 200, {'data': {}}

    do_GET = do_POST = do_DELETE = serve

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True


def main():
    server = Server(('127.0.0.1', 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.NamedTemporaryFile('w') as f:
        f.write(TOKEN + '\n')
        f.flush()
        env = dict(os.environ, TRANSIT_TEST_URL=f'http://127.0.0.1:{server.server_port}', TRANSIT_TEST_TOKEN_FILE=f.name)
        return subprocess.run(sys.argv[1:], env=env).returncode


if __name__ == '__main__':
    sys.exit(main())
