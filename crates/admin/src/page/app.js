"use strict";
// Texts of clients reach the page as text nodes only, and never as markup.

const content = document.getElementById("content");
const said = document.getElementById("said");
const INTERVAL_MS = 5000;
let timer = 0;
let turn = 0;

function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value != null) element.setAttribute(key, value);
  }
  element.append(...children.flat().filter((child) => child != null));
  return element;
}

const say = (text) => { said.textContent = text; };
const encode = encodeURIComponent;
const whole = new Intl.NumberFormat("en");
const brief = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const number = (value) => (value == null ? "–" : whole.format(value));

function bytes(value) {
  if (value == null) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return `${brief.format(value)} ${units[unit]}`;
}

function duration(seconds) {
  if (seconds == null) return "never";
  const days = Math.floor(seconds / 86400), hours = Math.floor(seconds / 3600) % 24;
  const minutes = Math.floor(seconds / 60) % 60;
  if (days) return `${days} d ${hours} h`;
  if (hours) return `${hours} h ${minutes} min`;
  return minutes ? `${minutes} min ${seconds % 60} s` : `${seconds} s`;
}

class Refused extends Error {
  constructor(status, text) { super(text); this.status = status; }
}

async function call(path, method = "GET", body = undefined) {
  const headers = { Authorization: `Bearer ${sessionStorage.getItem("token") ?? ""}` };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const answer = await fetch(path, { method, headers, body: body && JSON.stringify(body) });
  const value = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refused(answer.status, value.error?.message ?? `status ${answer.status}`);
  return value;
}

const ask = (text) => new Promise((resolve) => {
  const dialog = document.getElementById("ask");
  document.getElementById("question").textContent = text;
  dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  dialog.returnValue = "no";
  dialog.showModal();
});

async function change(question, path, method, body, done) {
  if (question && !(await ask(question))) return;
  try {
    await call(path, method, body);
    say(done);
    show(false);
  } catch (error) {
    say(`Refused: ${error.message}`);
  }
}

function table(caption, columns, items, empty) {
  if (!items.length) return make("p", {}, empty);
  const head = columns.map(([title, , kind]) => make("th", { scope: "col", class: kind }, title));
  const rows = items.map((item) => make("tr", {}, columns.map(([, cell, kind]) => {
    const value = cell(item);
    return make("td", { class: kind }, value == null || value === "" ? "–" : value);
  })));
  return make("div", { class: "wide", tabindex: "0", role: "region", "aria-label": caption },
    make("table", {}, make("caption", {}, caption), make("thead", {}, make("tr", {}, head)), make("tbody", {}, rows)));
}

function cards(pairs) {
  return make("dl", { class: "cards" }, pairs.map(([title, value, more]) =>
    make("div", {}, make("dt", {}, title), make("dd", {}, value, more ? make("small", {}, more) : null))));
}

function field(title, attributes) {
  return make("label", {}, title, make("input", attributes));
}

const choice = (title, name, query, options) => make("label", {}, title, make("select", { name }, options.map(([value, text]) =>
  make("option", { value, selected: value === (query.get(name) ?? "") }, text))));

const values = (form) => Object.fromEntries(new FormData(form));
const go = (path, query = {}) => { location.hash = `${path}${Object.keys(query).length ? `?${new URLSearchParams(query)}` : ""}`; };
const link = (id) => make("a", { href: `#/client/${encode(id)}` }, id);

// What an operator should look at, with advice. `before` are the figures of the last look.
function warnings(now, before) {
  const grown = (topic) => (before ? now[topic] - before[topic] : 0);
  const found = [];
  const add = (is, text) => { if (is) found.push(text); };
  const share = now["memory/used"] / now["memory/limit"];
  add(share > 0.8, `${Math.round(share * 100)} % of the memory for clients is in use. See Figures, memory/…, for what. `
    + "Raise limits.memory_budget_bytes, or lower sessions.queue_bytes.");
  add(now["journal/damaged"] > 0, "Damage was found in the journal. Run pondhawk journal check on a copy of the data directory.");
  add(now["certificates/expired"] > 0, "A certificate has expired. pondhawk certs show names its dates.");
  add(now["certificates/expire_in_1_day"] + now["certificates/expire_in_7_days"] > 0, "A certificate expires within seven days. Replace its file: it is read again by itself.");
  add(now["retained messages/bytes_over_limit"] > 0, "More is retained than limits.retained_bytes allows: nothing is added.");
  add(grown("publish/messages/dropped") > 0, `${number(grown("publish/messages/dropped"))} messages were dropped since the last look. See Figures, dropped/…, for the reasons.`);
  add(grown("slow/subscribers") > 0, "A subscriber reads too slowly. See Clients, with the state slow.");
  add(grown("refused/connect") > 0, `${number(grown("refused/connect"))} clients were refused since the last look. See Figures, refused/…, and the log.`);
  add(grown("denied/publish") > 0, "Clients publish to topics that the rules forbid. The log names them.");
  return found;
}

let before = null;

async function overview() {
  const [status, now] = await Promise.all([call("/api/v1/status"), call("/api/v1/counters")]);
  const at = performance.now();
  const seconds = before ? (at - before.at) / 1000 : 0;
  const rate = (topic) => (seconds ? brief.format((now[topic] - before.now[topic]) / seconds) : "…");
  const list = warnings(now, before?.now);
  before = { now, at };
  const kind = !status.ready ? "bad" : list.length ? "warn" : "";
  const title = !status.ready ? "Something is missing" : list.length ? "Running, with warnings" : "Everything is fine";
  const texts = [...status.missing, ...list];
  return [
    make("section", { class: `verdict ${kind}` }, make("h1", {}, title),
      texts.length ? make("ul", {}, texts.map((text) => make("li", {}, text)))
        : make("p", {}, "All threads answer, the journal writes, and memory is free.")),
    cards([
      ["Clients connected", number(now["clients/connected"]), `${number(now["clients/disconnected"])} sessions without a connection`],
      ["Messages received", `${rate("publish/messages/received")} /s`, `${number(now["publish/messages/received"])} in all`],
      ["Messages sent", `${rate("publish/messages/sent")} /s`, `${number(now["publish/messages/sent"])} in all`],
      ["Messages dropped", number(now["publish/messages/dropped"]), "since the start"],
      ["Waiting in queues", number(now["account/queues/queued"]), bytes(now["account/queues/queued_bytes"])],
      ["Retained messages", number(now["retained messages/count"]), `${bytes(now["retained messages/bytes"])}, with $SYS`],
      ["Subscriptions", number(now["subscriptions/count"]), `${number(now["subscriptions/filters"])} different filters`],
      ["Memory for clients", bytes(now["memory/used"]), `of ${bytes(now["memory/limit"])}`],
      ["Journal", now["journal/bytes/log"] == null ? "off" : bytes(now["journal/bytes/log"]), now["journal/bytes/live"] == null ? "a restart keeps nothing" : `${bytes(now["journal/bytes/live"])} needed`],
      ["Running for", duration(status.uptime_seconds), `version ${status.version}, ${status.shards} shards`],
    ]),
    make("p", {}, `Your role: ${status.role}. This page looks again every ${INTERVAL_MS / 1000} seconds while it is visible.`),
  ];
}

const state = (client) => (client.connected ? client.state : "away");

async function clients(_, query) {
  const asked = new URLSearchParams({ limit: "100" });
  for (const name of ["match", "connected", "state", "protocol", "cursor"]) if (query.get(name)) asked.set(name, query.get(name));
  const found = await call(`/api/v1/clients?${asked}`);
  const form = make("form", { class: "row", onsubmit: (event) => {
    event.preventDefault();
    go("/clients", Object.fromEntries(Object.entries(values(form)).filter(([, value]) => value)));
  } },
  field("Identifier, user or address has", { name: "match", value: query.get("match") ?? "", type: "search" }),
  choice("Connection", "connected", query, [["", "all"], ["true", "connected"], ["false", "not connected"]]),
  choice("State", "state", query, [["", "all"], ["slow", "slow: too little progress"], ["full", "full: no room"], ["open", "open"]]),
  choice("MQTT", "protocol", query, [["", "all"], ["3.1", "3.1"], ["3.1.1", "3.1.1"], ["5.0", "5.0"]]),
  make("button", {}, "Search"));
  return [make("h1", {}, "Clients"), form,
    table("Connected clients first, then sessions without a connection", [
      ["Client", (client) => link(client.client_id)],
      ["User", (client) => client.user],
      ["State", state],
      ["Address", (client) => client.address],
      ["MQTT", (client) => client.protocol],
      ["Session", (client) => (client.lasting ? "lasts" : "ends with the connection")],
      ["Subscriptions", (client) => number(client.subscriptions), "number"],
      ["Waiting", (client) => number((client.waiting_messages ?? 0) + (client.queued_messages ?? 0)), "number"],
    ], found.clients, [...query.keys()].length ? "No client is like this." : "No client has connected yet. Try: pondhawk sub -t 'pond/#' -v"),
    more("/clients", query, found.cursor)];
}

function more(path, query, cursor) {
  if (!cursor) return null;
  const next = Object.fromEntries(query);
  return make("p", {}, make("button", { type: "button", onclick: () => go(path, { ...next, cursor }) }, "Next page"));
}

// Messages that wait in a queue, with the way to discard them.
async function queueParts(path, name, query) {
  const asked = new URLSearchParams({ limit: "50", ...(query.get("cursor") && { cursor: query.get("cursor") }) });
  const { messages, cursor } = await call(`${path}?${asked}`);
  const discard = async (filter) => {
    const what = filter ? `messages to ${filter}` : "all messages";
    if (!(await ask(`Discard ${what} that wait for ${name}? They are lost.`))) return;
    let count = 0, next = "";
    try {
      do {
        const done = await call(`${path}?${new URLSearchParams({ ...(filter ? { filter } : { all: "true" }), ...(next && { cursor: next }) })}`, "DELETE");
        count += done.discarded;
        next = done.cursor;
      } while (next);
      say(`${number(count)} messages are discarded.`);
    } catch (error) {
      say(`Refused: ${error.message}`);
    }
    show(false);
  };
  const form = make("form", { class: "row", onsubmit: (event) => { event.preventDefault(); discard(values(form).filter); } },
    field("Topic filter (empty: all)", { name: "filter", placeholder: "pond/#" }), make("button", { class: "danger" }, "Discard"));
  return [make("h2", {}, "Messages that wait"),
    table("In the order in which they will be sent, with the beginnings of their payloads", [
      ["Topic", (message) => message.topic ?? "on disk", "long"],
      ["QoS", (message) => number(message.qos), "number"],
      ["Size", (message) => bytes(message.bytes), "number"],
      ["Payload", (message) => (message.topic == null ? "–" : `${message.payload}${message.is_whole ? "" : "…"}${message.encoding === "base64" ? " (base64)" : ""}`), "long"],
      ["Expires in", (message) => duration(message.expires_in_seconds), "number"],
      ["Publisher", (message) => message.publisher],
    ], messages, "No message waits."),
    more(location.hash.slice(1).split("?")[0], query, cursor),
    messages.length ? form : null];
}

// Of each list: its name in the API, its title, the title of its names, its columns, and the text of an empty one.
const MESSAGES = [
  ["Messages", (one) => number(one.messages), "number"],
  ["Per second", (one) => number(one.messages_per_second), "number"],
  ["Size", (one) => bytes(one.bytes), "number"],
];
const BUSIEST = [
  ["topics", "Topics", "Topic", MESSAGES, "No message has come."],
  ["branches", "Branches of topics", "Filter", MESSAGES, "No message has come to a topic with several levels."],
  ["publishers", "Clients that publish", "Client", MESSAGES, "No message has come."],
  ["receivers", "Clients that are sent the most", "Client", [
    ["Size", (one) => bytes(one.bytes), "number"],
    ["Per second", (one) => bytes(one.bytes_per_second), "number"],
  ], "Nothing was sent."],
  ["connects", "Clients that connect often", "Client", [["Connections", (one) => number(one.connections), "number"]], "No client has connected."],
  ["refusals", "Addresses that are refused", "Address", [["Connections", (one) => number(one.connections), "number"]], "No connection was refused."],
];

async function busiest() {
  const found = await Promise.all(BUSIEST.map(([list]) => call(`/api/v1/busiest?list=${list}&limit=10`)));
  const is_client = (list) => ["publishers", "receivers", "connects"].includes(list);
  return [make("h1", {}, "Busiest"),
    make("p", {}, "The counts of a busy broker are estimates: see the column Uncertain."),
    ...BUSIEST.map(([list, title, name, columns, none], place) => [make("h2", {}, title),
      table(`${title}, in the last ${duration(found[place].seconds)}`, [
        [name, (one) => (is_client(list) ? link(one.name) : one.name), "long"],
        ...columns,
        ["Uncertain", (one) => (one.uncertain ? `±\u00a0${list === "receivers" ? bytes(one.uncertain) : number(one.uncertain)}` : "–"), "number"],
      ], found[place].busiest, none)]).flat()];
}

async function groups(_, query) {
  const asked = new URLSearchParams({ limit: "100" });
  for (const name of ["match", "cursor"]) if (query.get(name)) asked.set(name, query.get(name));
  const found = await call(`/api/v1/groups?${asked}`);
  const form = make("form", { class: "row", onsubmit: (event) => { event.preventDefault(); go("/groups", values(form)); } },
    field("Filter has", { name: "match", type: "search", value: query.get("match") ?? "" }), make("button", {}, "Search"));
  return [make("h1", {}, "Groups"), form,
    table("Each message goes to one member of a group", [
      ["Filter", (group) => make("a", { href: `#/group/${encode(group.filter)}` }, group.filter), "long"],
      ["Dispatch", (group) => group.dispatch],
      ["Members", (group) => number(group.members), "number"],
      ["Connected", (group) => number(group.connected), "number"],
      ["Waiting", (group) => number(group.queued_messages), "number"],
      ["Not acknowledged", (group) => number(group.in_flight), "number"],
    ], found.groups, query.get("match") ? "No group has this text." : "No client shares a subscription. A filter such as $share/workers/jobs/# makes a group."),
    more("/groups", query, found.cursor)];
}

async function group([filter], query) {
  const path = `/api/v1/groups/${encode(filter)}`;
  const [found, { members, cursor }] = await Promise.all([call(path), call(`${path}/members`)]);
  return [make("h1", {}, `Group ${filter}`),
    cards([
      ["Members", number(found.members), `${number(found.connected)} connected`],
      ["Dispatch", found.dispatch, found.key ? `key: ${found.key}` : null],
      ["Waiting", number(found.queued_messages), bytes(found.queued_bytes)],
      ["Not acknowledged", number(found.in_flight), "messages under way"],
    ]),
    ...(await queueParts(`${path}/queue`, filter, query)),
    make("h2", {}, "Members"),
    table(cursor ? "The first 256 members" : "All members", [
      ["Client", (member) => link(member.client_id)],
      ["User", (member) => member.user],
      ["Connected", (member) => (member.connected ? "yes" : "no")],
      ["QoS", (member) => number(member.qos), "number"],
    ], members, "")];
}

async function client([id], query) {
  const path = `/api/v1/clients/${encode(id)}`;
  const found = await call(path);
  const { subscriptions, cursor } = await call(`${path}/subscriptions`);
  const shown = Object.entries(found).map(([name, value]) => [name.replaceAll("_", " "), value]);
  const text = (value) => (value === true ? "yes" : value === false ? "no" : value == null ? "–" : typeof value === "number" ? number(value) : String(value));
  return [make("h1", {}, `Client ${id}`),
    cards([
      ["State", state(found), found.address],
      ["Session", found.lasting ? "lasts" : "ends with the connection", found.lasting && !found.connected ? `expires in: ${duration(found.expires_in_seconds)}` : null],
      ["Not acknowledged", number((found.in_flight ?? 0) + (found.session_in_flight ?? 0)), "messages under way"],
      ["Waiting", number((found.waiting_messages ?? 0) + (found.queued_messages ?? 0)), bytes((found.waiting_bytes ?? 0) + (found.queued_bytes ?? 0))],
    ]),
    make("p", {},
      make("button", { type: "button", class: "danger", disabled: !found.connected, onclick: () => change(`Disconnect ${id}? Its session stays if it lasts, and its will is published.`, `${path}/connection`, "DELETE", undefined, `${id} is disconnected.`) }, "Disconnect"), " ",
      make("button", { type: "button", class: "danger", onclick: () => change(`End the session of ${id}? Its subscriptions and queued messages are lost.`, path, "DELETE", undefined, `The session of ${id} has ended.`) }, "End session"), " ",
      make("a", { href: `#/bans?kind=client_id&value=${encode(id)}` }, "Ban…"), " ",
      make("a", { href: `#/trace?kind=client_id&value=${encode(id)}` }, "Trace…"), " ",
      make("a", { href: `#/explain?subscriber=${encode(id)}` }, "Why does it not get a message?")),
    ...(found.lasting ? await queueParts(`${path}/queue`, id, query) : []),
    make("h2", {}, "Subscriptions"),
    table(cursor ? "The first 256 subscriptions" : "All subscriptions", [
      ["Filter", (one) => one.filter, "long"],
      ["QoS", (one) => number(one.qos), "number"],
      ["No Local", (one) => text(one.no_local)],
      ["Retain As Published", (one) => text(one.retain_as_published)],
    ], subscriptions, "This client has no subscriptions: it gets no messages."),
    make("h2", {}, "All figures"),
    table("As the API names them", [["Name", ([name]) => name], ["Value", ([, value]) => text(value), "long"]], shown, "")];
}

async function retained(_, query) {
  const filter = query.get("filter") || "#";
  const asked = new URLSearchParams({ filter, limit: "100" });
  if (query.get("cursor")) asked.set("cursor", query.get("cursor"));
  const found = await call(`/api/v1/retained?${asked}`);
  const form = make("form", { class: "row", onsubmit: (event) => { event.preventDefault(); go("/retained", values(form)); } },
    field("Topic filter", { name: "filter", value: filter }), make("button", {}, "Search"));
  return [make("h1", {}, "Retained messages"), form,
    table("In the order of their topics, with the beginnings of their payloads", [
      ["Topic", (message) => message.topic, "long"],
      ["QoS", (message) => number(message.qos), "number"],
      ["Size", (message) => bytes(message.bytes), "number"],
      ["Payload", (message) => `${message.payload}${message.is_whole ? "" : "…"}${message.encoding === "base64" ? " (base64)" : ""}`, "long"],
      ["Publisher", (message) => message.publisher],
      ["Action", (message) => make("button", { type: "button", class: "danger", "aria-label": `Clear ${message.topic}`, onclick: () => change(`Clear the retained message of ${message.topic}?`, `/api/v1/retained/${encode(message.topic)}`, "DELETE", undefined, `${message.topic} is cleared.`) }, "Clear")],
    ], found.retained, "No topic that matches has a retained message."),
    more("/retained", query, found.cursor)];
}

async function explain(_, query) {
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
  found.nearly_matching.length ? table("Filters that nearly match", [["Filter", (one) => one.filter, "long"], ["Difference", (one) => one.difference, "long"]], found.nearly_matching, "") : null];
}

// The lines of the trace that this page has read, since answers begin behind a cursor.
let traced = { number: 0, cursor: "0", lines: [], reading: null };
const TRACE_INTERVAL_MS = 1000;
const TRACE_LINES_SHOWN = 500;
const TRACE_KINDS = { client_id: "client", user: "user", address: "address or network", topic: "topic filter" };
const TRACE_STATES = { running: "Recording", full: "Ended: there is no room for more", ended: "Ended" };

const forgetLines = (number = 0) => { traced = { number, cursor: "0", lines: [], reading: null }; };

// Reads the lines that have come. One request at a time, because each begins where the last one has ended.
function readTrace() {
  traced.reading ??= readLines().finally(() => { traced.reading = null; });
  return traced.reading;
}

async function readLines() {
  for (;;) {
    const { cursor, number: last } = traced;
    const found = await call(`/api/v1/trace?limit=1000&cursor=${cursor}`);
    if (found.number !== last && cursor !== "0") {
      forgetLines(found.number);
    } else {
      traced.number = found.number;
      traced.cursor = found.cursor;
      traced.lines = [...traced.lines, ...found.items].slice(-TRACE_LINES_SHOWN);
      if (!found.has_more) return found;
    }
  }
}

async function saveTrace(number) {
  try {
    const { capture_bytes } = await readTrace();
    const pieces = [];
    let at = 0;
    while (at < capture_bytes) {
      const headers = { Authorization: `Bearer ${sessionStorage.getItem("token") ?? ""}` };
      const answer = await fetch(`/api/v1/trace/capture?number=${number}&cursor=${at}`, { headers });
      if (!answer.ok) throw new Refused(answer.status, (await answer.json()).error.message);
      const piece = await answer.arrayBuffer();
      if (piece.byteLength === 0) break;
      pieces.push(piece);
      at += piece.byteLength;
    }
    const url = URL.createObjectURL(new Blob(pieces, { type: "application/vnd.tcpdump.pcap" }));
    make("a", { href: url, download: "trace.pcap" }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
    say(`${bytes(at)} are saved as trace.pcap.`);
  } catch (error) {
    say(`Refused: ${error.message}`);
  }
}

function traceForm(query) {
  return make("form", { class: "row", onsubmit: (event) => {
    event.preventDefault();
    const { kind, value, seconds } = values(event.target);
    forgetLines();
    change(null, "/api/v1/trace", "POST", { kind, value, seconds: Number(seconds) }, `The trace of ${value} has begun.`);
  } },
  make("label", {}, "Kind", make("select", { name: "kind" }, Object.entries(TRACE_KINDS).map(([kind, text]) => make("option", { value: kind, selected: kind === query.get("kind") }, text)))),
  field("Value", { name: "value", required: true, value: query.get("value") ?? "" }),
  field("Seconds", { name: "seconds", type: "number", min: "1", max: "3600", value: "60", required: true }),
  make("button", {}, "Begin"));
}

function traceState(found) {
  const left = found.state === "running" ? ` for ${duration(found.seconds_left)} more` : "";
  const out = found.lines_left_out ? ` ${number(found.lines_left_out)} further lines had no room; their packets are in the file.` : "";
  return `${TRACE_STATES[found.state]}${left}. ${number(found.lines)} lines, ${bytes(found.capture_bytes)}.${out}`;
}

const traceTable = (found) => table(found.lines > TRACE_LINES_SHOWN ? `The last ${TRACE_LINES_SHOWN} lines` : "All packets and decisions", [
  ["Time (UTC)", (line) => new Date(line.unix_ms).toISOString().slice(11, 23)],
  ["Connection", (line) => number(line.connection), "number"],
  ["Client", (line) => (line.client_id ? link(line.client_id) : null)],
  ["Direction", (line) => ({ client: "from the client", server: "to the client" })[line.from]],
  ["Packet or event", (line) => line.text, "long"],
], traced.lines, "Nothing has happened yet.");

// Shows what is new, and leaves the rest of the page as it is: the focus and a selection stay.
async function refreshTrace(mine) {
  try {
    const before = traced.number;
    const found = await readTrace();
    if (mine !== turn) return;
    if (found.number !== before) return show(false);
    document.getElementById("trace-state").textContent = traceState(found);
    if (found.is_complete) return show(false);
    if (document.getElementById("trace-lines").dataset.cursor !== traced.cursor) {
      document.getElementById("trace-lines").replaceChildren(traceTable(found));
      document.getElementById("trace-lines").dataset.cursor = traced.cursor;
    }
    watchTrace(mine);
  } catch {
    if (mine === turn) show(false);
  }
}

const watchTrace = (mine) => { timer = setTimeout(() => { if (!document.hidden) refreshTrace(mine); }, TRACE_INTERVAL_MS); };

async function trace(_, query) {
  let found = null;
  try {
    found = await readTrace();
  } catch (error) {
    if (error.status !== 404) throw error;
    forgetLines();
  }
  const title = make("h1", {}, "Trace");
  if (!found) {
    return [title, make("p", {}, "See what crosses the connections of a client, a user or a network, or all messages of a topic, as it happens. Passwords are hidden. It costs nothing while no trace is under way."),
      traceForm(query)];
  }
  const runs = found.state === "running";
  const forget = () => change(runs ? `End the trace of ${found.value}, and forget it?` : null, `/api/v1/trace?number=${found.number}`, "DELETE", undefined, "The trace is forgotten.");
  return [title,
    runs ? null : traceForm(query),
    make("section", { class: "verdict" }, make("h2", {}, `${TRACE_KINDS[found.kind]} ${found.value}`), make("p", { id: "trace-state" }, traceState(found)),
      make("button", { type: "button", onclick: () => saveTrace(found.number) }, "Save as pcap"), " ",
      make("button", { type: "button", class: "danger", onclick: forget }, runs ? "End and forget" : "Forget")),
    make("div", { id: "trace-lines", "data-cursor": traced.cursor, "data-runs": found.is_complete ? false : "yes" }, traceTable(found))];
}

const KINDS = { client_id: "client", user: "user", address: "address or network" };

async function bans(_, query) {
  const { bans } = await call("/api/v1/bans");
  const form = make("form", { class: "row", onsubmit: (event) => {
    event.preventDefault();
    const { kind, value, minutes, reason } = values(form);
    const body = { kind, value, reason, ...(minutes && { seconds: Math.round(Number(minutes) * 60) }) };
    change(`Ban the ${KINDS[kind]} ${value}${minutes ? ` for ${minutes} minutes` : " without end"}? Clients that are connected are disconnected.`, "/api/v1/bans", "POST", body, `${value} is banned.`);
  } },
  make("label", {}, "Kind", make("select", { name: "kind" }, Object.entries(KINDS).map(([kind, text]) => make("option", { value: kind, selected: kind === query.get("kind") }, text)))),
  field("Value", { name: "value", required: true, value: query.get("value") ?? "" }),
  field("Minutes (empty: without end)", { name: "minutes", type: "number", min: "1", step: "any" }),
  field("Reason", { name: "reason", maxlength: "256" }),
  make("button", { class: "danger" }, "Ban"));
  return [make("h1", {}, "Bans"), form,
    table("Clients that are kept out, the next ban to end first", [
      ["Kind", (ban) => KINDS[ban.kind]],
      ["Value", (ban) => ban.value, "long"],
      ["Ends in", (ban) => duration(ban.seconds_left), "number"],
      ["Reason", (ban) => ban.reason, "long"],
      ["Action", (ban) => make("button", { type: "button", "aria-label": `Lift the ban of ${ban.value}`, onclick: () => change(`Lift the ban of ${ban.value}?`, `/api/v1/bans/${ban.kind}/${encode(ban.value)}`, "DELETE", undefined, `${ban.value} may connect again.`) }, "Lift")],
    ], bans, "Nobody is banned.")];
}

async function publish() {
  const form = make("form", { class: "row", onsubmit: (event) => {
    event.preventDefault();
    const { topic, payload, qos, retain } = values(form);
    change(null, "/api/v1/publish", "POST", { topic, payload, qos: Number(qos), retain: retain === "on" }, `Published to ${topic}.`);
  } },
  field("Topic", { name: "topic", required: true }),
  make("label", {}, "Payload", make("textarea", { name: "payload", rows: "3", cols: "40" })),
  make("label", {}, "QoS", make("select", { name: "qos" }, ["0", "1", "2"].map((qos) => make("option", {}, qos)))),
  make("label", { class: "inline" }, make("input", { type: "checkbox", name: "retain" }), "Retain"),
  make("button", {}, "Publish"));
  return [make("h1", {}, "Publish a message"), form];
}

async function listeners() {
  const [found, drain] = await Promise.all([call("/api/v1/listeners"), call("/api/v1/drain")]);
  return [make("h1", {}, "Listeners"), table("Where clients connect", [
    ["Address", (one) => one.address],
    ["Transport", (one) => one.transport],
    ["Connections", (one) => number(one.connections), "number"],
  ], found.listeners, ""),
  make("h2", {}, "Drain"), ...drainParts(drain)];
}

function drainParts(drain) {
  if (drain.draining) {
    const exit = drain.exit ? "Then the broker ends." : "The broker goes on running.";
    return [make("section", { class: "verdict warn" }, make("h3", {}, "New clients are refused"),
      make("p", {}, `Clients connected: ${number(drain.clients)}. The last leave in ${duration(drain.seconds_left)}. ${exit}`),
      drain.server_reference ? make("p", {}, `They are told to use ${drain.server_reference}.`) : null,
      make("button", { type: "button", onclick: () => change(null, "/api/v1/drain", "DELETE", undefined, "Clients may connect again.") }, "End draining"))];
  }
  const form = make("form", { class: "row", onsubmit: (event) => {
    event.preventDefault();
    const { server_reference, seconds, exit } = values(form);
    const body = { seconds: Number(seconds), exit: exit === "on", ...(server_reference && { server_reference }) };
    change(`Refuse new clients, and disconnect all that are connected (${number(drain.clients)}) within ${seconds} seconds?`, "/api/v1/drain", "POST", body, "The broker is being drained.");
  } },
  field("Another server for the clients", { name: "server_reference", placeholder: "b.example:8883" }),
  field("Seconds", { name: "seconds", type: "number", min: "0", max: "86400", value: "60", required: true }),
  make("label", { class: "inline" }, make("input", { type: "checkbox", name: "exit" }), "End the broker when all have left"),
  make("button", { class: "danger" }, "Drain"));
  return [make("p", {}, "Before maintenance: new clients are refused, and those that are connected leave one after the other."), form];
}

async function figures(_, query) {
  const text = query.get("text") ?? "";
  const all = Object.entries(await call("/api/v1/counters")).filter(([topic]) => topic.includes(text));
  const form = make("form", { class: "row", onsubmit: (event) => { event.preventDefault(); go("/figures", values(form)); } },
    field("Name has", { name: "text", type: "search", value: text }), make("button", {}, "Search"));
  return [make("h1", {}, "Figures"), form, table("By their topics below $SYS/broker/", [
    ["Topic", ([topic]) => topic], ["Value", ([topic, value]) => (/bytes|^memory/.test(topic) ? bytes(value) : number(value)), "number"],
  ], all, "No figure has this text.")];
}

function backupParts(last) {
  const form = make("form", { class: "row", onsubmit: (event) => {
    event.preventDefault();
    const { name } = values(form);
    change(null, "/api/v1/backup", "POST", { name }, `The backup ${name} has begun. Open this view again to see how far it is.`);
  } },
  field("Name of the new directory", { name: "name", required: true, pattern: "[A-Za-z0-9_\\-][A-Za-z0-9_.\\-]*", maxlength: "64" }),
  make("button", {}, "Back up the journal"));
  const is_running = last.state === "copying" || last.state === "checking";
  const state = is_running ? `${last.name}: ${last.state}, ${bytes(last.copied_bytes)} of ${bytes(last.total_bytes)}`
    : last.state === "none" ? "No backup was made since the start." : `${last.name}: ${last.state} after ${duration(last.seconds)}. ${last.text ?? ""}`;
  return [make("h2", {}, "Backup"), make("p", {}, state), is_running ? null : form];
}

async function configuration() {
  const [found, log, backup] = await Promise.all([call("/api/v1/configuration"), call("/api/v1/log-level"), call("/api/v1/backup")]);
  const levels = ["warn", "info", "debug", "trace"];
  const form = make("form", { class: "row", onsubmit: (event) => {
    event.preventDefault();
    const { level } = values(form);
    change(null, "/api/v1/log-level", "PUT", { level }, `The level of the log is ${level} until the next reload.`);
  } },
  make("label", {}, "Level of the log", make("select", { name: "level" },
    (levels.includes(log.level) ? levels : [log.level, ...levels]).map((level) => make("option", { selected: level === log.level }, level)))),
  make("button", {}, "Change until the next reload"));
  return [make("h1", {}, "Configuration in force"),
    make("p", {}, make("button", { type: "button", onclick: () => change("Read configuration, certificates, users and rules again?", "/api/v1/reload", "POST", undefined, "Reading again. The log has the outcome.") }, "Reload")),
    form, ...backupParts(backup),
    make("h2", {}, "All settings"),
    make("pre", { tabindex: "0", "aria-label": "Configuration" }, found.toml)];
}

function login(text) {
  const form = make("form", { class: "row", onsubmit: (event) => {
    event.preventDefault();
    sessionStorage.setItem("token", values(form).token.trim());
    show(true);
  } }, field("Token", { name: "token", type: "password", required: true, autocomplete: "off", autofocus: true }), make("button", {}, "Open"));
  return [make("h1", {}, "A token is needed"), make("p", {}, text), form,
    make("p", {}, "The broker has printed the place of its token at its start. The token stays in this tab until it is closed.")];
}

const VIEWS = { "": overview, clients, client, busiest, groups, group, retained, explain, trace, publish, bans, listeners, figures, configuration };

async function show(is_new) {
  clearTimeout(timer);
  const mine = ++turn;
  const [path, search = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/").map(decodeURIComponent);
  for (const anchor of document.querySelectorAll("nav a")) {
    const is_here = anchor.getAttribute("href") === `#/${{ client: "clients", group: "groups" }[name] ?? name}`;
    if (is_here) anchor.setAttribute("aria-current", "page"); else anchor.removeAttribute("aria-current");
  }
  const view = VIEWS[name] ?? overview;
  let parts;
  try {
    parts = await view(rest, new URLSearchParams(search));
  } catch (error) {
    const needs_token = error.status === 401 || error.status === 429;
    const title = error instanceof Refused ? "Refused" : "The broker does not answer";
    parts = needs_token ? login(sessionStorage.getItem("token") ? `The token is not right: ${error.message}.` : "Only operators may look at the broker.")
      : [make("section", { class: "verdict bad" }, make("h1", {}, title), make("p", {}, error.message))];
  }
  if (mine !== turn) return;
  document.getElementById("leave").hidden = !sessionStorage.getItem("token");
  content.replaceChildren(...parts.flat().filter((part) => part != null));
  document.title = `${content.querySelector("h1")?.textContent ?? "Pondhawk"} – Pondhawk`;
  if (is_new) { content.focus({ preventScroll: true }); scrollTo(0, 0); }
  if (document.getElementById("trace-lines")?.dataset.runs) watchTrace(mine);
  if (view === overview) timer = setTimeout(() => { if (!document.hidden) show(false); }, INTERVAL_MS);
}

addEventListener("hashchange", () => { say(""); show(true); });
document.addEventListener("visibilitychange", () => { if (!document.hidden) show(false); });
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); content.focus(); });
document.getElementById("leave").addEventListener("click", () => { sessionStorage.removeItem("token"); before = null; show(true); });
show(true);
