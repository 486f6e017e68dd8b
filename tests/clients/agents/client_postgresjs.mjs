// postgres.js: everything pipelined, statements prepared, types looked up at connect.
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { DESCRIBE, LIST, refusal, restarted, serve, shown, word } from './node_agent.mjs'

const load = createRequire(process.argv[2] + '/')
const postgres = load('postgres')

async function connected(to, work, more = {}) {
  const sql = postgres({
    host: to.host,
    port: Number(to.port),
    database: to.database,
    user: to.user,
    password: to.password,
    ssl: to.ca ? { ca: readFileSync(to.ca) } : false,
    sslnegotiation: to.check === 'direct' ? 'direct' : undefined,
    max: 1,
    connect_timeout: 10,
    onnotice: () => {},
    ...more,
  })
  try {
    return await work(sql)
  } finally {
    await sql.end({ timeout: 5 })
  }
}

const rows = async (sql, text, values = []) => Array.from(await sql.unsafe(text, values, { prepare: true }).values())
const ask = (to, text, values) => connected(to, (sql) => rows(sql, text, values))
const connect = async (to) => (await ask(to, 'SELECT 1'))[0][0]

const { version } = JSON.parse(readFileSync(process.argv[2] + '/node_modules/postgres/package.json'))

await serve(version, {
  connect,
  tls: connect,
  direct: connect,
  list: async (to) => (await ask(to, LIST)).flat(),
  describe: (to) => ask(to, DESCRIBE),
  public: (to) => ask(to, to.public),
  decision: (to) => ask(to, to.decision),
  number: async (to) => shown(await ask(to, to.number)),
  parameter: (to) =>
    connected(to, async (sql) => {
      const [first, second, third] = to.parameter.split(/\{[12]\}/)
      const parts = Object.assign([first, second, third], { raw: [first, second, third] })
      return Array.from(await sql(parts, 'female', 2000).values())
    }),
  error: (to) =>
    connected(to, async (sql) => ({
      state: await refusal(() => rows(sql, to.refused)),
      then: (await rows(sql, 'SELECT 2'))[0][0],
    })),
  transaction: (to) =>
    connected(to, (sql) =>
      sql.begin(async (sql) => {
        const before = await rows(sql, to.decision)
        const states = []
        await sql
          .savepoint(async (sql) => {
            states.push(await refusal(() => rows(sql, to.refused)))
            states.push(await refusal(() => rows(sql, to.public)))
            throw new Error('roll back')
          })
          .catch(() => {})
        return { before, states, after: await rows(sql, to.decision) }
      }),
    ),
  notice: async (to) => {
    const said = []
    await connected(to, (sql) => rows(sql, to.decision), { onnotice: (notice) => said.push(notice.message) })
    return said
  },
  pieces: (to) =>
    connected(to, async (sql) => {
      const found = []
      for await (const piece of sql.unsafe(to.many).cursor(7)) {
        found.push(...piece.map((row) => [row.disease, row.n]))
      }
      return found
    }),
  copy: (to) =>
    connected(to, async (sql) => {
      let said = ''
      for await (const part of await sql.unsafe(`COPY (${to.number}) TO STDOUT`).readable()) said += part
      return said.trimEnd().split('\n').map((line) => line.split('\t').map((cell) => ['string', cell]))
    }),
  pipeline: (to) =>
    connected(to, async (sql) => {
      const all = await Promise.all([rows(sql, to.decision), rows(sql, to.public), rows(sql, to.number)])
      return all.map((found) => found.length)
    }),
  cancel: (to) =>
    connected(to, async (sql) => {
      const query = sql.unsafe(to.long)
      const ended = refusal(() => query)
      await word(to.go)
      query.cancel()
      return { state: await ended, then: (await rows(sql, 'SELECT 1'))[0][0] }
    }),
  reconnect: (to) =>
    connected(to, async (sql) => {
      const before = await rows(sql, to.decision)
      await restarted(to)
      return { before, after: await rows(sql, to.decision) }
    }),
})
