# SPDX-License-Identifier: Apache-2.0
"""run, exec: bytes, streams, standard input, signals, exit codes, broken connections."""
import hashlib
import json
import os
import signal
import subprocess
import threading
import time

from harness import check, contains, equal, main, until, WAIT_S


def shell(line):
    return ["--", "sh", "-c", line]


def streams_stay_apart_and_codes_pass(env):
    s = env.gw.add_sandbox()
    r = env.run("exec", s.id, *shell("echo out; echo err >&2; exit 7"))
    equal((r.code, r.out, r.err), (7, b"out\n", b"err\n"))


def codes_of_every_kind(env):
    s = env.gw.add_sandbox()
    for line, want in [("exit 0", 0), ("exit 255", 255), ("kill -9 $$", 137), ("kill -15 $$", 143)]:
        equal(env.run("exec", s.id, *shell(line)).code, want, line)
    r = env.run("exec", s.id, "--", "/no/such")
    equal(r.code, 127)
    contains(r.errors, "/no/such")
    equal(env.run("exec", s.id, "--", "/etc/passwd").code, 126)


def own_failures_are_125(env):
    s = env.gw.add_sandbox()
    equal(env.run("exec", "sabcdefghijklmnopqrs", "--", "true").code, 125)
    r = env.run("exec", "-u", "nobody-here", s.id, "--", "true")
    equal(r.code, 125)
    contains(r.errors, "nobody-here")
    equal(env.run("exec", s.id).code, 125, "no command")
    equal(env.run("exec", "--no-such", s.id, "true").code, 125, "unknown option")
    equal(env.run("run").code, 125, "no command")
    equal(env.run("exec", s.id, "true", env={"SPACE_URL": "http://127.0.0.1:1"}).code, 125)


def arguments_arrive_as_they_are(env):
    s = env.gw.add_sandbox()
    args = ["a b", "", "$HOME", "'\"\\", "-x", "--", "é☕", "new\nline"]
    r = env.ok("exec", s.id, "--", "python3", "-c", "import sys, json; print(json.dumps(sys.argv[1:]))", *args)
    equal(json.loads(r.out), args)
    r = env.ok("exec", s.id, "printf", "%s|", "-n", "--env")
    equal(r.out, b"-n|--env|", "options after the command are the command's")


def an_argument_that_is_not_utf8_is_refused(env):
    s = env.gw.add_sandbox()
    r = env.run("exec", s.id, "--", "echo", b"\xff")
    equal(r.code, 125)
    contains(r.errors, "UTF-8")


def all_bytes_pass(env):
    s = env.gw.add_sandbox()
    data = bytes(range(256)) * 40
    r = env.ok("exec", "-i", s.id, "--", "cat", input=data)
    equal(r.out, data)


def large_output_and_input(env):
    s = env.gw.add_sandbox()
    data = os.urandom(5 << 20)
    r = env.ok("exec", "-i", s.id, "--", "sha256sum", input=data)
    equal(r.text.split()[0], hashlib.sha256(data).hexdigest())
    r = env.ok("exec", "-i", s.id, "--", "cat", input=data)
    check(r.out == data, "5 MiB through cat differ")
    r = env.ok("exec", s.id, *shell("yes abcdefghi | head -c 20000000"))
    equal(hashlib.sha256(r.out).hexdigest(), hashlib.sha256((b"abcdefghi\n" * 2000000)).hexdigest())


def input_nobody_reads(env):
    s = env.gw.add_sandbox()
    r = env.run("exec", "-i", s.id, "--", "true", input=os.urandom(5 << 20))
    equal(r.code, 0, "5 MiB into true: " + r.errors)


def open_input_does_not_hold_up_the_end(env):
    s = env.gw.add_sandbox()
    p = env.popen("exec", "-i", s.id, "--", "echo", "hi", stdin=subprocess.PIPE)
    out, err = p.stdout.read(), p.stderr.read()
    equal((p.wait(WAIT_S), out, err), (0, b"hi\n", b""))
    p.stdin.close()
    p = env.popen("exec", "-i", s.id, "--", "sh", "-c", "read x; echo got:$x", stdin=subprocess.PIPE)
    p.stdin.write(b"hi\n")
    p.stdin.flush()
    equal(p.stdout.read(), b"got:hi\n")
    equal(p.wait(WAIT_S), 0)
    p.stdin.close()
    p.stderr.close()


def input_comes_in_pieces(env):
    s = env.gw.add_sandbox()
    p = env.popen("exec", "-i", s.id, "--", "sh", "-c", "while read x; do echo [$x]; done; echo end",
                  stdin=subprocess.PIPE)
    for word in (b"a", b"b", b"c"):
        p.stdin.write(word + b"\n")
        p.stdin.flush()
        equal(p.stdout.readline(), b"[%s]\n" % word)
    p.stdin.close()
    equal(p.stdout.read(), b"end\n")
    equal(p.wait(WAIT_S), 0)
    p.stderr.close()


def without_i_input_is_not_touched(env):
    s = env.gw.add_sandbox()
    rd, wr = os.pipe()
    os.write(wr, b"for the loop\n")
    os.close(wr)
    r = env.ok("exec", s.id, "--", "cat", stdin=rd)
    equal(r.out, b"")
    equal(os.read(rd, 100), b"for the loop\n")
    os.close(rd)


def environment_and_directory(env):
    s = env.gw.add_sandbox()
    r = env.ok("exec", "-e", "A=1=2", "-e", "FROM_HERE", "--cwd", s.root, s.id, *shell("echo $A $FROM_HERE; pwd"),
               env={"FROM_HERE": "yes"})
    equal(r.text.split("\n")[0], "1=2 yes")
    contains(r.text, s.root)
    r = env.run("exec", "-e", "NOT_HERE", s.id, "true")
    equal(r.code, 125)
    contains(r.errors, "NOT_HERE")


def a_signal_reaches_the_command(env):
    s = env.gw.add_sandbox()
    for signo, name in ((signal.SIGINT, "INT"), (signal.SIGTERM, "TERM"), (signal.SIGUSR1, "USR1")):
        p = env.popen("exec", s.id, *shell("trap 'echo caught; exit 3' %s; echo ready; while :; do sleep 0.05; done"
                                          % name))
        equal(p.stdout.readline(), b"ready\n")
        p.send_signal(signo)
        equal(p.stdout.read(), b"caught\n", name)
        equal(p.wait(WAIT_S), 3)
        p.stderr.close()


def a_second_interrupt_kills(env):
    s = env.gw.add_sandbox()
    p = env.popen("exec", s.id, *shell("trap 'echo no' INT; echo ready; while :; do sleep 0.05; done"))
    equal(p.stdout.readline(), b"ready\n")
    p.send_signal(signal.SIGINT)
    equal(p.stdout.readline(), b"no\n")
    p.send_signal(signal.SIGINT)
    equal(p.wait(WAIT_S), 130)
    equal(len(s.commands), 0, "commands left")
    p.stdout.close()
    p.stderr.close()


def a_reader_that_leaves_ends_the_command(env):
    s = env.gw.add_sandbox()
    p = env.popen("exec", s.id, "--", "yes")
    p.stdout.read(100)
    p.stdout.close()
    equal(p.wait(WAIT_S), 128 + signal.SIGPIPE)
    equal(len(s.commands), 0, "commands left")
    p.stderr.close()


def a_broken_stream_goes_on_where_it_stopped(env):
    s = env.gw.add_sandbox()
    env.gw.cut_stream_after = 30000
    env.gw.cut_again = 70001
    r = env.run("exec", s.id, *shell("yes 0123456789 | head -c 1000000; exit 5"))
    equal(r.code, 5, r.errors)
    equal(hashlib.sha256(r.out).hexdigest(), hashlib.sha256((b"0123456789\n" * 100000)[:1000000]).hexdigest())
    check(sum("/output?offset=" in t for _, t, _ in env.gw.requests) > 5, "it was cut many times")


def output_that_is_gone_is_said(env):
    s = env.gw.add_sandbox()
    r = env.ok("exec", "-d", s.id, *shell("head -c 5000 /dev/zero; sleep 0.1; echo end"))
    command = s.commands[r.text.strip()]
    until(lambda: command.ended, "the command's end")
    command.output = [(k, o, d) for k, o, d in command.output if d == b"end\n"]
    command.first = 5000
    r = env.run("exec", s.id, "--attach", command.id[:8])
    equal((r.code, r.out), (0, b"end\n"))
    contains(r.errors, "5000 bytes")


def a_start_that_broke_is_found_by_its_tag(env):
    s = env.gw.add_sandbox()
    env.gw.cut_stream_after = 0
    r = env.run("exec", s.id, "--", "echo", "once")
    equal((r.code, r.out), (0, b"once\n"))
    equal(len(s.commands), 1, "commands started")


def a_start_that_never_came_is_an_error(env):
    s = env.gw.add_sandbox()
    env.gw.fault("POST", "/commands", "cut", times=2)
    r = env.run("exec", s.id, "--", "echo", "once")
    equal((r.code, r.out), (125, b""))
    equal(len(s.commands), 0)


def a_sandbox_that_is_gone_is_not_success(env):
    s = env.gw.add_sandbox()
    p = env.popen("exec", s.id, *shell("echo ready; sleep 60"))
    equal(p.stdout.readline(), b"ready\n")
    command = list(s.commands.values())[0]
    env.gw.cut_stream_after = 0
    s.commands.clear()
    command.add(b"O", b"more")
    equal(p.wait(WAIT_S), 125)
    command.kill(signal.SIGKILL)
    p.stdout.close()
    p.stderr.close()


def detached_prints_the_id(env):
    s = env.gw.add_sandbox()
    r = env.ok("exec", "-d", s.id, "--", "echo", "later")
    check(r.text.strip() in s.commands, "an id of a command")
    r = env.ok("exec", "-d", "--json", s.id, "--", "true")
    check(json.loads(r.out)["id"] in s.commands, "a command object")
    r = env.ok("exec", s.id, "--attach", list(s.commands)[0])
    equal(r.out, b"later\n")


def json_holds_the_output(env):
    s = env.gw.add_sandbox()
    r = env.run("exec", "--json", s.id, *shell("echo out; printf '\\377' >&2; exit 4"))
    o = json.loads(r.out)
    equal((r.code, o["exit_code"], o["stdout"], o["stderr_base64"]), (4, 4, "out\n", "/w=="))
    r = env.run("exec", "--json", "sabcdefghijklmnopqrs", "true")
    equal(json.loads(r.err)["error"]["code"], "sandbox_not_found")


def run_makes_and_removes(env):
    r = env.ok("run", "--template", "tiny", "--memory", "1G", "--cpus", "2", "-l", "job=1", *shell("echo hi"))
    equal(r.out, b"hi\n")
    equal(env.gw.sandboxes, {})
    o = env.gw.all_sandboxes[0].object
    equal((o["template"], o["memory_mib"], o["vcpus"], o["metadata"]), ("tiny", 1024, 2, {"job": "1"}))
    check(0 < o["timeout_s"] <= 3600, "a lease")
    equal(env.run("run", *shell("exit 9")).code, 9)
    equal(env.gw.sandboxes, {})


def run_keeps_when_asked(env):
    r = env.ok("run", "--keep", "true")
    equal(list(env.gw.sandboxes), [env.gw.all_sandboxes[0].id])
    contains(r.errors, env.gw.all_sandboxes[0].id)
    equal(env.gw.all_sandboxes[0].object["timeout_s"], 0)


def run_passes_a_pipe(env):
    equal(env.ok("run", "--", "cat", input=b"data").out, b"data")
    rd, wr = os.pipe()
    p = env.popen("run", "--", "echo", "hi", stdin=rd)
    equal(p.stdout.read(), b"hi\n")
    equal(p.wait(WAIT_S), 0, "an input that never ends")
    os.close(rd)
    os.close(wr)
    p.stderr.close()


def run_copies_in_and_out(env):
    os.makedirs(env.home + "/data/sub")
    open(env.home + "/data/sub/x", "w").write("input")
    open(env.home + "/job.py", "w").write("open('out', 'w').write(open('d/sub/x').read().upper()); raise SystemExit(3)")
    r = env.run("run", "--copy-in", "job.py:job.py", "--copy-in", "data:d", "--copy-out", "out:results/out.txt",
                "--", "python3", "job.py")
    equal(r.code, 3, r.errors)
    equal(open(env.home + "/results/out.txt").read(), "INPUT")
    equal(env.gw.sandboxes, {})
    r = env.run("run", "--copy-in", "not-here:x", "true")
    equal(r.code, 125)
    equal(len(env.gw.all_sandboxes), 1, "nothing is made for a mistake")
    r = env.run("run", "--copy-out", "nothing:x", "true")
    equal(r.code, 125, "a result that is not there")
    equal(env.gw.sandboxes, {})


def run_interrupted_removes(env):
    p = env.popen("run", *shell("trap 'exit 4' INT; echo ready; while :; do sleep 0.05; done"))
    equal(p.stdout.readline(), b"ready\n")
    p.send_signal(signal.SIGINT)
    equal(p.wait(WAIT_S), 4, "the command's own code")
    equal(env.gw.sandboxes, {})
    p = env.popen("run", *shell("trap '' INT; echo ready; while :; do sleep 0.05; done"))
    equal(p.stdout.readline(), b"ready\n")
    p.send_signal(signal.SIGINT)
    until(lambda: any(c.signals for s in env.gw.sandboxes.values() for c in s.commands.values()), "the signal")
    p.send_signal(signal.SIGINT)
    equal(p.wait(WAIT_S), 130)
    equal(env.gw.sandboxes, {})


def run_terminated_removes(env):
    p = env.popen("run", *shell("echo ready; exec sleep 60"))
    equal(p.stdout.readline(), b"ready\n")
    p.send_signal(signal.SIGTERM)
    equal(p.wait(WAIT_S), 143)
    equal(env.gw.sandboxes, {})


def run_interrupted_while_making(env):
    env.gw.create_gate = threading.Event()
    p = env.popen("run", "true")
    until(lambda: env.gw.requests, "the create")
    p.send_signal(signal.SIGINT)
    equal(p.wait(WAIT_S), 130)
    until(lambda: env.gw.given_up == 1, "the gateway sees it")
    equal(env.gw.sandboxes, {})


def run_with_a_stuck_reader_still_ends(env):
    p = env.popen("run", "--", "yes")
    until(lambda: any(c.size > 1 << 20 for s in env.gw.sandboxes.values() for c in s.commands.values()), "output")
    p.send_signal(signal.SIGINT)
    p.send_signal(signal.SIGTERM)
    code = p.wait(WAIT_S)
    check(code > 128, "code %d" % code)
    equal(env.gw.sandboxes, {})


def a_create_that_broke_is_not_made_twice(env):
    env.gw.fault("CREATED", "/v1/sandboxes", "cut")
    r = env.ok("create")
    equal(len(env.gw.all_sandboxes), 1)
    equal(r.text.strip(), env.gw.all_sandboxes[0].id)


def a_removal_that_broke_is_tried_again(env):
    from fakegateway import ApiError
    for fault in ("cut", ApiError(503, "restarting", "try again")):
        env.gw.fault("DELETE", "", fault, times=2)
        equal(env.run("run", "true").code, 0)
        equal(env.gw.sandboxes, {})


main([streams_stay_apart_and_codes_pass, codes_of_every_kind, own_failures_are_125, arguments_arrive_as_they_are,
      an_argument_that_is_not_utf8_is_refused, all_bytes_pass, large_output_and_input, input_nobody_reads,
      open_input_does_not_hold_up_the_end, input_comes_in_pieces, without_i_input_is_not_touched,
      environment_and_directory, a_signal_reaches_the_command, a_second_interrupt_kills,
      a_reader_that_leaves_ends_the_command, a_broken_stream_goes_on_where_it_stopped, output_that_is_gone_is_said,
      a_start_that_broke_is_found_by_its_tag, a_start_that_never_came_is_an_error,
      a_sandbox_that_is_gone_is_not_success, detached_prints_the_id, json_holds_the_output, run_makes_and_removes,
      run_keeps_when_asked, run_passes_a_pipe, run_copies_in_and_out, run_interrupted_removes, run_terminated_removes,
      run_interrupted_while_making, run_with_a_stuck_reader_still_ends, a_create_that_broke_is_not_made_twice,
      a_removal_that_broke_is_tried_again])
