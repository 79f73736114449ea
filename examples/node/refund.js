// Takes an approved intent back, so that it no longer counts: node refund.js INTENT_ID USER_ID
import { Producer, compatibilityPartitioner, stringSerializers } from '@platformatic/kafka'

const { WEIR_KAFKA = '127.0.0.1:9092', WEIR_REFUNDS = 'send-refunds' } = process.env
const [intentId, userId] = process.argv.slice(2)

const producer = new Producer({
  clientId: 'refunds',
  bootstrapBrokers: WEIR_KAFKA.split(','),
  serializers: stringSerializers,
  idempotent: true,
  partitioner: compatibilityPartitioner
})
try {
  const refund = { intent_id: intentId, user_id: userId }
  const message = { topic: WEIR_REFUNDS, key: userId, value: JSON.stringify(refund) }
  const { offsets } = await producer.send({ messages: [message] })
  console.log(`refunded ${intentId} in ${offsets[0].topic}/${offsets[0].partition}`)
} finally {
  await producer.close()
}
