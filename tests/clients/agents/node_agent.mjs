// The loop that every agent in JavaScript runs: one line of JSON is a check to do, one line is what came of it.
import { createInterface } from 'node:readline'
import { existsSync, writeFileSync } from 'node:fs'

export const pause = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds))

export const LIST = `SELECT table_name FROM information_schema.tables
  WHERE table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY 1`
export const DESCRIBE = `SELECT column_name, data_type FROM information_schema.columns
  WHERE table_name = 'orders' ORDER BY ordinal_position`

export async function word(path) {
  for (let tries = 0; !existsSync(path); tries++) {
    if (tries > 12000) throw new Error(`nobody made ${path}`)
    await pause(10)
  }
}

export async function restarted(to) {
  writeFileSync(to.ready, '')
  await word(to.go)
}

export async function refusal(ask) {
  try {
    await ask()
  } catch (error) {
    return error.code ?? String(error)
  }
  throw new Error('nothing was refused')
}

export const shown = (rows) =>
  rows.map((row) => row.map((value) => [typeof value, String(value)]))

export async function serve(version, checks) {
  for await (const line of createInterface({ input: process.stdin })) {
    const to = JSON.parse(line)
    let reply
    try {
      if (to.check === 'version') reply = { value: version }
      else if (checks[to.check]) reply = { value: await checks[to.check](to) }
      else reply = { unsupported: 'not offered by the client, or not tried with it' }
    } catch (error) {
      reply = { error: String(error), state: error.code ?? null }
    }
    process.stdout.write(JSON.stringify(reply) + '\n')
  }
  process.exit(0)
}
