// SPDX-License-Identifier: Apache-2.0
//
// Templates as clients build them: every method of the builder once, the cache, tags, live templates, and what is wrong.
import { mkdirSync, mkdtempSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { BuildError, FileUploadError, Sandbox, SandboxError, Template, TemplateError, waitForFile } from 'e2b'
import { api, create } from './box.mjs'
import { assert, fails, test, until } from './tap.mjs'

const folder = mkdtempSync(join(tmpdir(), 'build-'))
mkdirSync(join(folder, 'app/deep'), { recursive: true })
writeFileSync(join(folder, 'one.txt'), 'one\n')
writeFileSync(join(folder, 'two.txt'), 'two\n')
writeFileSync(join(folder, 'app/main.sh'), '#!/bin/sh\necho main\n', { mode: 0o755 })
writeFileSync(join(folder, 'app/deep/data'), 'data\n')
symlinkSync('main.sh', join(folder, 'app/link'))

const from = () => Template({ fileContextPath: folder }).fromBaseImage()

/** Builds, and gives back what the log said. */
async function build(template, name, options = {}) {
  const lines = []
  const info = await Template.build(template, name, { onBuildLogs: (entry) => lines.push(entry.message), ...options })
  return { ...info, lines, steps: lines.filter((line) => /^(CACHED )?\[/.test(line)) }
}

async function output(name, command) {
  const sandbox = await create(name)
  try {
    return (await sandbox.commands.run(command)).stdout
  } finally {
    await sandbox.kill()
  }
}

test('a template is made of its steps, and its sandboxes start as they left it', async () => {
  const template = from()
    .runCmd('id -un > /home/user/who; pwd >> /home/user/who')
    .copy('one.txt', 'x/')
    .copy('app', '/opt/app', { user: 'root' })
    .copy('*.txt', '/opt/all')
    .copy(['one.txt', 'two.txt'], '/opt/renamed', { mode: 0o600 })
    .setEnvs({ GREETING: 'b c', OTHER: '1' })
    .setWorkdir('/work/here')
    .makeDir('made')
    .makeSymlink('/opt/app/main.sh', 'link')
    .setUser('root')
    .runCmd(['echo "$GREETING" > said', 'id -un >> said'])
    .rename('said', 'told')
    .remove('made', { recursive: true, force: true })
  await build(template, 'steps')
  const sandbox = await create('steps', { envs: { OTHER: '2' } })
  const run = async (command, options) => (await sandbox.commands.run(command, options)).stdout
  assert.equal(await run('cat /home/user/who'), 'user\n/home/user\n')
  assert.equal(await run('cat /home/user/x/one.txt'), 'one\n')
  assert.equal(await run('cat /opt/app/deep/data; /opt/app/link; stat -c "%U %a" /opt/app/main.sh'), 'data\nmain\nroot 755\n')
  assert.equal(await run('ls /opt/all; stat -c "%U %a" /opt/renamed'), 'one.txt\ntwo.txt\nuser 600\n')
  assert.equal(await run('pwd; id -un; echo "$GREETING $OTHER"'), '/work/here\nroot\nb c 2\n')
  assert.equal(await run('cat told; ls'), 'b c\nroot\nlink\ntold\n')
  assert.equal(await run('id -un; pwd', { user: 'user', cwd: '/tmp' }), 'user\n/tmp\n')
  assert.equal(await sandbox.files.read('told'), 'b c\nroot\n')
  const info = await sandbox.getInfo()
  assert.equal(info.name, 'steps')
  assert.match(info.templateId, /^t[a-z0-9]{19}$/)
  await sandbox.kill()
})

test('layers that are known are not made again', async () => {
  const once = `date +%N > /home/user/a # ${Date.now()}` // this program may run twice on one SPACE
  const steps = (last) => from().runCmd(once).copy('one.txt', '/opt/').runCmd(last)
  const first = await build(steps('echo 1'), 'layers:first')
  assert.deepEqual(first.steps.filter((line) => line.startsWith('CACHED')), [])
  const same = await build(steps('echo 1'), 'layers')
  assert.ok(same.steps.every((line) => line.startsWith('CACHED')), same.steps.join('\n'))
  const other = await build(steps('echo 2'), 'layers:other')
  assert.deepEqual(other.steps.map((line) => line.startsWith('CACHED')), [true, true, false])
  assert.equal(await output('layers:other', 'cat /home/user/a'), await output('layers:first', 'cat /home/user/a'))
  const fresh = await build(steps('echo 1'), 'layers:fresh', { skipCache: true })
  assert.ok(!fresh.steps.some((line) => line.startsWith('CACHED')))
  const part = await build(from().runCmd(once).skipCache().copy('one.txt', '/opt/'), 'layers:part')
  assert.deepEqual(part.steps.map((line) => line.startsWith('CACHED')), [true, false])
})

test('a start command is at work in every sandbox, each with an identity of its own', async () => {
  await build(from()
    .setEnvs({ WORD: 'up' })
    .setStartCmd('echo $$ > /tmp/pid; while true; do echo $WORD > /tmp/word; sleep 0.2; done', waitForFile('/tmp/word')), 'live')
  const boxes = await Promise.all([create('live'), create('live')])
  const names = await Promise.all(boxes.map(async (sandbox) => {
    const run = async (command) => (await sandbox.commands.run(command)).stdout.trim()
    assert.match(await run('cat /proc/$(cat /tmp/pid)/comm'), /sh/)
    await run('rm /tmp/word')
    await until(async () => await run('cat /tmp/word 2>/dev/null || true') === 'up', 'the process goes on')
    return run('hostname; cat /etc/machine-id')
  }))
  assert.notEqual(names[0], names[1])
  await fails(BuildError, () => build(Template().fromTemplate('live').runCmd('true'), 'on-live'), /start command/)
  await Promise.all(boxes.map((sandbox) => sandbox.kill()))
})

test('a template on a template has what that one has', async () => {
  await build(from().setEnvs({ A: '1', B: '1' }).setWorkdir('/base').runCmd('echo base > file', { user: 'root' }), 'below')
  await build(Template().fromTemplate('below').setEnvs({ B: '2' }).runCmd('test -s file'), 'above')
  assert.equal(await output('above', 'pwd; cat file; echo $A $B'), '/base\nbase\n1 2\n')
  await build(Template().fromDockerfile('FROM e2bdev/base\nRUN echo "docker $(id -un)" > /from\nENV X=y\n'), 'docker')
  assert.equal(await output('docker', 'cat /from; echo $X; id -un'), 'docker root\ny\nuser\n')
})

test('tags point to builds', async () => {
  const one = await build(from().runCmd('echo 1 > /home/user/n'), 'tagged', { tags: ['a', 'b'] })
  const two = await build(from().runCmd('echo 2 > /home/user/n'), 'tagged')
  assert.equal(one.templateId, two.templateId)
  const tags = async () => Object.fromEntries((await Template.getTags('tagged')).map((tag) => [tag.tag, tag.buildId]))
  assert.deepEqual(await tags(), { a: one.buildId, b: one.buildId, default: two.buildId })
  assert.equal(await output('tagged', 'cat n'), '2\n')
  assert.equal(await output('tagged:a', 'cat n'), '1\n')
  assert.deepEqual(await Template.assignTags('tagged:a', 'default'), { buildId: one.buildId, tags: ['default'] })
  assert.equal(await output('team/tagged', 'cat n'), '1\n')
  await Template.removeTags('tagged', ['a', 'default'])
  assert.deepEqual(await tags(), { b: one.buildId })
  await fails(SandboxError, () => Sandbox.create('tagged:a'), /404/)
  await fails(TemplateError, () => Template.assignTags('tagged:none', 'x'), /404/)
  await fails(TemplateError, () => Template.assignTags('tagged:b', 'no tag'), /400/)
  await fails(TemplateError, () => Template.assignTags('debian', 'x'), /403/)
})

test('built in the background, asked about, listed, found, deleted', async () => {
  const info = await Template.buildInBackground(from().runCmd('sleep 1; echo done'), 'away')
  const status = () => Template.getBuildStatus(info)
  assert.match((await status()).status, /building|ready/)
  await until(async () => (await status()).status === 'ready', 'the build is ready')
  const all = await status()
  assert.ok(all.logEntries.some((entry) => entry.message === 'done'))
  const rest = await Template.getBuildStatus(info, { logsOffset: all.logEntries.length })
  assert.deepEqual(rest.logEntries, [])
  assert.equal(await Template.exists('away'), true)
  const listed = (await api('GET', '/templates')).body.find((t) => t.templateID === info.templateId)
  assert.equal(listed.names[0], 'away')
  assert.equal(listed.buildStatus, 'ready')
  assert.equal((await api('DELETE', `/templates/${info.templateId}`)).status, 204)
  assert.equal(await Template.exists('away'), false)
  assert.equal((await api('DELETE', `/templates/${info.templateId}`)).status, 404)
  await fails(SandboxError, () => Sandbox.create('away'), /404/)
})

test('what builds leave is not among the sandboxes', async () => {
  const pages = Sandbox.list()
  const states = []
  while (pages.hasNext) {
    states.push(...(await pages.nextItems()))
  }
  assert.deepEqual(states.filter((s) => s.metadata['space.build']), [])
})

test('a step that fails says which it was, and what it printed', async () => {
  const lines = []
  const error = await fails(BuildError, () => Template.build(from().runCmd('true').runCmd('echo oh no >&2; exit 3'), 'broken',
    { onBuildLogs: (entry) => lines.push(entry.message) }), /exited with 3/)
  assert.ok(error.stack)
  assert.ok(lines.includes('oh no'))
  const { templateID } = (await api('GET', '/templates/broken')).body
  const { buildID } = (await api('GET', '/templates/broken')).body
  const status = (await api('GET', `/templates/${templateID}/builds/${buildID}/status`)).body
  assert.equal(status.status, 'error')
  assert.equal(status.reason.step, '2')
  await fails(SandboxError, () => Sandbox.create('broken'), /404/)
  await fails(BuildError, () => build(from().setStartCmd('true', 'exit 1').setReadyCmd('exit 1'), 'never', { signal: AbortSignal.timeout(3000) }), /./)
    .catch(() => undefined) // aborted here, called off below
  assert.equal((await api('DELETE', '/templates/never')).status, 204)
})

test('wrong builds are refused with the reason', async () => {
  await fails(BuildError, () => build(from(), 'No Name'), /400.*name/)
  await fails(BuildError, () => build(from(), 'x', { tags: ['no tag'] }), /400.*tags/)
  await fails(BuildError, () => build(from(), 'x', { cpuCount: 1000 }), /400.*cpuCount/)
  await fails(BuildError, () => build(Template().fromTemplate('nothing-there'), 'x'), /404/)
  // Nobody can be asked for that image; without the template 'oci' nobody is, and another program may have built it here.
  const { templates } = await (await fetch(`${process.env.SPACE_URL}/v1/templates`, { headers: { 'X-API-Key': process.env.SPACE_API_KEY } })).json()
  const why = templates.some((t) => t.name === 'oci') ? /fetching the image failed/ : /400.*template 'oci'/
  await fails(BuildError, () => build(Template().fromImage('example.com/a', { username: 'u', password: 'p' }), 'x'), why)
  await fails(FileUploadError, () => build(from().copy('not-there', '/x'), 'x')).catch((error) => assert.match(String(error), /No files found/))
  const { templateID, buildID } = (await api('POST', '/v3/templates', { name: 'wrong' })).body
  const start = (body) => api('POST', `/v2/templates/${templateID}/builds/${buildID}`, body)
  for (const body of [{}, { fromImage: 'a', fromTemplate: 'b' }, { fromTemplate: 'base', steps: {} },
    { fromTemplate: 'base', steps: [{ type: 'ADD', args: ['a'] }] }, { fromTemplate: 'base', steps: [{ type: 'RUN', args: [] }] },
    { fromTemplate: 'base', steps: [{ type: 'ENV', args: ['a'] }] }, { fromTemplate: 'base', steps: [{ type: 'RUN', args: [5] }] },
    { fromTemplate: 'base', steps: [{ type: 'COPY', args: ['a', '/b', '', ''] }] },
    { fromTemplate: 'base', steps: [{ type: 'COPY', args: ['../a', '/b', '', ''], filesHash: 'a'.repeat(64) }] },
    { fromTemplate: 'base', steps: [{ type: 'COPY', args: ['a', '/b', '', ''], filesHash: 'b'.repeat(64) }] }]) {
    const answer = await start(body)
    assert.equal(answer.status, 400, JSON.stringify(body))
    assert.ok(answer.body.message.length > 5)
  }
  assert.equal((await api('GET', `/templates/${templateID}/builds/none/status`)).status, 404)
  assert.equal((await api('GET', `/templates/${templateID}/files/short`)).status, 400)
  const { url } = (await api('GET', `/templates/${templateID}/files/${'a'.repeat(64)}`)).body
  assert.equal((await fetch(url.replace(/token=upload_./, 'token=upload_x'), { method: 'PUT', body: 'x' })).status, 401)
  assert.equal((await fetch(url, { method: 'PUT', body: 'x' })).status, 200)
  assert.equal((await start({ fromTemplate: 'base' })).status, 202)
  assert.equal((await start({ fromTemplate: 'base' })).status, 409)
  await until(async () => (await api('GET', `/templates/${templateID}`)).body.buildStatus === 'ready', 'the build is ready')
})
