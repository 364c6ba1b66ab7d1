// What MQTT.js clients can say to each other through a broker, step by step.
//
// usage: talk.js PORT {3.1.1|5.0} {0|1|2}

'use strict';

const assert = require('node:assert/strict');
const { Client, QOS, carryOut, is5 } = require('./client.js');

const SESSION_TAKEN_OVER = 0x8e;

async function connackSaysWhatIsServed() {
  const client = await Client.connect('curious');
  assert.equal(client.connack.returnCode ?? client.connack.reasonCode, 0);
  if (is5) {
    assert.equal(client.connack.properties.maximumQoS, undefined);
    assert.ok(client.connack.properties.maximumPacketSize > 0);
  }
  const nameless = await Client.connect('');
  if (is5) assert.ok(nameless.connack.properties.assignedClientIdentifier);
  await client.disconnect();
  await nameless.disconnect();
}

async function wildcardsChooseWhatIsReceived() {
  const [frog, toad] = [await Client.connect('frog'), await Client.connect('toad')];
  await frog.subscribe('pond/+/depth');
  await frog.subscribe('sky/#');
  const topics = ['pond/depth', 'pond/north/depth', 'pond/a/b/depth', 'sky', 'skyline', 'sky/sun/height'];
  for (const topic of topics) toad.publish(topic, topic);
  for (const topic of ['pond/north/depth', 'sky', 'sky/sun/height']) await frog.expect(topic, topic);
  await frog.subscribe('end');
  toad.publish('end', '');
  await frog.expect('end', '');
  await frog.disconnect();
  await toad.disconnect();
}

async function theLowerQosCounts() {
  const [frog, toad] = [await Client.connect('frog'), await Client.connect('toad')];
  for (const granted of [0, 1, 2]) {
    await frog.subscribe('deep', { qos: granted });
    for (const sent of [0, 1, 2]) {
      toad.publish('deep', `${sent}`, { qos: sent });
      await frog.expect('deep', `${sent}`, { qos: Math.min(granted, sent) });
    }
  }
  await frog.disconnect();
  await toad.disconnect();
}

async function aMessageMayBeEmptyOrLarge() {
  const frog = await Client.connect('frog');
  await frog.subscribe('size');
  for (const payload of ['', 'x', 'é'.repeat(50_000), 'x'.repeat(1_000_000)]) {
    frog.publish('size', payload);
    await frog.expect('size', payload);
  }
  await frog.disconnect();
}

async function manyMessagesComeInOrder() {
  const [frog, toad] = [await Client.connect('frog'), await Client.connect('toad')];
  await frog.subscribe('count');
  for (let number = 0; number < 300; number += 1) toad.publish('count', `${number}`);
  for (let number = 0; number < 300; number += 1) await frog.expect('count', `${number}`);
  await frog.disconnect();
  await toad.disconnect();
}

async function aRetainedMessageWaitsForSubscribers() {
  const [frog, toad] = [await Client.connect('frog'), await Client.connect('toad')];
  await toad.subscribe('leaf/#');
  frog.publish('leaf/a', 'green', { retain: true });
  await toad.expect('leaf/a', 'green');
  frog.publish('leaf/a', 'brown', { retain: true });
  await toad.expect('leaf/a', 'brown');
  const newt = await Client.connect('newt');
  await newt.subscribe('leaf/+');
  await newt.expect('leaf/a', 'brown', { retain: true });
  frog.publish('leaf/a', '', { retain: true });
  await toad.expect('leaf/a', '');
  frog.publish('leaf/b', 'here', { retain: true });
  await toad.expect('leaf/b', 'here');
  const late = await Client.connect('late');
  await late.subscribe('leaf/#');
  await late.expect('leaf/b', 'here', { retain: true });
  late.publish('leaf/b', '', { retain: true });
  await toad.expect('leaf/b', '');
  for (const client of [frog, toad, newt, late]) await client.disconnect();
}

async function aWillIsPublishedForWhoVanishes() {
  const frog = await Client.connect('frog');
  await frog.subscribe('will/#');
  const will = (topic, payload, retain = false) => (
    { will: { topic, payload: Buffer.from(payload), qos: QOS, retain } }
  );
  await (await Client.connect('polite', will('will/polite', 'never said'))).disconnect();
  await (await Client.connect('rude', will('will/rude', 'gone'))).vanish();
  await frog.expect('will/rude', 'gone');
  await (await Client.connect('lost', will('will/lost', 'for good', true))).vanish();
  await frog.expect('will/lost', 'for good');
  const late = await Client.connect('late');
  await late.subscribe('will/+');
  await late.expect('will/lost', 'for good', { retain: true });
  late.publish('will/lost', '', { retain: true });
  await frog.expect('will/lost', '');
  await frog.disconnect();
  await late.disconnect();
}

async function anUnsubscribedFilterBringsNothingMore() {
  const frog = await Client.connect('frog');
  await frog.subscribe('news/#');
  await frog.subscribe('end');
  frog.publish('news/1', 'first');
  await frog.expect('news/1', 'first');
  await frog.unsubscribe('news/#');
  frog.publish('news/2', 'second');
  frog.publish('end', '');
  await frog.expect('end', '');
  await frog.disconnect();
}

async function aClientIdentifierHasOneConnection() {
  const first = await Client.connect('twin');
  const second = await Client.connect('twin');
  const reason = await first.ends.take();
  if (is5) assert.equal(reason, SESSION_TAKEN_OVER);
  await second.subscribe('end');
  second.publish('end', '');
  await second.expect('end', '');
  await second.disconnect();
}

async function aGroupSharesItsMessages() {
  const [frog, toad, newt] = [
    await Client.connect('frog'), await Client.connect('toad'), await Client.connect('newt'),
  ];
  // Both put what they hear into the inbox of one.
  const shares = new Map([[frog, []], [toad, []]]);
  for (const [member, share] of shares) {
    member.mqtt.on('message', (_, payload) => share.push(Number(payload)));
    await member.subscribe('$share/pond/work/#');
  }
  toad.messages = frog.messages;
  const numbers = Array.from({ length: 100 }, (_, number) => number);
  for (const number of numbers) newt.publish('work/load', `${number}`);
  const heard = [];
  while (heard.length < numbers.length) heard.push(Number((await frog.messages.take()).payload));
  const inOrder = (list) => list.toSorted((a, b) => a - b);
  assert.deepEqual(inOrder(heard), numbers);
  for (const share of shares.values()) {
    assert.ok(share.length > 0);
    assert.deepEqual(share, inOrder(share));
  }
  await toad.disconnect();
  newt.publish('work/load', 'to who is left');
  await frog.expect('work/load', 'to who is left');
  await frog.disconnect();
  await newt.disconnect();
}

async function subscriptionOptionsAreKept() {
  const [frog, toad] = [await Client.connect('frog'), await Client.connect('toad')];
  await frog.subscribe('both', { nl: true });
  frog.publish('both', 'mine');
  toad.publish('both', 'theirs');
  await frog.expect('both', 'theirs');
  await frog.publish('kept', 'leaf', { retain: true });
  await frog.subscribe('kept', { rap: true });
  await frog.expect('kept', 'leaf', { retain: true });
  frog.publish('kept', 'twig', { retain: true });
  await frog.expect('kept', 'twig', { retain: true });
  await toad.subscribe('kept', { rh: 2 });
  frog.publish('kept', 'bough', { retain: true });
  await toad.expect('kept', 'bough');
  frog.publish('kept', '', { retain: true });
  await frog.disconnect();
  await toad.disconnect();
}

async function propertiesArriveAsTheyWereSent() {
  const [frog, toad] = [await Client.connect('frog'), await Client.connect('toad')];
  await frog.subscribe('request', { properties: { subscriptionIdentifier: 7 } });
  const properties = {
    userProperties: { colour: ['green', 'brown'], größe: 'klein' },
    contentType: 'text/plain',
    responseTopic: 'answer/toad',
    correlationData: Buffer.from([0, 255, 7]),
    payloadFormatIndicator: true,
    messageExpiryInterval: 3600,
  };
  toad.publish('request', 'how deep?', { properties });
  const received = { ...(await frog.expect('request', 'how deep?')).properties };
  received.userProperties = { ...received.userProperties };
  assert.deepEqual(received, { ...properties, subscriptionIdentifier: 7 });
  await frog.disconnect();
  await toad.disconnect();
}

async function aRequestIsAnsweredWhereItAsksToBe() {
  const [frog, toad] = [await Client.connect('frog'), await Client.connect('toad')];
  await frog.subscribe('ask');
  await toad.subscribe('answers/toad');
  for (let number = 0; number < 10; number += 1) {
    const correlationData = Buffer.from([number]);
    toad.publish('ask', `${number} + 1`, { properties: { responseTopic: 'answers/toad', correlationData } });
    const asked = (await frog.expect('ask', `${number} + 1`)).properties;
    const properties = { correlationData: asked.correlationData };
    frog.publish(asked.responseTopic, `${number + 1}`, { properties });
    const answer = await toad.expect('answers/toad', `${number + 1}`);
    assert.deepEqual(answer.properties.correlationData, correlationData);
  }
  await frog.disconnect();
  await toad.disconnect();
}

async function aTopicAliasStandsForItsTopic() {
  const frog = await Client.connect('frog');
  assert.ok(frog.connack.properties.topicAliasMaximum > 0);
  await frog.subscribe('long/topic');
  for (const topic of ['long/topic', '']) {
    frog.publish(topic, 'short', { properties: { topicAlias: 1 } });
    await frog.expect('long/topic', 'short');
  }
  await frog.disconnect();
}

const steps = [
  connackSaysWhatIsServed,
  wildcardsChooseWhatIsReceived,
  theLowerQosCounts,
  aMessageMayBeEmptyOrLarge,
  manyMessagesComeInOrder,
  aRetainedMessageWaitsForSubscribers,
  aWillIsPublishedForWhoVanishes,
  anUnsubscribedFilterBringsNothingMore,
  aClientIdentifierHasOneConnection,
  aGroupSharesItsMessages,
];
const stepsOf5 = [
  subscriptionOptionsAreKept,
  propertiesArriveAsTheyWereSent,
  aRequestIsAnsweredWhereItAsksToBe,
  aTopicAliasStandsForItsTopic,
];

carryOut([...steps, ...(is5 ? stepsOf5 : [])]);
