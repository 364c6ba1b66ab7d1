import { make, encode, number, bytes, duration, call, change, table, cards, field, choice, values, go, link, list, more, order } from "./page.js";
import { queueParts } from "./queue.js";

const state = (client) => (client.connected ? client.state : "away");

export async function clients(_, query) {
  const asked = new URLSearchParams({ limit: "100" });
  for (const name of ["match", "connected", "state", "protocol", "cursor"]) if (query.get(name)) asked.set(name, query.get(name));
  const found = await list("/api/v1/clients", asked, "clients");
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

export async function client([id], query) {
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
      order("operator", { class: "danger", ...(!found.connected && { disabled: true }), onclick: () => change(`Disconnect ${id}? Its session stays if it lasts, and its will is published.`, `${path}/connection`, "DELETE", undefined, `${id} is disconnected.`) }, "Disconnect"), " ",
      order("admin", { class: "danger", onclick: () => change(`End the session of ${id}? Its subscriptions and queued messages are lost.`, path, "DELETE", undefined, `The session of ${id} has ended.`) }, "End session"), " ",
      make("a", { href: `#/bans?kind=client_id&value=${encodeURIComponent(id)}` }, "Ban…"), " ",
      make("a", { href: `#/trace?kind=client_id&value=${encodeURIComponent(id)}` }, "Trace…"), " ",
      make("a", { href: `#/explain?subscriber=${encodeURIComponent(id)}` }, "Why does it not get a message?")),
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
