import { make, encode, duration, call, change, table, field, values, order, orders } from "./page.js";

const KINDS = { client_id: "client", user: "user", address: "address or network" };

export async function bans(_, query) {
  const { bans } = await call("/api/v1/bans");
  const form = orders("operator", "Banning clients", { onsubmit: (event) => {
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
      ["Action", (ban) => order("operator", { "aria-label": `Lift the ban of ${ban.value}`, onclick: () => change(`Lift the ban of ${ban.value}?`, `/api/v1/bans/${ban.kind}/${encode(ban.value)}`, "DELETE", undefined, `${ban.value} may connect again.`) }, "Lift")],
    ], bans, "Nobody is banned.")];
}
