# SPDX-License-Identifier: Apache-2.0
"""What the services count: the text of each that runs without a node, the dashboard, and the reader that judges them."""
import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

SOURCE = os.environ["SPACE_SOURCE"]
sys.path.insert(0, os.path.join(SOURCE, "tests/e2e"))
import libmetrics as lm  # noqa: E402

GATEWAY, NETWORK, CREDENTIAL, VOLUME = sys.argv[1:5]
DASHBOARD = os.path.join(SOURCE, "deploy/grafana/space.json")
WAIT_S = 20 * float(os.environ.get("SPACE_TEST_SLOWNESS", "1"))
HEAD = "# HELP a_total A.\n# TYPE a_total counter\n"
HIST = "# HELP h A.\n# TYPE h histogram\n"
USER = "nobody" if os.getuid() == 0 else None


def the_reader_refuses_what_is_wrong():
    good = HEAD + 'a_total{x="a\\"b\\\\c\\n"} 1\na_total{x="b"} 2\n' + HIST + \
        'h_bucket{le="1"} 1\nh_bucket{le="+Inf"} 2\nh_sum 3.5\nh_count 2\n'
    assert lm.value(lm.parse(good), "a_total") == 3
    bad = {
        "no type": "# HELP a A.\na 1\n",
        "no help": "# TYPE a_total counter\na_total 1\n",
        "no newline": HEAD + "a_total 1",
        "twice": HEAD + "a_total 1\na_total 1\n",
        "family twice": HEAD + HEAD,
        "negative": HEAD + "a_total -1\n",
        "name of a counter": "# HELP a A.\n# TYPE a counter\na 1\n",
        "raw quote": HEAD + 'a_total{x="a"b"} 1\n',
        "raw backslash": HEAD + 'a_total{x="a\\d"} 1\n',
        "not a number": HEAD + "a_total one\n",
        "two spaces": HEAD + "a_total  1\n",
        "other family inside": HEAD + "b_total 1\n",
        "id as a label": HEAD + 'a_total{x="s' + "2" * 19 + '"} 1\n',
        "no +Inf": HIST + 'h_bucket{le="1"} 1\nh_sum 1\nh_count 1\n',
        "not cumulative": HIST + 'h_bucket{le="1"} 2\nh_bucket{le="+Inf"} 1\nh_sum 1\nh_count 1\n',
        "count is not +Inf": HIST + 'h_bucket{le="1"} 1\nh_bucket{le="+Inf"} 1\nh_sum 1\nh_count 2\n',
        "order of bounds": HIST + 'h_bucket{le="+Inf"} 1\nh_bucket{le="1"} 1\nh_sum 1\nh_count 1\n',
        "no sum": HIST + 'h_bucket{le="+Inf"} 1\nh_count 1\n',
    }
    for what, text in bad.items():
        try:
            lm.parse(text)
        except lm.Bad:
            continue
        raise AssertionError("taken for good: " + what)


class Service:
    """One program of ours in a folder of its own, until the end of the block."""

    def __init__(self, program, *args):
        self.dir = tempfile.mkdtemp(prefix="metrics-")
        os.chmod(self.dir, 0o777)
        for name in ("state", "run", "run/volume", "run/network", "run/credential"):
            os.mkdir(os.path.join(self.dir, name))
            os.chmod(os.path.join(self.dir, name), 0o700)
            if USER:
                shutil.chown(os.path.join(self.dir, name), USER)
        self.log = open(os.path.join(self.dir, "log"), "w+")
        words = [w.replace("DIR", self.dir) for w in args]
        self.process = subprocess.Popen([program, *words], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                        user=USER)

    def __enter__(self):
        return self

    def __exit__(self, *what):
        self.process.terminate()
        self.process.wait()
        if what[0]:
            self.log.seek(0)
            print("# " + self.log.read().replace("\n", "\n# "))
        shutil.rmtree(self.dir)

    def wait(self, ready):
        end = time.monotonic() + WAIT_S
        while True:
            found = ready()
            if found:
                return found
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError("it does not come up")
            time.sleep(0.02)

    def text(self):
        with open(os.path.join(self.dir, "log")) as f:
            return f.read()

    def socket(self, path, kind):
        path = os.path.join(self.dir, "run", path)
        s = socket.socket(socket.AF_UNIX, kind)
        s.settimeout(WAIT_S)
        # It is there a moment before it listens.
        self.wait(lambda: os.path.exists(path) and s.connect_ex(path) == 0)
        return s

    def packet(self, path, request):
        with self.socket(path, socket.SOCK_SEQPACKET) as s:
            s.send(json.dumps(request).encode())
            return json.loads(s.recv(1 << 18))


def gateway_text(s, path="/metrics"):
    port = s.wait(lambda: (re.search(r"\(port (\d+)\)", s.text()) or [None, None])[1])
    c = http.client.HTTPConnection("127.0.0.1", int(port), timeout=WAIT_S)
    c.request("GET", path)
    answer = c.getresponse()
    return answer.status, answer.getheader("Content-Type"), answer.read().decode()


def gateway():
    return Service(GATEWAY, "--listen", "127.0.0.1:0", "--state-dir", "DIR/state", "--run-dir", "DIR/run")


def counted(s):
    """What it says once it has counted a request for it: a moment after that was answered."""
    def look():
        status, kind, text = gateway_text(s)
        assert (status, kind) == (200, "text/plain; version=0.0.4"), (status, kind)
        families = lm.parse(text)
        return families if lm.value(families, "space_gateway_request_seconds_count", route="/metrics") >= 1 else None
    return s.wait(look)


def the_gateway_prints_well():
    with gateway() as s:
        families = counted(s)
        assert lm.value(families, "space_gateway_requests_total", route="/metrics", **{"class": "2xx"}) >= 1
        assert lm.value(families, "space_database_seconds_count", kind="read") > 0
        # The node is not there: said at once, and not as if there were nothing to count.
        status, _, text = gateway_text(s, "/v1/node/metrics")
        assert status == 503 and json.loads(text)["error"]["code"] == "node_unavailable", (status, text)


def the_volume_manager_prints_well():
    with Service(VOLUME, "--run-dir", "DIR/run", "--state-dir", "DIR/state",
                 "--peer-user", USER or "nobody") as s:
        org = "o" + "2" * 19
        answer = s.packet("volume/manager.sock", {"op": "age", "organisation": org, "sandbox": "s" + "2" * 19})
        assert answer["error"]["code"] == "not_stored", answer
        families = lm.parse(s.packet("volume/manager.sock", {"op": "metrics"})["text"])
        assert lm.value(families, "space_volume_job_seconds_count", operation="age", outcome="refused") == 1
        assert lm.value(families, "space_volume_store_seconds_count", operation="stat", outcome="refused") == 1
        return families


def the_network_gateway_prints_well():
    with Service(NETWORK, "--run-dir", "DIR/run", "--peer-user", USER or "nobody", "--resolver", "127.0.0.1:1") as s:
        families = lm.parse(s.packet("network/gateway.sock", {"op": "metrics"})["text"])
        assert lm.value(families, "space_network_decisions_total", action="deny") == 0
        assert lm.value(families, "space_network_sandboxes") == 0
        return families


def the_credential_manager_prints_well():
    user = USER or "nobody"
    with Service(CREDENTIAL, "--run-dir", "DIR/run", "--state-dir", "DIR/state", "--sandbox-user", user,
                 "--gateway-user", user, "--network-user", user) as s:
        with s.socket("credential/manager.sock", socket.SOCK_STREAM) as c:
            c.sendall(b"GET /v1/metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            data = b""
            while piece := c.recv(65536):
                data += piece
        families = lm.parse(json.loads(data.split(b"\r\n\r\n", 1)[1])["text"])
        assert lm.value(families, "space_credential_injections_total") == 0
        return families


def the_dashboard_asks_for_what_there_is():
    """What the node itself counts is compared in tests/e2e/metrics, where there is one."""
    families = {}
    with gateway() as s:
        families.update(counted(s))
    for service in (the_volume_manager_prints_well, the_network_gateway_prints_well, the_credential_manager_prints_well):
        families.update(service())
    asked = lm.asked_for(DASHBOARD)
    assert len(asked) > 20, asked
    missing = [m for m in lm.missing(DASHBOARD, families) if not m.startswith("space_node_")]
    assert not missing, missing
    assert any(name.startswith("space_node_") for name in asked)


CASES = [the_reader_refuses_what_is_wrong, the_gateway_prints_well, the_volume_manager_prints_well,
         the_network_gateway_prints_well, the_credential_manager_prints_well, the_dashboard_asks_for_what_there_is]


def main():
    failed = 0
    print("1..%d" % len(CASES))
    for n, case in enumerate(CASES, 1):
        try:
            case()
            print("ok %d - %s" % (n, case.__name__))
        except (AssertionError, lm.Bad, OSError, KeyError, ValueError) as e:
            failed += 1
            print("# %s: %s" % (type(e).__name__, str(e).replace("\n", "\n# ")))
            print("not ok %d - %s" % (n, case.__name__))
        sys.stdout.flush()
    sys.exit(1 if failed else 0)


main()
