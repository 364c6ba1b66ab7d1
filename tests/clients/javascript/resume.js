// What waits for an MQTT.js client that comes back, step by step.
//
// usage: resume.js PORT {3.1.1|5.0} {1|2}

'use strict';

const assert = require('node:assert/strict');
const { Client, QOS, carryOut, is5 } = require('./client.js');

const COUNT = 100;
const NUMBERS = Array.from({ length: COUNT }, (_, number) => number);
const LASTING = { lasting: true };

/** What arrives before the message that says that it was the last. */
async function numbersUntilTheEnd(client) {
  const numbers = [];
  for (;;) {
    const payload = String((await client.messages.take()).payload);
    if (payload === 'end') return numbers;
    numbers.push(Number(payload));
  }
}

/** Everything came, in order; and once, unless it may have come again from where a connection was lost. */
function check(numbers, { mayRepeat }) {
  assert.deepEqual(mayRepeat && QOS === 1 ? [...new Set(numbers)] : numbers, NUMBERS);
}

function publishAll(client, topic) {
  return Promise.all([...NUMBERS, 'end'].map((payload) => client.publish(topic, `${payload}`)));
}

async function aSessionHearsWhatWasSaidWhileItWasAway() {
  const [frog, toad] = [await Client.connect('frog', LASTING), await Client.connect('toad')];
  assert.equal(frog.sessionPresent, false);
  await frog.subscribe('away/#');
  await frog.subscribe('careless', { qos: 0 });
  await frog.disconnect();
  toad.publish('careless', 'nobody keeps it', { qos: 0 });
  await publishAll(toad, 'away/from/home');
  await frog.comeBack();
  assert.equal(frog.sessionPresent, true);
  check(await numbersUntilTheEnd(frog), { mayRepeat: false });
  toad.publish('careless', 'now it is heard', { qos: 0 });
  await frog.expect('careless', 'now it is heard', { qos: 0 });
  await frog.disconnect();
  await toad.disconnect();
}

async function aLostConnectionLosesAndRepeatsNothing() {
  const [frog, toad] = [await Client.connect('newt', LASTING), await Client.connect('toad')];
  await frog.subscribe('stream');
  frog.vanishesAfter = COUNT / 4;
  const published = publishAll(toad, 'stream');
  await frog.ends.take();
  await frog.comeBack();
  assert.equal(frog.sessionPresent, true);
  check(await numbersUntilTheEnd(frog), { mayRepeat: true });
  await published;
  await frog.disconnect();
  await toad.disconnect();
}

async function aPublisherThatComesBackFinishesWhatItBegan() {
  const [frog, toad] = [await Client.connect('frog'), await Client.connect('publisher', LASTING)];
  await frog.subscribe('begun');
  toad.vanishesAfter = COUNT / 4;
  publishAll(toad, 'begun').catch(() => {});
  await toad.ends.take();
  await toad.comeBack();
  assert.equal(toad.sessionPresent, true);
  check(await numbersUntilTheEnd(frog), { mayRepeat: true });
  await frog.disconnect();
  await toad.disconnect();
}

async function aGroupKeepsWhatItsAbsentMemberDidNotTake() {
  const [frog, toad] = [await Client.connect('member', LASTING), await Client.connect('toad')];
  await frog.subscribe('$share/pond/job');
  await frog.disconnect();
  await publishAll(toad, 'job');
  await frog.comeBack();
  assert.equal(frog.sessionPresent, true);
  check(await numbersUntilTheEnd(frog), { mayRepeat: false });
  await frog.disconnect();
  await toad.disconnect();
}

async function whoStartsCleanFindsNothing() {
  const [frog, toad] = [await Client.connect('forgetful', LASTING), await Client.connect('toad')];
  await frog.subscribe('past');
  await frog.disconnect();
  await toad.publish('past', 'forgotten');
  const again = await Client.connect('forgetful');
  assert.equal(again.sessionPresent, false);
  await toad.publish('past', 'unheard');
  await again.subscribe('present');
  await toad.publish('present', 'heard');
  await again.expect('present', 'heard');
  await again.disconnect();
  await toad.disconnect();
}

async function aWillIsNotSaidIfItsClientReturnsInTime() {
  const frog = await Client.connect('frog');
  await frog.subscribe('will/delayed');
  const will = {
    topic: 'will/delayed', payload: Buffer.from('never'), qos: QOS, properties: { willDelayInterval: 3600 },
  };
  const newt = await Client.connect('delayed', { lasting: true, will });
  await newt.vanish();
  await newt.comeBack();
  assert.equal(newt.sessionPresent, true);
  newt.publish('will/delayed', 'alive');
  await frog.expect('will/delayed', 'alive');
  await newt.disconnect();
  await frog.disconnect();
}

async function aDisconnectMayEndTheSession() {
  const frog = await Client.connect('brief', LASTING);
  await frog.disconnect({ reasonCode: 0, properties: { sessionExpiryInterval: 0 } });
  await frog.comeBack();
  assert.equal(frog.sessionPresent, false);
  await frog.disconnect();
}

const steps = [
  aSessionHearsWhatWasSaidWhileItWasAway,
  aLostConnectionLosesAndRepeatsNothing,
  aPublisherThatComesBackFinishesWhatItBegan,
  aGroupKeepsWhatItsAbsentMemberDidNotTake,
  whoStartsCleanFindsNothing,
];
const stepsOf5 = [aWillIsNotSaidIfItsClientReturnsInTime, aDisconnectMayEndTheSession];

carryOut([...steps, ...(is5 ? stepsOf5 : [])]);
