// SPDX-License-Identifier: Apache-2.0
//
// The table of docs/e2b.md against what the SDK has: each method stands in it, and nothing else does.
import { readFileSync } from 'node:fs'
import { Sandbox, Secret, Template, Volume } from 'e2b'
import { box } from './box.mjs'
import { assert, test } from './tap.mjs'

const methodsOf = (object, prefix) =>
  Object.getOwnPropertyNames(object)
    .filter((name) => typeof Object.getOwnPropertyDescriptor(object, name).value === 'function' && name !== 'constructor')
    .map((name) => `${prefix}.${name}`)

// Private by their types only: what the others are made of.
const internal = new Set([
  'Sandbox.createSandbox', 'Sandbox.forkSandbox', 'Sandbox.connectSandbox', 'Sandbox.resolveOpts', 'sandbox.fileUrl',
  'sandbox.resolveApiOpts', 'sandbox.jsonReplacer',
  'Template.toJSON', 'Template.toDockerfile', // of a recipe, without the server
  'sandbox.git.runGit', 'sandbox.git.runShell', 'sandbox.git.getRemoteUrl', 'sandbox.git.resolveRemoteName',
  'sandbox.git.withRemoteCredentials', 'sandbox.git.hasUpstream',
  'sandbox.commands.start', 'sandbox.commands.checkHealth', 'sandbox.pty.checkHealth', 'sandbox.files.checkHealth',
])

test('the docs name every method of the SDK, and no other', async () => {
  const sandbox = await box()
  const text = readFileSync(new URL('./e2b.md', import.meta.url), 'utf8')
  const table = text.slice(text.indexOf('## The SDK'))
  const rows = [...table.matchAll(/^\| `([^`]+)` \| (yes|partly|no) \|/gm)].map((m) => m[1])
  const ofClass = new Set()
  for (let c = Sandbox; c && c !== Function.prototype; c = Object.getPrototypeOf(c)) {
    methodsOf(c, 'Sandbox').forEach((m) => ofClass.add(m))
  }
  const have = [
    ...ofClass,
    ...methodsOf(Sandbox.prototype, 'sandbox'),
    ...methodsOf(Template, 'Template'), ...methodsOf(Secret, 'Secret'), ...methodsOf(Volume, 'Volume'),
    ...['commands', 'pty', 'files', 'git'].flatMap((part) => methodsOf(Object.getPrototypeOf(sandbox[part]), `sandbox.${part}`)),
  ].filter((m) => !internal.has(m) && !/\.(_|#)/.test(m))
  const missing = have.filter((m) => !rows.includes(m))
  const unknown = rows.filter((m) => !have.includes(m))
  assert.deepEqual({ missing, unknown }, { missing: [], unknown: [] })
})
