# SPDX-License-Identifier: Apache-2.0
"""A server and a client of HTTP/2 for tests, both of which can break every rule: python3-h2 with its checks off."""
import os
import queue
import select
import socket
import ssl
import threading

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings

from harness import NAME, WAIT_S, Failed, check


def connection(client):
    return h2.connection.H2Connection(h2.config.H2Configuration(
        client_side=client, header_encoding="latin-1", validate_outbound_headers=False, normalize_outbound_headers=False,
        validate_inbound_headers=False))


class Peer:
    """One connection; a thread of its own moves the bytes (OpenSSL wants one), everybody may queue some."""

    def __init__(self, sock, client, window=None):
        self.sock = sock
        self.h2 = connection(client)
        self.lock = threading.Condition()
        self.closed = False
        self.leaving = False
        self.goaway = None
        self.out = bytearray()
        self.wake_in, self.wake_out = os.pipe()
        sock.setblocking(False)
        self.h2.initiate_connection()
        if window:
            self.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window})
        if window and window > 65535:
            self.h2.increment_flow_control_window(window - 65535)
        self.flush()

    def flush(self):
        """Lock held, or nobody else there yet."""
        data = self.h2.data_to_send()
        if data and not self.closed:
            self.out += data
            os.write(self.wake_out, b"x")

    def run(self):
        try:
            while self.turn():
                pass
        except (OSError, ValueError, h2.exceptions.ProtocolError):
            pass
        with self.lock:
            self.closed = True
            self.sock.close()
            os.close(self.wake_in)
            self.lock.notify_all()

    def turn(self):
        with self.lock:
            if self.leaving:
                return False
            wants_out = bool(self.out)
        if not self.sock.pending():
            ready, _, _ = select.select([self.sock, self.wake_in], [self.sock] if wants_out else [], [])
            if self.wake_in in ready:
                os.read(self.wake_in, 65536)
        with self.lock:
            try:
                data = self.sock.recv(65536)
                if not data:
                    return False
                for event in self.h2.receive_data(data):
                    self.event(event)
                self.flush()
                self.lock.notify_all()
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                pass
            try:
                while self.out:
                    del self.out[:self.sock.send(bytes(self.out[:65536]))]
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                pass
            self.lock.notify_all()
        return True

    def close(self):
        with self.lock:
            self.leaving = True
            if not self.closed:
                os.write(self.wake_out, b"x")

    def send_data(self, stream, data, end=False):
        """Waits for window."""
        data = memoryview(data)
        while True:
            with self.lock:
                room = 0
                while not self.closed:
                    if getattr(self.streams.get(stream), "reset", None) is not None:
                        raise EOFError
                    try:
                        room = min(self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size, len(data))
                    except (KeyError, h2.exceptions.ProtocolError):
                        raise EOFError from None
                    if (room and len(self.out) < 1 << 20) or not len(data):
                        break
                    check(self.lock.wait(WAIT_S), "no window for stream %d" % stream)
                if self.closed:
                    raise EOFError
                last = room == len(data)
                try:
                    self.h2.send_data(stream, bytes(data[:room]), end_stream=end and last)
                except h2.exceptions.ProtocolError:
                    raise EOFError from None
                self.flush()
                data = data[room:]
            if last:
                return

    def send_headers(self, stream, headers, end=False):
        with self.lock:
            self.h2.send_headers(stream, headers, end_stream=end)
            self.flush()

    def reset(self, stream, code=8):
        with self.lock:
            self.h2.reset_stream(stream, code)
            self.flush()


class ServerStream:
    def __init__(self, peer, number, headers):
        self.peer = peer
        self.number = number
        self.headers = headers
        self.chunks = queue.Queue()
        self.trailers = None
        self.reset = None

    def all(self, name):
        return [v for n, v in self.headers if n == name]

    def body(self):
        while True:
            part = self.chunks.get(timeout=WAIT_S)
            if part is None:
                return
            with self.peer.lock:
                if part:
                    self.peer.h2.acknowledge_received_data(len(part), self.number)
                    self.peer.flush()
            yield part

    def reply(self, body=b"", status="200", fields=(), trailers=()):
        self.peer.send_headers(self.number, [(":status", status), *fields])
        self.peer.send_data(self.number, body, end=not trailers)
        if trailers:
            self.peer.send_headers(self.number, list(trailers), end=True)


class ServerPeer(Peer):
    def __init__(self, server, sock):
        self.server = server
        self.streams = {}
        super().__init__(sock, client=False, window=1 << 20)

    def event(self, event):
        if isinstance(event, h2.events.RequestReceived):
            stream = ServerStream(self, event.stream_id, event.headers)
            self.streams[event.stream_id] = stream
            self.server.requests.append(stream)
            threading.Thread(target=self.server.answer, args=(stream,), daemon=True).start()
        elif isinstance(event, h2.events.DataReceived):
            self.streams[event.stream_id].chunks.put(event.data)
        elif isinstance(event, h2.events.TrailersReceived):
            self.streams[event.stream_id].trailers = event.headers
        elif isinstance(event, h2.events.StreamEnded):
            self.streams[event.stream_id].chunks.put(None)
        elif isinstance(event, h2.events.StreamReset):
            if event.stream_id in self.streams:
                self.streams[event.stream_id].reset = event.error_code
                self.streams[event.stream_id].chunks.put(None)


class Http2Server:
    """TLS with h2 only; answers by path, keeps what it saw."""

    def __init__(self, cert, listener=None):
        self.requests = []
        self.bodies = []
        self.routes = {}
        self.peers = []
        self.listener = listener or socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(cert)
        self.context.set_alpn_protocols(["h2"])
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            conn, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(conn,), daemon=True).start()

    def serve(self, conn):
        try:
            conn = self.context.wrap_socket(conn, server_side=True)
        except OSError:
            return
        peer = ServerPeer(self, conn)
        self.peers.append(peer)
        peer.run()

    def answer(self, stream):
        path = dict(stream.headers)[":path"].split("?")[0]
        try:
            self.routes.get(path, Http2Server.hello)(self, stream)
        except (EOFError, OSError, queue.Empty, h2.exceptions.ProtocolError):
            pass

    @staticmethod
    def hello(server, stream):
        body = b"".join(stream.body())
        server.bodies.append(body)
        stream.reply(b"hello " + dict(stream.headers)[":path"].encode("latin-1"))


class ClientStream:
    def __init__(self):
        self.status = None
        self.interim = []
        self.headers = []
        self.data = b""
        self.n_data = 0
        self.trailers = []
        self.ended = False
        self.reset = None

    def one(self, name):
        values = [v for n, v in self.headers if n == name]
        return values[0] if len(values) == 1 else None


class Http2Guest(Peer):
    """A client that says what it is told to say."""

    def __init__(self, port, ca_pem, name=NAME, authority=None, window=1 << 20):
        self.streams = {}
        self.authority = authority or name
        self.keep = True
        self.acknowledge = True
        context = ssl.create_default_context(cadata=ca_pem)
        context.set_alpn_protocols(["h2"])
        sock = context.wrap_socket(socket.create_connection(("127.0.0.1", port), timeout=WAIT_S), server_hostname=name)
        check(sock.selected_alpn_protocol() == "h2", "HTTP/2 was not agreed on but %s" % sock.selected_alpn_protocol())
        super().__init__(sock, client=True, window=window)
        threading.Thread(target=self.run, daemon=True).start()

    def event(self, event):
        if isinstance(event, h2.events.ConnectionTerminated):
            self.goaway = event.error_code
        s = self.streams.get(getattr(event, "stream_id", 0))
        if s is None:
            return
        if isinstance(event, h2.events.InformationalResponseReceived):
            s.interim.append(int(dict(event.headers)[":status"]))
        elif isinstance(event, h2.events.ResponseReceived):
            s.status = int(dict(event.headers)[":status"])
            s.headers = event.headers
        elif isinstance(event, h2.events.DataReceived):
            s.n_data += len(event.data)
            if self.keep:
                s.data += event.data
            if self.acknowledge and event.flow_controlled_length:
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.TrailersReceived):
            s.trailers = event.headers
        elif isinstance(event, h2.events.StreamEnded):
            s.ended = True
        elif isinstance(event, h2.events.StreamReset):
            s.reset = event.error_code

    def begin(self, path="/", method="GET", fields=(), end=True, head=None):
        with self.lock:
            number = self.h2.get_next_available_stream_id()
            self.streams[number] = ClientStream()
            if head is None:
                head = [(":method", method), (":scheme", "https"), (":authority", self.authority), (":path", path), *fields]
            self.h2.send_headers(number, head, end_stream=end)
            self.flush()
        return number

    def wait(self, number, what=None):
        """Until it has ended, or what() holds."""
        s = self.streams[number]
        with self.lock:
            done = self.lock.wait_for(lambda: self.closed or s.reset is not None or (what(s) if what else s.ended), WAIT_S)
        if not done:
            raise Failed("stream %d: nothing more after status %s and %d bytes" % (number, s.status, s.n_data))
        return s

    def get(self, path="/", **kw):
        return self.wait(self.begin(path, **kw))

    def post(self, path, body, fields=(), trailers=()):
        number = self.begin(path, "POST", fields, end=False)
        self.send_data(number, body, end=not trailers)
        if trailers:
            self.send_headers(number, list(trailers), end=True)
        return self.wait(number)
