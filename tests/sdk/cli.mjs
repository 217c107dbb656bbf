// SPDX-License-Identifier: Apache-2.0
//
// The unmodified command line of E2B.
import { Sandbox } from 'e2b'
import { create } from './box.mjs'
import { e2b } from './program.mjs'
import { assert, fails, test } from './tap.mjs'

test('e2b sandbox: list, info, exec, metrics, logs, pause, resume, kill', async () => {
  const sandbox = await create({ timeoutMs: 600_000, metadata: { by: 'cli' } })
  const id = sandbox.sandboxId
  assert.ok((await e2b('sandbox', 'list', '--format', 'json')).includes(id))
  assert.ok((await e2b('sandbox', 'info', id)).includes(id))
  assert.ok((await e2b('sandbox', 'exec', id, 'echo from-exec')).includes('from-exec'))
  await e2b('sandbox', 'metrics', id)
  await e2b('sandbox', 'logs', id)
  await e2b('sandbox', 'pause', id)
  assert.equal(await sandbox.isRunning(), false)
  await e2b('sandbox', 'resume', id)
  assert.equal(await sandbox.isRunning(), true)
  await e2b('sandbox', 'kill', id)
  assert.equal(await sandbox.isRunning(), false)
}, { deadlineMs: 300_000 })

test('e2b template list, sandbox snapshot', async () => {
  assert.ok((await e2b('template', 'list')).includes('debian'))
  const sandbox = await create({ timeoutMs: 600_000 })
  await e2b('sandbox', 'snapshot', 'create', sandbox.sandboxId)
  const [snapshot] = await Sandbox.listSnapshots({ sandboxId: sandbox.sandboxId }).nextItems()
  assert.ok((await e2b('sandbox', 'snapshot', 'list')).includes(snapshot.snapshotId))
  await e2b('sandbox', 'snapshot', 'delete', snapshot.snapshotId)
  await sandbox.kill()
  await fails(Error, () => e2b('sandbox', 'info', sandbox.sandboxId))
}, { deadlineMs: 300_000 })
