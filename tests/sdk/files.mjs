// SPDX-License-Identifier: Apache-2.0
//
// Files: in, out, lists, changes, watching, signed addresses.
import { createHash, randomBytes } from 'node:crypto'
import { gzipSync } from 'node:zlib'
import { AuthenticationError, FileNotFoundError, FileType, FilesystemEventType, InvalidArgumentError, NotFoundError, SandboxError } from 'e2b'
import { box, create, inside, URL_BASE } from './box.mjs'
import { assert, fails, test, until } from './tap.mjs'

const sha = (data) => createHash('sha256').update(data).digest('hex')

test('a file comes back as it was, in every form that it can be asked for', async () => {
  const { files } = await box()
  const bytes = randomBytes(300_000)
  const info = await files.write('forms.bin', bytes)
  assert.deepEqual({ ...info }, { name: 'forms.bin', path: '/home/user/forms.bin', type: 'file', metadata: undefined })
  assert.equal(sha(await files.read('forms.bin', { format: 'bytes' })), sha(bytes))
  const blob = await files.read('forms.bin', { format: 'blob' })
  assert.equal(sha(Buffer.from(await blob.arrayBuffer())), sha(bytes))
  const parts = []
  for await (const part of await files.read('forms.bin', { format: 'stream' })) {
    parts.push(part)
  }
  assert.equal(sha(Buffer.concat(parts)), sha(bytes))
  await files.write('forms.txt', 'ü €\n')
  assert.equal(await files.read('forms.txt'), 'ü €\n')
  await files.write('forms.txt', new Blob(['blob']))
  assert.equal(await files.read('forms.txt'), 'blob')
  await files.write('forms.txt', new ReadableStream({ start(c) { c.enqueue(new TextEncoder().encode('stream')); c.close() } }))
  assert.equal(await files.read('forms.txt'), 'stream')
  await files.write('empty', '')
  assert.equal(await files.read('empty'), '')
  assert.equal((await files.read('/proc/self/status')).startsWith('Name:'), true)
})

test('many small files in one request, with any name', async () => {
  const { files, commands } = await box()
  const names = ['plain', 'with space', 'dír/ünï ☕', 'quo"te\'s', '100%25+x', 'a;b=c', 'new\nline', '-dash', 'x'.repeat(250)]
  const written = await files.write(names.map((n) => ({ path: `names/${n}`, data: `content of ${n}` })))
  assert.deepEqual(written.map((w) => w.path), names.map((n) => `/home/user/names/${n}`))
  for (const n of names) {
    assert.equal(await files.read(`names/${n}`), `content of ${n}`)
  }
  const list = [...Array(1000).keys()].map((n) => ({ path: `/tmp/many/${n % 10}/${n}`, data: `${n}` }))
  assert.equal((await files.writeFiles(list, { requestTimeoutMs: 0 })).length, 1000)
  assert.equal((await commands.run('find /tmp/many -type f | wc -l; cat /tmp/many/7/* | wc -c')).stdout, '1000\n289\n')
}, { deadlineMs: 400_000 })

test('100 MB in and out', async () => {
  const { files, commands } = await create({ timeoutMs: 1_800_000 })
  const piece = randomBytes(1 << 20)
  const hash = createHash('sha256')
  let n = 0
  const body = new ReadableStream({
    pull(c) {
      if (n++ === 100) {
        return c.close()
      }
      hash.update(piece)
      c.enqueue(new Uint8Array(piece))
    },
  })
  await files.write('/home/user/large', body, { requestTimeoutMs: 0 })
  const want = hash.digest('hex')
  assert.equal((await commands.run('sha256sum < large', { timeoutMs: 0 })).stdout.slice(0, 64), want)
  const back = createHash('sha256')
  for await (const part of await files.read('large', { format: 'stream', requestTimeoutMs: 0 })) {
    back.update(part)
  }
  assert.equal(back.digest('hex'), want)
}, { deadlineMs: 900_000 })

test('gzip in, ranges out, forms without and with a path', async () => {
  const sandbox = await box()
  const url = (q) => `${URL_BASE}/files?${new URLSearchParams(q)}`
  const post = (q, headers, body) => fetch(url(q), { method: 'POST', headers: inside(sandbox, headers), body })
  const bytes = Buffer.from('zip '.repeat(100_000))
  const octets = { 'Content-Type': 'application/octet-stream' }
  let answer = await post({ path: 'unzipped' }, { ...octets, 'Content-Encoding': 'gzip' }, gzipSync(bytes))
  assert.equal(answer.status, 200)
  assert.deepEqual(await answer.json(), [{ name: 'unzipped', path: '/home/user/unzipped', type: 'file' }])
  assert.equal(sha(await sandbox.files.read('unzipped', { format: 'bytes' })), sha(bytes))
  answer = await post({ path: 'cut' }, { ...octets, 'Content-Encoding': 'gzip' }, gzipSync(bytes).subarray(0, 100))
  assert.equal(answer.status, 400)
  assert.equal(await sandbox.files.exists('cut'), false)
  answer = await post({}, octets, 'x')
  assert.equal(answer.status, 400)
  answer = await post({ path: 'x' }, { 'Content-Type': 'text/plain' }, 'x')
  assert.equal(answer.status, 400)
  answer = await fetch(url({ path: 'unzipped' }), { headers: inside(sandbox, { Range: 'bytes=4-6' }) })
  assert.deepEqual([answer.status, await answer.text()], [206, 'zip'])
  const form = new FormData()
  form.append('file', new Blob(['1']), '/tmp/form/one')
  form.append('other', 'ignored')
  form.append('file', new Blob(['2']), 'form-two')
  answer = await post({}, {}, form)
  assert.deepEqual((await answer.json()).map((f) => f.path), ['/tmp/form/one', '/home/user/form-two'])
  const twice = new FormData()
  twice.append('file', new Blob(['1']), 'twice')
  twice.append('file', new Blob(['2']), '/home/user/twice')
  assert.equal((await post({}, {}, twice)).status, 400)
})

test('wrong paths and users', async () => {
  const { files } = await box()
  await fails(FileNotFoundError, () => files.read('nope'), /path '\/home\/user\/nope' does not exist/)
  await fails(InvalidArgumentError, () => files.read('/etc'), /is a directory/)
  await fails(InvalidArgumentError, () => files.write('/etc', 'x', { user: 'root' }))
  await fails(SandboxError, () => files.write('/root/x', 'x'))
  await fails(AuthenticationError, () => files.read('x', { user: 'nobody-here' }), /nobody-here/)
  await fails(InvalidArgumentError, () => files.list('~root'))
  await fails(FileNotFoundError, () => files.list('/nowhere'))
  await fails(InvalidArgumentError, () => files.list('/etc/passwd'))
  await fails(FileNotFoundError, () => files.getInfo('/nowhere'))
  await fails(FileNotFoundError, () => files.rename('/nowhere', '/tmp/x'))
  await fails(FileNotFoundError, () => files.watchDir('/nowhere', () => {}))
  await fails(InvalidArgumentError, () => files.watchDir('/etc/passwd', () => {}))
})

test('folders: made, listed, moved, removed', async () => {
  const { files, commands } = await box()
  assert.equal(await files.makeDir('tree/sub/deep'), true)
  assert.equal(await files.makeDir('tree/sub'), false)
  await files.write('tree/a', '1')
  await files.write('tree/sub/b', '22')
  await fails(InvalidArgumentError, () => files.makeDir('tree/a'))
  const shallow = await files.list('tree')
  assert.deepEqual(shallow.map((e) => [e.name, e.type]), [['a', FileType.FILE], ['sub', FileType.DIR]])
  const deep = await files.list('~/tree', { depth: 3 })
  assert.deepEqual(deep.map((e) => e.path), ['a', 'sub', 'sub/b', 'sub/deep'].map((n) => `/home/user/tree/${n}`))
  await fails(InvalidArgumentError, () => files.list('tree', { depth: 0 }))
  const info = await files.getInfo('tree/sub/b')
  assert.deepEqual([info.size, info.mode, info.permissions, info.owner, info.group], [2, 0o644, '-rw-r--r--', 'user', 'user'])
  assert.ok(Math.abs(info.modifiedTime - Date.now()) < 600_000)
  assert.equal((await files.getInfo('/tmp')).permissions, 'dtrwxrwxrwx')
  const moved = await files.rename('tree/a', 'tree/new/place')
  assert.equal(moved.path, '/home/user/tree/new/place')
  assert.equal(await files.exists('tree/a'), false)
  await commands.run('ln -s ../tree/sub tree/link; ln -s nowhere tree/dangling')
  const link = await files.getInfo('tree/link')
  assert.equal(link.type, FileType.DIR)
  assert.equal(link.symlinkTarget, '/home/user/tree/sub')
  assert.deepEqual((await files.list('tree/link')).map((e) => e.path), ['b', 'deep'].map((n) => `/home/user/tree/link/${n}`))
  await files.remove('tree')
  assert.equal(await files.exists('tree'), false)
  await files.remove('tree')
  await files.write('/0/file', 'x', { user: 'root' })
  assert.equal((await files.getInfo('/0/file')).owner, 'root')
  await files.remove('/0', { user: 'root' })
})

test('an overwritten file is its new content only', async () => {
  const { files, commands } = await box()
  await files.write('over', 'a long first content')
  await commands.run('chmod 600 over')
  await files.write('over', 'short')
  assert.equal(await files.read('over'), 'short')
  assert.equal((await files.getInfo('over')).mode, 0o600)
})

test('metadata of files: given with an upload, shown, replaced by the next', async () => {
  const { files } = await box()
  const metadata = { author: 'a b', 'x-y': '1=2&3' }
  const written = await files.write('meta', 'x', { metadata })
  assert.deepEqual(written.metadata, metadata)
  assert.deepEqual((await files.getInfo('meta')).metadata, metadata)
  assert.deepEqual((await files.list('.')).find((e) => e.name === 'meta').metadata, metadata)
  await files.write('meta', 'y')
  assert.equal((await files.getInfo('meta')).metadata, undefined)
  await fails(InvalidArgumentError, () => files.write('meta', 'z', { metadata: { k: 'v'.repeat(5000) } }))
})

test('watching: what happens is told, below too when asked', async () => {
  const { files, commands } = await box()
  await files.makeDir('watched/sub')
  await files.write('watched/old', '1')
  const events = []
  const watch = await files.watchDir('watched', (e) => { events.push(e) }, { recursive: true, includeEntry: true, timeoutMs: 0 })
  await files.write('watched/old', '2')
  await commands.run('cd watched; echo 1 > new; chmod 600 new; mv new moved; rm moved; mkdir made; echo 2 > made/in; echo 3 > sub/in')
  const has = (name, type) => events.some((e) => e.name === name && e.type === type)
  await until(() => has('sub/in', FilesystemEventType.WRITE) && has('made/in', FilesystemEventType.WRITE), 'the last events')
  assert.ok(has('old', FilesystemEventType.WRITE))
  assert.ok(has('new', FilesystemEventType.CREATE) && has('new', FilesystemEventType.RENAME))
  assert.ok(has('moved', FilesystemEventType.REMOVE))
  assert.ok(has('made', FilesystemEventType.CREATE))
  const entry = events.find((e) => e.name === 'old' && e.entry)?.entry
  assert.equal(entry.path, '/home/user/watched/old')
  await watch.stop()
  const n = events.length
  await files.write('watched/after', 'x')
  assert.equal(events.length, n)
})

test('watching under load loses nothing', async () => {
  const { files, commands } = await box()
  await files.makeDir('load')
  const created = new Set()
  const watch = await files.watchDir('load', (e) => {
    if (e.type === FilesystemEventType.CREATE) {
      created.add(e.name)
    }
  }, { timeoutMs: 0 })
  await commands.run('cd load; for i in $(seq 500); do : > f$i; done')
  await until(() => created.size === 500, '500 files')
  await watch.stop()
})

test('signed addresses: what they allow, and nothing else', async () => {
  const sandbox = await box()
  await sandbox.files.write('signed.txt', 'content')
  const down = await sandbox.downloadUrl('signed.txt', { useSignatureExpiration: 60 })
  assert.equal(await (await fetch(down)).text(), 'content')
  const plain = await sandbox.downloadUrl('signed.txt', { user: 'root' })
  assert.equal((await fetch(plain)).status, 404) // root's home has no such file
  const form = new FormData()
  form.append('file', new Blob(['uploaded']))
  const up = await sandbox.uploadUrl('signed-up.txt')
  assert.equal((await fetch(up, { method: 'POST', body: form })).status, 200)
  assert.equal(await sandbox.files.read('signed-up.txt'), 'uploaded')
  assert.equal((await fetch(up)).status, 401) // it is for writing
  assert.equal((await fetch(down.replace('signed.txt', 'other.txt'))).status, 401)
  assert.equal((await fetch(down.replace(/signature=[^&]*/, ''))).status, 401)
  const late = await sandbox.downloadUrl('signed.txt', { useSignatureExpiration: -10 })
  const answer = await fetch(late)
  assert.deepEqual([answer.status, await answer.json()], [401, { code: 401, message: 'signature is already expired' }])
})

test('the token opens its own sandbox and no other', async () => {
  const sandbox = await box()
  const url = `${URL_BASE}/files?path=/etc/hostname`
  const get = (headers) => fetch(url, { headers }).then((r) => r.status)
  assert.equal(await get(inside(sandbox)), 200)
  assert.equal(await get(inside(sandbox, { 'X-Access-Token': 'envd_wrong' })), 401)
  const other = await create()
  assert.equal(await get({ ...inside(sandbox), 'X-Access-Token': inside(other)['X-Access-Token'] }), 401)
  const none = inside(sandbox)
  delete none['X-Access-Token']
  assert.equal(await get(none), 401)
  const rpc = await fetch(`${URL_BASE}/process.Process/List`, { method: 'POST', headers: { ...none, 'Content-Type': 'application/json' }, body: '{}' })
  assert.equal(rpc.status, 401)
  await other.kill()
})
