#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small AWS KMS for the tests, written after the published API; signatures are verified.

    kmsserver.py PROGRAM [ARG...]

runs the program with KMS_TEST_URL and KMS_TEST_CREDENTIALS set, and ends as it ends. Its cipher is a table in memory: what matters is
what is refused. GET /-/DisableKey?alias=NAME and /-/EnableKey are an operator's. Every seventh request is told to come back later, and
each second alias is made with an answer that says it failed.
"""
import base64
import http.server
import json
import os
import secrets
import socketserver
import subprocess
import sys
import threading
import urllib.parse
import uuid

import awssign

keys, aliases, blobs, lock = {}, {}, {}, threading.Lock()
asked_for = [0]


class Refused(Exception):
    pass


def find(name):
    key = keys.get(aliases.get(name, name))
    if not key:
        raise Refused('NotFoundException')
    return key


def usable(key):
    if key['state'] != 'Enabled':
        raise Refused('DisabledException' if key['state'] == 'Disabled' else 'KMSInvalidStateException')
    return key


def create_key(asked):
    assert asked['KeySpec'] == 'SYMMETRIC_DEFAULT' and asked['KeyUsage'] == 'ENCRYPT_DECRYPT', asked
    assert asked['Tags'][0]['TagKey'] == 'space:organisation', asked
    key = {'id': str(uuid.uuid4()), 'state': 'Enabled', 'rotations': 0}
    keys[key['id']] = key
    return {'KeyMetadata': {'KeyId': key['id']}}


def create_alias(asked):
    if asked['AliasName'] in aliases:
        raise Refused('AlreadyExistsException')
    aliases[asked['AliasName']] = find(asked['TargetKeyId'])['id']
    if len(aliases) % 2:
        raise Refused('KMSInternalException')


def encrypt(asked):
    key = usable(find(asked['KeyId']))
    blob = base64.b64encode(secrets.token_bytes(150)).decode()
    blobs[blob] = (key['id'], asked['EncryptionContext'], asked['Plaintext'])
    return {'CiphertextBlob': blob, 'KeyId': key['id']}


def decrypt(asked):
    key = usable(find(asked['KeyId']))
    if asked['CiphertextBlob'] not in blobs:
        raise Refused('InvalidCiphertextException')
    wrapped_by, context, plain = blobs[asked['CiphertextBlob']]
    if wrapped_by != key['id']:
        raise Refused('IncorrectKeyException')
    if context != asked['EncryptionContext']:
        raise Refused('InvalidCiphertextException')
    return {'Plaintext': plain, 'KeyId': key['id']}


def describe(asked):
    return {'KeyMetadata': {'KeyId': find(asked['KeyId'])['id']}}


def rotate(asked):
    assert asked['KeyId'] in keys, 'an alias is none of the names that this takes'
    usable(keys[asked['KeyId']])['rotations'] += 1
    return {'KeyId': asked['KeyId']}


def schedule_deletion(asked):
    assert asked['KeyId'] in keys and 7 <= asked['PendingWindowInDays'] <= 30, asked
    if keys[asked['KeyId']]['state'] == 'PendingDeletion':
        raise Refused('KMSInvalidStateException')
    keys[asked['KeyId']]['state'] = 'PendingDeletion'
    return {'KeyId': asked['KeyId']}


def delete_alias(asked):
    find(asked['AliasName'])
    del aliases[asked['AliasName']]


ACTIONS = {'CreateKey': create_key, 'CreateAlias': create_alias, 'Encrypt': encrypt, 'Decrypt': decrypt,
           'DescribeKey': describe, 'RotateKeyOnDemand': rotate, 'ScheduleKeyDeletion': schedule_deletion,
           'DeleteAlias': delete_alias}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def answer(self, status, data):
        body = b'' if data is None else json.dumps(data).encode()
        self.send_response(status)
        self.send_header('Content-Type', 'application/x-amz-json-1.1')
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def refuse(self, status, kind):
        self.answer(status, {'__type': f'com.amazonaws.kms#{kind}', 'message': 'no'})

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        state = {'/-/DisableKey': 'Disabled', '/-/EnableKey': 'Enabled'}[url.path]
        find(dict(urllib.parse.parse_qsl(url.query))['alias'])['state'] = state
        self.answer(200, {})

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get('Content-Length') or 0))
        wrong = awssign.verify('POST', self.headers, 'kms', self.path, '', body, must=['x-amz-target'])
        if wrong or self.headers.get('Content-Type') != 'application/x-amz-json-1.1':
            return self.refuse(400, wrong or 'UnknownOperationException')
        service, _, action = self.headers['X-Amz-Target'].partition('.')
        assert service == 'TrentService'
        with lock:
            asked_for[0] += 1
            if asked_for[0] % 7 == 0 and action != 'CreateKey':
                return self.refuse(400, 'ThrottlingException')
            try:
                return self.answer(200, ACTIONS[action](json.loads(body)))
            except Refused as e:
                return self.refuse(400, e.args[0])

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True


def main():
    server = Server(('127.0.0.1', 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with awssign.credentials() as file:
        env = dict(os.environ, KMS_TEST_URL=f'http://127.0.0.1:{server.server_port}', KMS_TEST_CREDENTIALS=file)
        return subprocess.run(sys.argv[1:], env=env).returncode


if __name__ == '__main__':
    sys.exit(main())
