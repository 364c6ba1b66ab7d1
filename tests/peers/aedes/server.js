// The MQTT broker library Aedes as a program, for comparisons.
//
// usage: server.js PORT [FOLDER]
//
// With FOLDER, sessions and their messages are stored in a LevelDB database there.

'use strict';

const net = require('node:net');
const { Aedes } = require('aedes');

if (process.argv[2] === '--version') {
  console.log(`aedes ${require('./package.json').dependencies.aedes}, node ${process.version}`);
  process.exit();
}

async function persistence(folder) {
  const { default: store } = await import('aedes-persistence-level');
  const { Level } = await import('level');
  return store(new Level(folder, { valueEncoding: 'json' }));
}

async function serve(port, folder) {
  const options = {
    // By default, the broker handles at most 100 messages at a time.
    concurrency: 1000,
    // By default, a client may send at most 42 packets before its session is ready.
    queueLimit: 1000,
  };
  if (folder) options.persistence = await persistence(folder);
  const broker = await Aedes.createBroker(options);
  const server = net.createServer({ noDelay: true }, broker.handle);
  server.listen({ port, host: '127.0.0.1', backlog: 1024 });
  process.on('SIGTERM', () => broker.close(() => process.exit()));
}

serve(Number(process.argv[2]), process.argv[3]);
