import { make, say, number, bytes, duration, call, ask, change, field, values, order, orders, again } from "./page.js";

function backupParts(last) {
  const form = orders("admin", "A backup", { onsubmit: (event) => {
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

const RELOAD_LOOKS_MAX = 300;

// A line of the configuration. Values that are no defaults stand out.
const setting = (line) => make("span", { class: line.includes(" = ") && !line.endsWith("# default") ? "set" : null }, `${line}\n`);

// Reads everything again, and waits for the outcome.
async function reload() {
  if (!(await ask("Read configuration, certificates, users and rules again?"))) return;
  try {
    const { number: mine } = await call("/api/v1/reload", "POST");
    let last = await call("/api/v1/reload");
    for (let looks = 0; last.number < mine; looks += 1) {
      if (looks === RELOAD_LOOKS_MAX) throw new Error("the broker has not read its configuration within a minute; see its log");
      await new Promise((resolve) => { setTimeout(resolve, 200); });
      last = await call("/api/v1/reload");
    }
    if (location.hash.startsWith("#/configuration")) again();
    say(last.error ? `The configuration stays as it was: ${last.error}` : last.changes.length ? last.changes.join("; ") : "The configuration is as before.");
  } catch (error) {
    say(`Refused: ${error.message}`);
  }
}

export async function configuration() {
  const [found, log, backup] = await Promise.all([call("/api/v1/configuration"), call("/api/v1/log-level"), call("/api/v1/backup")]);
  const levels = ["warn", "info", "debug", "trace"];
  const form = orders("admin", "Changing the level of the log", { onsubmit: (event) => {
    event.preventDefault();
    const { level } = values(form);
    change(null, "/api/v1/log-level", "PUT", { level }, `The level of the log is ${level} until the next reload.`);
  } },
  make("label", {}, "Level of the log", make("select", { name: "level" },
    (levels.includes(log.level) ? levels : [log.level, ...levels]).map((level) => make("option", { selected: level === log.level }, level)))),
  make("button", {}, "Change until the next reload"));
  return [make("h1", {}, "Configuration in force"),
    make("p", {}, order("admin", { onclick: reload }, "Reload")),
    form, ...backupParts(backup),
    make("h2", {}, "All settings"),
    make("p", {}, "Behind each value is its origin. Values that are no defaults are bold."),
    make("pre", { tabindex: "0", role: "region", "aria-label": "Configuration" }, found.toml.split("\n").map(setting))];
}
