// Reads approved intents and the decision on each, until Ctrl-C: node consume.js
import {
  Consumer, FetchIsolationLevels, MessagesStreamFallbackModes, MessagesStreamModes, stringDeserializers
} from '@platformatic/kafka'

const { WEIR_KAFKA = '127.0.0.1:9092', WEIR_APPROVED = 'send-approved', WEIR_GROUP = 'delivery' } = process.env

const consumer = new Consumer({
  clientId: 'delivery',
  groupId: WEIR_GROUP,
  bootstrapBrokers: WEIR_KAFKA.split(','),
  deserializers: stringDeserializers,
  // weir writes in transactions. Other readers would also see what weir has taken back.
  isolationLevel: FetchIsolationLevels.READ_COMMITTED,
  autocommit: false
})
const approved = await consumer.consume({
  topics: [WEIR_APPROVED],
  mode: MessagesStreamModes.COMMITTED,
  fallbackMode: MessagesStreamFallbackModes.EARLIEST
})
process.once('SIGINT', () => consumer.close(true))

for await (const record of approved) {
  const intent = JSON.parse(record.value)
  // Of several headers of this name, a Map has the last one, and that is weir's.
  const decision = JSON.parse(record.headers.get('weir-decision'))
  // Deliver the message here. After a crash a record is read again: recognise duplicates by the intent's id.
  console.log(intent.id, decision.verdict, decision.decided_at)
  await record.commit()
}
