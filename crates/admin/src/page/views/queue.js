import { make, number, bytes, duration, call, table, field, choice, values, more, payload, orders, changeInPieces, deletion } from "./page.js";

// Messages that wait in a queue, with the ways to discard them, and to move them to another queue.
export async function queueParts(path, name, query) {
  const asked = new URLSearchParams({ limit: "50", ...(query.get("cursor") && { cursor: query.get("cursor") }) });
  const { messages, cursor } = await call(`${path}?${asked}`);
  return [make("h2", {}, "Messages that wait"),
    table("In the order in which they will be sent, with the beginnings of their payloads", [
      ["Topic", (message) => message.topic ?? "on disk", "long"],
      ["QoS", (message) => number(message.qos), "number"],
      ["Size", (message) => bytes(message.bytes), "number"],
      ["Payload", (message) => (message.topic == null ? "–" : payload(message)), "long"],
      ["Expires in", (message) => duration(message.expires_in_seconds), "number"],
      ["Publisher", (message) => message.publisher],
    ], messages, "No message waits."),
    more(location.hash.slice(1).split("?")[0], query, cursor),
    ...(messages.length ? [discardForm(path, name), moveForm(path, name)] : [])];
}

const which = (filter) => (filter ? `messages to ${filter}` : "all messages");

function discardForm(path, name) {
  const discard = (filter) => changeInPieces(`Discard ${which(filter)} that wait for ${name}? They are lost.`,
    deletion(path, filter ? { filter } : { all: "true" }), "discarded", "messages are discarded.");
  return orders("admin", "Discarding messages", { onsubmit: (event) => { event.preventDefault(); discard(values(event.target).filter); } },
    field("Topic filter (empty: all)", { name: "filter", placeholder: "pond/#" }), make("button", { class: "danger" }, "Discard"));
}

function moveForm(path, name) {
  const move = ({ filter, kind, to }) => changeInPieces(`Move ${which(filter)} that wait for ${name} to the queue of ${to}?`,
    (cursor) => call(`${path}/move`, "POST", { [kind]: to, ...(filter ? { filter } : { all: true }), ...(cursor && { cursor }) }),
    "moved", "messages are moved.");
  return orders("admin", "Moving messages", { onsubmit: (event) => { event.preventDefault(); move(values(event.target)); } },
    field("Topic filter (empty: all)", { name: "filter", placeholder: "pond/#" }),
    choice("To a", "kind", new URLSearchParams(), [["to_client", "client"], ["to_group", "group"]]),
    field("Client identifier, or filter of the group", { name: "to", required: true }), make("button", {}, "Move"));
}
