import { make, number, bytes, duration, call, table, field, values, more, payload, orders, changeInPieces } from "./page.js";

// Messages that wait in a queue, with the way to discard them.
export async function queueParts(path, name, query) {
  const asked = new URLSearchParams({ limit: "50", ...(query.get("cursor") && { cursor: query.get("cursor") }) });
  const { messages, cursor } = await call(`${path}?${asked}`);
  const discard = (filter) => changeInPieces(`Discard ${filter ? `messages to ${filter}` : "all messages"} that wait for ${name}? They are lost.`,
    path, filter ? { filter } : { all: "true" }, "discarded", "messages are discarded.");
  const form = orders("admin", "Discarding messages", { onsubmit: (event) => { event.preventDefault(); discard(values(form).filter); } },
    field("Topic filter (empty: all)", { name: "filter", placeholder: "pond/#" }), make("button", { class: "danger" }, "Discard"));
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
    messages.length ? form : null];
}
