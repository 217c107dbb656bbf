# SPDX-License-Identifier: Apache-2.0
#
# The unmodified e2b-code-interpreter of PyPI against the template that is built for it: once around.
from e2b_code_interpreter import Sandbox
from tap import case, main

PATIENCE = {'timeout': 400, 'request_timeout': 400}  # a kernel takes long to start where the machine is emulated
box = None


@case
def code_runs_and_variables_stay():
    global box
    box = Sandbox.create(timeout=3600, request_timeout=400)
    execution = box.run_code('x = 1\nx', **PATIENCE)
    assert (execution.text, execution.error, execution.execution_count) == ('1', None, 1), execution
    assert box.run_code('x += 1; x', **PATIENCE).text == '2'


@case
def output_comes_apart():
    out, err = [], []
    execution = box.run_code('import sys\nprint("one")\nprint("oh", file=sys.stderr)', on_stdout=lambda m: out.append(m.line),
                             on_stderr=lambda m: err.append(m.line), **PATIENCE)
    assert (''.join(out), ''.join(err)) == ('one\n', 'oh\n'), (out, err)
    assert (''.join(execution.logs.stdout), ''.join(execution.logs.stderr)) == ('one\n', 'oh\n'), execution


@case
def errors_and_environments():
    error = box.run_code('1 / 0', **PATIENCE).error
    assert (error.name, error.value) == ('ZeroDivisionError', 'division by zero') and 'ZeroDivisionError' in error.traceback, error
    assert box.run_code('import os; os.environ["WORD"]', envs={'WORD': 'a b'}, **PATIENCE).text == 'a b'


@case
def charts_are_pictures():
    chart = box.run_code('import matplotlib.pyplot as plt\nplt.plot([1, 2, 3])\nplt.show()', **PATIENCE)
    assert chart.results[0].png.startswith('iVBORw0KGgo'), chart


@case
def the_end():
    assert box.kill()


main()
