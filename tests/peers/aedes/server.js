// The MQTT broker library Aedes as a program, for comparisons.
//
// usage: server.js [--cert FILE --key FILE] [--websocket] PORT [FOLDER]
//
// With a certificate, connections have TLS. With FOLDER, sessions and their messages are stored in a LevelDB database there.

'use strict';

const fs = require('node:fs');
const http = require('node:http');
const https = require('node:https');
const net = require('node:net');
const tls = require('node:tls');
const { parseArgs } = require('node:util');
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

// Returns a server that passes each connection, as a stream, to `handle`.
function listener(values, handle) {
  const layers = { noDelay: true };
  if (values.cert) Object.assign(layers, { cert: fs.readFileSync(values.cert), key: fs.readFileSync(values.key) });
  if (!values.websocket) return values.cert ? tls.createServer(layers, handle) : net.createServer(layers, handle);
  const { WebSocketServer, createWebSocketStream } = require('ws');
  const server = values.cert ? https.createServer(layers) : http.createServer(layers);
  const upgrade = new WebSocketServer({ server, handleProtocols: () => 'mqtt' });
  upgrade.on('connection', (socket, request) => handle(createWebSocketStream(socket), request));
  return server;
}

async function serve(values, port, folder) {
  const options = {
    // By default, the broker handles at most 100 messages at a time.
    concurrency: 1000,
    // By default, a client may send at most 42 packets before its session is ready.
    queueLimit: 1000,
  };
  if (folder) options.persistence = await persistence(folder);
  const broker = await Aedes.createBroker(options);
  const server = listener(values, broker.handle);
  server.listen({ port, host: '127.0.0.1', backlog: 1024 });
  process.on('SIGTERM', () => broker.close(() => process.exit()));
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { cert: { type: 'string' }, key: { type: 'string' }, websocket: { type: 'boolean' } },
});
serve(values, Number(positionals[0]), positionals[1]);
