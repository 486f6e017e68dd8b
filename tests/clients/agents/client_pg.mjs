// node-postgres (pg), with pg-cursor and pg-copy-streams.
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { DESCRIBE, LIST, refusal, restarted, serve, shown, word } from './node_agent.mjs'

const load = createRequire(process.argv[2] + '/')
const pg = load('pg')
const Cursor = load('pg-cursor')
const { to: copyTo } = load('pg-copy-streams')

const place = (to) => ({
  host: to.host,
  port: Number(to.port),
  database: to.database,
  user: to.user,
  password: to.password,
  sslnegotiation: to.check === 'direct' ? 'direct' : undefined,
  ssl: to.ca ? { ca: readFileSync(to.ca) } : false,
})

async function connected(to, work) {
  const client = new pg.Client(place(to))
  client.on('error', () => {})
  await client.connect()
  try {
    return await work(client)
  } finally {
    await client.end()
  }
}

const rows = async (client, text, values) => (await client.query({ text, values, rowMode: 'array' })).rows
const ask = (to, text, values) => connected(to, (client) => rows(client, text, values))
const connect = async (to) => (await ask(to, 'SELECT 1'))[0][0]

await serve(load('pg/package.json').version, {
  connect,
  tls: connect,
  direct: connect,
  list: async (to) => (await ask(to, LIST)).flat(),
  describe: (to) => ask(to, DESCRIBE),
  public: (to) => ask(to, to.public),
  decision: (to) => ask(to, to.decision),
  number: async (to) => shown(await ask(to, to.number)),
  parameter: (to) => ask(to, to.parameter.replace('{1}', '$1').replace('{2}', '$2'), ['female', 2000]),
  error: (to) =>
    connected(to, async (client) => ({
      state: await refusal(() => rows(client, to.refused)),
      then: (await rows(client, 'SELECT 2'))[0][0],
    })),
  transaction: (to) =>
    connected(to, async (client) => {
      await client.query('BEGIN')
      const before = await rows(client, to.decision)
      await client.query('SAVEPOINT here')
      const states = [await refusal(() => rows(client, to.refused)), await refusal(() => rows(client, to.public))]
      await client.query('ROLLBACK TO SAVEPOINT here')
      const after = await rows(client, to.decision)
      await client.query('COMMIT')
      return { before, states, after }
    }),
  notice: (to) =>
    connected(to, async (client) => {
      const said = []
      client.on('notice', (notice) => said.push(notice.message))
      await rows(client, to.decision)
      return said
    }),
  pieces: (to) =>
    connected(to, async (client) => {
      const cursor = client.query(new Cursor(to.many, [], { rowMode: 'array' }))
      const found = []
      for (let piece = await cursor.read(7); piece.length; piece = await cursor.read(7)) {
        found.push(...piece)
      }
      await cursor.close()
      return found
    }),
  copy: (to) =>
    connected(to, async (client) => {
      let said = ''
      for await (const part of client.query(copyTo(`COPY (${to.number}) TO STDOUT`))) said += part
      return said.trimEnd().split('\n').map((line) => line.split('\t').map((cell) => ['string', cell]))
    }),
  cancel: (to) =>
    connected(to, async (client) => {
      const query = new pg.Query(to.long)
      const ended = new Promise((done, fail) => query.on('error', fail).on('end', done))
      client.query(query)
      await word(to.go)
      new pg.Client(place(to)).cancel(client, query)
      return { state: await refusal(() => ended), then: (await rows(client, 'SELECT 1'))[0][0] }
    }),
  reconnect: async (to) => {
    const pool = new pg.Pool({ ...place(to), max: 1 })
    pool.on('error', () => {})
    const before = await rows(pool, to.decision)
    await restarted(to)
    const after = await rows(pool, to.decision)
    await pool.end()
    return { before, after }
  },
})
