import { make, brief, number, bytes, call, table, field, values, go, more } from "./page.js";

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

// Whether the counts of all listeners and users are those of the broker.
export function addsUp(totals) {
  const other = totals.filter(({ sum, broker }) => sum !== broker);
  const names = other.map(({ name, sum, broker }) => `${name.replaceAll("_", " ")} (${number(sum)} of ${number(broker)})`).join(", ");
  const text = other.length ? `The sums differ from the figures of the broker in: ${names}. Messages are on their way while the figures are read. Look again.`
    : `The sums are those of the broker, in all ${totals.length} figures.`;
  return make("p", { class: other.length ? "sum warn" : "sum" }, text);
}

const total = (totals, name) => totals.find((one) => one.name === name).sum;

// The messages of listeners or users, with their sums.
function shares(caption, title, rows, totals) {
  const all = { title: make("strong", {}, "All together"), messages_received: total(totals, "publish_received"), messages_without_subscriber: total(totals, "no_subscribers"),
    messages_refused: ["denied_publish", "denied_level", "dropped_topic", "refused_publish", "refused_control"].reduce((sum, name) => sum + total(totals, name), 0),
    copies: total(totals, "routed"), copies_by_outcome: { sent: total(totals, "sent_once"), acknowledged: total(totals, "acknowledged"), in_flight: total(totals, "in_flight"), waiting: total(totals, "waiting") } };
  return [table(caption, [
    [title, (one) => one.title, "long"],
    ["Messages in", (one) => number(one.messages_received), "number"],
    ["Refused", (one) => number(one.messages_refused), "number"],
    ["No subscriber", (one) => number(one.messages_without_subscriber), "number"],
    ["Copies for subscribers", (one) => number(one.copies), "number"],
    ["Sent or acknowledged", (one) => number(one.copies_by_outcome.sent + one.copies_by_outcome.acknowledged), "number"],
    ["Under way", (one) => number(one.copies_by_outcome.in_flight + one.copies_by_outcome.waiting), "number"],
    ["Lost", (one) => { const { sent, acknowledged, in_flight, waiting } = one.copies_by_outcome; return number(one.copies - sent - acknowledged - in_flight - waiting); }, "number"],
  ], [...rows, all], ""), addsUp(totals)];
}

const KINDS = { anonymous: "without a user name", not_let_in: "not let in, or not yet", other_users: "all other users", not_connected: "subscribers that are not connected" };
const userTitle = (one) => (one.kind === "user" ? `${one.user}${one.proved ? "" : " (not proved)"}` : make("em", {}, KINDS[one.kind] ?? one.kind));
// Users of the busiest that the account shows.
const SHOWN = 20;

// Columns with the messages and bytes of a user or a listener.
export const TRAFFIC = [
  ["Messages in", (one) => number(one.messages_received), "number"],
  ["Refused messages", (one) => number(one.messages_refused), "number"],
  ["Messages out", (one) => number(one.messages_sent), "number"],
  ["Lost", (one) => number(one.copies_lost), "number"],
  ["Bytes in", (one) => bytes(one.bytes_received), "number"],
  ["Bytes out", (one) => bytes(one.bytes_sent), "number"],
];

// Users with their connections and messages.
export async function users(_, query) {
  const text = query.get("match") ?? "";
  const asked = new URLSearchParams({ match: text, limit: "100", ...(query.get("cursor") && { cursor: query.get("cursor") }) });
  const found = await call(`/api/v1/users?${asked}`);
  const form = make("form", { class: "row", onsubmit: (event) => { event.preventDefault(); go("/users", values(form)); } },
    field("Name has", { name: "match", type: "search", value: text }), make("button", {}, "Search"));
  return [make("h1", {}, "Traffic of users"), form, table("Since the start, in the order of their names", [
    ["User", userTitle, "long"],
    ["Clients", (one) => number(one.clients), "number"],
    ["Let in", (one) => number(one.clients_let_in), "number"],
    ["Refused", (one) => number(one.connects_refused), "number"],
    ...TRAFFIC,
  ], found.users, text ? "No user has this text in the name." : "Nobody has connected."),
  more("/users", query, found.cursor), addsUp(found.totals)];
}

// The place of all messages, and that none is missing.
export async function account() {
  const [now, byListener, byUser] = await Promise.all([call("/api/v1/counters"), call("/api/v1/listeners"), call("/api/v1/users?limit=1000")]);
  const weight = (one) => one.messages_received + one.copies;
  const busiest = byUser.users.filter((one) => weight(one)).sort((one, other) => weight(other) - weight(one)).slice(0, SHOWN);
  const others = [["removed listeners", byListener.removed_listeners], ["no listener: the subscriber is not connected", byListener.without_listener]].filter(([, one]) => weight(one));
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
    }),
    make("h2", {}, "By listener"), ...shares("Messages by the listener of their publisher, and copies by that of their subscriber", "Listener",
      [...byListener.listeners.map((one) => ({ ...one, title: one.address })), ...others.map(([title, one]) => ({ ...one, title: make("em", {}, title) }))], byListener.totals),
    make("h2", {}, "By user"), ...shares(`The ${SHOWN} with the most messages${byUser.cursor ? ", of the first 1,000 in the order of their names" : ""}`, "User", busiest.map((one) => ({ ...one, title: userTitle(one) })), byUser.totals),
    make("p", {}, make("a", { href: "#/users" }, "All users"))];
}
