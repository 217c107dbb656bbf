// SPDX-License-Identifier: Apache-2.0
//
// Below the SDK: older routes, what other clients send, exact answers.
import { Sandbox, Template } from 'e2b'
import { api, box, call, create, envelope, inside, stream, URL_BASE } from './box.mjs'
import { assert, fails, test, until } from './tap.mjs'

test('an unknown route is 404 in JSON', async () => {
  for (const [method, path] of [['GET', '/nonsense'], ['GET', '/v9/sandboxes'], ['GET', '/teams']]) {
    const answer = await api(method, path, method === 'POST' ? {} : undefined)
    assert.deepEqual([answer.status, answer.body.code], [404, 404], path)
    assert.equal(typeof answer.body.message, 'string')
  }
  const wrong = await api('PATCH', '/v2/sandboxes')
  assert.deepEqual([wrong.status, wrong.body.code], [405, 405])
  const anonymous = await fetch(`${URL_BASE}/sandboxes`)
  assert.deepEqual([anonymous.status, (await anonymous.json()).code], [401, 401])
  assert.equal((await fetch(`${URL_BASE}/health`)).status, 200)
})

test('what is not offered fails as a whole, with a reason', async () => {
  await fails(Error, () => Template.assignTags('base', ['x']))
  await fails(Error, () => Template.removeTags('base', ['x']))
})

test('templates: found, tagged, listed, and not deleted', async () => {
  assert.equal(await Template.exists('base'), true)
  assert.equal(await Template.aliasExists('debian:default'), true)
  assert.equal(await Template.exists('base:other'), false)
  assert.equal(await Template.exists('nothing-of-this-name'), false)
  assert.deepEqual((await Template.getTags('base')).map((t) => t.tag), ['default'])
  const list = (await api('GET', '/templates')).body
  assert.ok(list.find((t) => t.templateID === 'debian').aliases.includes('base'))
  assert.equal((await api('DELETE', '/templates/debian')).status, 403)
  assert.equal((await api('DELETE', '/templates/team%2Fnothing%3Adefault')).status, 404)
})

test('version 1 of the API: create, connect, resume, refreshes', async () => {
  let answer = await api('POST', '/sandboxes', { templateID: 'base', timeout: 300, secure: true, allow_internet_access: true })
  assert.equal(answer.status, 201)
  const id = answer.body.sandboxID
  for (const field of ['templateID', 'clientID', 'envdVersion', 'alias', 'envdAccessToken']) {
    assert.equal(typeof answer.body[field], 'string', field)
  }
  assert.equal((await api('POST', `/sandboxes/${id}/connect`, {})).status, 400)
  answer = await api('POST', `/sandboxes/${id}-client/connect`, { timeout: 600 })
  assert.deepEqual([answer.status, answer.body.sandboxID], [200, id])
  assert.equal((await api('POST', `/sandboxes/${id}/resume`, {})).status, 409)
  assert.equal((await api('POST', `/sandboxes/${id}/refreshes`, { duration: 900 })).status, 204)
  assert.ok(Date.parse((await api('GET', `/sandboxes/${id}`)).body.endAt) > Date.now() + 800_000)
  assert.equal((await api('POST', `/sandboxes/${id}/pause`, {})).status, 204)
  answer = await api('POST', `/sandboxes/${id}/pause`)
  assert.deepEqual([answer.status, answer.body.code], [409, 409])
  assert.equal((await api('POST', `/sandboxes/${id}/timeout`, { timeout: 5 })).status, 404)
  assert.equal((await api('POST', `/sandboxes/${id}/fork`, {})).status, 409)
  assert.equal((await api('POST', `/sandboxes/${id}/snapshots`, {})).status, 409)
  answer = await api('POST', `/sandboxes/${id}/resume`, { timeout: 300, autoPause: true })
  assert.deepEqual([answer.status, answer.body.sandboxID], [201, id])
  assert.equal((await api('GET', `/sandboxes/${id}`)).body.lifecycle.onTimeout, 'pause')
  assert.equal((await api('DELETE', `/sandboxes/${id}`)).status, 204)
  assert.equal((await api('DELETE', `/sandboxes/${id}`)).status, 404)
})

test('an unsecured sandbox needs no token, a secured one tells it only to its owner', async () => {
  const answer = await api('POST', '/sandboxes', { templateID: 'base', timeout: 300, secure: false })
  assert.equal(answer.body.envdAccessToken, undefined)
  const open = { sandboxId: answer.body.sandboxID }
  assert.deepEqual((await call(open, 'process.Process/List', {})).body, { processes: [] })
  await Sandbox.kill(open.sandboxId)
})

test('a sandbox that is not there is 502, whatever is asked', async () => {
  const gone = { sandboxId: 'ij3zxkgo981o8wesbevg' }
  const want = { sandboxId: gone.sandboxId, message: 'The sandbox was not found', code: 502 }
  for (const path of ['/health', '/files?path=x', '/envs', '/nonsense']) {
    const answer = await fetch(URL_BASE + path, { headers: inside(gone) })
    assert.deepEqual([answer.status, await answer.json()], [502, want], path)
  }
  assert.deepEqual((await call(gone, 'process.Process/List', {})).body, want)
  const half = await fetch(`${URL_BASE}/health`, { headers: { 'E2b-Sandbox-Id': 'x' } })
  assert.equal(half.status, 400)
})

test('the address in the host, as a domain would have it', async () => {
  const sandbox = await box()
  const { request } = await import('node:http')
  const url = new URL(URL_BASE)
  const status = (host) => new Promise((resolve, reject) => {
    request({ host: url.hostname, port: url.port, path: '/health', headers: { Host: host } }, (r) => {
      r.resume()
      resolve(r.statusCode)
    }).on('error', reject).end()
  })
  assert.equal(await status(`49983-${sandbox.sandboxId}.localhost`), 204)
  assert.equal(await status(`49983-${sandbox.sandboxId}.LOCALHOST:${url.port}`), 204)
  assert.equal(await status('49983-ij3zxkgo981o8wesbevg.localhost'), 502)
})

test('health, metrics and envs of the daemon; what is its host\'s alone is hidden', async () => {
  const sandbox = await box()
  const health = await fetch(`${URL_BASE}/health`, { headers: inside(sandbox) })
  assert.deepEqual([health.status, health.headers.get('cache-control')], [204, 'no-store'])
  const metrics = await (await fetch(`${URL_BASE}/metrics`, { headers: inside(sandbox) })).json()
  assert.ok(metrics.mem_total > metrics.mem_used && metrics.cpu_count >= 1 && metrics.disk_total > 0)
  const envs = await (await fetch(`${URL_BASE}/envs`, { headers: inside(sandbox) })).json()
  assert.equal(envs.E2B_SANDBOX_ID, sandbox.sandboxId)
  for (const path of ['/init', '/freeze', '/setup', '/identity', '/upgrade', '/commands']) {
    assert.equal((await fetch(URL_BASE + path, { method: 'POST', headers: inside(sandbox) })).status, 404, path)
  }
  const preflight = await fetch(`${URL_BASE}/files`, { method: 'OPTIONS', headers: { 'E2b-Sandbox-Id': sandbox.sandboxId, 'E2b-Sandbox-Port': '49983' } })
  assert.deepEqual([preflight.status, preflight.headers.get('access-control-allow-origin')], [204, '*'])
})

test('a stream is start, data, end, and the end of the stream', async () => {
  const sandbox = await box()
  const run = (cmd) => stream(sandbox, 'process.Process/Start', [{ process: { cmd: '/bin/sh', args: ['-c', cmd] }, stdin: false }])
  const good = await run('echo hi')
  assert.equal(good.type, 'application/connect+json')
  const [start, data, end, last] = good.envelopes
  assert.ok(start.message.event.start.pid > 1)
  assert.deepEqual(data.message, { event: { data: { stdout: 'aGkK' } } })
  assert.deepEqual(end.message, { event: { end: { exited: true, status: 'exit status 0' } } })
  assert.deepEqual(last, { flags: 2, message: {} })
  const bad = await run('exit 3')
  assert.deepEqual(bad.envelopes.at(-2).message, { event: { end: { exited: true, exitCode: 3, status: 'exit status 3', error: 'exit status 3' } } })
  const dead = await run('kill -9 $$')
  assert.deepEqual(dead.envelopes.at(-2).message, { event: { end: { exitCode: -1, status: 'signal: killed', error: 'signal: killed' } } })
  const background = await run('sleep 300 & echo left')
  assert.equal(background.envelopes.at(-1).flags, 2) // what it has left running does not hold the stream
})

test('wrong messages are told in the protocol\'s own words', async () => {
  const sandbox = await box()
  const start = (message) => stream(sandbox, 'process.Process/Start', [message])
  let answer = await start({ process: { cmd: '/bin/sh', cwd: '/nowhere' } })
  assert.equal(answer.status, 200)
  assert.equal(answer.envelopes.at(-1).message.error.code, 'invalid_argument')
  answer = await start({})
  assert.equal(answer.envelopes.at(-1).message.error.code, 'invalid_argument')
  answer = await stream(sandbox, 'process.Process/Start', [Buffer.from([1, 0, 0, 0, 1, 120])])
  assert.equal(answer.envelopes.at(-1).message.error.code, 'invalid_argument')
  answer = await stream(sandbox, 'process.Process/Start', [Buffer.from('garbage')])
  assert.equal(answer.envelopes.at(-1).message.error.code, 'invalid_argument')
  answer = await stream(sandbox, 'process.Process/Start', [{ process: { cmd: 'sh' } }], { Authorization: `Basic ${btoa('nobody-here:')}` })
  assert.equal(answer.status, 401)
  for (const [method, message, status, code] of [
    ['process.Process/SendSignal', { process: { pid: 999999 }, signal: 'SIGNAL_SIGKILL' }, 404, 'not_found'],
    ['process.Process/SendSignal', { process: { pid: 999999 }, signal: 'SIGNAL_SIGHUP' }, 400, 'invalid_argument'],
    ['process.Process/SendInput', { process: {} }, 400, 'invalid_argument'],
    ['process.Process/Nothing', {}, 404, 'not_found'],
    ['filesystem.Filesystem/Stat', { path: '/nowhere' }, 404, 'not_found'],
    ['filesystem.Filesystem/MakeDir', { path: '/home/user' }, 409, 'already_exists'],
  ]) {
    const got = await call(sandbox, method, message)
    assert.deepEqual([got.status, got.body.code], [status, code], method)
  }
  const type = await fetch(`${URL_BASE}/process.Process/List`, { method: 'POST', headers: inside(sandbox, { 'Content-Type': 'application/proto' }), body: '' })
  assert.equal(type.status, 415)
})

test('tags, terminals by the wire, and input as a stream', async () => {
  const sandbox = await box()
  const reading = stream(sandbox, 'process.Process/Start', [{ process: { cmd: 'cat' }, tag: 'my-cat', stdin: true }])
  await until(async () => (await call(sandbox, 'process.Process/List', {})).body.processes.some((p) => p.tag === 'my-cat'), 'the tag')
  const sent = await stream(sandbox, 'process.Process/StreamInput', [
    { start: { process: { tag: 'my-cat' } } },
    { data: { input: { stdin: btoa('one ') } } },
    { keepalive: {} },
    { data: { input: { stdin: btoa('two') } } },
    envelope({}, 2),
  ])
  assert.deepEqual(sent.envelopes, [{ flags: 0, message: {} }, { flags: 2, message: {} }])
  const pty = await call(sandbox, 'process.Process/SendInput', { process: { tag: 'my-cat' }, input: { pty: btoa('x') } })
  assert.equal(pty.status, 400)
  assert.equal((await call(sandbox, 'process.Process/CloseStdin', { process: { tag: 'my-cat' } })).status, 200)
  const bytes = (await reading).envelopes.map((e) => atob(e.message.event?.data?.stdout ?? '')).join('')
  assert.equal(bytes, 'one two')
})

test('a silent stream is kept alive, and a deadline of one that was connected to leaves the process', async () => {
  const sandbox = await box()
  const { pid } = await sandbox.commands.run('sleep 1000', { background: true, timeoutMs: 0 })
  const seen = await stream(sandbox, 'process.Process/Connect', [{ process: { pid } }], { 'Keepalive-Ping-Interval': '1', 'Connect-Timeout-Ms': '3500' })
  const kinds = seen.envelopes.map((e) => Object.keys(e.message.event ?? e.message)[0])
  assert.deepEqual([kinds[0], kinds.at(-1)], ['start', 'error'])
  assert.ok(kinds.filter((k) => k === 'keepalive').length >= 2, kinds.join())
  assert.equal(seen.envelopes.at(-1).message.error.code, 'deadline_exceeded')
  assert.equal(await sandbox.commands.kill(pid), true)
})

test('watchers that are asked, not listened to', async () => {
  const sandbox = await box()
  await sandbox.files.makeDir('polled')
  const { body: { watcherId } } = await call(sandbox, 'filesystem.Filesystem/CreateWatcher', { path: 'polled', includeEntry: true })
  assert.equal(typeof watcherId, 'string')
  const events = []
  const take = async () => {
    events.push(...(await call(sandbox, 'filesystem.Filesystem/GetWatcherEvents', { watcherId })).body.events)
    return events
  }
  assert.deepEqual(await take(), [])
  await sandbox.files.write('polled/a', 'x')
  await sandbox.commands.run('mv polled/a polled/b; rm polled/b')
  await until(async () => (await take()).some((e) => e.name === 'b' && e.type === 'EVENT_TYPE_REMOVE'), 'the last event')
  assert.ok(events.some((e) => e.name === 'a' && e.type === 'EVENT_TYPE_CREATE'))
  assert.ok(events.some((e) => e.name === 'a' && e.type === 'EVENT_TYPE_RENAME'))
  const other = await create()
  assert.equal((await call(other, 'filesystem.Filesystem/GetWatcherEvents', { watcherId })).body.code, 'not_found')
  await other.kill()
  assert.equal((await call(sandbox, 'filesystem.Filesystem/RemoveWatcher', { watcherId })).status, 200)
  assert.equal((await call(sandbox, 'filesystem.Filesystem/GetWatcherEvents', { watcherId })).body.code, 'not_found')
  assert.equal((await call(sandbox, 'filesystem.Filesystem/CreateWatcher', { path: '/nowhere' })).body.code, 'not_found')
})

test('two projects see nothing of each other', async () => {
  const sandbox = await box()
  const name = `other-${Date.now()}`
  const headers = { Authorization: `Bearer ${process.env.SPACE_API_KEY}`, 'Content-Type': 'application/json' }
  const post = (path, body) => fetch(URL_BASE + path, { method: 'POST', headers, body: JSON.stringify(body) }).then((r) => r.json())
  const project = await post('/v1/projects', { name })
  const { key } = await post('/v1/keys', { name, project: project.id, scope: 'project' })
  const as = { 'X-API-Key': key }
  for (const [method, path] of [['GET', ''], ['DELETE', ''], ['POST', '/pause'], ['POST', '/connect'], ['POST', '/fork'], ['GET', '/logs'], ['GET', '/metrics']]) {
    const answer = await api(method, `/sandboxes/${sandbox.sandboxId}${path}`, method === 'POST' ? { timeout: 5 } : undefined, as)
    assert.equal(answer.status, 404, path)
  }
  assert.deepEqual((await api('GET', '/v2/sandboxes', undefined, as)).body, [])
  assert.equal(await sandbox.isRunning(), true)
})

test('logs', async () => {
  const sandbox = await create()
  const answer = await api('GET', `/sandboxes/${sandbox.sandboxId}/logs?limit=5`)
  assert.equal(answer.status, 200)
  assert.ok(answer.body.logs.length <= 5)
  for (const { line } of answer.body.logs) {
    assert.equal(typeof JSON.parse(line).message, 'string')
  }
  assert.ok(Array.isArray((await api('GET', `/v2/sandboxes/${sandbox.sandboxId}/logs`)).body.logs))
  await sandbox.kill()
})
