// SPDX-License-Identifier: Apache-2.0
//
// Commands and terminals.
import { AuthenticationError, CommandExitError, InvalidArgumentError, NotFoundError, SandboxError, TimeoutError } from 'e2b'
import { box, create } from './box.mjs'
import { assert, fails, test, until } from './tap.mjs'

test('a command: output, errors, exit code, user, folder, environment', async () => {
  const { commands } = await box()
  const result = await commands.run('echo out; echo err >&2; id -un; pwd')
  assert.deepEqual([result.exitCode, result.stdout, result.stderr, result.error],
    [0, 'out\nuser\n/home/user\n', 'err\n', undefined])
  const root = await commands.run('id -un; pwd; echo $X', { user: 'root', cwd: '/tmp', envs: { X: '1' } })
  assert.equal(root.stdout, 'root\n/tmp\n1\n')
  const failed = await fails(CommandExitError, () => commands.run('echo half; exit 3'))
  assert.deepEqual([failed.exitCode, failed.stdout, failed.error], [3, 'half\n', 'exit status 3'])
})

test('a command: wrong folders and users, missing programs', async () => {
  const { commands } = await box()
  await fails(InvalidArgumentError, () => commands.run('true', { cwd: '/nowhere' }), /\/nowhere/)
  await fails(AuthenticationError, () => commands.run('true', { user: 'nobody-here' }))
  const missing = await fails(CommandExitError, () => commands.run('no-such-program'))
  assert.equal(missing.exitCode, 127)
})

test('output comes while it is made, whole characters only', async () => {
  const { commands } = await box()
  const seen = []
  let first
  const handle = await commands.run('echo start; read line; printf "ü€😀 %.0s" $(seq 5000); echo "got $line"', {
    background: true,
    stdin: true,
    onStdout: (text) => {
      first ??= text
      seen.push(text)
    },
  })
  await until(() => first, 'the first line')
  assert.equal(first, 'start\n')
  await commands.sendStdin(handle.pid, 'a line\n')
  const result = await handle.wait()
  assert.equal(result.stdout, `start\n${'ü€😀 '.repeat(5000)}got a line\n`)
  assert.equal(seen.join(''), result.stdout)
})

test('binary and large output arrive whole', async () => {
  const { commands } = await box()
  const result = await commands.run('head -c 3000000 /dev/zero | tr "\\0" x; echo; echo end >&2')
  assert.equal(result.stdout.length, 3_000_001)
  assert.equal(result.stderr, 'end\n')
})

test('standard input: sent, closed, and none', async () => {
  const { commands } = await box()
  const cat = await commands.run('cat', { background: true, stdin: true, timeoutMs: 0 })
  await cat.sendStdin('one ')
  await cat.sendStdin(new Uint8Array([0xe2, 0x82, 0xac]))
  await cat.closeStdin()
  await commands.closeStdin(cat.pid).catch((error) => assert.ok(error instanceof NotFoundError))
  assert.equal((await cat.wait()).stdout, 'one €')
  assert.equal((await commands.run('cat')).stdout, '') // without: its end is there at once
  const deaf = await commands.run('sleep 1000', { background: true, timeoutMs: 0 })
  await fails(SandboxError, () => commands.sendStdin(deaf.pid, 'x'))
  assert.equal(await deaf.kill(), true)
})

test('list, connect, kill', async () => {
  const { commands } = await box()
  const handle = await commands.run('echo before; while sleep 0.2; do echo tick; done', {
    background: true, timeoutMs: 0, envs: { A: 'b' }, cwd: '/tmp',
  })
  const info = (await commands.list()).find((p) => p.pid === handle.pid)
  assert.equal(info.cmd, '/bin/bash')
  assert.deepEqual(info.args.slice(0, 2), ['-l', '-c'])
  assert.equal(info.cwd, '/tmp')
  assert.equal((await commands.run(`kill -0 ${handle.pid} && echo there`)).stdout, 'there\n')
  let heard = ''
  const second = await commands.connect(handle.pid, { onStdout: (text) => (heard += text) })
  assert.equal(second.pid, handle.pid)
  await until(() => heard.includes('tick\ntick'), 'two ticks')
  assert.ok(!heard.includes('before')) // what was said to nobody is not said again
  assert.equal(await second.kill(), true)
  for (const one of [handle, second]) {
    const error = await fails(CommandExitError, () => one.wait())
    assert.equal(error.error, 'signal: killed')
    assert.equal(error.exitCode, -1)
  }
  assert.equal(await commands.kill(handle.pid), false)
  assert.equal(await commands.kill(999999), false)
  await fails(NotFoundError, () => commands.connect(999999))
  await fails(NotFoundError, () => commands.sendStdin(999999, 'x'))
})

test('a client that goes away leaves the command running', async () => {
  const { commands, files } = await box()
  const handle = await commands.run('echo begun; sleep 2; echo done > ~/left-running', { background: true, timeoutMs: 0 })
  await handle.disconnect()
  await until(() => files.exists('left-running'), 'the file')
  await files.remove('left-running')
})

test('the time limit ends the command', async () => {
  const { commands } = await box()
  await fails(TimeoutError, () => commands.run('sleep 1000; true # limited', { timeoutMs: 1500 }))
  await until(async () => !(await commands.list()).some((p) => p.args.join(' ').includes('# limited')), 'its end')
})

test('many commands at once', async () => {
  const { commands } = await box()
  const results = await Promise.all([...Array(30).keys()].map((n) => commands.run(`echo ${n}`)))
  assert.deepEqual(results.map((r) => r.stdout), [...Array(30).keys()].map((n) => `${n}\n`))
}, { deadlineMs: 300_000 })

test('killing the sandbox during a command says so', async () => {
  const sandbox = await create()
  const handle = await sandbox.commands.run('sleep 1000', { background: true, timeoutMs: 0 })
  const waiting = fails(TimeoutError, () => handle.wait(), /killed or reached its end/)
  await sandbox.kill()
  await waiting
})

test('pausing during a stream breaks it, and the command goes on after the resume', async () => {
  const sandbox = await create({ timeoutMs: 300_000 })
  let heard = ''
  const handle = await sandbox.commands.run('n=0; while sleep 0.1; do n=$((n+1)); echo $n; done', {
    background: true, timeoutMs: 0, onStdout: (text) => (heard += text),
  })
  await until(() => heard.includes('3\n'), 'the count')
  const broken = fails(TimeoutError, () => handle.wait())
  await sandbox.pause()
  await broken
  await sandbox.connect()
  let later = ''
  const again = await sandbox.commands.connect(handle.pid, { timeoutMs: 0, onStdout: (text) => (later += text) })
  await until(() => /^\d+$/m.test(later), 'it counts on')
  assert.ok(parseInt(later, 10) > parseInt(heard.trim().split('\n').at(-1), 10))
  await again.kill()
  await sandbox.kill()
}, { deadlineMs: 300_000 })

test('a terminal: input, size, two clients, kill', async () => {
  const { pty } = await box()
  let screen = ''
  const decoder = new TextDecoder()
  const terminal = await pty.create({
    cols: 80, rows: 24, timeoutMs: 0, envs: { HELLO: 'world' }, cwd: '/tmp', onData: (data) => (screen += decoder.decode(data)),
  })
  const type = (text) => pty.sendInput(terminal.pid, new TextEncoder().encode(text))
  await type('stty size; echo $HELLO $PWD\n')
  await until(() => screen.includes('24 80') && screen.includes('world /tmp'), 'the size and the variable')
  await pty.resize(terminal.pid, { cols: 100, rows: 30 })
  let other = ''
  const second = await pty.connect(terminal.pid, { timeoutMs: 0, onData: (data) => (other += new TextDecoder().decode(data)) })
  await type('stty size\n')
  await until(() => screen.includes('30 100') && other.includes('30 100'), 'the new size, for both')
  await second.disconnect()
  await type('exit 5\n')
  const error = await fails(CommandExitError, () => terminal.wait())
  assert.equal(error.exitCode, 5)
  const third = await pty.create({ cols: 80, rows: 24, timeoutMs: 0, onData: () => {} })
  assert.equal(await pty.kill(third.pid), true)
  await third.wait().catch(() => {}) // until it has ended it could be killed again
  assert.equal(await pty.kill(third.pid), false)
  await fails(NotFoundError, () => pty.resize(999999, { cols: 1, rows: 1 }))
})

test('git: what the SDK does with it', async () => {
  const sandbox = await box()
  const { git } = sandbox
  await sandbox.commands.run('rm -rf ~/repo ~/bare.git ~/clone; git init -q --bare ~/bare.git')
  await git.configureUser('A Name', 'a@example.test')
  await git.init('repo', { initialBranch: 'main' })
  await sandbox.files.write('repo/file', 'text\n')
  assert.equal((await git.status('repo')).fileStatus.length, 1)
  await git.add('repo')
  await git.commit('repo', 'first')
  await git.createBranch('repo', 'side')
  await git.checkoutBranch('repo', 'main')
  assert.deepEqual((await git.branches('repo')).branches.toSorted(), ['main', 'side'])
  await git.deleteBranch('repo', 'side')
  await git.remoteAdd('repo', 'origin', '/home/user/bare.git')
  assert.equal(await git.remoteGet('repo', 'origin'), '/home/user/bare.git')
  await git.push('repo', { remote: 'origin', branch: 'main' })
  await git.clone('/home/user/bare.git', { path: 'clone', branch: 'main' })
  assert.equal(await sandbox.files.read('clone/file'), 'text\n')
  await git.pull('clone')
  await git.setConfig('core.abbrev', '12', { scope: 'local', path: 'repo' })
  assert.equal(await git.getConfig('core.abbrev', { scope: 'local', path: 'repo' }), '12')
  await sandbox.files.write('repo/file', 'other\n')
  await git.restore('repo', { paths: ['file'] })
  await git.reset('repo', { mode: 'hard' })
  assert.equal(await sandbox.files.read('repo/file'), 'text\n')
  await git.dangerouslyAuthenticate({ username: 'u', password: 'p', host: 'git.example.test' })
  await fails(SandboxError, () => git.clone('/home/user/nowhere.git'))
}, { deadlineMs: 300_000 })
