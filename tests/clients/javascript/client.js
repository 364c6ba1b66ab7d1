// An MQTT.js client that keeps what happens to it until somebody asks.

'use strict';

const assert = require('node:assert/strict');
const fs = require('node:fs');
const mqtt = require('mqtt');

const [port, version, qosOfRun] = process.argv.slice(2);
const is5 = version === '5.0';
const QOS = Number(qosOfRun);
// Plain TCP, unless these name another way: `tls` or `wss`, and the certificate of the authority.
const { PONDHAWK_LINK: LINK, PONDHAWK_CA: AUTHORITY } = process.env;
const WAY = LINK ? { protocol: LINK === 'tls' ? 'mqtts' : LINK, ca: fs.readFileSync(AUTHORITY) } : {};
const DEADLINE_MS = 10_000;
const SESSION_SECS = 3600;

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

/** A client whose messages and subscriptions are at the QoS of this run. */
class Client {
  /** With `lasting` the session outlives the connection. */
  constructor(clientId, { will, lasting = false } = {}) {
    this.messages = new Inbox(`messages of ${clientId}`);
    this.connacks = new Inbox(`CONNACK of ${clientId}`);
    this.ends = new Inbox(`end of ${clientId}`);
    this.vanishesAfter = 0;
    // What this side knows of the session, for as long as it lasts.
    this.incomingStore = new mqtt.Store({ clean: false });
    this.outgoingStore = new mqtt.Store({ clean: false });
    this.options = {
      ...WAY, host: '127.0.0.1', port: Number(port), clientId, will,
      protocolVersion: is5 ? 5 : 4, reconnectPeriod: 0, clean: !lasting, resubscribe: false,
      properties: is5 ? { sessionExpiryInterval: lasting ? SESSION_SECS : 0 } : undefined,
    };
  }

  static async connect(clientId, options) {
    const client = new Client(clientId, options);
    await client.comeBack();
    return client;
  }

  /** Connects, with all that this side knows of the session. */
  async comeBack() {
    const { incomingStore, outgoingStore } = this;
    this.mqtt = mqtt.connect({ ...this.options, incomingStore, outgoingStore });
    this.mqtt.on('connect', (connack) => this.connacks.put(connack));
    this.mqtt.on('error', (error) => this.connacks.put(error));
    this.mqtt.on('message', (topic, payload, packet) => {
      this.messages.put({ topic, payload, packet });
      this.count();
    });
    this.mqtt.on('disconnect', (packet) => { this.reason = packet.reasonCode; });
    this.mqtt.on('close', () => this.ends.put(this.reason));
    this.connack = await this.connacks.take();
    if (this.connack instanceof Error) throw this.connack;
  }

  get sessionPresent() {
    return this.connack.sessionPresent;
  }

  /** One message less, sent or received, before the connection is to be lost. */
  count() {
    this.vanishesAfter -= 1;
    if (this.vanishesAfter === 0) this.mqtt.stream.destroy();
  }

  async subscribe(filter, options) {
    const qos = options?.qos ?? QOS;
    const granted = await this.mqtt.subscribeAsync(filter, { ...options, qos });
    assert.deepEqual(granted.map(({ topic, qos: found }) => [topic, found]), [[filter, qos]]);
  }

  unsubscribe(filter) {
    return this.mqtt.unsubscribeAsync(filter);
  }

  /** Done when it is acknowledged to the end, in this connection or a later one. */
  publish(topic, payload, options) {
    return new Promise((resolve, reject) => {
      this.mqtt.publish(topic, payload, { qos: QOS, ...options }, (error) => {
        if (error) return reject(error);
        this.count();
        return resolve();
      });
    });
  }

  /** The next message is this one. */
  async expect(topic, payload, { retain = false, qos = QOS } = {}) {
    const message = await this.messages.take();
    const { packet } = message;
    const found = [message.topic, String(message.payload), packet.retain, packet.qos];
    assert.deepEqual(found, [topic, payload, retain, qos]);
    return packet;
  }

  async disconnect(options) {
    await this.mqtt.endAsync(false, options);
    await this.ends.take();
  }

  /** The connection ends without DISCONNECT. */
  async vanish() {
    this.mqtt.stream.destroy();
    await this.ends.take();
  }
}

function carryOut(steps) {
  const all = async () => {
    for (const step of steps) {
      console.log(step.name);
      await step();
    }
    console.log('all said');
    process.exit(0);
  };
  all().catch((error) => {
    console.error(error);
    process.exit(1);
  });
}

module.exports = { Client, QOS, carryOut, is5 };
