// SPDX-License-Identifier: Apache-2.0
//
// The unmodified @e2b/code-interpreter against the template that is built for it: results, streams, charts, errors, contexts.
import { Sandbox } from '@e2b/code-interpreter'
import { assert, fails, SLOW_MS, test as one } from './tap.mjs'

// A kernel takes long to start where the machine is emulated and its host busy.
const test = (name, fn) => one(name, fn, { deadlineMs: 4 * SLOW_MS })

let sandbox

async function box() {
  sandbox ??= await Sandbox.create({ timeoutMs: 3_600_000, requestTimeoutMs: 400_000 })
  return sandbox
}

test('the first code runs in a kernel that is at work already', async () => {
  const execution = await (await box()).runCode('x = 1\nx')
  assert.equal(execution.text, '1')
  assert.equal(execution.error, undefined)
  assert.equal(execution.executionCount, 1)
  assert.equal((await sandbox.runCode('x += 1; x')).text, '2')
  assert.equal((await sandbox.runCode("'words'")).text, 'words')
  assert.equal((await sandbox.runCode('y = 5')).text, undefined)
  assert.equal((await sandbox.runCode('import os; os.getcwd()')).text, '/home/user')
  assert.equal((await sandbox.runCode('import getpass; getpass.getuser()')).text, 'user')
})

test('output comes while the code runs', async () => {
  const out = []
  const err = []
  const execution = await (await box()).runCode(
    'import sys, time\nprint("one", flush=True); time.sleep(0.5); print("two"); print("oh", file=sys.stderr)',
    { onStdout: (m) => out.push([m.line, Date.now()]), onStderr: (m) => err.push(m.line) })
  assert.equal(execution.logs.stdout.join(''), 'one\ntwo\n')
  assert.equal(execution.logs.stderr.join(''), 'oh\n')
  assert.ok(out.at(-1)[1] - out[0][1] > 300, 'the first line did not wait for the last')
  assert.deepEqual(err, ['oh\n'])
})

test('charts come as PNG, tables as HTML, what is displayed before the result', async () => {
  const chart = await (await box()).runCode('import matplotlib.pyplot as plt\nplt.plot([1, 2, 3])\nplt.show()')
  const png = Buffer.from(chart.results[0].png, 'base64')
  assert.equal(png.subarray(1, 4).toString(), 'PNG')
  assert.equal(chart.results[0].isMainResult, false)
  const shown = await sandbox.runCode('from IPython.display import HTML, Markdown, JSON, display\n' +
    'display(HTML("<b>x</b>")); display(Markdown("# y")); display(JSON({"a": 1}))\n5')
  assert.deepEqual(shown.results.map((r) => [r.html, r.markdown, r.json, r.isMainResult]),
    [['<b>x</b>', undefined, undefined, false], [undefined, '# y', undefined, false], [undefined, undefined, { a: 1 }, false],
      [undefined, undefined, undefined, true]])
  assert.equal(shown.text, '5')
})

test('errors have a name, a value and a trace', async () => {
  const { error } = await (await box()).runCode('def f():\n  return 1 / 0\nf()')
  assert.equal(error.name, 'ZeroDivisionError')
  assert.equal(error.value, 'division by zero')
  assert.match(error.traceback, /ZeroDivisionError/)
  assert.equal((await sandbox.runCode('1 +')).error.name, 'SyntaxError')
  assert.equal((await sandbox.runCode('"after"')).text, 'after')
  const died = await sandbox.runCode('import os; os._exit(1)', { timeoutMs: 400_000 })
  assert.equal(died.error.name, 'KernelDied')
  assert.equal((await sandbox.runCode('"again"')).text, 'again')
})

test('variables of the environment are those of one execution', async () => {
  const code = 'import os; os.environ.get("ONCE", "none")'
  assert.equal((await (await box()).runCode(code, { envs: { ONCE: 'yes' } })).text, 'yes')
  assert.equal((await sandbox.runCode(code)).text, 'none')
})

test('contexts are apart, listed, restarted, removed', async () => {
  const context = await (await box()).createCodeContext({ cwd: '/tmp', requestTimeoutMs: 400_000 })
  assert.deepEqual([context.language, context.cwd], ['python', '/tmp'])
  await sandbox.runCode('z = 7', { context })
  assert.equal((await sandbox.runCode('z', { context })).text, '7')
  assert.equal((await sandbox.runCode('z')).error.name, 'NameError')
  assert.equal((await sandbox.runCode('import os; os.getcwd()', { context })).text, '/tmp')
  assert.ok((await sandbox.listCodeContexts()).some((c) => c.id === context.id))
  await sandbox.restartCodeContext(context)
  assert.equal((await sandbox.runCode('z', { context })).error.name, 'NameError')
  await sandbox.removeCodeContext(context.id)
  assert.ok(!(await sandbox.listCodeContexts()).some((c) => c.id === context.id))
  await fails(Error, () => sandbox.runCode('1', { context }), /not found/)
  await fails(Error, () => sandbox.createCodeContext({ cwd: '/nowhere' }), /400|does not exist/)
  await fails(Error, () => sandbox.runCode('1', { language: 'cobol' }), /400|no kernel/)
})

test('code that takes too long is interrupted, and the kernel is ready for the next', async () => {
  await fails(Error, async () => (await box()).runCode('kept = 1\nwhile True: pass', { timeoutMs: 2000 }))
  assert.equal((await sandbox.runCode('kept')).text, '1')
})

test('two sandboxes share neither variables nor chance', async () => {
  const other = await Sandbox.create({ timeoutMs: 600_000 })
  const code = 'import random; random.random()'
  const values = await Promise.all([(await box()).runCode(code), other.runCode(code)])
  assert.notEqual(values[0].text, values[1].text)
  await sandbox.runCode('mine = 1')
  assert.equal((await other.runCode('mine')).error.name, 'NameError')
  await other.kill()
})

test('a paused sandbox has its variables when it is back', async () => {
  await (await box()).runCode('through = "time"')
  await sandbox.pause()
  const back = await Sandbox.connect(sandbox.sandboxId)
  assert.equal((await back.runCode('through')).text, 'time')
  await back.kill()
})
