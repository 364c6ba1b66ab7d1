import { make, encode, number, duration, call, change, table, field, values, go, order } from "./page.js";

const clock = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const MINUTES = 5;

// The last messages on the path, if they are recorded, and the way to record them.
function lastMessages(found, subscriber) {
  const path = `/api/v1/clients/${encode(subscriber)}/outcomes`;
  const begin = order("operator", { onclick: () => change("", path, "POST", { seconds: MINUTES * 60 }, `For ${MINUTES} minutes, the outcomes of messages for ${subscriber} are recorded.`) },
    found ? `Record for ${MINUTES} more minutes` : `Record the next messages for ${MINUTES} minutes`);
  if (!found) {
    return [make("h2", {}, "The last messages on this path"),
      make("p", {}, "Nothing is recorded for this subscriber. A record says what becomes of each message from now on."), make("p", {}, begin)];
  }
  const state = found.seconds_left ? `The record goes on for ${duration(found.seconds_left)}.` : "The record has ended.";
  return [make("h2", {}, "The last messages on this path"), make("p", {}, `${state} `, begin),
    table("The newest first", [
      ["Time", (message) => clock.format(message.unix_ms)],
      ["Outcome", (message) => message.text, "long"],
      ["After", (message) => `${number(message.changed_unix_ms - message.unix_ms)} ms`, "number"],
      ["QoS", (message) => number(message.qos), "number"],
      ["Packet", (message) => number(message.packet_id), "number"],
      ["Publisher", (message) => message.publisher ?? "not known"],
    ], found.messages, "No message has come this way since the record began.")];
}

export async function explain(_, query) {
  const form = make("form", { class: "row", onsubmit: (event) => { event.preventDefault(); go("/explain", values(form)); } },
    field("Publisher (client)", { name: "publisher", required: true, value: query.get("publisher") ?? "" }),
    field("Topic", { name: "topic", required: true, value: query.get("topic") ?? "" }),
    field("Subscriber (client)", { name: "subscriber", required: true, value: query.get("subscriber") ?? "" }),
    make("label", {}, "QoS", make("select", { name: "qos" }, ["0", "1", "2"].map((qos) => make("option", { selected: qos === query.get("qos") }, qos)))),
    make("button", {}, "Explain"));
  const page = [make("h1", {}, "Why did a message not arrive?"), form];
  if (!query.get("publisher") || !query.get("topic") || !query.get("subscriber")) {
    return [...page, make("p", {}, "Name a publisher, a topic and a subscriber. The broker follows the path of such a message, with its state now.")];
  }
  const found = await call(`/api/v1/explain?${query}`);
  const kind = { delivered: "", waits: "warn", "to-group": "warn", unknown: "warn" }[found.outcome] ?? "bad";
  return [...page, make("section", { class: `verdict ${kind}` }, make("h2", {}, found.outcome.replaceAll("-", " ")),
    make("ol", {}, found.steps.map((step) => make("li", {}, step)))),
  found.nearly_matching.length ? table("Filters that nearly match", [["Filter", (one) => one.filter, "long"], ["Difference", (one) => one.difference, "long"]], found.nearly_matching, "") : null,
  ...lastMessages(found.last_messages, query.get("subscriber"))];
}
