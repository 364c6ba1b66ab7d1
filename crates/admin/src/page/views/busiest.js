import { make, number, bytes, duration, call, table, link } from "./page.js";

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

export async function busiest() {
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
