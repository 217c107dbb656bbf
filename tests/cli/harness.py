# SPDX-License-Identifier: Apache-2.0
"""What the tests of the command line share: cases in TAP, running `space`, a terminal to run it in."""
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import fcntl
import time
import traceback

SPACE = os.path.abspath(os.environ.get("SPACE_BINARY") or sys.argv[1])
WAIT_S = 30 * float(os.environ.get("SPACE_TEST_SLOWNESS", "1"))


class Failed(Exception):
    def __init__(self, text):
        super().__init__(text if len(text) < 2500 else text[:2500] + " ...")


class Skip(Exception):
    pass


def check(condition, text):
    if not condition:
        raise Failed(text)


def equal(got, want, what=""):
    if got != want:
        raise Failed("%s is %r, not %r" % (what or "it", got, want))


def contains(text, part):
    if part not in text:
        raise Failed("%r is not in %r" % (part, text))


def until(condition, what):
    """Waits for what happens in another process; the only place where tests look again and again."""
    end = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > end:
            raise Failed("never happened: " + what)
        time.sleep(0.01)


class Env:
    """A home of its own, a gateway of its own."""

    def __init__(self, gateway=True):
        self.home = tempfile.mkdtemp(prefix="space-cli-")
        self.gw = None
        if gateway:
            from fakegateway import Gateway
            self.gw = Gateway()

    def environ(self, **more):
        env = {"PATH": os.environ["PATH"], "HOME": self.home, "LANG": "C.UTF-8", "TERM": "xterm"}
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS"):
            if name in os.environ:
                env[name] = os.environ[name]
        if self.gw:
            env["SPACE_URL"] = self.gw.url
            env["SPACE_API_KEY"] = "e2b_test"
        env.update(more)
        return {k: v for k, v in env.items() if v is not None}

    def popen(self, *args, env=None, **kw):
        kw.setdefault("stdin", subprocess.DEVNULL)
        kw.setdefault("stdout", subprocess.PIPE)
        kw.setdefault("stderr", subprocess.PIPE)
        kw.setdefault("cwd", self.home)
        return subprocess.Popen([SPACE, *args], env=self.environ(**(env or {})), **kw)

    def run(self, *args, input=None, env=None, **kw):
        if input is not None:
            kw["stdin"] = subprocess.PIPE
        p = self.popen(*args, env=env, **kw)
        try:
            out, err = p.communicate(input, timeout=WAIT_S)
        except subprocess.TimeoutExpired:
            p.kill()
            out, err = p.communicate()
            raise Failed("space %s does not end; it said %r %r" % (" ".join(map(repr, args)), out[-300:], err[-300:]))
        return Result(p.returncode, out or b"", err or b"")

    def ok(self, *args, **kw):
        r = self.run(*args, **kw)
        if r.code != 0:
            raise Failed("space %s ended with %d: %r" % (" ".join(map(repr, args)), r.code, r.err))
        return r

    def close(self):
        if self.gw:
            self.gw.close()
        subprocess.run(["chmod", "-R", "u+rwx", self.home], check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(self.home, ignore_errors=True)


class Result:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err
        if b"Sanitizer" in err or b"runtime error" in err:
            raise Failed("sanitizer: " + err.decode("utf-8", "replace")[-3000:])

    @property
    def text(self):
        return self.out.decode("utf-8", "replace")

    @property
    def errors(self):
        return self.err.decode("utf-8", "replace")


class Terminal:
    """`space` in a terminal."""

    def __init__(self, env, *args, rows=30, cols=100, environ=None, stdin_tty=True):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
        self.slave = os.dup(slave)
        self.before = termios.tcgetattr(slave)
        self.p = subprocess.Popen([SPACE, *args], env=env.environ(**(environ or {})), cwd=env.home,
                                  stdin=slave if stdin_tty else subprocess.DEVNULL, stdout=slave, stderr=slave,
                                  start_new_session=True, preexec_fn=lambda: fcntl.ioctl(1, termios.TIOCSCTTY, 0))
        os.close(slave)
        self.seen = b""

    def send(self, data):
        os.write(self.master, data)

    def paste(self, data):
        """Writes as a terminal emulator does: it never stops to read what is shown."""
        os.set_blocking(self.master, False)
        end = time.monotonic() + WAIT_S
        while data:
            if time.monotonic() > end:
                raise Failed("%d bytes are never taken" % len(data))
            ready, writable, _ = select.select([self.master], [self.master], [], 0.1)
            if writable:
                try:
                    data = data[os.write(self.master, data[:1000]):]
                except BlockingIOError:
                    pass
            if ready:
                self.pump(0)
        os.set_blocking(self.master, True)

    def resize(self, rows, cols):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def pump(self, timeout):
        ready, _, _ = select.select([self.master], [], [], timeout)
        if ready:
            try:
                data = os.read(self.master, 65536)
            except OSError:
                return False
            self.seen += data
            return bool(data)
        return None

    def expect(self, pattern):
        """Waits for a pattern in what came since the last match; gives it back."""
        end = time.monotonic() + WAIT_S
        while True:
            m = re.search(pattern, self.seen, re.S)
            if m:
                self.seen = self.seen[m.end():]
                return m
            if time.monotonic() > end or self.pump(0.1) is False:
                raise Failed("%r never came; what came is %r" % (pattern, self.seen[-600:]))

    def wait(self):
        end = time.monotonic() + WAIT_S
        while self.p.poll() is None:
            self.pump(0.02)
            if time.monotonic() > end:
                self.p.kill()
                raise Failed("space does not end; what came is %r" % self.seen[-600:])
        while self.pump(0) is True:
            pass
        if b"Sanitizer" in self.seen or b"runtime error" in self.seen:
            raise Failed("sanitizer: " + self.seen.decode("utf-8", "replace")[-3000:])
        return self.p.returncode

    def restored(self):
        after = termios.tcgetattr(self.slave)
        return after[:4] == self.before[:4]

    def close(self):
        if self.p.poll() is None:
            self.p.kill()
            self.p.wait()
        os.close(self.master)
        os.close(self.slave)


def main(cases):
    """Runs each case with an Env of its own."""
    only = sys.argv[2:]
    strict = os.environ.get("MUST_WORK") == "1"
    failures = 0
    print("1..%d" % len(cases))
    for i, case in enumerate(cases, 1):
        name = case.__name__
        if only and name not in only:
            print("ok %d - %s # SKIP not asked for" % (i, name))
            continue
        env = Env()
        try:
            case(env)
            print("ok %d - %s" % (i, name))
        except Skip as e:
            failures += strict
            print("%sok %d - %s # SKIP %s" % ("not " if strict else "", i, name, e))
        except Failed as e:
            failures += 1
            print("# %s\nnot ok %d - %s" % (str(e).replace("\n", "\n# "), i, name))
        except Exception:
            failures += 1
            print("# %s\nnot ok %d - %s" % (traceback.format_exc().replace("\n", "\n# "), i, name))
        finally:
            env.close()
        sys.stdout.flush()
    sys.exit(1 if failures else 0)
