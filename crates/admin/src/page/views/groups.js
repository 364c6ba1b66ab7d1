import { make, encode, number, bytes, call, table, cards, field, values, go, link, list, more } from "./page.js";
import { queueParts } from "./queue.js";

export async function groups(_, query) {
  const asked = new URLSearchParams({ limit: "100" });
  for (const name of ["match", "cursor"]) if (query.get(name)) asked.set(name, query.get(name));
  const found = await list("/api/v1/groups", asked, "groups");
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

export async function group([filter], query) {
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
