# SPDX-License-Identifier: Apache-2.0
#
# An "internet" for the tests of the network gateway: a network namespace behind a veth pair, whose addresses look
# public, with servers that keep a log and a name server that keeps another. Run as a program it is those servers:
#
#     libinternet.py NAMES.json LOG
#
# NAMES: {"name": ["address", ...]}; a value "cname:other" is an alias, one address a time may be "next:a,b": each
# question gets the next one. Nothing here believes what it reads.
import json
import os
import socket
import socketserver
import struct
import subprocess
import sys
import threading
import time

NET = '45.67.89'
HOST_END = f'{NET}.1'
RESOLVER = f'{NET}.53'
SERVERS = [f'{NET}.{n}' for n in (10, 11, 12, 66)]  # .66 is evil
PREFIX = 24


class Internet:
    """Made by the test, gone at its end."""

    def __init__(self, tmp, names):
        self.ns = f'se2e-net-{os.getpid()}'
        self.veth = f'se2e{os.getpid() % 100000}'
        self.names_file = f'{tmp}/names.json'
        self.log_file = f'{tmp}/internet.log'
        self.set_names(names)
        self.run('ip', 'netns', 'add', self.ns)
        self.run('ip', 'link', 'add', self.veth, 'type', 'veth', 'peer', 'name', 'up0', 'netns', self.ns)
        self.run('ip', 'addr', 'add', f'{HOST_END}/{PREFIX}', 'dev', self.veth)
        self.run('ip', 'link', 'set', self.veth, 'up')
        for args in (['addr', 'add', f'{RESOLVER}/{PREFIX}', 'dev', 'up0'], ['link', 'set', 'up0', 'up'],
                     ['link', 'set', 'lo', 'up'],
                     *(['addr', 'add', f'{s}/32', 'dev', 'up0'] for s in SERVERS)):
            self.inside('ip', *args)
        self.process = subprocess.Popen(['ip', 'netns', 'exec', self.ns, sys.executable, __file__, self.names_file,
                                         self.log_file], stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != 'ready\n':
            raise AssertionError('the servers of the test did not start')

    @staticmethod
    def run(*args):
        subprocess.run(args, check=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)

    def inside(self, *args):
        self.run('ip', 'netns', 'exec', self.ns, *args)

    def set_names(self, names):
        with open(self.names_file + '.new', 'w') as f:
            json.dump(names, f)
        os.rename(self.names_file + '.new', self.names_file)

    def log(self, kind=None):
        """What the servers saw: lists of words, the first of which is the kind."""
        try:
            lines = [line.split() for line in open(self.log_file)]
        except FileNotFoundError:
            return []
        return [words[1:] for words in lines if kind is None or words[0] == kind]

    def close(self):
        self.process.kill()
        self.process.wait()
        subprocess.run(['ip', 'link', 'del', self.veth], check=False, capture_output=True)
        subprocess.run(['ip', 'netns', 'del', self.ns], check=False, capture_output=True)


# --- the servers ----------------------------------------------------------------

_lock = threading.Lock()
_log = None
_asked = {}


def note(*words):
    with _lock:
        _log.write(' '.join(str(w).replace(' ', '_') or '-' for w in words) + '\n')
        _log.flush()


def answer_http(s, local):
    """One request a connection, or several: the name of this server, what was asked, and as many bytes as asked for."""
    f = s.makefile('rb')
    while True:
        line = f.readline(65536).decode('latin-1').strip()
        if not line:
            return
        headers = {}
        while True:
            h = f.readline(65536).decode('latin-1').strip()
            if not h:
                break
            name, _, value = h.partition(':')
            headers[name.lower()] = value.strip()
        body = f.read(int(headers.get('content-length', 0)))
        note('http', local, headers.get('host', '-'), line, len(body))
        path = line.split(' ')[1]
        out = f'this is {local} for {headers.get("host", "-")} {path}\n'.encode()
        if path.startswith('/bytes/'):
            out = bytes(int(path[7:]))
        s.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n' % len(out) + out)


def serve_http(s):
    answer_http(s, s.getsockname()[0])


def serve_echo(s):
    note('echo', s.getsockname()[0], s.getpeername()[0])
    while data := s.recv(65536):
        s.sendall(data)
    s.shutdown(socket.SHUT_WR)


def serve_banner(s):
    note('banner', s.getsockname()[0])
    s.sendall(b'HELLO\r\n')
    while data := s.recv(4096):
        s.sendall(b'you said ' + data)


def serve_hello(s):
    """Where TLS would be: logs the first bytes, so that a test sees that the very ClientHello arrived; answers it with
    nothing that a client would take."""
    data = s.recv(65536)
    note('tls', s.getsockname()[0], data[:3].hex(), len(data))
    s.sendall(b'REACHED ' + s.getsockname()[0].encode())
    s.close()


def serve_any(s):
    note('other', s.getsockname()[0], s.getsockname()[1])


PORTS = {80: serve_http, 443: serve_hello, 7: serve_echo, 2222: serve_banner, 8080: serve_http, 5432: serve_echo,
         22: serve_banner}


def listen(port, handler):
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(('0.0.0.0', port))
    listener.listen(512)

    def one(s):
        with s:
            try:
                handler(s)
            except (OSError, ValueError, IndexError):
                pass

    def loop():
        while True:
            s, _ = listener.accept()
            threading.Thread(target=one, args=(s,), daemon=True).start()

    threading.Thread(target=loop, daemon=True).start()


def encode_name(name):
    return b''.join(bytes([len(part)]) + part.encode() for part in name.split('.')) + b'\0'


def records(name, names, depth=0):
    """The answer's records for a name, aliases followed: (owner, type, data)."""
    out = []
    for value in names.get(name.lower(), []):
        if value.startswith('cname:'):
            out.append((name, 5, encode_name(value[6:])))
            if depth < 40:
                out += records(value[6:], names, depth + 1)
        elif value.startswith('next:'):
            choices = value[5:].split(',')
            with _lock:
                n = _asked[name] = _asked.get(name, -1) + 1
            out.append((name, 1, socket.inet_aton(choices[min(n, len(choices) - 1)])))
        else:
            out.append((name, 1, socket.inet_aton(value)))
    return out


def answer_dns(data, names, limit):
    at, parts = 12, []
    while data[at]:
        parts.append(data[at + 1:at + 1 + data[at]].decode('latin-1'))
        at += 1 + data[at]
    question = data[12:at + 5]
    name, qtype = '.'.join(parts), struct.unpack('>H', data[at + 1:at + 3])[0]
    note('dns', name, qtype)
    found = records(name, names) if qtype == 1 else []
    known = name.lower() in names
    body = b''
    for owner, rtype, rdata in found:
        body += encode_name(owner) + struct.pack('>HHIH', rtype, 1, 60, len(rdata)) + rdata
    flags = 0x8180 | (0 if known else 3)
    n = len(found)
    if limit and 12 + len(question) + len(body) > limit:
        flags, body, n = flags | 0x0200, b'', 0
    return data[:2] + struct.pack('>HHHHH', flags, 1, n, 0, 0) + question + body


def serve_dns(names_file):
    def names():
        return json.load(open(names_file))

    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind((RESOLVER, 53))

    def over_udp():
        while True:
            data, who = udp.recvfrom(4096)
            try:
                udp.sendto(answer_dns(data, names(), 512), who)
            except (OSError, ValueError, IndexError, struct.error):
                pass

    def over_tcp(s):
        n = struct.unpack('>H', s.recv(2, socket.MSG_WAITALL))[0]
        note('dns-tcp', n)
        out = answer_dns(s.recv(n, socket.MSG_WAITALL), names(), 0)
        s.sendall(struct.pack('>H', len(out)) + out)

    threading.Thread(target=over_udp, daemon=True).start()
    listen(53, over_tcp)


def watch_packets():
    """Everything on the wire that is not TCP, ARP or a question to the name server: there should be nothing."""
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    s.bind(('up0', 0))
    while True:
        frame, where = s.recvfrom(65535)
        if where[2] == 4:  # our own
            continue
        kind = struct.unpack('>H', frame[12:14])[0]
        if kind == 0x0806:
            continue
        if kind != 0x0800:
            if kind == 0x86dd and frame[20] in (0, 58):  # the host's own neighbour discovery on a new link
                continue
            note('packet', hex(kind))
            continue
        protocol, source, to = frame[23], socket.inet_ntoa(frame[26:30]), socket.inet_ntoa(frame[30:34])
        if source != HOST_END:
            note('packet', 'spoofed', source, to)
        elif protocol == 17 and struct.unpack('>H', frame[36:38])[0] != 53:
            note('packet', 'udp', to, struct.unpack('>H', frame[36:38])[0])
        elif protocol not in (6, 17):
            note('packet', 'protocol', protocol, to)


def serve():
    global _log
    _log = open(sys.argv[2], 'a')
    for port, handler in PORTS.items():
        listen(port, handler)
    serve_dns(sys.argv[1])
    threading.Thread(target=watch_packets, daemon=True).start()
    print('ready', flush=True)
    while True:
        time.sleep(3600)


if __name__ == '__main__':
    serve()
