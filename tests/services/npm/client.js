// Registers schemas and sends values through npm's registry client, and prints what it got as JSON.
const { SchemaRegistry, SchemaType, COMPATIBILITY } = require('@kafkajs/confluent-schema-registry')

async function main(host, subject) {
  const registry = new SchemaRegistry({ host })
  const order = { type: 'record', name: 'Order', namespace: 'npm', fields: [{ name: 'id', type: 'long' }] }
  const avro = await registry.register(
    { type: SchemaType.AVRO, schema: JSON.stringify(order) },
    { subject, compatibility: COMPATIBILITY.BACKWARD },
  )
  const encoded = await registry.encode(avro.id, { id: 7 })
  const decoded = await new SchemaRegistry({ host }).decode(encoded)
  const latest = await registry.getLatestSchemaId(subject)
  const document = { title: 'Order', type: 'object', properties: { id: { type: 'integer' } } }
  const json = await registry.register(
    { type: SchemaType.JSON, schema: JSON.stringify(document) },
    { subject: `${subject}-json` },
  )
  const text = 'syntax = "proto3"; message Order { int64 id = 1; }'
  const proto = await registry.register({ type: SchemaType.PROTOBUF, schema: text }, { subject: `${subject}-proto` })
  const through = await registry.decode(await registry.encode(proto.id, { id: 9 }))
  console.log(JSON.stringify({ id: avro.id, latest, decoded, json: json.id, proto: Number(through.id) }))
}

main(process.argv[2], process.argv[3]).catch((problem) => {
  console.error(problem)
  process.exit(1)
})
