import { make, encode, number, bytes, call, change, table, field, values, go, link, list, more, payload, order, orders, changeInPieces, deletion } from "./page.js";

export async function retained(_, query) {
  const filter = query.get("filter") || "#";
  const asked = new URLSearchParams({ filter, limit: "100" });
  if (query.get("cursor")) asked.set("cursor", query.get("cursor"));
  const found = await list("/api/v1/retained", asked, "retained");
  const form = make("form", { class: "row", onsubmit: (event) => { event.preventDefault(); go("/retained", values(form)); } },
    field("Topic filter", { name: "filter", value: filter }), make("button", {}, "Search"));
  return [make("h1", {}, "Retained messages"), form,
    table("In the order of their topics, with the beginnings of their payloads", [
      ["Topic", (message) => message.topic, "long"],
      ["QoS", (message) => number(message.qos), "number"],
      ["Size", (message) => bytes(message.bytes), "number"],
      ["Payload", payload, "long"],
      ["Publisher", (message) => message.publisher],
      ["Action", (message) => order("operator", { class: "danger", "aria-label": `Clear ${message.topic}`, onclick: () => change(`Clear the retained message of ${message.topic}?`, `/api/v1/retained/${encode(message.topic)}`, "DELETE", undefined, `${message.topic} is cleared.`) }, "Clear")],
    ], found.retained, "No topic that matches has a retained message."),
    more("/retained", query, found.cursor),
    found.retained.length ? clearParts(filter) : null];
}

// Clears all topics that match, a piece at a time.
function clearParts(filter) {
  const clear = () => changeInPieces(`Clear the retained messages of all topics that match ${filter}? Subscribers get a message without payload for each.`,
    deletion("/api/v1/retained", { filter }), "cleared", "topics are cleared.");
  return make("p", {}, order("operator", { class: "danger", onclick: clear }, `Clear all that match ${filter}`));
}

// The topics with retained messages, a level at a time, with the rates of those that are busy.
export async function topics(_, query) {
  const under = query.get("under");
  const asked = new URLSearchParams({ limit: "200" });
  for (const name of ["under", "cursor"]) if (query.has(name)) asked.set(name, query.get(name));
  const [found, busy, branches] = await Promise.all([list("/api/v1/topics", asked, "topics"), call("/api/v1/busiest?list=topics&limit=128"), call("/api/v1/busiest?list=branches&limit=128")]);
  const rates = new Map([...busy.busiest, ...branches.busiest].map((one) => [one.name, one.messages_per_second]));
  const levels = under == null ? [] : under.split("/");
  const to = (path) => `#/topics?${new URLSearchParams({ under: path })}`;
  const way = make("nav", { "aria-label": "Levels above", class: "way" }, make("a", { href: "#/topics" }, "All topics"),
    levels.flatMap((level, place) => [" / ", make("a", { href: to(levels.slice(0, place + 1).join("/")) }, level || "(empty level)")]));
  return [make("h1", {}, "Topics"), way,
    table("Topics with retained messages, with their rates if they are among the busiest", [
      ["Level", (one) => (one.has_more_levels ? make("a", { href: to(one.topic) }, one.name || "(empty level)") : one.name || "(empty level)"), "long"],
      ["Messages per second", (one) => { const rate = rates.get(one.has_more_levels ? `${one.topic}/#` : one.topic) ?? rates.get(one.topic); return rate == null ? null : number(rate); }, "number"],
      ["Size", (one) => (one.retained ? bytes(one.retained.bytes) : null), "number"],
      ["Retained payload", (one) => (one.retained ? payload(one.retained) : null), "long"],
      ["Subscribers", (one) => make("a", { href: `#/subscribers?${new URLSearchParams({ topic: one.topic })}`, "aria-label": `Who gets it? ${one.topic}` }, "Who gets it?")],
    ], found.topics, under == null ? "No topic has a retained message." : "No topic below these levels has a retained message."),
    more("/topics", query, found.cursor)];
}

// The clients and groups that a message to a topic is for.
export async function subscribers(_, query) {
  const topic = query.get("topic") ?? "";
  const form = make("form", { class: "row", onsubmit: (event) => { event.preventDefault(); go("/subscribers", values(form)); } },
    field("Topic name", { name: "topic", required: true, value: topic }), make("button", {}, "Search"));
  const page = [make("h1", {}, "Who gets a topic?"), form];
  if (!topic) return [...page, make("p", {}, "Name a topic, such as pond/north/level. The page lists the subscriptions whose filters match it.")];
  const asked = new URLSearchParams({ topic, limit: "100", ...(query.get("cursor") && { cursor: query.get("cursor") }) });
  const found = await list("/api/v1/subscriptions", asked, "subscriptions");
  return [...page,
    table(`Subscriptions that match ${topic}`, [
      ["Client or group", (one) => (one.group ? make("a", { href: `#/group/${encode(one.group)}` }, one.group) : link(one.client_id)), "long"],
      ["Filter", (one) => one.filter, "long"],
      ["QoS", (one) => number(one.qos), "number"],
      ["Connected", (one) => (one.group ? null : one.connected ? "yes" : one.lasting ? "no: it waits" : "no")],
      ["No Local", (one) => (one.no_local ? "yes" : "no")],
    ], found.subscriptions, "Nobody subscribes to this topic. Topics count letter by letter: see Explain for filters that nearly match."),
    more("/subscribers", query, found.cursor)];
}

export async function publish() {
  const form = orders("operator", "Publishing", { onsubmit: (event) => {
    event.preventDefault();
    const { topic, payload, qos, retain, expiry, type } = values(form);
    change(null, "/api/v1/publish", "POST", { topic, payload, qos: Number(qos), retain: retain === "on", ...(expiry && { expiry_seconds: Number(expiry) }), ...(type && { content_type: type }) }, `Published to ${topic}.`);
  } },
  field("Topic", { name: "topic", required: true }),
  make("label", {}, "Payload", make("textarea", { name: "payload", rows: "3", cols: "40" })),
  make("label", {}, "QoS", make("select", { name: "qos" }, ["0", "1", "2"].map((qos) => make("option", {}, qos)))),
  field("Expires after seconds (empty: never)", { name: "expiry", type: "number", min: "0", max: "4294967295" }),
  field("Content Type", { name: "type", placeholder: "application/json" }),
  make("label", { class: "inline" }, make("input", { type: "checkbox", name: "retain" }), "Retain"),
  make("button", {}, "Publish"));
  return [make("h1", {}, "Publish a message"), form];
}
