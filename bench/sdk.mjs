// SPDX-License-Identifier: Apache-2.0
//
// The rows of bench/sdk: median, p90 and p99 of N times one after the other, in milliseconds, as the SDK's user sees them.
import { loadavg } from 'node:os'
import { performance } from 'node:perf_hooks'
import { Sandbox } from 'e2b'

const option = (name, fallback) => {
  const at = process.argv.indexOf(`--${name}`)
  return at < 0 ? fallback : process.argv[at + 1]
}
const N = Number(option('n', 20))
const TEMPLATE = option('template', 'base')
const MIB = 1 << 20
let failed = 0

const at = (sorted, share) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))]

/** Runs once for nothing, then n times; once() gives back milliseconds, or nothing: then it is timed from outside. */
async function row(name, n, once) {
  const times = []
  let failures = 0
  let why = ''
  for (let i = -1; i < n; i++) {
    const began = performance.now()
    try {
      const own = await once()
      if (i >= 0) {
        times.push(own ?? performance.now() - began)
      }
    } catch (error) {
      failures += 1
      why = error.message
    }
  }
  times.sort((a, b) => a - b)
  const shown = times.length ? [0.5, 0.9, 0.99].map((share) => at(times, share).toFixed(1).padStart(9)).join('') : '        -'
  console.log(`${name.padEnd(44)}${shown}  n=${times.length}${failures ? `, ${failures} failed: ${why}` : ''}`)
  failed += failures
}

console.log(`load ${loadavg()[0].toFixed(2)}, template ${TEMPLATE}, ${process.version}`)
console.log(`${''.padEnd(44)}   median      p90      p99  ms`)

await row('create', N, async () => {
  const began = performance.now()
  const one = await Sandbox.create(TEMPLATE)
  const took = performance.now() - began
  await one.kill()
  return took
})
const box = await Sandbox.create(TEMPLATE, { timeoutMs: 3_600_000 })
await row('connect', N, () => Sandbox.connect(box.sandboxId).then(() => undefined))
await row('command: true', N, () => box.commands.run('true').then(() => undefined))
for (const [mib, n] of [[1, N], [100, Math.max(1, Math.floor(N / 5))]]) {
  const data = new Uint8Array(mib * MIB).fill(120).buffer
  await row(`${mib} MiB up`, n, () => box.files.write('/home/user/file', data).then(() => undefined))
  await row(`${mib} MiB down`, n, async () => {
    const got = await box.files.read('/home/user/file', { format: 'bytes' })
    if (got.length !== mib * MIB) {
      throw new Error(`${got.length} bytes came`)
    }
  })
}

let heard = () => undefined
const decoder = new TextDecoder()
const pty = await box.pty.create({ cols: 80, rows: 24, onData: (data) => heard(decoder.decode(data)), timeoutMs: 0 })
const typed = (text) =>
  new Promise((resolve, reject) => {
    const late = setTimeout(() => reject(new Error('no echo within 30 s')), 30_000)
    heard = (data) => {
      if (data.includes(text)) {
        clearTimeout(late)
        resolve()
      }
    }
    box.pty.sendInput(pty.pid, new TextEncoder().encode(text)).catch(reject)
  })
await row('terminal: a key until its echo', N, () => typed('x'))
await box.pty.kill(pty.pid)

await row('50 streams at once, until each has its line', Math.max(1, Math.floor(N / 5)), async () => {
  const all = await Promise.all(Array.from({ length: 50 }, (_, i) => box.commands.run(`echo ${i}`)))
  all.forEach((result, i) => {
    if (result.stdout !== `${i}\n`) {
      throw new Error(`stream ${i} said ${JSON.stringify(result.stdout)}`)
    }
  })
})
await box.kill()
process.exit(failed ? 1 : 0)
