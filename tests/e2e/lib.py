# SPDX-License-Identifier: Apache-2.0
#
# What the end-to-end tests share: TAP, the public API, the node's API, what is on the machine.
#
# A test is a function with @case('what is true afterwards'); lib.main() runs those of a file in their
# order. Nothing here waits for a fixed time: until() looks again until something is so, with a
# deadline that only a fault reaches. Deadlines are generous, for the machine is slow and shared.
import base64
import contextlib
import errno
import fcntl
import hashlib
import http.client
import json
import os
import re
import secrets
import select
import signal
import socket
import sqlite3
import string
import struct
import subprocess
import sys
import threading
import time
import traceback
import urllib.parse

SPACE = os.environ['SPACE']
STATE = os.environ['SPACE_STATE_DIR']
RUN = os.environ['SPACE_RUN_DIR']
URL = os.environ['SPACE_URL']
KEY = os.environ['SPACE_API_KEY']
TMP = os.environ['SPACE_E2E_TMP']
LIBEXEC = os.environ['SPACE_LIBEXEC']
# Under emulation on a loaded machine, a lot takes seconds that should not.
SLOW_S = float(os.environ.get('SPACE_E2E_SLOW', '120'))
TEMPLATES = os.environ.get('SPACE_E2E_TEMPLATES', 'tiny debian').split()

# --- TAP ----------------------------------------------------------------------

_cases = []


class Skip(Exception):
    pass


def case(name):
    def add(fn):
        _cases.append((name, fn))
        return fn

    return add


def note(text):
    for line in str(text).splitlines():
        print('#', line, flush=True)


def main():
    """Runs all cases, or those whose name contains an argument."""
    failed = 0
    chosen = [c for c in _cases if len(sys.argv) < 2 or any(a in c[0] for a in sys.argv[1:])]
    for n, (name, fn) in enumerate(chosen, 1):
        started = time.monotonic()
        try:
            fn()
            print(f'ok {n} - {name}', flush=True)
        except Skip as e:
            print(f'ok {n} - {name} # SKIP {e}', flush=True)
        except Exception:
            failed += 1
            print(f'not ok {n} - {name}', flush=True)
            note(traceback.format_exc())
        note(f'{time.monotonic() - started:.1f} s')
    try:
        remove_leftovers()
    except Exception:
        note('after the last case:\n' + traceback.format_exc())
    print(f'1..{len(chosen)}', flush=True)
    sys.exit(1 if failed else 0)


def same(got, want, what='value'):
    if got != want:
        raise AssertionError(f'{what}: got {_short(got)}, want {_short(want)}')


def check(condition, what):
    if not condition:
        raise AssertionError(what() if callable(what) else what)


def _short(value):
    text = repr(value)
    return text if len(text) < 1000 else f'{text[:450]} ... {text[-450:]} ({len(text)} characters)'


def until(condition, what, deadline_s=SLOW_S):
    """Looks until condition() is true and gives its value."""
    deadline = time.monotonic() + deadline_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f'not in {deadline_s:.0f} s: {what() if callable(what) else what}')
        time.sleep(0.05)


def in_parallel(calls):
    """Runs functions at once; their results in order, an exception as itself."""
    results = [None] * len(calls)

    def run(i, fn):
        try:
            results[i] = fn()
        except Exception as e:  # given to who asked
            results[i] = e

    threads = [threading.Thread(target=run, args=(i, fn)) for i, fn in enumerate(calls)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return results


# --- HTTP ---------------------------------------------------------------------


class Failed(Exception):
    """An answer that is an error."""

    def __init__(self, status, body, what=''):
        self.status = status
        self.body = body
        try:
            self.error = json.loads(body)['error']
        except (ValueError, KeyError, TypeError):
            self.error = {}
        self.code = self.error.get('code')
        self.field = self.error.get('field')
        super().__init__(f'{what}: {status} {body[:400]!r}')


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__('node', timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Client:
    """One HTTP server: the gateway, or the sandbox manager through its socket."""

    def __init__(self, where, key=None, timeout=SLOW_S * 2):
        self.where = where
        self.key = key
        self.timeout = timeout

    def connection(self):
        if self.where.startswith('/'):
            return UnixConnection(self.where, self.timeout)
        url = urllib.parse.urlsplit(self.where)
        return http.client.HTTPConnection(url.hostname, url.port, timeout=self.timeout)

    def open(self, method, path, body=None, headers=None):
        """(connection, response) with the head read; the caller closes the connection."""
        headers = dict(headers or {})
        if self.key:
            headers.setdefault('Authorization', f'Bearer {self.key}')
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
            headers.setdefault('Content-Type', 'application/json')
        c = self.connection()
        try:
            c.request(method, path, body=body, headers=headers)
            return c, c.getresponse()
        except BaseException:
            c.close()
            raise

    def raw(self, method, path, body=None, headers=None):
        """(status, headers, bytes), whatever the status."""
        c, r = self.open(method, path, body, headers)
        with contextlib.closing(c):
            return r.status, r.headers, r.read()

    def call(self, method, path, body=None, headers=None):
        """The JSON of a good answer; None when it is empty."""
        status, _, data = self.raw(method, path, body, headers)
        if status >= 300:
            raise Failed(status, data, f'{method} {path}')
        return json.loads(data) if data else None

    def get(self, path):
        return self.call('GET', path)

    def post(self, path, body=None, headers=None):
        return self.call('POST', path, {} if body is None else body, headers)

    def delete(self, path):
        return self.call('DELETE', path)


api = Client(URL, KEY)
node = Client(f'{RUN}/sandbox-manager.sock')


def refused(status, call, code=None, field=None):
    """The call must be refused so; the error is given."""
    try:
        got = call()
    except Failed as e:
        check(e.status in (status if isinstance(status, tuple) else (status,)), f'want {status}, got {e}')
        check(e.code and e.error.get('message'), f'no error object in {e}')
        if code:
            same(e.code, code, 'error code')
        if field:
            same(e.field, field, 'field to blame')
        return e
    raise AssertionError(f'not refused: {_short(got)}')


class WebSocket:
    """Enough of a client: text and binary messages, answers pings."""

    def __init__(self, path, client=None, host=None):
        client = client or api
        url = urllib.parse.urlsplit(client.where)
        self.sock = socket.create_connection((url.hostname, url.port), timeout=SLOW_S)
        key = base64.b64encode(os.urandom(16)).decode()
        self.sock.sendall((f'GET {path} HTTP/1.1\r\nHost: {host or url.netloc}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n'
                           f'Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n'
                           f'Authorization: Bearer {client.key}\r\n\r\n').encode())
        self.file = self.sock.makefile('rb')
        head = []
        while line := self.file.readline().strip():
            head.append(line.decode())
        if ' 101 ' not in head[0] + ' ':
            size = next((int(h.split(':')[1]) for h in head if h.lower().startswith('content-length')), 0)
            raise Failed(int(head[0].split()[1]), self.file.read(size), 'websocket')
        accept = base64.b64encode(hashlib.sha1((key + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11').encode()).digest()).decode()
        check(any(h.split(': ')[1:] == [accept] for h in head), f'handshake: {head}')
        self.lock = threading.Lock()

    def send(self, data, opcode=None):
        if opcode is None:
            opcode = 1 if isinstance(data, str) else 2
        data = data.encode() if isinstance(data, str) else data
        size = len(data)
        head = bytes([0x80 | opcode])
        head += (bytes([0x80 | size]) if size < 126 else
                 struct.pack('>BH', 0xfe, size) if size < 65536 else struct.pack('>BQ', 0xff, size))
        mask = os.urandom(4)
        masked = (int.from_bytes(data, 'big') ^ int.from_bytes((mask * (size // 4 + 1))[:size], 'big')).to_bytes(size, 'big')
        with self.lock:
            self.sock.sendall(head + mask + masked)

    def message(self):
        """(opcode, bytes); None when it is closed."""
        whole = b''
        kind = None
        while True:
            try:
                first, second = read_exactly(self.file, 2)
            except (EOFError, ConnectionError):
                return None
            size = second & 0x7f
            if size == 126:
                size, = struct.unpack('>H', read_exactly(self.file, 2))
            elif size == 127:
                size, = struct.unpack('>Q', read_exactly(self.file, 8))
            data = read_exactly(self.file, size)
            opcode = first & 15
            if opcode == 9:
                self.send(data, 10)
                continue
            if opcode == 8:
                return None
            if opcode == 10:
                continue
            kind = kind or opcode
            whole += data
            if first & 0x80:
                return kind, whole

    def close(self):
        self.file.close()
        self.sock.close()


# --- sandboxes ----------------------------------------------------------------


def new_id(letter='s'):
    return letter + ''.join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(19))


class Result:
    """How a command ended: its streams, its last object, frames in their order."""

    def __init__(self):
        self.out = b''
        self.err = b''
        self.pty = b''
        self.order = ''
        self.start = None
        self.end = None
        self.gap = []
        self.broken = None

    @property
    def code(self):
        return self.end['exit_code'] if self.end else None

    def __repr__(self):
        return (f'<{self.order[:60]} out={self.out[:300]!r} err={self.err[:300]!r} end={self.end} '
                f'broken={self.broken}>')


def read_exactly(stream, n):
    data = b''
    while len(data) < n:
        piece = stream.read(n - len(data))
        if not piece:
            raise EOFError(f'{len(data)} of {n} bytes')
        data += piece
    return data


def frames(stream):
    """(type, payload) until the stream ends."""
    while True:
        head = stream.read(8)
        if not head:
            return
        if len(head) < 8:
            head += read_exactly(stream, 8 - len(head))
        kind, size = struct.unpack('>B3xI', head)
        yield chr(kind), read_exactly(stream, size)


def collect(stream, on_frame=None):
    """Reads frames to their end."""
    result = Result()
    parts = {'O': [], 'R': [], 'P': []}
    try:
        for kind, payload in frames(stream):
            if kind != 'K':
                result.order += kind
            if kind in parts:
                parts[kind].append(payload)
            elif kind == 'S':
                result.start = json.loads(payload)
            elif kind == 'E':
                result.end = json.loads(payload)
            elif kind == 'G':
                result.gap.append(json.loads(payload))
            elif kind == 'X':
                result.broken = json.loads(payload)
            if on_frame:
                on_frame(kind, payload)
    except (EOFError, http.client.HTTPException, OSError) as e:
        result.broken = repr(e)
    result.out, result.err, result.pty = (b''.join(parts[k]) for k in 'ORP')
    return result


class Sandbox:
    """A sandbox, through the gateway, or straight through the node with base='node'."""

    def __init__(self, sid, client=None, prefix=None):
        self.id = sid
        self.client = client or api
        self.prefix = prefix or f'/v1/sandboxes/{sid}'

    def on_node(self):
        """The same sandbox, past the gateway."""
        return Sandbox(self.id, node, f'/v1/sandboxes/{self.id}/guest')

    # One sandbox object, as the API and as the node sees it.
    def info(self):
        return self.client.get(f'/v1/sandboxes/{self.id}')

    def node_info(self):
        return node.get(f'/v1/sandboxes/{self.id}')

    def node_post(self, what, body=None):
        return node.post(f'/v1/sandboxes/{self.id}/{what}', body)

    def delete(self):
        return self.client.delete(f'/v1/sandboxes/{self.id}')

    # Commands.
    @staticmethod
    def _spec(command, options):
        spec = {'shell': command} if isinstance(command, str) else {'argv': list(command)}
        spec.update(options)
        return spec

    def start(self, command, **options):
        """Starts a command in the background and gives its object."""
        return self.client.post(f'{self.prefix}/commands', self._spec(command, options))

    def stream(self, command, query='', **options):
        """(connection, response): the frames of a command."""
        c, r = self.client.open('POST', f'{self.prefix}/commands?stream=1{query}', self._spec(command, options))
        if r.status >= 300:
            with contextlib.closing(c):
                raise Failed(r.status, r.read(), 'command')
        return c, r

    def run(self, command, query='', **options):
        """Runs a command to its end."""
        c, r = self.stream(command, query, **options)
        with contextlib.closing(c):
            return collect(r)

    def ok(self, command, **options):
        """The output of a command that must succeed."""
        result = self.run(command, **options)
        check(result.code == 0, lambda: f'{command!r} failed: {result}')
        return result.out

    def command(self, cid, wait_ms=0):
        return self.client.get(f'{self.prefix}/commands/{cid}' + (f'?wait_ms={wait_ms}' if wait_ms else ''))

    def ended(self, cid, deadline_s=SLOW_S):
        """The command's object once it has ended."""

        def look():
            c = self.command(cid, 2000)
            return c if c['state'] == 'exited' else None

        return until(look, f'command {cid} ends', deadline_s)

    def output(self, cid, offset=0, follow=0):
        c, r = self.client.open('GET', f'{self.prefix}/commands/{cid}/output?offset={offset}&follow={follow}')
        with contextlib.closing(c):
            if r.status >= 300:
                raise Failed(r.status, r.read(), 'output')
            return collect(r)

    def stdin(self, cid, data, eof=0):
        return self.client.call('POST', f'{self.prefix}/commands/{cid}/stdin?eof={eof}', data)

    def signal(self, cid, name, tree=False):
        return self.client.post(f'{self.prefix}/commands/{cid}/signal', {'signal': name, 'tree': tree})

    def forget(self, cid):
        return self.client.delete(f'{self.prefix}/commands/{cid}')

    # Files.
    @staticmethod
    def _query(path, more):
        return urllib.parse.urlencode({'path': path, **more}, quote_via=urllib.parse.quote)

    def put(self, path, data, **more):
        return self.client.call('PUT', f'{self.prefix}/files?{self._query(path, more)}', data)

    def read(self, path, headers=None, **more):
        status, _, data = self.client.raw('GET', f'{self.prefix}/files?{self._query(path, more)}', headers=headers)
        if status >= 300:
            raise Failed(status, data, f'reading {path!r}')
        return data

    def stat(self, path, **more):
        return self.client.get(f'{self.prefix}/files/stat?{self._query(path, more)}')

    def list(self, path, **more):
        return self.client.get(f'{self.prefix}/files/list?{self._query(path, more)}')

    def processes(self):
        """The command lines of all processes, one a line, the looking one left out."""
        text = self.ok(
            'for p in /proc/[0-9]*; do [ "${p#/proc/}" = $$ ] || { tr "\\0" " " <$p/cmdline; echo; } 2>/dev/null; done',
            user='root')
        return [line.strip() for line in text.decode(errors='replace').splitlines() if line.strip()]

    def alive(self, text):
        """Whether a process has this in its command line."""
        return any(text in line and 'tr "' not in line for line in self.processes())


_made = set()


def create(template='tiny', client=None, headers=None, **spec):
    made = (client or api).post('/v1/sandboxes', {'template': template, **spec}, headers)
    _made.add(made['id'])
    return Sandbox(made['id'], client)


@contextlib.contextmanager
def sandbox(template='tiny', **spec):
    s = create(template, **spec)
    try:
        yield s
    finally:
        try:
            s.delete()
        except Failed as e:
            if e.status != 404:
                raise


def remove_leftovers():
    """Those that a failed case has left."""
    for sid in sorted(_made):
        for client in (api, node):
            with contextlib.suppress(Failed):
                client.delete(f'/v1/sandboxes/{sid}')


def need_template(name):
    if name not in TEMPLATES:
        raise Skip(f"the template '{name}' is not there")


# --- time travel, on the node's API --------------------------------------------


def snapshot(s, kind='disk', **more):
    return s.node_post('snapshots', {'kind': kind, **more})


def snapshots(s):
    return node.get(f'/v1/sandboxes/{s.id}/snapshots')['snapshots']


def rollback(s, snap):
    return s.node_post('rollback', {'snapshot': snap['id']})


class NodeSandbox(Sandbox):
    """Made and deleted through the gateway, which would take it for an orphan otherwise; used past it."""

    def __init__(self, sid):
        super().__init__(sid, node, f'/v1/sandboxes/{sid}/guest')

    def delete(self):
        return api.delete(f'/v1/sandboxes/{self.id}')


@contextlib.contextmanager
def node_sandbox(template='tiny', **spec):
    b = NodeSandbox(create(template, **spec).id)
    try:
        yield b
    finally:
        with contextlib.suppress(Failed):
            b.delete()


@contextlib.contextmanager
def gateway_asleep():
    """Children that are made at the node are orphans to the gateway: it must not look meanwhile."""
    pid = service_pid('gateway')
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def fork(s, n, **more):
    """Children that only the node knows of."""
    ids = [new_id() for _ in range(n)]
    _made.update(ids)
    s.node_post('fork', {'children': ids, **more})
    return [Sandbox(i, node, f'/v1/sandboxes/{i}/guest') for i in ids]


# --- services and machines -----------------------------------------------------

SERVICES = ('node manager', 'sandbox manager', 'gateway')


def space(*args, check_code=None, timeout=SLOW_S * 3, **more):
    """Runs the command line."""
    p = subprocess.run([SPACE, *args], stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, **more)
    if check_code is not None and p.returncode != check_code:
        raise AssertionError(f'space {args} ended with {p.returncode}: {p.stdout[-600:]!r} {p.stderr[-600:]!r}')
    return p


def host_args():
    return ['--state-dir', STATE, '--run-dir', RUN]


def status():
    p = space('status', '--json', *host_args())
    return json.loads(p.stdout)


def service_pid(name):
    return next(s['pid'] for s in status()['services'] if s['name'] == name)


def well():
    s = status()
    return s['healthy'] and s['up']


def kill_service(name, wait=True):
    """kill -9; then waits until all services answer again."""
    pid = service_pid(name)
    check(pid > 0, f'the {name} does not run')
    os.kill(pid, 9)
    if wait:
        until(lambda: service_pid(name) not in (0, pid), f'the {name} runs again')
        until(well, lambda: f'all services answer: {status()["services"]}')


def restart(between=None, more=()):
    """space down and up, with something in between and more options; also makes the supervisor forget earlier ends.
    What 'up' has said."""
    url = urllib.parse.urlsplit(URL)
    args = cmdline(status()['pid'])
    logs = args[args.index('--log-dir') + 1] if '--log-dir' in args else '/var/log/space'
    if '--resolver' in args and '--resolver' not in more:  # the tests' own internet
        more = (*more, '--resolver', args[args.index('--resolver') + 1])
    space('down', *host_args(), check_code=0)
    if between:
        between()
    p = space('up', '--detach', '--listen', f'{url.hostname}:{url.port}', '--libexec-dir', LIBEXEC, *host_args(),
              '--log-dir', logs, *more, check_code=0)
    until(well, 'all services answer')
    return p.stderr.decode()


def cmdline(pid):
    try:
        with open(f'/proc/{pid}/cmdline', 'rb') as f:
            return f.read().decode(errors='replace').split('\0')[:-1]
    except OSError:
        return []


def cgroup_name():
    """The group below which the machines of this SPACE have theirs."""
    args = cmdline(service_pid('node manager'))
    return args[args.index('--cgroup') + 1] if '--cgroup' in args else 'space'


def cgroup_dir():
    name = cgroup_name()
    v1 = f'/sys/fs/cgroup/pids/{name}'
    return v1 if os.path.isdir(v1) else f'/sys/fs/cgroup/{name}'


def machines(directory=None):
    """{machine id: [pids]} of all machines of this SPACE, warm ones too."""
    out = {}
    directory = directory or cgroup_dir()
    for folder in sorted(os.listdir(directory)):
        path = f'{directory}/{folder}/cgroup.procs'
        if os.path.isfile(path):
            with open(path) as f:
                out[folder.rsplit('-', 1)[0]] = [int(x) for x in f.read().split()]
    return out


def machine_pid(s):
    return s.node_info().get('pid')


def kill_pid(pid):
    """kill -9, and waits until it is gone."""
    fd = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(fd, signal.SIGKILL)
        check(select.select([fd], [], [], SLOW_S)[0], f'process {pid} does not end')
    finally:
        os.close(fd)


def database():
    """Rows per table of the gateway's database."""
    db = sqlite3.connect(f'file:{STATE}/gateway/space.db?mode=ro', uri=True, timeout=30)
    with contextlib.closing(db):
        tables = [r[0] for r in db.execute("select name from sqlite_master where type = 'table'")]
        return {t: db.execute(f'select count(*) from "{t}"').fetchone()[0] for t in tables}


def listing(path):
    try:
        return sorted(os.listdir(path))
    except FileNotFoundError:
        return []


def footprint():
    """What a sandbox could leave behind, with the warm machines' part taken out: they come and go."""
    pool = f'{STATE}/pool'
    known = {s['id'] for s in node.get('/v1/sandboxes')['sandboxes']}
    alive = set(machines())
    with open('/proc/self/mounts') as f:
        mounts = sorted(line.split()[1] for line in f if STATE in line or RUN in line)
    return {
        'known': sorted(known),
        'records': listing(f'{pool}/records'),
        'snapshots': listing(f'{pool}/snapshots'),
        'checkpoints': listing(f'{pool}/checkpoints'),
        'manifests': listing(f'{pool}/manifests'),
        'mounts': mounts,
        # Each living machine has one run folder and one memory file; each sandbox, and each warm machine, a subvolume.
        'run folders without a machine': sorted(set(listing(f'{RUN}/m')) - alive),
        'memory without a machine': sorted(set(listing(f'{pool}/memory')) - alive),
        'subvolumes beyond one a machine': max(0, len(set(listing(f'{pool}/sandboxes')) - known) - len(alive)),
    }


def settled(before, deadline_s=SLOW_S):
    """Waits until the machine looks as before; a warm machine may be under way."""
    seen = []

    def look():
        seen[:] = [footprint()]
        return seen[0] == before

    until(look, lambda: 'the same as before:\n' + '\n'.join(
        f'{k}: {_short(before[k])} -> {_short(seen[0][k])}' for k in before if before[k] != seen[0][k]), deadline_s)


def service_descriptors():
    """How many descriptors each service holds."""
    return {name: len(os.listdir(f'/proc/{service_pid(name)}/fd')) for name in SERVICES}


def pool_used():
    """Bytes in use in the pool, copies counted as often as they are there, after everything has been written."""
    fd = os.open(f'{STATE}/pool', os.O_RDONLY)
    try:
        subprocess.run(['sync', '-f', f'{STATE}/pool'], check=True)
        # BTRFS_IOC_SPACE_INFO: slots, total; then for each kind of space flags, total, used.
        head = bytearray(struct.pack('QQ', 64, 0) + bytes(64 * 24))
        fcntl.ioctl(fd, 0xc0109414, head)
        total = struct.unpack_from('QQ', head)[1]
        used = 0
        for i in range(total):
            flags, _, bytes_used = struct.unpack_from('QQQ', head, 16 + 24 * i)
            reserve = flags & (1 << 49)
            copies = 2 if flags & (1 << 5) else 1  # DUP
            used += 0 if reserve else bytes_used * copies
        return used
    finally:
        os.close(fd)


def service_memory():
    """Bytes of memory that each service has for itself, shared pages left out."""
    out = {}
    for name in SERVICES:
        with open(f'/proc/{service_pid(name)}/smaps_rollup') as f:
            out[name] = sum(int(line.split()[1]) << 10 for line in f if line.startswith(('Private_', 'Swap:')))
    return out


def service_threads():
    return {name: len(os.listdir(f'/proc/{service_pid(name)}/task')) for name in SERVICES}


def cgroups():
    """How many control groups this SPACE has in each hierarchy."""
    name = os.path.basename(cgroup_dir())
    return sum(1 for _, folders, _ in os.walk('/sys/fs/cgroup', followlinks=False) for f in folders
               if f == name or f.startswith(f'{name}-')) + len(machines())


def sha(data):
    return hashlib.sha256(data).hexdigest()
