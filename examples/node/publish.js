// Publishes an intent: node publish.js INTENT_ID USER_ID
import { Producer, compatibilityPartitioner, stringSerializers } from '@platformatic/kafka'

const { WEIR_KAFKA = '127.0.0.1:9092', WEIR_INTENTS = 'send-intents' } = process.env
const [id, userId] = process.argv.slice(2)
const intent = { id, user_id: userId, channel: 'push', campaign: 'spring', payload: { text: 'Hello' } }

const producer = new Producer({
  clientId: 'campaigns',
  bootstrapBrokers: WEIR_KAFKA.split(','),
  serializers: stringSerializers,
  // Kafka writes the record once, even if the client has to send it again.
  idempotent: true,
  // The partitioner of Java's client. This client's own default puts some users into another partition.
  partitioner: compatibilityPartitioner
})
try {
  // weir decides the intents of a partition in order: the key keeps a user's intents in one partition.
  const message = { topic: WEIR_INTENTS, key: userId, value: JSON.stringify(intent) }
  const { offsets } = await producer.send({ messages: [message] })
  console.log(`published ${id} to ${offsets[0].topic}/${offsets[0].partition}`)
} finally {
  await producer.close()
}
