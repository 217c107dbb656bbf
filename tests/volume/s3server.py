#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small S3 for the tests, written after the published API: signatures are verified, objects live in memory.

    s3server.py PROGRAM [ARG...]

listens on a free port of the loopback interface, runs the program with S3_TEST_URL, S3_TEST_CREDENTIALS (a file) and S3_TEST_BUCKET set,
and ends as it ends. GET /-/fault?kind=KIND&n=N lets the next N signed requests fail:

    500, 503   that status, with an error in XML        error200   200 with an error in XML
    slow       the answer begins after a second          cut        the connection breaks in the middle of the body
    skew       the signature counts as too old (403)
GET /-/count gives the number of signed requests so far, and of bytes put.
"""
import hashlib
import http.server
import json
import os
import re
import socketserver
import subprocess
import sys
import threading
import time
import urllib.parse
import uuid
from xml.sax.saxutils import escape

import awssign

BUCKET = 'test-bucket'
PAGE = 3  # small, so that lists have pages

objects, uploads, lock = {}, {}, threading.Lock()
faults, counts = [], {'requests': 0, 'bytes': 0}


def error(code):
    return f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>no</Message></Error>'.encode()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def answer(self, status, body=b'', **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace('_', '-'), value)
        self.send_header('Content-Length', headers.pop('length', None) or str(len(body)))
        self.end_headers()
        if self.command != 'HEAD':
            self.wfile.write(body)

    def fault(self):
        with lock:
            return faults.pop(0) if faults else None

    def admin(self, url):
        if url.path == '/-/fault':
            q = dict(urllib.parse.parse_qsl(url.query))
            with lock:
                faults[:] = [q['kind']] * int(q['n'])
        self.answer(200, json.dumps(counts).encode(), Content_Type='application/json')

    def serve(self):
        url = urllib.parse.urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get('Content-Length') or 0))
        if url.path.startswith('/-/'):
            return self.admin(url)
        with lock:
            counts['requests'] += 1
        fault = self.fault()
        if fault in ('500', '503'):
            return self.answer(int(fault), error('InternalError' if fault == '500' else 'SlowDown'))
        if fault == 'error200':
            return self.answer(200, error('InternalError'))
        if fault == 'slow':
            time.sleep(1)
        wrong = 'RequestTimeTooSkewed' if fault == 'skew' else awssign.verify(self.command, self.headers, 's3', url.path, url.query, body)
        if wrong:
            return self.answer(403, error(wrong))
        host, path = self.headers['Host'], urllib.parse.unquote(url.path)
        if host.startswith(BUCKET + '.'):
            key = path[1:]
        elif path.startswith(f'/{BUCKET}/'):
            key = path[len(BUCKET) + 2:]
        else:
            return self.answer(404, error('NoSuchBucket'))
        query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        with lock:
            status, data, headers = self.do(key, query, body)
        if fault == 'cut' and self.command == 'GET':
            self.send_response(status)
            self.send_header('Content-Length', str(len(data) + 10))
            self.end_headers()
            self.wfile.write(data)
            self.close_connection = True
            return None
        if fault == 'cut':
            self.close_connection = True
            return None
        return self.answer(status, data, **headers)

    def do(self, key, query, body):
        if not key:
            return self.list(query)
        if 'uploads' in query:
            uploads[uid := str(uuid.uuid4()) + '/+='] = {}
            return 200, f'<InitiateMultipartUploadResult><UploadId>{uid}</UploadId></InitiateMultipartUploadResult>'.encode(), {}
        if 'uploadId' in query:
            return self.part(key, query, body)
        if self.command == 'PUT':
            objects[key] = (body, time.time())
            counts['bytes'] += len(body)
            return 200, b'', {'ETag': '"' + hashlib.md5(body).hexdigest() + '"'}
        if self.command == 'DELETE':
            objects.pop(key, None)
            return 204, b'', {}
        if key not in objects:
            return 404, b'' if self.command == 'HEAD' else error('NoSuchKey'), {}
        data, when = objects[key]
        modified = time.strftime('%a, %d %b %Y %H:%M:%S GMT', time.gmtime(when))
        more = {'length': str(len(data))} if self.command == 'HEAD' else {}
        return 200, data if self.command == 'GET' else b'', {'Last_Modified': modified, **more}

    def part(self, key, query, body):
        parts = uploads.get(query['uploadId'])
        if parts is None:
            return 404, error('NoSuchUpload'), {}
        if self.command == 'PUT':
            etag = '"' + hashlib.md5(body).hexdigest() + '"'
            parts[int(query['partNumber'])] = (etag, body)
            counts['bytes'] += len(body)
            return 200, b'', {'ETag': etag}
        if self.command == 'DELETE':
            del uploads[query['uploadId']]
            return 204, b'', {}
        told = [(int(n), e) for n, e in
                re.findall(rb'<PartNumber>(\d+)</PartNumber><ETag>([^<]*)</ETag>', body)]
        if told != [(n, parts[n][0].encode()) for n in sorted(parts)]:
            return 400, error('InvalidPart'), {}
        objects[key] = (b''.join(parts[n][1] for n in sorted(parts)), time.time())
        del uploads[query['uploadId']]
        return 200, b'<CompleteMultipartUploadResult></CompleteMultipartUploadResult>', {}

    def list(self, query):
        after = query.get('continuation-token', '').removeprefix('after/+=')
        names = [k for k in sorted(objects) if k.startswith(query['prefix']) and k > after]
        page, more = names[:PAGE], len(names) > PAGE
        out = ''.join(f'<Contents><Key>{escape(k)}</Key><LastModified>'
                      f'{time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(objects[k][1]))}</LastModified>'
                      f'<Size>{len(objects[k][0])}</Size></Contents>' for k in page)
        token = f'<NextContinuationToken>{escape("after/+=" + page[-1])}</NextContinuationToken>' if more else ''
        return 200, (f'<?xml version="1.0"?><ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>{token}{out}'
                     f'</ListBucketResult>').encode(), {}

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = serve

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 64


def main():
    server = Server(('127.0.0.1', 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with awssign.credentials() as file:
        env = dict(os.environ, S3_TEST_URL=f'http://127.0.0.1:{server.server_port}', S3_TEST_CREDENTIALS=file,
                   S3_TEST_BUCKET=BUCKET)
        return subprocess.run(sys.argv[1:], env=env).returncode


if __name__ == '__main__':
    sys.exit(main())
