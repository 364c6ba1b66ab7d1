// The view with an MQTT client of the page itself.
import { make, say, bytes, call, table, field, values, choice, again } from "./page.js";
import { Client } from "./mqtt.js";

const MESSAGES_SHOWN = 200;
const PAYLOAD_CHARS_SHOWN = 1000;
const PAYLOAD_BYTES_SHOWN = 64;
const TOPIC_CHARS_SHOWN = 250;
// The connection stays while other views are open.
let client = null, connected = false, url = "", subscriptions = [], messages = [], drawing = 0;

const isOpen = () => location.hash.startsWith("#/try");

// Ends the connection, and forgets everything: the next person in this tab is another one.
export function forget() {
  const former = client;
  client = null;
  connected = false;
  subscriptions = [];
  messages = [];
  former?.disconnect();
}

// The beginning of a payload, as text if it is text.
function shownPayload(payload) {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(payload.subarray(0, 4 * PAYLOAD_CHARS_SHOWN), { stream: payload.length > 4 * PAYLOAD_CHARS_SHOWN });
    return text.length > PAYLOAD_CHARS_SHOWN || payload.length > 4 * PAYLOAD_CHARS_SHOWN ? `${text.slice(0, PAYLOAD_CHARS_SHOWN)}…` : text;
  } catch {
    const hexadecimal = [...payload.subarray(0, PAYLOAD_BYTES_SHOWN)].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    return `${hexadecimal}${payload.length > PAYLOAD_BYTES_SHOWN ? " …" : ""} (hexadecimal)`;
  }
}

const shownTopic = (topic) => (topic.length > TOPIC_CHARS_SHOWN ? `${topic.slice(0, TOPIC_CHARS_SHOWN)}…` : topic);

// Shows the messages with the next picture of the screen, however many come until then.
function draw() {
  drawing ||= requestAnimationFrame(() => {
    drawing = 0;
    if (isOpen()) document.getElementById("received")?.replaceChildren(received());
  });
}

function tell(event, ...facts) {
  switch (event) {
    case "connected": connected = true; say("Connected."); break;
    case "subscribed": {
      const [filter, reason] = facts;
      if (reason < 128) subscriptions = [...new Set([...subscriptions, filter])];
      say(reason < 128 ? `Subscribed to ${filter} with QoS ${reason}.` : `The broker has refused ${filter} with reason code 0x${reason.toString(16)}.`);
      break;
    }
    case "message": {
      const { topic, qos, retain, payload } = facts[0];
      messages.unshift({ time: new Date().toTimeString().slice(0, 8), topic: shownTopic(topic), qos, retain, size: payload.length, text: shownPayload(payload) });
      messages.length = Math.min(messages.length, MESSAGES_SHOWN);
      draw();
      return;
    }
    default: client = null; connected = false; subscriptions = []; say(facts[0]);
  }
  if (isOpen()) again();
}

// Connects. Only the last client of this page is heard.
function connect(asked) {
  client?.disconnect();
  messages = [];
  url = asked.url;
  const mine = new Client(url, asked, (...event) => { if (client === mine) tell(...event); });
  client = mine;
  say(`Connecting to ${url}`);
}

const received = () => table(messages.length < MESSAGES_SHOWN ? "Received, newest first" : `The last ${MESSAGES_SHOWN} messages, newest first`, [
  ["Time", (one) => one.time],
  ["Topic", (one) => one.topic, "long"],
  ["QoS", (one) => String(one.qos), "number"],
  ["Retain", (one) => (one.retain ? "yes" : "no")],
  ["Size", (one) => bytes(one.size), "number"],
  ["Payload", (one) => one.text, "long"],
], messages, "No message was received yet.");

// The listeners that a browser can reach, as URLs. A page over HTTPS cannot use plain WebSockets.
function urls(listeners) {
  const usable = listeners.filter((one) => one.websocket_path != null && (one.tls || location.protocol === "http:"));
  return usable.map((one) => `${one.tls ? "wss" : "ws"}://${location.hostname}:${one.address.split(":").at(-1)}${one.websocket_path}`);
}

async function connecting(query) {
  if (location.hostname.startsWith("[")) return [make("p", {}, "Open this page under a name or an address of IPv4: a browser permits no WebSocket to an address of IPv6.")];
  const found = urls((await call("/api/v1/listeners")).listeners);
  if (!found.length) return [make("p", {}, "No listener accepts WebSockets from this page.")];
  return [make("p", {}, "An MQTT client in this page. It logs in as any other client: the token of operators gives it no rights."),
    make("form", { class: "row", onsubmit: (event) => { event.preventDefault(); connect(values(event.target)); } },
    choice("Listener", "url", query, found.map((one) => [one, one])),
    field("Client identifier", { name: "client_id", value: `dashboard-${Math.random().toString(36).slice(2, 8)}`, required: true }),
    field("User (empty: none)", { name: "user", autocomplete: "off" }),
    field("Password", { name: "password", type: "password", autocomplete: "off" }),
    make("button", {}, "Connect"))];
}

const QOS = [["0", "0"], ["1", "1"]];

export async function trial(_, query) {
  const title = make("h1", {}, "Try it: an MQTT client");
  if (!connected) return [title, ...(await connecting(query)), messages.length ? received() : null];
  const subscribe = make("form", { class: "row", onsubmit: (event) => {
    event.preventDefault();
    const { filter, qos } = values(event.target);
    client.subscribe(filter, Number(qos));
  } }, field("Topic filter", { name: "filter", required: true, value: "#" }), choice("QoS", "qos", query, QOS), make("button", {}, "Subscribe"));
  const publish = make("form", { class: "row", onsubmit: (event) => {
    event.preventDefault();
    const { topic, payload, qos, retain } = values(event.target);
    client.publish(topic, payload, Number(qos), retain === "on");
    say(`Sent to ${topic}.`);
  } }, field("Topic", { name: "topic", required: true }), field("Payload", { name: "payload" }), choice("QoS", "qos", query, QOS),
  make("label", { class: "inline" }, make("input", { type: "checkbox", name: "retain" }), "Retain"), make("button", {}, "Publish"));
  return [title,
    make("p", {}, `Connected to ${url}. `, make("button", { type: "button", onclick: () => client.disconnect() }, "Disconnect")),
    subscribe, publish,
    make("p", {}, subscriptions.length ? `Subscribed to ${subscriptions.join(", ")}.` : "Subscribed to nothing yet."),
    make("div", { id: "received" }, received())];
}
