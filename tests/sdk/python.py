# SPDX-License-Identifier: Apache-2.0
#
# The unmodified Python client: what it does otherwise than the one for JavaScript (asks for events of a watch, reads
# answers by strict models), and once around the rest.
import os

from e2b import (BuildException, CommandExitException, FileNotFoundException, NotFoundException, Sandbox,
                 SandboxNotFoundException, Template, wait_for_file)
from tap import case, fails, main, until

box = None


@case
def create_and_info():
    global box
    box = Sandbox.create(timeout=600, metadata={'a': 'b c'}, envs={'FOO': 'bar'})
    assert box.is_running()
    info = box.get_info()
    assert (info.metadata, info.name, info.state.value) == ({'a': 'b c'}, 'base', 'running'), info
    assert box.sandbox_id in [s.sandbox_id for s in Sandbox.list().next_items()]
    assert box.get_metrics()[0].mem_total > 0


@case
def commands():
    result = box.commands.run('echo out; echo err >&2; echo $FOO')
    assert (result.stdout, result.stderr, result.exit_code) == ('out\nbar\n', 'err\n', 0), result
    assert fails(CommandExitException, lambda: box.commands.run('exit 3')).exit_code == 3
    cat = box.commands.run('cat', background=True, stdin=True)
    assert cat.pid in [p.pid for p in box.commands.list()]
    box.commands.send_stdin(cat.pid, 'abc')
    box.commands.close_stdin(cat.pid)
    assert cat.wait().stdout == 'abc'
    sleeper = box.commands.run('sleep 1000', background=True, timeout=0)
    assert box.commands.kill(sleeper.pid)
    fails(CommandExitException, sleeper.wait)  # until it has ended it could be killed again
    assert not box.commands.kill(sleeper.pid)


@case
def files():
    box.files.write('a.txt', 'hello')
    assert box.files.read('a.txt') == 'hello' and box.files.exists('a.txt')
    box.files.write_files([{'path': 'd/1', 'data': b'\x00\xff'}, {'path': 'd/2', 'data': 'two'}])
    assert bytes(box.files.read('d/1', format='bytes')) == b'\x00\xff'
    assert [e.name for e in box.files.list('d')] == ['1', '2']
    assert box.files.get_info('a.txt').size == 5
    assert box.files.make_dir('e') and not box.files.make_dir('e')
    box.files.rename('a.txt', 'e/b.txt')
    fails((FileNotFoundException, NotFoundException), lambda: box.files.read('a.txt'))
    box.files.remove('e')


@case
def watch():
    handle = box.files.watch_dir('d')
    box.files.write('d/3', 'x')
    box.commands.run('rm d/1')
    seen = []
    until(lambda: seen.extend(handle.get_new_events()) or any(
        e.name == '1' and e.type.value == 'remove' for e in seen), 'the removal')
    assert any(e.name == '3' and e.type.value == 'create' for e in seen), seen
    handle.stop()


@case
def pause_connect_kill():
    box.pause()
    assert not box.is_running()
    again = Sandbox.connect(box.sandbox_id)
    assert again.files.read('d/2') == 'two'
    assert again.kill() and not again.kill()
    fails((SandboxNotFoundException, NotFoundException), lambda: Sandbox.connect(box.sandbox_id))


@case
def templates():
    lines = []
    template = (Template(file_context_path=os.path.dirname(os.path.abspath(__file__))).from_base_image()
                .copy('package.json', 'got.json').set_envs({'A': 'b c'}).set_workdir('/work')
                .run_cmd('echo "$A" > said', user='root')
                .set_start_cmd('touch /tmp/up; sleep 100000', wait_for_file('/tmp/up')))
    info = Template.build(template, 'python', on_build_logs=lambda entry: lines.append(entry.message))
    assert any('RUN' in line for line in lines), lines
    assert Template.exists('python') and [t.build_id for t in Template.get_tags('python')] == [info.build_id]
    made = Sandbox.create('python')
    result = made.commands.run('cat said; pwd; test -s /home/user/got.json; test -e /tmp/up')
    assert result.stdout == 'b c\n/work\n', result
    made.kill()
    error = fails(BuildException, lambda: Template.build(Template().from_base_image().run_cmd('exit 3'), 'broken'))
    assert 'exited with 3' in str(error), error


main()
