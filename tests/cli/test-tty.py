# SPDX-License-Identifier: Apache-2.0
"""What happens on a terminal: shell, exec -t, run -it, top, progress, colours."""
import os
import re
import signal
import subprocess
import time

from harness import Terminal, check, contains, equal, main, until, WAIT_S


def a_shell_works_and_the_terminal_is_restored(env):
    s = env.gw.add_sandbox()
    t = Terminal(env, "shell", s.id, rows=31, cols=97)
    t.expect(rb"[$#] ")
    check(not t.restored(), "raw while it lasts")
    t.send(b"stty size; tty; echo $TERM\r")
    t.expect(rb"31 97\r\n.*/dev/pts/\d+\r\nxterm\r\n")
    t.send(b"exit 3\r")
    equal(t.wait(), 3)
    check(t.restored(), "restored at the end")
    t.close()


def a_resize_arrives(env):
    s = env.gw.add_sandbox()
    t = Terminal(env, "exec", "-it", s.id, "--", "sh", "-c",
                 "trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.05; done")
    t.expect(rb"ready")
    t.resize(50, 132)
    t.expect(rb"50 132")
    equal(t.wait(), 0)
    t.close()


def control_c_goes_to_the_guest(env):
    s = env.gw.add_sandbox()
    t = Terminal(env, "shell", s.id)
    t.expect(rb"[$#] ")
    t.send(b"sleep 31415\r")
    t.expect(rb"sleep 31415")
    command = list(s.commands.values())[0]
    until(lambda: subprocess.run(["pgrep", "-f", "^sleep 31415$"], capture_output=True).returncode == 0, "sleep runs")
    t.send(b"\x03")
    t.send(b"echo alive-$((40 + 2))\r")
    t.expect(rb"alive-42")
    t.send(b"\x04")
    t.wait()
    check(command.ended, "Ctrl-D ends the shell")
    t.close()


def bytes_that_are_not_text_pass(env):
    s = env.gw.add_sandbox()
    t = Terminal(env, "exec", "-it", s.id, "--", "sh", "-c", "stty raw -echo; printf 'ready'; head -c 4 | od -An -tx1")
    t.expect(rb"ready")
    t.send(b"\xff\x00\xe2\x7e")
    t.expect(rb"ff 00 e2 7e")
    equal(t.wait(), 0)
    t.close()


def a_large_paste_does_not_lock_up(env):
    s = env.gw.add_sandbox()
    t = Terminal(env, "exec", "-it", s.id, "--", "sh", "-c", "stty raw -echo; printf ready; head -c 1000000 | tee /dev/stderr | wc -c")
    t.expect(rb"ready")
    t.paste(b"0123456789" * 100000)
    t.expect(rb"[^0-9]*1000000")
    equal(t.wait(), 0)
    t.close()


def a_broken_terminal_goes_on_where_it_stopped(env):
    s = env.gw.add_sandbox()
    env.gw.cut_stream_after = 3000
    env.gw.cut_again = 20000
    t = Terminal(env, "exec", "-it", s.id, "--", "sh", "-c",
                 "stty -onlcr; i=0; while [ $i -lt 20000 ]; do echo $i; i=$((i+1)); done; exit 6")
    equal(t.wait(), 6)
    numbers = t.seen.split()
    equal(numbers, [b"%d" % i for i in range(20000)])
    check(t.restored(), "restored")
    t.close()


def tilde_dot_leaves_it_running(env):
    s = env.gw.add_sandbox()
    t = Terminal(env, "shell", s.id)
    t.expect(rb"[$#] ")
    t.send(b"echo ~~kept\r")
    t.expect(rb"\r\n.*kept")
    t.send(b"~.")
    equal(t.wait(), 0)
    check(t.restored(), "restored")
    m = re.search(rb"space shell (\w+) --attach (\w+)", t.seen)
    check(m, "how to come back: %r" % t.seen)
    t.close()
    t = Terminal(env, "shell", m.group(1).decode(), "--attach", m.group(2).decode())
    t.expect(rb"kept")
    t.send(b"exit\r")
    t.wait()
    t.close()


def a_terminated_shell_restores_the_terminal(env):
    for signo in (signal.SIGTERM, signal.SIGHUP):
        s = env.gw.add_sandbox()
        t = Terminal(env, "shell", s.id)
        t.expect(rb"[$#] ")
        t.p.send_signal(signo)
        equal(t.wait(), 128 + signo)
        check(t.restored(), "restored after %d" % signo)
        command = list(s.commands.values())[0]
        check(signal.SIGHUP in command.signals, "the guest is hung up")
        t.close()


def a_gone_sandbox_restores_the_terminal(env):
    s = env.gw.add_sandbox()
    t = Terminal(env, "shell", s.id)
    t.expect(rb"[$#] ")
    command = list(s.commands.values())[0]
    del env.gw.sandboxes[s.id]
    env.gw.cut_stream_after = 0
    command.add(b"P", b"more")
    equal(t.wait(), 125)
    check(t.restored(), "restored")
    contains(t.seen.decode(), "no such sandbox")
    t.close()


def run_it_makes_and_removes(env):
    t = Terminal(env, "run", "-it", "--", "sh", "-c", "read x; echo [$x]; tty; exit 8")
    time_limit = time.monotonic() + WAIT_S
    while not any(c for s in env.gw.sandboxes.values() for c in s.commands):
        t.pump(0.05)
        check(time.monotonic() < time_limit, "the command is started")
    t.send(b"typed\r")
    t.expect(rb"\[typed\]\r\n/dev/pts")
    equal(t.wait(), 8)
    equal(env.gw.sandboxes, {})
    t.close()


def t_works_without_a_terminal_here(env):
    s = env.gw.add_sandbox()
    r = env.ok("exec", "-t", s.id, "--", "sh", "-c", "tty; stty size")
    contains(r.text, "/dev/pts")
    contains(r.text, "24 80")
    r = env.ok("exec", "-it", s.id, "--", "cat", input=b"line\n")
    contains(r.text, "line")


def top_is_live_and_ends_with_q(env):
    s = env.gw.add_sandbox()
    t = Terminal(env, "top", "-d", "1")
    t.expect(rb"\x1b\[\?1049h")
    t.expect(rb"CPU%")
    t.expect(s.id.encode())
    t.expect(s.id.encode() + rb"\s+\S+\s+\d+\.\d")
    t.send(b"q")
    equal(t.wait(), 0)
    contains(t.seen, b"\x1b[?1049l")
    check(t.restored(), "restored")
    t.close()


def progress_only_on_a_terminal(env):
    import threading
    env.gw.create_gate = threading.Event()
    t = Terminal(env, "create")
    t.expect(rb"making a sandbox")
    env.gw.create_gate.set()
    t.expect(rb"\r\x1b\[K")
    equal(t.wait(), 0)
    t.close()
    r = env.ok("create")
    equal(r.err, b"")


def colours_only_when_wanted(env):
    def seen(environ):
        t = Terminal(env, "info", "sabcdefghijklmnopqrs", environ=environ)
        equal(t.wait(), 1)
        t.close()
        return t.seen
    contains(seen({}), b"\x1b[31m")
    check(b"\x1b[" not in seen({"NO_COLOR": "1"}), "NO_COLOR")
    check(b"\x1b[" not in seen({"TERM": "dumb"}), "dumb")
    check(b"\x1b[" not in env.run("info", "sabcdefghijklmnopqrs").err, "a pipe")


def tables_fit_the_terminal(env):
    env.gw.add_sandbox(metadata={"note": "x" * 300})
    t = Terminal(env, "ls", cols=72)
    equal(t.wait(), 0)
    for line in re.sub(rb"\x1b\[\d+m", b"", t.seen).split(b"\r\n"):
        check(len(line) <= 72, "a line of %d columns: %r" % (len(line), line))
    contains(t.seen, b"...")
    t.close()
    contains(env.ok("ls").text, "x" * 300)


def hostile_text_cannot_drive_the_terminal(env):
    s = env.gw.add_sandbox(metadata={"a": "\x1b[2J\u202e\u0085"})
    env.gw.log_text = b"\x1b]0;owned\x07 plain\n"
    env.ok("exec", "-d", s.id, "--", "echo", "\x1b[2J")
    for args in (["ls"], ["info", s.id], ["ps", s.id], ["logs", s.id]):
        t = Terminal(env, *args, environ={"NO_COLOR": "1"})
        equal(t.wait(), 0)
        check(b"\x1b" not in t.seen and "\u202e".encode() not in t.seen and "\u0085".encode() not in t.seen,
              "%s shows %r" % (args, t.seen))
        t.close()
    equal(env.ok("logs", s.id).out, env.gw.log_text, "a pipe gets it as it is")


main([a_shell_works_and_the_terminal_is_restored, a_resize_arrives, control_c_goes_to_the_guest,
      bytes_that_are_not_text_pass, a_large_paste_does_not_lock_up, a_broken_terminal_goes_on_where_it_stopped,
      tilde_dot_leaves_it_running, a_terminated_shell_restores_the_terminal, a_gone_sandbox_restores_the_terminal,
      run_it_makes_and_removes, t_works_without_a_terminal_here, top_is_live_and_ends_with_q,
      progress_only_on_a_terminal, colours_only_when_wanted, tables_fit_the_terminal,
      hostile_text_cannot_drive_the_terminal])
