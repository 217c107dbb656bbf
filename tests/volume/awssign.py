# SPDX-License-Identifier: Apache-2.0
"""Verifies signatures of AWS (Signature Version 4, written after its description) for the servers of the tests."""
import contextlib
import hashlib
import hmac
import json
import re
import tempfile
import time
import urllib.parse

KEY_ID, SECRET, TOKEN = 'AKIATEST', 'the/secret+key', 'a token/with=signs'


@contextlib.contextmanager
def credentials():
    """The name of a file with what clients need."""
    with tempfile.NamedTemporaryFile('w') as f:
        json.dump({'access_key_id': KEY_ID, 'secret_access_key': SECRET, 'session_token': TOKEN}, f)
        f.flush()
        yield f.name


def sign(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def quote(text):
    return urllib.parse.quote(text, safe='-_.~')


def verify(method, headers, service, path, query, body, must=()):
    """None, or the code of the error. must: names of fields that have to be signed, too."""
    found = re.fullmatch(r'AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/' + service + r'/aws4_request, '
                         r'SignedHeaders=([a-z0-9;-]+), Signature=([0-9a-f]{64})', headers.get('Authorization', ''))
    if not found or found[1] != KEY_ID:
        return 'InvalidAccessKeyId'
    _, date, region, names, signature = found.groups()
    digest = headers.get('x-amz-content-sha256')
    if digest != hashlib.sha256(body).hexdigest():
        return 'XAmzContentSHA256Mismatch'
    if not {'host', 'x-amz-date', 'x-amz-content-sha256', 'x-amz-security-token', *must} <= set(names.split(';')):
        return 'AccessDenied'
    if headers.get('x-amz-security-token') != TOKEN:
        return 'InvalidToken'
    pairs = sorted((quote(n), quote(v)) for n, v in urllib.parse.parse_qsl(query, keep_blank_values=True))
    canonical = '\n'.join([method, path, '&'.join(f'{n}={v}' for n, v in pairs)] +
                          [f'{n}:{headers[n].strip()}' for n in names.split(';')] + ['', names, digest])
    key = ('AWS4' + SECRET).encode()
    for part in (date, region, service, 'aws4_request'):
        key = sign(key, part)
    text = '\n'.join(['AWS4-HMAC-SHA256', headers['x-amz-date'], f'{date}/{region}/{service}/aws4_request',
                      hashlib.sha256(canonical.encode()).hexdigest()])
    when = time.mktime(time.strptime(headers['x-amz-date'], '%Y%m%dT%H%M%SZ')) - time.timezone
    if abs(when - time.time()) > 900 or headers['x-amz-date'][:8] != date:
        return 'RequestTimeTooSkewed'
    return None if hmac.compare_digest(hmac.new(key, text.encode(), hashlib.sha256).hexdigest(), signature) else \
        'SignatureDoesNotMatch'
