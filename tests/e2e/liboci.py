# SPDX-License-Identifier: Apache-2.0
#
# OCI images for tests, made by hand, so that hostile ones can be made, too: layers, layouts, and a registry that speaks
# the distribution API as far as fetching needs it, with and without credentials.
import base64
import gzip
import hashlib
import http.server
import io
import json
import os
import sys
import tarfile

INDEX = 'application/vnd.oci.image.index.v1+json'
MANIFEST = 'application/vnd.oci.image.manifest.v1+json'
CONFIG = 'application/vnd.oci.image.config.v1+json'
LAYER = 'application/vnd.oci.image.layer.v1.tar+gzip'


def entry(name, content=None, *, mode=0o755, link=None, hard=False, uid=0, gid=0):
    """One entry of a layer: a folder without content, a file with it, or a link."""
    info = tarfile.TarInfo(name)
    info.mode, info.uid, info.gid = mode, uid, gid
    if link is not None:
        info.type, info.linkname = (tarfile.LNKTYPE if hard else tarfile.SYMTYPE), link
    elif content is None:
        info.type = tarfile.DIRTYPE
    else:
        info.size = len(content)
    return info, content


def layer(*entries):
    """The tar archive of a layer."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode='w', format=tarfile.GNU_FORMAT) as tar:
        for info, content in entries:
            tar.addfile(info, io.BytesIO(content) if content is not None else None)
    return out.getvalue()


class Image:
    """Blobs and a manifest."""

    def __init__(self, *layers, env=(), user='', workdir=''):
        self.blobs = {}
        diffs, parts = [], []
        for tar in layers:
            diffs.append('sha256:' + hashlib.sha256(tar).hexdigest())
            parts.append(self.add(gzip.compress(tar, mtime=0), LAYER))
        config = {'architecture': 'amd64', 'os': 'linux', 'rootfs': {'type': 'layers', 'diff_ids': diffs},
                  'config': {'Env': list(env), 'User': user, 'WorkingDir': workdir, 'Cmd': ['/bin/sh']}}
        manifest = {'schemaVersion': 2, 'mediaType': MANIFEST, 'config': self.add(json.dumps(config).encode(), CONFIG),
                    'layers': parts}
        self.manifest = self.add(json.dumps(manifest).encode(), MANIFEST)

    def add(self, data, kind):
        digest = hashlib.sha256(data).hexdigest()
        self.blobs[digest] = data
        return {'mediaType': kind, 'digest': 'sha256:' + digest, 'size': len(data)}

    def layout(self, folder, tag='latest'):
        """Writes an OCI layout."""
        os.makedirs(f'{folder}/blobs/sha256')
        for digest, data in self.blobs.items():
            with open(f'{folder}/blobs/sha256/{digest}', 'wb') as f:
                f.write(data)
        with open(f'{folder}/oci-layout', 'w') as f:
            f.write('{"imageLayoutVersion":"1.0.0"}')
        with open(f'{folder}/index.json', 'w') as f:
            json.dump({'schemaVersion': 2, 'manifests': [
                {**self.manifest, 'annotations': {'org.opencontainers.image.ref.name': tag}}]}, f)


class Registry(http.server.BaseHTTPRequestHandler):
    """Serves every layout beneath a folder as FOLDER:TAG; what is beneath "private" wants a user and a password."""
    protocol_version = 'HTTP/1.1'
    folder = ''
    user = 'someone:their secret'

    def log_message(self, *args):
        pass

    def reply(self, status, data=b'', kind='application/json', **headers):
        self.send_response(status)
        self.send_header('Content-Type', kind)
        self.send_header('Content-Length', str(len(data)))
        self.send_header('Docker-Distribution-API-Version', 'registry/2.0')
        for name, value in headers.items():
            self.send_header(name.replace('_', '-'), value)
        self.end_headers()
        if self.command != 'HEAD':
            self.wfile.write(data)

    def allowed(self):
        said = 'Basic ' + base64.b64encode(self.user.encode()).decode()
        return not self.path.startswith('/v2/private/') or self.headers.get('Authorization') == said

    def do_GET(self):
        parts = self.path.strip('/').split('/')
        if not self.allowed() or (self.path == '/v2/' and self.headers.get('Authorization') is None):
            # The ping says how to sign in; what is public is served without, as most registries do.
            return self.reply(401, b'{"errors":[{"code":"UNAUTHORIZED"}]}', WWW_Authenticate='Basic realm="test"')
        if self.path == '/v2/':
            return self.reply(200, b'{}')
        name, kind, what = parts[1:-2], parts[-2], parts[-1]
        base = os.path.join(self.folder, *name)
        if kind == 'manifests' and not what.startswith('sha256:'):
            try:
                found = [m for m in json.load(open(f'{base}/index.json'))['manifests']
                         if m['annotations']['org.opencontainers.image.ref.name'] == what]
            except FileNotFoundError:
                found = []
            if not found:
                return self.reply(404, b'{"errors":[{"code":"MANIFEST_UNKNOWN"}]}')
            what = found[0]['digest']
        try:
            data = open(f'{base}/blobs/sha256/{what.removeprefix("sha256:")}', 'rb').read()
        except FileNotFoundError:
            return self.reply(404, b'{"errors":[{"code":"BLOB_UNKNOWN"}]}')
        return self.reply(200, data, MANIFEST if kind == 'manifests' else 'application/octet-stream',
                          Docker_Content_Digest=what)

    do_HEAD = do_GET


def serve(address, port, folder):
    Registry.folder = folder
    server = http.server.ThreadingHTTPServer((address, port), Registry)
    print('ready', flush=True)
    server.serve_forever()


if __name__ == '__main__':
    serve(sys.argv[1], int(sys.argv[2]), sys.argv[3])
