// Asks weir for a decision on one intent, which the caller then sends: node decide.js INTENT_ID USER_ID
const { WEIR_HTTP = 'http://127.0.0.1:8080', WEIR_TOKEN = '' } = process.env
const [id, userId] = process.argv.slice(2)
const intent = { id, user_id: userId, channel: 'push', campaign: 'spring' }

const answer = await fetch(`${WEIR_HTTP}/v1/decisions`, {
  method: 'POST',
  headers: { 'Content-Type': 'application/json', Authorization: `Bearer ${WEIR_TOKEN}` },
  body: JSON.stringify(intent),
  signal: AbortSignal.timeout(10_000)
})
if (!answer.ok) {
  // After 503, 504 or a broken connection, ask again with the same id: weir records an intent once.
  console.error(`no decision on ${id}: ${answer.status} ${await answer.text()}`)
  process.exit(1)
}
const decision = await answer.json()
console.log(id, decision.verdict, decision.reason ?? '', decision.eligible_at ?? '')
