// node scenario.mjs http://127.0.0.1:7700: what every deployment of the hall must do, by the stock client.
// It needs `registration: open`. Prints one line for each step; ends with 1 at the first that does not hold.
import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { io } from 'socket.io-client'

const base = process.argv[2]
if (!base) {
    console.error('usage: node scenario.mjs BASE_URL')
    process.exit(2)
}
const WITHIN_MS = 30_000
const password = 'long enough'

function within(what, promise, ms = WITHIN_MS) {
    let timer
    const late = new Promise((_, reject) => {
        timer = setTimeout(() => reject(new Error(`${what}: not within ${ms} ms`)), ms)
    })
    return Promise.race([promise, late]).finally(() => clearTimeout(timer))
}

async function call(method, path, { token, body } = {}) {
    const headers = token ? { Authorization: `Bearer ${token}` } : {}
    const answer = await fetch(base + path, { method, headers, body: body && JSON.stringify(body) })
    return { status: answer.status, body: await answer.json() }
}

async function person() {
    const body = { email: `${randomUUID()}@example.org`, password }
    const registered = await call('POST', '/auth/register', { body })
    assert.equal(registered.status, 201)
    assert.equal((await call('POST', '/auth/register', { body })).status, 409)
    const { status, body: { accessToken } } = await call('POST', '/auth/login', { body })
    assert.equal(status, 200)
    return { ...body, id: registered.body.id, token: accessToken }
}

const open = []
function connect(token, transports = ['polling', 'websocket']) {
    const socket = io(base, { auth: { token }, transports, reconnection: false, forceNew: true })
    open.push(socket)
    return socket
}
const event = (socket, name) => new Promise(resolve => socket.once(name, resolve))
const ask = (socket, name, ...data) => within(name, socket.timeout(WITHIN_MS).emitWithAck(name, ...data))

const steps = []
const step = (name, run) => steps.push([name, run])
let anna, ben, eve, room

step('health is 200', async () => assert.equal((await call('GET', '/health')).status, 200))
step('people register once and sign in', async () => ([anna, ben, eve] = [await person(), await person(), await person()]))
step('a wrong password is 401', async () => {
    const answer = await call('POST', '/auth/login', { body: { email: anna.email, password: 'wrong one' } })
    assert.equal(answer.status, 401)
})
step('a room has one member and no messages', async () => {
    const made = await call('POST', '/rooms', { token: anna.token, body: { name: 'scenario' } })
    assert.equal(made.status, 201)
    room = made.body.id
    assert.equal((await call('GET', `/rooms/${room}/members`, anna)).body.length, 1)
    assert.deepEqual((await call('GET', `/rooms/${room}/messages`, anna)).body, [])
})
step('somebody else joins', async () => {
    assert.equal((await call('POST', `/rooms/${room}/join`, ben)).status, 201)
    assert.equal((await call('GET', '/rooms', ben)).body.length, 1)
    const read = await call('POST', `/rooms/${room}/read`, { ...ben, body: { lastReadMessageId: '0'.repeat(26) } })
    assert.deepEqual([read.status, read.body], [201, { success: true }])
})
step('no token and a bad token are 401', async () => {
    assert.equal((await call('GET', '/rooms')).status, 401)
    assert.equal((await call('GET', '/rooms', { token: 'bad' })).status, 401)
})
for (const transports of [['polling', 'websocket'], ['websocket'], ['polling']]) {
    step(`a bad token sees connect, then a server disconnect (${transports})`, async () => {
        const socket = connect('bad', transports)
        const seen = []
        socket.on('connect', () => seen.push('connect'))
        socket.on('connect_error', () => seen.push('connect_error'))
        const reason = await within('disconnect', event(socket, 'disconnect'))
        assert.deepEqual([...seen, reason], ['connect', 'io server disconnect'])
        assert.equal(socket.active, false)
    })
    step(`messages are accepted and told once (${transports})`, async () => {
        const [hers, his] = [connect(anna.token, transports), connect(ben.token, transports)]
        assert.deepEqual(await ask(hers, 'joinRoom', { roomId: room }), { success: true })
        assert.deepEqual(await ask(his, 'joinRoom', { roomId: room }), { success: true })
        assert.deepEqual(await ask(hers, 'heartbeat'), { success: true })
        const told = []
        const all = new Promise(resolve => his.on('newMessage', message => told.push(message) === 20 && resolve()))
        const sent = Array.from({ length: 20 }, () => randomUUID())
        const acks = await Promise.all(
            sent.map((clientMsgId, at) => ask(hers, 'sendMessage', { roomId: room, clientMsgId, content: `${at} 안녕` }))
        )
        assert.deepEqual(acks, sent.map(clientMsgId => ({ clientMsgId, status: 'ACCEPTED' })))
        await within('newMessage', all)
        assert.deepEqual(told.map(message => message.clientMsgId), sent)
        const kept = (await call('GET', `/rooms/${room}/messages?limit=20`, ben)).body
        assert.deepEqual(kept.map(message => message.id), told.map(message => message.messageId))
        assert.deepEqual(kept.map(message => message.createdAt), told.map(message => message.createdAt))
        hers.disconnect()
        his.disconnect()
    })
}
step('who is no member neither joins nor sends', async () => {
    const socket = connect(eve.token)
    const joined = await ask(socket, 'joinRoom', { roomId: room })
    assert.equal(joined.success, false)
    assert.ok(joined.error)
    const clientMsgId = randomUUID()
    const sent = await ask(socket, 'sendMessage', { roomId: room, clientMsgId, content: 'x' })
    assert.deepEqual(sent, { clientMsgId, status: 'FAILED', error: 'Not a member of this room' })
    const unfit = await ask(socket, 'sendMessage', { roomId: room })
    assert.deepEqual(unfit, { clientMsgId: '', status: 'FAILED', error: 'Invalid message format' })
})

let failed = 0
for (const [name, run] of steps) {
    try {
        await run()
        console.log(`ok    ${name}`)
    } catch (error) {
        failed = 1
        console.log(`WRONG ${name}: ${error.message}`)
        break
    }
}
open.forEach(socket => socket.disconnect())
process.exitCode = failed
