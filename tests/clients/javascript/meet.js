// Meets other clients: says its name when asked to, and ends when it has heard everybody's.
//
// usage: meet.js PORT {3.1.1|5.0} NAME EVERYBODY…

'use strict';

const assert = require('node:assert/strict');
const mqtt = require('mqtt');

const [port, version, name, ...everybody] = process.argv.slice(2);
const missing = new Set(everybody);
const protocolVersion = version === '5.0' ? 5 : 4;
const client = mqtt.connect({
  host: '127.0.0.1', port: Number(port), clientId: name, protocolVersion, reconnectPeriod: 0,
});

client.on('error', (error) => { throw error; });
client.on('connect', async () => {
  await client.subscribeAsync('meeting/#');
  console.log('ready');
});
client.on('message', (topic, payload) => {
  if (topic === 'meeting/open') {
    client.publish(`meeting/names/${name}`, name);
    return;
  }
  const heard = String(payload);
  assert.equal(topic, `meeting/names/${heard}`);
  console.log('heard', heard);
  assert.ok(missing.delete(heard), heard);
  if (missing.size === 0) client.end();
});
client.on('close', () => assert.equal(missing.size, 0));
