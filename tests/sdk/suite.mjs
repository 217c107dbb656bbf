// SPDX-License-Identifier: Apache-2.0
//
// The parts that SDK_PARTS names, in this order; all of them without it.
import { endAll } from './box.mjs'
import { main } from './tap.mjs'

for (const part of (process.env.SDK_PARTS ?? 'life wire cli docs commands files').split(' ')) {
  await import(`./${part}.mjs`)
}
const failed = await main()
await endAll()
process.exit(failed > 0 ? 1 : 0)
