// A small client for MQTT 5.0 over WebSocket: connect, subscribe and publish at QoS 0 and 1. Names are those of the standard.

const CONNECT = 1, CONNACK = 2, PUBLISH = 3, PUBACK = 4, SUBSCRIBE = 8, SUBACK = 9, PINGREQ = 12, DISCONNECT = 14;
const KEEP_ALIVE_SECS = 30;
const PACKET_BYTES_MAX = 1 << 20;
const utf8 = new TextEncoder();

const short = (value) => [value >> 8, value & 255];
const binary = (bytes) => [...short(bytes.length), ...bytes];
const text = (value) => binary(utf8.encode(value));

function variable(value) {
  const bytes = [];
  do {
    bytes.push((value % 128) + (value > 127 ? 128 : 0));
    value = Math.floor(value / 128);
  } while (value);
  return bytes;
}

const packet = (type, flags, body) => Uint8Array.from([(type << 4) | flags, ...variable(body.length), ...body]);

// Reads the fields of a packet.
class Reader {
  constructor(bytes) { this.bytes = bytes; this.at = 0; }
  byte() {
    if (this.at >= this.bytes.length) throw new Error("a packet has ended too early");
    return this.bytes[this.at++];
  }
  short() { return (this.byte() << 8) | this.byte(); }
  variable() {
    let value = 0, factor = 1, byte;
    do {
      byte = this.byte();
      value += (byte & 127) * factor;
      factor *= 128;
    } while (byte & 128 && factor <= 128 ** 3);
    return value;
  }
  take(count) {
    if (this.at + count > this.bytes.length) throw new Error("a packet has ended too early");
    this.at += count;
    return this.bytes.subarray(this.at - count, this.at);
  }
  text() { return new TextDecoder().decode(this.take(this.short())); }
  rest() { return this.take(this.bytes.length - this.at); }
}

// A connection. `tell` gets ("connected"), ("subscribed", filter, reason), ("message", ...) and ("ended", text).
export class Client {
  #socket; #received = new Uint8Array(); #packetId = 0; #filters = new Map(); #timer = 0; #tell; #has_ended = false;

  constructor(url, { client_id, user, password }, tell) {
    this.#tell = tell;
    this.#socket = new WebSocket(url, "mqtt");
    this.#socket.binaryType = "arraybuffer";
    this.#socket.onopen = () => this.#send(this.#connect(client_id, user, password));
    this.#socket.onmessage = ({ data }) => {
      try {
        this.#read(new Uint8Array(data));
      } catch (error) {
        this.#end(error.message);
      }
    };
    this.#socket.onclose = () => this.#end("The connection has ended.");
    this.#socket.onerror = () => this.#end("The connection has failed. The log of the broker may say why.");
  }

  #connect(client_id, user, password) {
    const flags = 2 | (user ? 128 : 0) | (password ? 64 : 0);
    const maximum = [39, ...short(PACKET_BYTES_MAX >> 16), ...short(PACKET_BYTES_MAX & 65535)];
    return packet(CONNECT, 0, [...text("MQTT"), 5, flags, ...short(KEEP_ALIVE_SECS), ...variable(maximum.length), ...maximum,
      ...text(client_id), ...(user ? text(user) : []), ...(password ? text(password) : [])]);
  }

  #send(bytes) { if (this.#socket.readyState === WebSocket.OPEN) this.#socket.send(bytes); }

  #end(why) {
    if (this.#has_ended) return;
    this.#has_ended = true;
    clearInterval(this.#timer);
    this.#socket.close();
    this.#tell("ended", why);
  }

  #nextPacketId() {
    this.#packetId = (this.#packetId % 65535) + 1;
    return this.#packetId;
  }

  // A message of WebSocket may have a part of a packet, or several.
  #read(bytes) {
    const all = new Uint8Array(this.#received.length + bytes.length);
    all.set(this.#received);
    all.set(bytes, this.#received.length);
    let at = 0;
    for (;;) {
      let length = 0, factor = 1, head = at + 1;
      while (head < all.length && all[head] & 128 && head < at + 4) { length += (all[head] & 127) * factor; factor *= 128; head += 1; }
      if (head >= all.length) break;
      length += all[head] * factor;
      if (head + 1 + length > all.length) break;
      this.#accept(all[at], new Reader(all.subarray(head + 1, head + 1 + length)));
      at = head + 1 + length;
    }
    this.#received = all.slice(at);
  }

  #accept(first, fields) {
    switch (first >> 4) {
      case CONNACK: {
        fields.byte();
        const reason = fields.byte();
        if (reason !== 0) return this.#end(`The broker has refused the client with reason code 0x${reason.toString(16)}.`);
        this.#timer = setInterval(() => this.#send(packet(PINGREQ, 0, [])), (KEEP_ALIVE_SECS * 1000) / 2);
        return this.#tell("connected");
      }
      case SUBACK: {
        const filter = this.#filters.get(fields.short());
        fields.take(fields.variable());
        return this.#tell("subscribed", filter, fields.byte());
      }
      case PUBLISH: {
        const topic = fields.text();
        const qos = (first >> 1) & 3;
        const packetId = qos ? fields.short() : 0;
        fields.take(fields.variable());
        if (qos) this.#send(packet(PUBACK, 0, short(packetId)));
        return this.#tell("message", { topic, qos, retain: (first & 1) === 1, payload: fields.rest().slice() });
      }
      case DISCONNECT: {
        const reason = fields.bytes.length ? fields.byte() : 0;
        return this.#end(`The broker has ended the connection with reason code 0x${reason.toString(16)}.`);
      }
      default: return undefined;
    }
  }

  subscribe(filter, qos) {
    const packetId = this.#nextPacketId();
    this.#filters.set(packetId, filter);
    this.#send(packet(SUBSCRIBE, 2, [...short(packetId), 0, ...text(filter), qos]));
  }

  publish(topic, payload, qos, retain) {
    const packetId = qos ? short(this.#nextPacketId()) : [];
    this.#send(packet(PUBLISH, (qos << 1) | (retain ? 1 : 0), [...text(topic), ...packetId, 0, ...utf8.encode(payload)]));
  }

  disconnect() {
    this.#send(packet(DISCONNECT, 0, []));
    this.#end("You have disconnected.");
  }
}
