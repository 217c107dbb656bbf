// SPDX-License-Identifier: Apache-2.0
//
// The life of sandboxes: create to kill, and everything between.
import {
  AuthenticationError, InvalidArgumentError, Sandbox, SandboxError, SandboxNotFoundError, Secret, SecretError, SecretNotFoundError,
  Volume, VolumeError, VolumeNotFoundError,
} from 'e2b'
import { api, box, create } from './box.mjs'
import { assert, fails, test, until } from './tap.mjs'

test('Sandbox.create() without anything makes a running one', async () => {
  const sandbox = await create()
  assert.match(sandbox.sandboxId, /^[a-z0-9]+$/)
  assert.equal(await sandbox.isRunning(), true)
  const info = await sandbox.getInfo()
  assert.equal(info.state, 'running')
  assert.equal(info.name, 'base')
  assert.deepEqual(info.metadata, {})
  const left = info.endAt - Date.now()
  assert.ok(left > 200_000 && left <= 301_000, `${left} ms left of 300 s`)
  assert.deepEqual(await Sandbox.getFullInfo(sandbox.sandboxId), info)
  assert.equal(await sandbox.kill(), true)
})

test('what was asked for at the creation is what there is', async () => {
  const sandbox = await create('debian', {
    timeoutMs: 60_000,
    metadata: { a: 'b c', 'k/&=': 'ü%20' },
    envs: { FOO: 'bar baz' },
    allowInternetAccess: false,
    lifecycle: { onTimeout: 'pause', autoResume: true },
  })
  const info = await sandbox.getInfo()
  assert.deepEqual(info.metadata, { a: 'b c', 'k/&=': 'ü%20' })
  assert.equal(info.allowInternetAccess, false)
  assert.deepEqual(info.lifecycle, { onTimeout: 'pause', autoResume: true })
  const result = await sandbox.commands.run('echo "$FOO|$E2B_SANDBOX|$E2B_SANDBOX_ID|$E2B_TEMPLATE_ID"')
  assert.equal(result.stdout, `bar baz|true|${sandbox.sandboxId}|debian\n`)
  await sandbox.kill()
})

test('wrong creations are refused with the reason', async () => {
  await fails(SandboxError, () => Sandbox.create('no-such-template'), /404.*no-such-template/)
  await fails(SandboxError, () => Sandbox.create({ timeoutMs: 0 }), /400.*timeout/)
  await fails(SandboxError, () => Sandbox.create({ network: { allowOut: ['example.test'] } }), /400.*allowOut/)
  await fails(SandboxError, () => Sandbox.create({ volumeMounts: { '/mnt/x': 'v' } }), /400.*volumeMounts/)
  await fails(AuthenticationError, () => Sandbox.create({ apiKey: `e2b_${'0'.repeat(40)}` }))
  for (const body of [{}, { templateID: 5 }, { templateID: 'base', timeout: 'x' }, { templateID: 'base', envVars: [] },
    { templateID: 'base', autoPauseMemory: false }, { templateID: 'base', metadata: { a: 1 } },
    { templateID: 'base', network: { rules: { 'a.b': [{}, {}] } } }, { templateID: 'base', network: { httpsPorts: [1] } },
    { templateID: 'base', iam: { tokens: { t: { audience: 'a', tokenType: 'JWT-SVID' } } } }]) {
    const answer = await api('POST', '/v2/sandboxes', body)
    assert.equal(answer.status, 400, JSON.stringify(body))
    assert.equal(answer.body.code, 400)
    assert.ok(answer.body.message.length > 5)
  }
})

test('kill, and what a killed one answers', async () => {
  const sandbox = await create()
  assert.equal(await Sandbox.kill(sandbox.sandboxId), true)
  assert.equal(await sandbox.isRunning(), false)
  assert.equal(await sandbox.kill(), false)
  await fails(SandboxNotFoundError, () => sandbox.getInfo())
  await fails(SandboxNotFoundError, () => Sandbox.connect(sandbox.sandboxId))
  await fails(SandboxNotFoundError, () => sandbox.setTimeout(1000))
  await fails(SandboxNotFoundError, () => sandbox.pause())
  await fails(SandboxNotFoundError, () => sandbox.getMetrics())
  await fails(SandboxNotFoundError, () => sandbox.createSnapshot())
  await fails(SandboxNotFoundError, () => sandbox.fork())
  await fails(SandboxError, () => sandbox.commands.run('true'))
  await fails(SandboxError, () => sandbox.files.read('/etc/hostname'))
  await fails(SandboxError, () => sandbox.files.list('/'))
})

test('connect to a running one extends its time and never shortens it', async () => {
  const sandbox = await create({ timeoutMs: 100_000 })
  const before = (await sandbox.getInfo()).endAt.getTime()
  const same = await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 1000 })
  assert.equal(same.sandboxId, sandbox.sandboxId)
  assert.equal((await same.getInfo()).endAt.getTime(), before)
  await same.connect({ timeoutMs: 500_000 })
  assert.ok((await same.getInfo()).endAt.getTime() > before + 300_000)
  await same.setTimeout(10_000)
  assert.ok((await same.getInfo()).endAt.getTime() < Date.now() + 11_000)
  assert.equal((await same.commands.run('echo connected')).stdout, 'connected\n')
  await same.kill()
})

test('the list: filters, pages, order', async () => {
  const mark = `m ${Date.now()} %&=`
  const made = []
  for (const n of ['1', '2', '3']) {
    made.push(await create({ metadata: { mark, n }, timeoutMs: 300_000 }))
  }
  await made[2].pause()
  const read = async (opts) => {
    const pages = Sandbox.list(opts)
    const found = []
    let n = 0
    while (pages.hasNext) {
      found.push(...(await pages.nextItems()).map((s) => s.sandboxId))
      n += 1
    }
    return [found, n]
  }
  const ids = made.map((s) => s.sandboxId)
  const query = { metadata: { mark } }
  assert.deepEqual(await read({ query }), [ids.toReversed(), 1])
  assert.deepEqual(await read({ query, order: 'asc', limit: 2 }), [ids, 2])
  assert.deepEqual(await read({ query: { metadata: { mark, n: '2' } } }), [[ids[1]], 1])
  assert.deepEqual(await read({ query: { ...query, state: ['running'] } }), [[ids[1], ids[0]], 1])
  assert.deepEqual(await read({ query: { ...query, state: ['paused'] } }), [[ids[2]], 1])
  assert.deepEqual(await read({ query: { ...query, template: 'base' } }), [ids.toReversed(), 1])
  assert.deepEqual(await read({ query: { ...query, template: 'other' } }), [[], 1])
  assert.deepEqual(await read({ query: { ...query, startedAfter: new Date(Date.now() + 60_000) } }), [[], 1])
  for (const path of ['?state=sleeping', '?limit=0', '?limit=101', '?order=up', '?startedAfter=today', '?nextToken=x']) {
    assert.equal((await api('GET', `/v2/sandboxes${path}`)).status, 400, path)
  }
  assert.ok((await api('GET', '/sandboxes')).body.some((s) => s.sandboxID === ids[0]))
  await Promise.all(made.map((s) => s.kill()))
})

test('pause and connect keep files, processes and the token', async () => {
  const sandbox = await create({ timeoutMs: 300_000 })
  const process = await sandbox.commands.run('sleep 1000', { background: true, timeoutMs: 0 })
  await sandbox.files.write('kept', 'yes')
  const boot = await sandbox.files.read('/proc/sys/kernel/random/boot_id')
  assert.equal(await sandbox.pause(), true)
  assert.equal(await sandbox.pause(), false)
  assert.equal(await sandbox.isRunning(), false)
  assert.equal((await sandbox.getInfo()).state, 'paused')
  await assert.rejects(process.wait())
  const again = await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 200_000 })
  const left = (await again.getInfo()).endAt - Date.now()
  assert.ok(left > 150_000 && left <= 201_000, `${left} ms left of 200 s`)
  assert.equal(await sandbox.files.read('kept'), 'yes') // with the token that it got first
  assert.equal(await again.files.read('/proc/sys/kernel/random/boot_id'), boot)
  assert.ok((await again.commands.list()).some((p) => p.pid === process.pid))
  assert.equal(await again.commands.kill(process.pid), true)
  await again.kill()
})

test('a pause without memory keeps the disk only', async () => {
  const sandbox = await create({ timeoutMs: 300_000 })
  await sandbox.files.write('kept', 'yes')
  const boot = await sandbox.files.read('/proc/sys/kernel/random/boot_id')
  assert.equal(await sandbox.pause({ keepMemory: false }), true)
  assert.equal(await sandbox.isRunning(), false)
  assert.equal((await sandbox.getInfo()).state, 'paused')
  await sandbox.connect({ timeoutMs: 200_000 })
  assert.equal(await sandbox.files.read('kept'), 'yes')
  assert.notEqual(await sandbox.files.read('/proc/sys/kernel/random/boot_id'), boot)
  assert.equal(await sandbox.betaPause(), true)
  await sandbox.connect({ onResume: 'reboot' })
  assert.equal(await sandbox.files.read('kept'), 'yes')
  await sandbox.kill()
})

test('killing a paused one', async () => {
  const sandbox = await create()
  await sandbox.pause()
  assert.equal(await sandbox.kill(), true)
  assert.equal(await sandbox.kill(), false)
})

test('the end of its time kills, pauses, or pauses until somebody comes', async () => {
  const [killed, paused, asleep] = await Promise.all([
    create({ timeoutMs: 300_000 }),
    create({ timeoutMs: 300_000, lifecycle: { onTimeout: 'pause' } }),
    create({ timeoutMs: 300_000, lifecycle: { onTimeout: 'pause', autoResume: true } }),
  ])
  const waiting = paused.commands.run('sleep 1000', { timeoutMs: 0 })
  await Promise.all([fails(SandboxError, () => waiting), ...[killed, paused, asleep].map((s) => s.setTimeout(3000))])
  await until(async () => !(await killed.isRunning()), 'the first is killed')
  await until(async () => (await asleep.getInfo()).state === 'paused', 'the third is paused')
  await fails(SandboxNotFoundError, () => killed.getInfo())
  assert.equal((await paused.getInfo()).state, 'paused')
  await fails(SandboxError, () => paused.commands.run('true'))
  assert.equal((await asleep.commands.run('echo woken')).stdout, 'woken\n')
  assert.equal((await asleep.getInfo()).state, 'running')
  assert.equal((await paused.connect()).sandboxId, paused.sandboxId)
  await Promise.all([paused.kill(), asleep.kill()])
}, { deadlineMs: 300_000 })

test('snapshots: with a name and without, listed, used, deleted', async () => {
  const sandbox = await create({ timeoutMs: 600_000, envs: { FROM: 'parent' } })
  await sandbox.files.write('state', 'one')
  const sleeper = await sandbox.commands.run('sleep 1000', { background: true, timeoutMs: 0 })
  const plain = await sandbox.createSnapshot()
  await sandbox.files.write('state', 'two')
  const named = await Sandbox.createSnapshot(sandbox.sandboxId, { name: 'my-snap' })
  assert.ok(named.names.some((n) => n.includes('my-snap')))
  const listed = await sandbox.listSnapshots().nextItems()
  assert.deepEqual(listed.map((s) => s.snapshotId), [named.snapshotId, plain.snapshotId])
  const pages = Sandbox.listSnapshots({ sandboxId: sandbox.sandboxId, limit: 1 })
  assert.deepEqual((await pages.nextItems()).map((s) => s.snapshotId), [named.snapshotId])
  assert.equal(pages.hasNext, true)
  assert.deepEqual((await pages.nextItems()).map((s) => s.snapshotId), [plain.snapshotId])
  assert.equal(await sandbox.kill(), true)
  assert.equal(await sandbox.kill(), false)
  await fails(SandboxNotFoundError, () => sandbox.getInfo())
  const first = await create(plain.snapshotId, { metadata: { from: 'snapshot' } })
  const second = await create('my-snap')
  assert.equal(await first.files.read('state'), 'one')
  assert.equal(await second.files.read('state'), 'two')
  assert.deepEqual((await first.getInfo()).metadata, { from: 'snapshot' })
  assert.ok((await first.commands.run(`kill -0 ${sleeper.pid} && echo alive`)).stdout === 'alive\n')
  assert.equal(await Sandbox.deleteSnapshot(plain.snapshotId), true)
  assert.equal(await Sandbox.deleteSnapshot(plain.snapshotId), false)
  assert.equal(await Sandbox.deleteSnapshot(named.snapshotId), true)
  assert.equal(await first.files.read('state'), 'one') // it is its own by now
  await fails(SandboxError, () => Sandbox.create('my-snap'), /404/)
  await Promise.all([first.kill(), second.kill()])
}, { deadlineMs: 300_000 })

test('forks go on from the present, each for itself', async () => {
  const sandbox = await create({ timeoutMs: 600_000 })
  await sandbox.files.write('who', 'parent')
  const children = await Sandbox.fork(sandbox.sandboxId, { count: 2, timeoutMs: 60_000 })
  assert.equal(children.length, 2)
  for (const child of children) {
    assert.ok(child instanceof Sandbox, String(child))
    assert.equal(await child.files.read('who'), 'parent')
    await child.files.write('who', child.sandboxId)
  }
  assert.equal(await sandbox.files.read('who'), 'parent')
  assert.notEqual(await children[0].files.read('who'), await children[1].files.read('who'))
  const [single] = await sandbox.fork()
  assert.equal(await single.isRunning(), true)
  await fails(SandboxError, () => sandbox.fork({ count: 0 }))
  await Promise.all([sandbox, single, ...children].map((s) => s.kill()))
}, { deadlineMs: 300_000 })

test('metrics: what there was and is, and nothing of times that are not', async () => {
  const sandbox = await box()
  const begun = new Date()
  const [metrics] = await sandbox.getMetrics()
  assert.ok(metrics.memTotal > 100e6 && metrics.memUsed > 0 && metrics.memUsed < metrics.memTotal)
  assert.ok(metrics.diskTotal > 1e9 && metrics.diskUsed > 0 && metrics.cpuCount >= 1)
  assert.ok(Math.abs(metrics.timestamp - Date.now()) < 60_000)
  assert.deepEqual(await Sandbox.getMetrics(sandbox.sandboxId, { start: new Date(0), end: new Date(1000) }), [])
  await sandbox.commands.run('timeout 20 sh -c "while :; do :; done" || true', { timeoutMs: 60_000 })
  const { length: kept, ...all } = await sandbox.getMetrics()
  assert.ok(kept >= 3, `${kept} samples`)
  assert.ok(Object.values(all).some((m) => m.cpuUsedPct > 30), 'the load shows')
  const early = await sandbox.getMetrics({ start: begun, end: new Date(begun.getTime() + 5_000) })
  assert.ok(early.length < kept && early.every((m) => m.timestamp - begun < 7_000))
  await sandbox.pause()
  assert.ok((await Sandbox.getMetrics(sandbox.sandboxId)).length >= kept - 1)
  await sandbox.connect()
  const many = await api('GET', `/sandboxes/metrics?sandbox_ids=${sandbox.sandboxId},nosuch`)
  assert.deepEqual(Object.keys(many.body.sandboxes), [sandbox.sandboxId])
})

/** What our own API says that a sandbox may reach. */
const policy = async (sandbox) => (await api('GET', `/v1/sandboxes/${sandbox.sandboxId}/network`)).body.network

test('the network: what is allowed and denied becomes a policy', async () => {
  const sandbox = await create({
    network: { allowOut: ['example.test', '*.example.test', '198.51.100.0/24'], denyOut: ['0.0.0.0/0', '8.8.8.8'] },
  })
  assert.deepEqual((await policy(sandbox)).rules, [
    { host: 'example.test', action: 'allow' }, { host: '*.example.test', action: 'allow' },
    { cidr: '198.51.100.0/24', action: 'allow' }, { cidr: '8.8.8.8', action: 'deny' }])
  const info = await Sandbox.getFullInfo(sandbox.sandboxId)
  assert.deepEqual(info.network.allowOut, ['example.test', '*.example.test', '198.51.100.0/24'])
  await sandbox.updateNetwork({ denyOut: ['8.8.8.8'], allowInternetAccess: false })
  assert.deepEqual((await policy(sandbox)).rules, [{ cidr: '8.8.8.8', action: 'deny' }])
  assert.equal((await sandbox.getInfo()).allowInternetAccess, false)
  await sandbox.updateNetwork({ allowOut: ['1.1.1.1'], denyOut: ['0.0.0.0/0'] })
  assert.deepEqual((await policy(sandbox)).rules, [{ cidr: '1.1.1.1', action: 'allow' }])
  await fails(SandboxError, () => sandbox.updateNetwork({ denyOut: ['example.test'] }), /400/)
  await fails(SandboxError, () => sandbox.updateNetwork({ allowOut: ['example.test'] }), /400.*denyOut/)
  await fails(SandboxError, () => sandbox.updateNetwork({ rules: { 'example.test': [{ transform: { headers: { A: 'b' } } }] } }), /400.*8 to/)
  await sandbox.updateNetwork({})
  assert.equal((await policy(sandbox)).preset, 'none')
  assert.equal((await sandbox.getInfo()).allowInternetAccess, undefined)
  const snapshot = await sandbox.createSnapshot()
  const other = await create(snapshot.snapshotId, { network: { allowOut: ['1.1.1.1'] } })
  assert.deepEqual((await policy(other)).rules, [{ cidr: '1.1.1.1', action: 'allow' }])
  await Promise.all([other.kill(), sandbox.kill()])
  await Sandbox.deleteSnapshot(snapshot.snapshotId)
})

test('secrets: made, changed, listed, filled into headers, destroyed', async () => {
  const value = `hidden-${Date.now()}`
  const name = `sdk-${Date.now()}`
  const made = await Secret.create(name, value, { metadata: { team: 'ü' } })
  assert.deepEqual([made.name, made.version, made.metadata], [name, 1, { team: 'ü' }])
  assert.ok(Math.abs(made.createdAt - Date.now()) < 60_000)
  const changed = await Secret.update(made.secretId, `${value}-2`)
  assert.deepEqual([changed.version, changed.metadata, changed.createdAt], [2, made.metadata, made.createdAt])
  assert.deepEqual(await Secret.getInfo(name), changed)
  assert.equal(await Secret.exists(name), true)
  const other = await Secret.create(`${name}-b`, value)
  const pages = Secret.list({ limit: 1 })
  const found = []
  while (pages.hasNext) {
    found.push(...(await pages.nextItems()).map((s) => s.name))
  }
  assert.deepEqual(found.filter((n) => n.startsWith(name)), [name, `${name}-b`])
  const rules = (text) => ({ 'example.test': [{ transform: { headers: { Authorization: text } } }] })
  const sandbox = await create({ network: { rules: rules(`Bearer ${Secret.fill(name)}`) } })
  const [rule] = (await api('GET', '/v1/credentials')).body.credentials.filter((c) => c.sandbox === sandbox.sandboxId)
  assert.deepEqual([rule.vault, rule.ref, rule.inject.prefix], ['secret', name, 'Bearer '])
  const shown = JSON.stringify([await Sandbox.getFullInfo(sandbox.sandboxId), rule]) + (await sandbox.commands.run('env')).stdout
  assert.ok(!shown.includes(value))
  await fails(SandboxError, () => sandbox.updateNetwork({ rules: rules(`${Secret.fill(name)}:x`) }), /400.*at its end/)
  await fails(SandboxError, () => sandbox.updateNetwork({ rules: rules(Secret.fill('no-such')) }), /400.*no secret/)
  await fails(SecretError, () => Secret.create(name, value), /409/)
  await fails(SecretError, () => Secret.create('short', 'x'), /400.*8 to/)
  assert.equal(await Secret.destroy(name), true)
  assert.equal(await Secret.destroy(other.secretId), true)
  assert.equal(await Secret.destroy(name), false)
  assert.equal(await Secret.exists(name), false)
  await fails(SecretNotFoundError, () => Secret.update(name, value))
  await sandbox.kill()
})

test('volumes: there are none, and none can be made', async () => {
  assert.deepEqual(await Volume.list(), [])
  await fails(VolumeError, () => Volume.create('v'), /501.*not supported/)
  await fails(VolumeNotFoundError, () => Volume.connect('v'))
  assert.equal(await Volume.destroy('v'), false)
})

test('a bad argument is told before anything is asked', async () => {
  await fails(InvalidArgumentError, () => Sandbox.create({ lifecycle: { onTimeout: 'sleep' } }))
  const sandbox = await box()
  assert.equal(sandbox.getHost(8080), `8080-${sandbox.sandboxId}.e2b.app`)
})
