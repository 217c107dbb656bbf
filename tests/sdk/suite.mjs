// SPDX-License-Identifier: Apache-2.0
import './life.mjs'
import './commands.mjs'
import './files.mjs'
import './wire.mjs'
import './cli.mjs'
import './docs.mjs'
import { endAll } from './box.mjs'
import { main } from './tap.mjs'

const failed = await main()
await endAll()
process.exit(failed > 0 ? 1 : 0)
