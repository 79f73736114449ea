// The delays of ../delays.tsv.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { delay } from './admission.js'

const rows = readFileSync(process.argv[2] ?? '../delays.tsv', 'utf8').trim().split('\n').slice(1)
for (const row of rows) {
  const [attempt, retryAfter, chance, seconds] = row.split('\t')
  const found = delay(Number(attempt), retryAfter === '-' ? undefined : Number(retryAfter), Number(chance))
  assert.ok(Math.abs(found - Number(seconds)) < 1e-9, `${row}: ${found}`)
}
console.log(rows.length, 'delays')
