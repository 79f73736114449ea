// Delivers a message to a URL once weir admits it: node deliver.js SERVICE URL MESSAGE
import { outcomeOf, repeat } from './admission.js'

const { WEIR_HTTP = 'http://127.0.0.1:8080', WEIR_TOKEN = '' } = process.env
const [service, url, message] = process.argv.slice(2)
const admissions = `${WEIR_HTTP}/v1/services/${service}/admissions`
const token = { Authorization: `Bearer ${WEIR_TOKEN}` }

/** The outcome, Retry-After in seconds if there is one, and the body. */
async function call (method, url, body, headers) {
  try {
    headers = { 'Content-Type': 'application/json', ...headers }
    const answer = await fetch(url, { method, body, headers, signal: AbortSignal.timeout(10_000) })
    const after = answer.headers.get('Retry-After') ?? ''
    const retryAfter = /^\d+$/.test(after) ? Number(after) : undefined
    return { outcome: outcomeOf(answer.status), retryAfter, body: await answer.text() }
  } catch {
    return { outcome: 'temporary' }
  }
}

async function attemptOnce () {
  const admitted = await call('POST', admissions, '{}', token)
  if (admitted.outcome !== 'ok') return admitted
  const admission = `${admissions}/${JSON.parse(admitted.body).id}`
  const start = performance.now()
  const delivered = await call('POST', url, message, {})
  const report = { took_ms: Math.round(performance.now() - start), outcome: delivered.outcome }
  // If this report is lost, the admission ends at the timeout that the service has registered.
  await call('DELETE', admission, JSON.stringify(report), token)
  return delivered
}

const outcome = await repeat(attemptOnce)
console.log(outcome) // ok; permanent: never try again; temporary: write the record to the topic of retries
process.exitCode = outcome === 'ok' ? 0 : 1
