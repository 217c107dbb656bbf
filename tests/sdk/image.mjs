// SPDX-License-Identifier: Apache-2.0
//
// Templates from images of a registry, as clients name them; tests/e2e/images serves it (SPACE_TEST_REGISTRY).
import { BuildError, Template } from 'e2b'
import { create } from './box.mjs'
import { assert, fails, test } from './tap.mjs'

const registry = process.env.SPACE_TEST_REGISTRY

test('an image becomes a template, with steps on it', async () => {
  const lines = []
  const template = Template().skipCache().fromImage(`${registry}/public/two`).runCmd('echo built > /home/user/built')
  await Template.build(template, 'from-image', { onBuildLogs: (entry) => lines.push(entry.message) })
  assert.ok(lines.some((line) => line.includes('unpacking the image')), lines.join('\n'))
  const sandbox = await create('from-image')
  assert.equal((await sandbox.commands.run('cat /said /home/user/built; id -un; echo $GREETING')).stdout, 'two\nbuilt\nuser\nhi there\n')
  assert.equal((await sandbox.commands.run('id -un', { user: 'root' })).stdout, 'root\n')
  await sandbox.kill()
})

test('the credentials of a registry are used', async () => {
  const image = `${registry}/private/three:v3`
  const credentials = { username: 'someone', password: 'their secret' }
  await Template.build(Template().skipCache().fromImage(image, credentials), 'from-private')
  const wrong = Template().skipCache().fromImage(image, { ...credentials, password: 'x' })
  await fails(BuildError, () => Template.build(wrong, 'from-wrong'), /fetching the image/)
})

test('what cannot be used of other registries is refused', async () => {
  const aws = Template().fromAWSRegistry(`${registry}/private/three:v3`, { accessKeyId: 'a', secretAccessKey: 'b', region: 'c' })
  await fails(Error, () => Template.build(aws, 'from-aws'), /get-login-password/)
})
