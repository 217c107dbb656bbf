// SPDX-License-Identifier: Apache-2.0
//
// Templates by the unmodified command line of E2B.
import { mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Template } from 'e2b'
import { create } from './box.mjs'
import { e2b } from './program.mjs'
import { assert, fails, test } from './tap.mjs'

test('e2b template: create from a Dockerfile, list, publish, unpublish, delete', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'dockerfile-'))
  writeFileSync(join(folder, 'Dockerfile'), 'FROM e2bdev/base\nRUN echo said > /opt/said\n')
  await e2b('template', 'create', 'from-cli', '--path', folder, '--cpu-count', '1', '--memory-mb', '512')
  assert.ok((await e2b('template', 'list', '--format', 'json')).includes('from-cli'))
  const sandbox = await create('from-cli')
  assert.equal((await sandbox.commands.run('cat /opt/said')).stdout, 'said\n')
  await sandbox.kill()
  await e2b('template', 'unpublish', 'from-cli', '--yes') // it is its project's as it is
  await fails(Error, () => e2b('template', 'publish', 'from-cli', '--yes'))
  await e2b('template', 'delete', 'from-cli', '--yes')
  assert.equal(await Template.exists('from-cli'), false)
}, { deadlineMs: 600_000 })
