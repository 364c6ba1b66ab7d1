import { make, call, table, field, choice, values, go, more } from "./page.js";

const time = (unix_ms) => new Date(unix_ms).toISOString().replace("T", " ").slice(0, 19);

// The last lines of the log, newest first.
export async function log(_, query) {
  const asked = new URLSearchParams({ limit: "100" });
  for (const name of ["level", "match", "cursor"]) if (query.get(name)) asked.set(name, query.get(name));
  const found = await call(`/api/v1/log?${asked}`);
  const form = make("form", { class: "row", onsubmit: (event) => {
    event.preventDefault();
    go("/log", Object.fromEntries(Object.entries(values(form)).filter(([, value]) => value)));
  } },
  choice("At least", "level", query, [["", "all"], ["info", "info"], ["warn", "warnings"], ["error", "errors"]]),
  field("Text", { name: "match", type: "search", value: query.get("match") ?? "" }), make("button", {}, "Search"));
  const details = (line) => Object.entries(line.fields).map(([name, value]) => `${name}=${value}`).join(" ");
  return [make("h1", {}, "Log"), form,
    table("The last lines, newest first", [
      ["Time (UTC)", (line) => time(line.unix_ms)],
      ["Level", (line) => make("span", { class: { error: "bad", warn: "warn" }[line.level] }, line.level)],
      ["Text", (line) => line.message, "long"],
      ["Details", details, "long"],
    ], found.lines, [...query.keys()].length ? "No line is like this." : "The log has no lines yet."),
    more("/log", query, found.cursor)];
}

// The last changes by operators, newest first.
export async function audit(_, query) {
  const found = await call(`/api/v1/audit?${new URLSearchParams({ limit: "100", ...(query.get("cursor") && { cursor: query.get("cursor") }) })}`);
  return [make("h1", {}, "Changes by operators"),
    table("The last changes, newest first", [
      ["Time (UTC)", (one) => time(one.unix_ms)],
      ["Who", (one) => `${one.who} (${one.role}), ${one.from}`, "long"],
      ["Change", (one) => `${one.action.replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase()} ${one.on ?? ""}`, "long"],
      ["Outcome", (one) => (one.status < 300 ? "done" : one.status < 500 ? `refused (${one.status})` : `failed (${one.status})`)],
      ["Before and after", (one) => [one.before, one.after].filter((part) => part && part !== "null").join(" → "), "long"],
    ], found.changes, "No operator has changed anything since the start."),
    more("/audit", query, found.cursor)];
}
