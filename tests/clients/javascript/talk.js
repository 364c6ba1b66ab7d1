// What MQTT.js clients can say to each other through a broker at QoS 0, step by step.
//
// usage: talk.js PORT {3.1.1|5.0}

'use strict';

const assert = require('node:assert/strict');
const mqtt = require('mqtt');

const [port, version] = process.argv.slice(2);
const is5 = version === '5.0';
const DEADLINE_MS = 10_000;
const SESSION_TAKEN_OVER = 0x8e;

/** What has happened and nobody has asked for yet. */
class Inbox {
  constructor(name) {
    this.name = name;
    this.kept = [];
    this.waiting = [];
  }

  put(item) {
    const first = this.waiting.shift();
    if (first) first(item);
    else this.kept.push(item);
  }

  take() {
    if (this.kept.length > 0) return Promise.resolve(this.kept.shift());
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`${this.name}: nothing came`)), DEADLINE_MS);
      this.waiting.push((item) => {
        clearTimeout(timer);
        resolve(item);
      });
    });
  }
}

/** A connected client that keeps what happens to it. */
class Client {
  static async connect(clientId, will) {
    const client = new Client();
    client.messages = new Inbox(`messages of ${clientId}`);
    client.ends = new Inbox(`end of ${clientId}`);
    const connacks = new Inbox(`CONNACK of ${clientId}`);
    client.mqtt = mqtt.connect({
      host: '127.0.0.1', port: Number(port), clientId, will,
      protocolVersion: is5 ? 5 : 4, reconnectPeriod: 0, clean: true,
    });
    client.mqtt.on('connect', (connack) => connacks.put(connack));
    client.mqtt.on('error', (error) => connacks.put(error));
    client.mqtt.on('message', (topic, payload, packet) => client.messages.put({ topic, payload, packet }));
    client.mqtt.on('disconnect', (packet) => { client.reason = packet.reasonCode; });
    client.mqtt.on('close', () => client.ends.put(client.reason));
    client.connack = await connacks.take();
    if (client.connack instanceof Error) throw client.connack;
    return client;
  }

  async subscribe(filter, options) {
    const granted = await this.mqtt.subscribeAsync(filter, { qos: 0, ...options });
    assert.deepEqual(granted.map(({ topic, qos }) => [topic, qos]), [[filter, 0]]);
  }

  unsubscribe(filter) {
    return this.mqtt.unsubscribeAsync(filter);
  }

  publish(topic, payload, options) {
    this.mqtt.publish(topic, payload, options);
  }

  /** The next message is this one. */
  async expect(topic, payload, retain = false) {
    const message = await this.messages.take();
    const { packet } = message;
    assert.deepEqual([message.topic, String(message.payload), packet.retain], [topic, payload, retain]);
    return packet;
  }

  disconnect() {
    return this.mqtt.endAsync();
  }

  /** The connection ends without DISCONNECT. */
  async vanish() {
    this.mqtt.stream.destroy();
    await this.ends.take();
  }
}

async function connackSaysWhatIsServed() {
  const client = await Client.connect('curious');
  assert.equal(client.connack.returnCode ?? client.connack.reasonCode, 0);
  if (is5) {
    assert.equal(client.connack.properties.maximumQoS, 0);
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

async function aMessageMayBeEmptyOrLarge() {
  const frog = await Client.connect('frog');
  await frog.subscribe('size');
  for (const payload of ['', 'x', 'é'.repeat(50_000), 'x'.repeat(1_000_000)]) {
    frog.publish('size', payload);
    await frog.expect('size', payload);
  }
  await frog.disconnect();
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
  await newt.expect('leaf/a', 'brown', true);
  frog.publish('leaf/a', '', { retain: true });
  await toad.expect('leaf/a', '');
  frog.publish('leaf/b', 'here', { retain: true });
  await toad.expect('leaf/b', 'here');
  const late = await Client.connect('late');
  await late.subscribe('leaf/#');
  await late.expect('leaf/b', 'here', true);
  for (const client of [frog, toad, newt, late]) await client.disconnect();
}

async function aWillIsPublishedForWhoVanishes() {
  const frog = await Client.connect('frog');
  await frog.subscribe('will/#');
  const will = (topic, payload) => ({ topic, payload: Buffer.from(payload), qos: 0, retain: false });
  await (await Client.connect('polite', will('will/polite', 'never said'))).disconnect();
  await (await Client.connect('rude', will('will/rude', 'gone'))).vanish();
  await frog.expect('will/rude', 'gone');
  await frog.disconnect();
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

async function subscriptionOptionsAreKept() {
  const [frog, toad] = [await Client.connect('frog'), await Client.connect('toad')];
  await frog.subscribe('both', { nl: true });
  frog.publish('both', 'mine');
  toad.publish('both', 'theirs');
  await frog.expect('both', 'theirs');
  frog.publish('kept', 'leaf', { retain: true });
  await frog.subscribe('kept', { rap: true });
  await frog.expect('kept', 'leaf', true);
  frog.publish('kept', 'twig', { retain: true });
  await frog.expect('kept', 'twig', true);
  await toad.subscribe('kept', { rh: 2 });
  frog.publish('kept', 'bough', { retain: true });
  await toad.expect('kept', 'bough');
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
  aMessageMayBeEmptyOrLarge,
  aRetainedMessageWaitsForSubscribers,
  aWillIsPublishedForWhoVanishes,
  anUnsubscribedFilterBringsNothingMore,
  aClientIdentifierHasOneConnection,
];
const stepsOf5 = [subscriptionOptionsAreKept, propertiesArriveAsTheyWereSent, aTopicAliasStandsForItsTopic];

(async () => {
  for (const step of [...steps, ...(is5 ? stepsOf5 : [])]) {
    console.log(step.name);
    await step();
  }
  console.log('all said');
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
