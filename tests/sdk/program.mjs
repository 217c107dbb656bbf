// SPDX-License-Identifier: Apache-2.0
//
// The unmodified command line of E2B, as a function: its standard output, or an error when it fails.
import { execFile } from 'node:child_process'
import { mkdtempSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { promisify } from 'node:util'

const run = promisify(execFile)
const program = join(createRequire(import.meta.url).resolve('@e2b/cli/package.json'), '../dist/index.js')

export async function e2b(...args) {
  const home = mkdtempSync(join(process.env.SPACE_E2E_TMP ?? '/tmp', 'home-'))
  const running = run(process.execPath, [program, ...args], { env: { ...process.env, HOME: home, NO_COLOR: '1' } })
  running.child.stdin.end() // exec passes it on to the command, to its end
  return (await running).stdout
}
