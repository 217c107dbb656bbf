// SPDX-License-Identifier: Apache-2.0
//
// What the tests share: one sandbox that most of them use, and the wire below the SDK.
import { Sandbox } from 'e2b'

export const URL_BASE = process.env.SPACE_URL
export const KEY = process.env.SPACE_API_KEY

let shared

/** A sandbox for tests that leave it as it was. */
export async function box() {
  shared ??= await Sandbox.create({ timeoutMs: 3_600_000 })
  return shared
}

const made = []

/** One of its own for a test; ended with the tests if not before. */
export async function create(...args) {
  const sandbox = await Sandbox.create(...args)
  made.push(sandbox.sandboxId)
  return sandbox
}

export async function endAll() {
  const left = []
  for await (const sandbox of everything()) {
    left.push(sandbox.sandboxId)
  }
  await Promise.all([...made, ...left].map((id) => Sandbox.kill(id).catch(() => false)))
}

async function* everything() {
  const pages = Sandbox.list()
  while (pages.hasNext) {
    yield* await pages.nextItems()
  }
}

/** A request of the control API; the answer with its JSON in .body. */
export async function api(method, path, body, headers = {}) {
  const response = await fetch(URL_BASE + path, {
    method,
    headers: { 'X-API-Key': KEY, ...(body === undefined ? {} : { 'Content-Type': 'application/json' }), ...headers },
    body: body === undefined ? undefined : JSON.stringify(body),
  })
  const text = await response.text()
  return { status: response.status, headers: response.headers, body: text ? JSON.parse(text) : undefined }
}

/** The fields that address a sandbox's daemon. */
export function inside(sandbox, more = {}) {
  return {
    'E2b-Sandbox-Id': sandbox.sandboxId,
    'E2b-Sandbox-Port': '49983',
    ...(sandbox.envdAccessToken ? { 'X-Access-Token': sandbox.envdAccessToken } : {}),
    ...more,
  }
}

/** A call without a stream. */
export async function call(sandbox, method, message, headers = {}) {
  const response = await fetch(`${URL_BASE}/${method}`, {
    method: 'POST',
    headers: inside(sandbox, { 'Content-Type': 'application/json', 'Connect-Protocol-Version': '1', ...headers }),
    body: JSON.stringify(message),
  })
  return { status: response.status, body: await response.json() }
}

export function envelope(message, flags = 0) {
  const payload = Buffer.from(JSON.stringify(message))
  const head = Buffer.alloc(5)
  head[0] = flags
  head.writeUInt32BE(payload.length, 1)
  return Buffer.concat([head, payload])
}

export function* envelopes(bytes) {
  for (let at = 0; at < bytes.length; ) {
    const length = bytes.readUInt32BE(at + 1)
    yield { flags: bytes[at], message: JSON.parse(bytes.subarray(at + 5, at + 5 + length).toString()) }
    at += 5 + length
  }
}

/** A stream, read to its end. */
export async function stream(sandbox, method, messages, headers = {}) {
  const response = await fetch(`${URL_BASE}/${method}`, {
    method: 'POST',
    headers: inside(sandbox, { 'Content-Type': 'application/connect+json', ...headers }),
    body: Buffer.concat(messages.map((m) => (Buffer.isBuffer(m) ? m : envelope(m)))),
  })
  const bytes = Buffer.from(await response.arrayBuffer())
  return {
    status: response.status,
    type: response.headers.get('content-type'),
    envelopes: response.status === 200 ? [...envelopes(bytes)] : [],
    bytes,
  }
}
