import { make, brief, number, bytes, duration, call, change, table, field, values, go, order, orders } from "./page.js";

const certificateTable = (all) => table("The first certificate of each file to expire, the most urgent first", [
  ["Ends in", (one) => (one.days_left < 0 ? make("strong", { class: "bad" }, "expired") : `${number(one.days_left)} days`), "number"],
  ["Listener", (one) => one.listener],
  ["Of", (one) => one.purpose],
  ["Subject", (one) => one.subject, "long"],
  ["Names", (one) => one.names.join(", "), "long"],
  ["File", (one) => one.file, "long"],
], all, "No listener has a certificate: its traffic can be read on the way. See pondhawk certs init.");

export async function listeners() {
  const [found, certificates, drain] = await Promise.all([call("/api/v1/listeners"), call("/api/v1/certificates"), call("/api/v1/drain")]);
  return [make("h1", {}, "Listeners"), table("Where clients connect", [
    ["Address", (one) => one.address],
    ["Transport", (one) => one.transport],
    ["Connections", (one) => number(one.connections), "number"],
  ], found.listeners, ""),
  make("h2", {}, "Certificates"), certificateTable(certificates.certificates),
  make("h2", {}, "Drain"), ...drainParts(drain)];
}

function drainParts(drain) {
  if (drain.draining) {
    const exit = drain.exit ? "Then the broker ends." : "The broker goes on running.";
    return [make("section", { class: "verdict warn" }, make("h3", {}, "New clients are refused"),
      make("p", {}, `Clients connected: ${number(drain.clients)}. The last leave in ${duration(drain.seconds_left)}. ${exit}`),
      drain.server_reference ? make("p", {}, `They are told to use ${drain.server_reference}.`) : null,
      order("admin", { onclick: () => change(null, "/api/v1/drain", "DELETE", undefined, "Clients may connect again.") }, "End draining"))];
  }
  const form = orders("admin", "Draining the broker", { onsubmit: (event) => {
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

export async function figures(_, query) {
  const text = query.get("text") ?? "";
  const all = Object.entries(await call("/api/v1/counters")).filter(([topic]) => topic.includes(text));
  const form = make("form", { class: "row", onsubmit: (event) => { event.preventDefault(); go("/figures", values(form)); } },
    field("Name has", { name: "text", type: "search", value: text }), make("button", {}, "Search"));
  return [make("h1", {}, "Figures"), form, table("By their topics below $SYS/broker/", [
    ["Topic", ([topic]) => topic], ["Value", ([topic, value]) => (/bytes|^memory/.test(topic) ? bytes(value) : number(value)), "number"],
  ], all, "No figure has this text.")];
}

// The outcomes that a message for a subscriber can have. With those that are under way, they are all that were routed.
const ACCOUNTS = [
  ["Copies for subscribers, but for those that went into a queue", "account/routed", ["account/sent", "account/acknowledged", "account/in_flight", "account/waiting", "discarded/session",
    "dropped/absent", "dropped/queue_full", "dropped/slow", "dropped/budget", "dropped/too_large", "dropped/expired", "dropped/not_authorized"]],
  ["Messages for queues of lasting sessions and groups", "account/queues/routed", ["account/queues/acknowledged", "account/queues/refused_by_client", "account/queues/in_flight", "account/queues/queued",
    "account/queues/expired", "account/queues/too_large", "account/queues/dropped_oldest", "account/queues/dropped_newest", "account/queues/discarded"]],
];
const WORDS = { sent: "sent at QoS 0", absent: "dropped: the subscriber is not connected", queue_full: "dropped: its queue was full", slow: "dropped: it reads too slowly",
  budget: "dropped: memory was short", too_large: "too large for the client", expired: "expired", not_authorized: "dropped: it may not receive them any more", session: "given up with its session",
  waiting: "waiting for the client", queued: "waiting in a queue", in_flight: "sent, and not acknowledged yet", refused_by_client: "refused by the client",
  dropped_oldest: "dropped: newer ones came", dropped_newest: "dropped: the queue was full", discarded: "discarded with a session, or by an operator" };

// Where all messages are, and that none is missing.
export async function account() {
  const now = await call("/api/v1/counters");
  return [make("h1", {}, "Where all messages are"),
    make("p", {}, `${number(now["publish/messages/received"])} messages were received since the start, and ${number(now["publish/messages/no_subscribers"])} of them had no subscriber. Each of the others became a copy for each subscriber.`),
    ...ACCOUNTS.flatMap(([title, total, parts]) => {
      const sum = parts.reduce((sum, part) => sum + (now[part] ?? 0), 0);
      const missing = now[total] - sum;
      const text = missing === 0 ? "The outcomes add up: no message is missing." : `The outcomes add up but for ${number(missing)}: messages are on their way while the figures are read. Look again.`;
      return [make("h2", {}, title), table(`${number(now[total])} in all`, [
        ["Outcome", (part) => { const name = part.split("/").at(-1); return WORDS[name] ?? name; }],
        ["Messages", (part) => number(now[part] ?? 0), "number"],
        ["Share", (part) => (now[total] ? `${brief.format((100 * (now[part] ?? 0)) / now[total])} %` : "–"), "number"],
      ], parts, ""), make("p", { class: missing === 0 ? "sum" : "sum warn" }, text)];
    })];
}
