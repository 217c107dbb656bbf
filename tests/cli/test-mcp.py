# SPDX-License-Identifier: Apache-2.0
"""`space mcp --listen`: a client of "Streamable HTTP" (2025-06-18) as its protocol is published, against the small gateway."""
import contextlib
import http.client
import json
import signal
import threading

from harness import WAIT_S, check, contains, equal, main, until

VERSION = "2025-06-18"
BOTH = "application/json, text/event-stream"


class Server:
    def __init__(self, env):
        self.p = env.popen("mcp", "--listen", "127.0.0.1:0")
        line = self.p.stdout.readline().decode()
        check(line.startswith("http://127.0.0.1:") and line.endswith("/mcp\n"), "the address is said: %r" % line)
        self.port = int(line.split(":")[2].split("/")[0])

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.p.poll() is None:
            self.p.send_signal(signal.SIGTERM)
            try:
                self.p.wait(WAIT_S)
            except Exception:
                self.p.kill()
                raise
        err = self.p.stderr.read().decode()
        if not error[0]:
            equal((self.p.returncode, "Sanitizer" in err), (0, False), err)


class Client:
    """One client: its key, its session, and what it was told the version is."""

    def __init__(self, server, key="e2b_test", start=True):
        self.port, self.key, self.session, self.next = server.port, key, None, 0
        if start:
            status, fields, body = self.post(self.message("initialize", {
                "protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}))
            equal((status, body["result"]["protocolVersion"]), (200, VERSION), body)
            self.session = fields["mcp-session-id"]
            check(len(self.session) == 32, "an id")
            equal(self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})[::2], (202, None))

    def message(self, method, params=None):
        self.next += 1
        return {"jsonrpc": "2.0", "id": self.next, "method": method, **({"params": params} if params else {})}

    def open(self, method, body=None, **changed):
        """The answer, not read yet. changed: fields that differ from what a good client sends; None: left out."""
        fields = {"Content-Type": "application/json", "Accept": BOTH, "Authorization": "Bearer " + self.key,
                  "MCP-Protocol-Version": VERSION, "Mcp-Session-Id": self.session}
        fields.update({k.replace("_", "-"): v for k, v in changed.items()})
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        with contextlib.suppress(BrokenPipeError):  # what is too long is answered before all of it has come
            c.request(method, "/mcp", body, {k: v for k, v in fields.items() if v is not None})
        return c, c.getresponse()

    def post(self, message, method="POST", **changed):
        body = message if isinstance(message, (bytes, type(None))) else json.dumps(message).encode()
        c, r = self.open(method, body, **changed)
        data = r.read()
        c.close()
        fields = {k.lower(): v for k, v in r.getheaders()}
        if fields.get("content-type", "").startswith("text/event-stream"):
            events = [[line[6:] for line in e.split(b"\n") if line.startswith(b"data: ")] for e in data.split(b"\n\n")]
            events = [b"\n".join(e) for e in events if e]
            return r.status, fields, [json.loads(e) for e in events]
        return r.status, fields, json.loads(data) if data else None

    def ask(self, method, params=None):
        m = self.message(method, params)
        status, _, body = self.post(m)
        equal(status, 200, body)
        body = body[0] if isinstance(body, list) else body
        equal(body["id"], m["id"])
        return body

    def call(self, tool, **arguments):
        result = self.ask("tools/call", {"name": tool, "arguments": arguments})["result"]
        check(not result["isError"], repr(result))
        return result

    def refused(self, tool, **arguments):
        result = self.ask("tools/call", {"name": tool, "arguments": arguments})["result"]
        check(result["isError"], repr(result))
        return result["content"][0]["text"]


def a_session_from_its_begin_to_its_end(env):
    with Server(env) as server:
        client = Client(server)
        equal(client.ask("ping")["result"], {})
        check("run" in [t["name"] for t in client.ask("tools/list")["result"]["tools"]], "the tools")
        made = client.call("create", template="tiny")["structuredContent"]["id"]
        check(made in [s["id"] for s in client.call("list")["structuredContent"]["sandboxes"]], "the list")
        got = client.call("run", sandbox=made, command="echo out; echo err >&2; exit 3")["structuredContent"]
        equal((got["stdout"], got["stderr"], got["exit_code"]), ("out\n", "err\n", 3))
        status, fields, events = client.post(client.message("tools/call", {"name": "list"}))
        equal((status, fields["content-type"], len(events)), (200, "text/event-stream", 1))
        contains(client.refused("run", sandbox="s" + "0" * 19, command="true"), "not_found")
        equal(client.post(None, "DELETE")[0], 204)
        equal(client.post(client.message("ping"))[0], 404)
        equal(client.post(None, "DELETE")[0], 404)


def versions(env):
    with Server(env) as server:
        for asked, given in ((VERSION, VERSION), ("2025-03-26", "2025-03-26"), ("1999-01-01", VERSION)):
            c = Client(server, start=False)
            _, _, body = c.post(c.message("initialize", {"protocolVersion": asked}), MCP_Protocol_Version=None)
            equal(body["result"]["protocolVersion"], given, asked)
        c = Client(server)
        equal(c.post(c.message("ping"), MCP_Protocol_Version="1999-01-01")[0], 400)
        equal(c.post(c.message("ping"), MCP_Protocol_Version=None)[0], 200)
        equal(c.post(c.message("ping"), MCP_Protocol_Version="2024-11-05")[0], 200)


def what_a_request_must_bring(env):
    with Server(env) as server:
        c = Client(server)
        ping = c.message("ping")
        for changed, status in (
            ({"Authorization": None}, 401), ({"Authorization": "Bearer "}, 401), ({"Authorization": "Basic x"}, 401),
            ({"Origin": "http://127.0.0.1:%d" % server.port}, 403), ({"Origin": "null"}, 403),
            ({"Content_Type": "text/plain"}, 415), ({"Content_Type": None}, 415), ({"Content_Type": "application/jsonx"}, 415),
            ({"Accept": None}, 406), ({"Accept": "application/json"}, 406), ({"Accept": "text/event-stream"}, 406),
            ({"Mcp_Session_Id": None}, 400), ({"Mcp_Session_Id": "0" * 32}, 404), ({"Mcp_Session_Id": "x"}, 404),
            ({"Accept": "*/*"}, 200), ({"Accept": "text/event-stream;q=0.5,application/json"}, 200),
            ({"Content_Type": "application/json; charset=utf-8"}, 200),
            ({"Authorization": None, "X_API_Key": "e2b_test"}, 200),
        ):
            got, fields, body = c.post(ping, **changed)
            equal(got, status, changed)
            check(("error" in body) == (status != 200), repr(body))
            equal("www-authenticate" in fields, status == 401, changed)
        for method in ("GET", "PUT"):
            status, fields, _ = c.post(None, method)
            equal((status, "POST" in fields["allow"]), (405, True), method)


def messages_that_are_none(env):
    with Server(env) as server:
        c = Client(server)
        for body, code in ((b"nonsense", -32700), (b"", -32700), (b'{"jsonrpc":"2.0","id":1,"id":1,"method":"ping"}', -32700),
                           (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600), (b"\xff", -32700),
                           (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600)):
            status, _, answer = c.post(body)
            equal((status, answer["error"]["code"]), (400, code), body)
        equal(c.post(b'"' + b"x" * (17 << 20) + b'"')[0], 413)
        equal(c.ask("resources/list")["error"]["code"], -32601)
        equal(c.ask("tools/call", {"name": "no"})["error"]["code"], -32602)
        equal(c.ask("tools/call", {"name": "run", "arguments": {"sandbox": "s", "shout": "x"}})["error"]["code"], -32602)
        again = c.post(c.message("initialize", {"protocolVersion": VERSION}))
        equal((again[0], again[2]["error"]["code"]), (400, -32600))
        equal(c.post({"jsonrpc": "2.0", "id": 1, "result": {}})[0], 202)


def the_rights_of_the_key(env):
    other = "e2b_other"
    env.gw.keys[other] = None
    with Server(env) as server:
        mine, theirs = Client(server), Client(server, key=other)
        equal(mine.post(mine.message("ping"), Authorization="Bearer " + other)[0], 404)
        equal(mine.post(None, "DELETE", Authorization="Bearer " + other)[0], 404)
        equal(theirs.ask("ping")["result"], {})
        nobody = Client(server, key="e2b_no", start=False)
        status, fields, body = nobody.post(nobody.message("initialize", {"protocolVersion": VERSION}))
        equal((status, "mcp-session-id" in fields), (401, False), body)
        equal(nobody.post(nobody.message("ping"), Mcp_Session_Id=mine.session)[0], 404)
        seen = len(env.gw.requests)
        theirs.call("list")
        keys = [r[2]["authorization"] for r in env.gw.requests[seen:]]
        equal(keys, ["Bearer " + other])
        del env.gw.keys[other]
        contains(theirs.refused("list"), "unauthorized")


def without_a_key_of_its_own(env):
    p = env.popen("mcp", "--listen", "127.0.0.1:0", env={"SPACE_API_KEY": None})
    try:
        server = type("S", (), {"port": int(p.stdout.readline().decode().split(":")[2].split("/")[0])})
        equal(Client(server).ask("ping")["result"], {})
    finally:
        p.send_signal(signal.SIGINT)
        equal(p.wait(WAIT_S), 0)


def cancelled(env):
    with Server(env) as server:
        c = Client(server)
        box = c.call("create", template="tiny")["structuredContent"]["id"]
        slow = c.message("tools/call", {"name": "run", "arguments": {"sandbox": box, "command": "echo >started; exec sleep 4321"}})
        answers = []
        t = threading.Thread(target=lambda: answers.append(c.post(slow)))
        t.start()
        until(lambda: running(env, box), "the command runs")
        equal(c.ask("ping")["result"], {})
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": slow["id"]}}
        stranger = Client(server)
        equal(stranger.post(cancel)[0], 202)
        check(not answers and running(env, box), "another session's cancelling is not ours")
        equal(c.post(cancel)[0], 202)
        t.join(WAIT_S)
        equal([(a[0], a[2]) for a in answers], [(200, [])])
        until(lambda: not running(env, box), "it was killed")


def the_end_gives_calls_up(env):
    """DELETE ends what is at work; so does a signal; a client that goes away does not."""
    with Server(env) as server:
        c = Client(server)
        box = c.call("create", template="tiny")["structuredContent"]["id"]
        slow = lambda: c.message("tools/call", {"name": "run", "arguments": {"sandbox": box, "command": "exec sleep 4321"}})
        gone, _ = c.open("POST", json.dumps(slow()).encode())
        until(lambda: running(env, box) == 1, "the command runs")
        gone.close()
        equal(c.ask("ping")["result"], {})
        equal(running(env, box), 1)
        equal(c.post(None, "DELETE")[0], 204)
        until(lambda: running(env, box) == 0, "it was killed")
        c = Client(server)
        kept, answer = c.open("POST", json.dumps(slow()).encode())
        until(lambda: running(env, box) == 1, "the command runs")
        server.p.send_signal(signal.SIGTERM)
        equal(answer.read(), b"")
        kept.close()
        equal(server.p.wait(WAIT_S), 0)
        until(lambda: running(env, box) == 0, "it was killed")


def sessions_are_bounded(env):
    """Of one key 64; the one that was idle for longest goes."""
    with Server(env) as server:
        first, second = Client(server), Client(server)
        clients = [Client(server) for _ in range(62)]
        first.ask("ping")
        clients.append(Client(server))
        equal(second.post(second.message("ping"))[0], 404)
        for c in [first] + clients:
            equal(c.ask("ping")["result"], {})


def addresses(env):
    for address in ("0.0.0.0:0", "192.0.2.1:80", "[::]:0", "example.com:80", ":8000"):
        r = env.run("mcp", "--listen", address)
        equal(r.code, 2, address)
        contains(r.errors, "TLS")
    for address in ("https://127.0.0.1:1", "127.0.0.1:0/x", "unix:/tmp/x"):
        r = env.run("mcp", "--listen", address)
        equal(r.code, 2, address)
        contains(r.errors, "ADDRESS:PORT")
    with Server(env) as server:
        r = env.run("mcp", "--listen", "127.0.0.1:%d" % server.port)
        equal(r.code, 1)


def running(env, box):
    """How many commands of the sandbox have not ended."""
    return sum(c.ended is None for c in env.gw.sandboxes[box].commands.values())


main([a_session_from_its_begin_to_its_end, versions, what_a_request_must_bring, messages_that_are_none, the_rights_of_the_key,
      without_a_key_of_its_own, cancelled, the_end_gives_calls_up, sessions_are_bounded, addresses])
