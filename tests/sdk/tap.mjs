// SPDX-License-Identifier: Apache-2.0
//
// TAP for the SDK tests: test('what holds', async () => ...) in the order of the files, each with a deadline that
// only a fault reaches. `node suite.mjs WORD...` runs those whose name contains a word.
import assert from 'node:assert/strict'

export { assert }

export const SLOW_MS = Number(process.env.SPACE_E2E_SLOW ?? 120) * 1000

const cases = []

export function test(name, fn, { deadlineMs = SLOW_MS } = {}) {
  cases.push({ name, fn, deadlineMs })
}

function within(ms, promise) {
  let timer
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not done after ${ms / 1000} s`)), ms)
  })
  return Promise.race([promise, late]).finally(() => clearTimeout(timer))
}

/** Looks again until it is so. */
export async function until(look, what, ms = SLOW_MS) {
  const end = Date.now() + ms
  for (;;) {
    const found = await look()
    if (found) {
      return found
    }
    if (Date.now() > end) {
      throw new Error(`${what} does not come true`)
    }
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}

/** The error that fn fails with, of the class that is wanted. */
export async function fails(wanted, fn, pattern) {
  let value
  try {
    value = await fn()
  } catch (error) {
    if (!(error instanceof wanted)) {
      throw new Error(`${wanted.name} expected, got ${error?.constructor?.name}: ${error?.message}`, { cause: error })
    }
    if (pattern) {
      assert.match(error.message, pattern)
    }
    return error
  }
  throw new Error(`${wanted.name} expected, got ${JSON.stringify(value)}`)
}

export async function main() {
  const words = process.argv.slice(2)
  const chosen = cases.filter((c) => words.length === 0 || words.some((w) => c.name.includes(w)))
  let failed = 0
  let n = 0
  for (const { name, fn, deadlineMs } of chosen) {
    const began = Date.now()
    n += 1
    try {
      await within(deadlineMs, fn())
      console.log(`ok ${n} - ${name}`)
    } catch (error) {
      failed += 1
      console.log(`not ok ${n} - ${name}`)
      const text = String(error?.stack ?? error) + (error?.cause ? `\ncaused by ${error.cause.stack}` : '')
      console.log(text.replace(/^/gm, '# '))
    }
    console.log(`# ${Date.now() - began} ms`)
  }
  console.log(`1..${n}`)
  return failed
}
