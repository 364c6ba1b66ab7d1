import { make, brief, number, bytes, duration, call, table, cards } from "./page.js";

// What an operator should look at, with advice. `before` are the figures of the last look.
function warnings(now, before) {
  const grown = (topic) => (before ? now[topic] - before[topic] : 0);
  const found = [];
  const add = (is, text) => { if (is) found.push(text); };
  const share = now["memory/used"] / now["memory/limit"];
  add(share > 0.8, `${Math.round(share * 100)} % of the memory for clients is in use. See Figures, memory/…, for what. `
    + "Raise limits.memory_budget_bytes, or lower sessions.queue_bytes.");
  add(now["journal/damaged"] > 0, "Damage was found in the journal. Run pondhawk journal check on a copy of the data directory.");
  add(now["certificates/expired"] > 0, "A certificate has expired. See Listeners, or pondhawk ctl certificates.");
  add(now["certificates/expire_in_1_day"] + now["certificates/expire_in_7_days"] > 0, "A certificate expires within seven days. Replace its file: it is read again by itself.");
  add(now["retained messages/bytes_over_limit"] > 0, "More is retained than limits.retained_bytes allows: nothing is added.");
  add(grown("publish/messages/dropped") > 0, `${number(grown("publish/messages/dropped"))} messages were dropped since the last look. See Figures, dropped/…, for the reasons.`);
  add(grown("slow/subscribers") > 0, "A subscriber reads too slowly. See Clients, with the state slow.");
  add(grown("refused/connect") > 0, `${number(grown("refused/connect"))} clients were refused since the last look. See Figures, refused/…, and the log.`);
  add(grown("denied/publish") > 0, "Clients publish to topics that the rules forbid. The log names them.");
  return found;
}

// Memory of clients by purpose, the largest first.
function purposes(now) {
  const all = Object.entries(now).filter(([topic, value]) => topic.startsWith("memory/") && !["memory/used", "memory/limit"].includes(topic) && value > 0);
  if (!all.length) return [];
  return [make("h2", {}, "Memory by purpose"), table("What clients make the broker hold", [
    ["Purpose", ([topic]) => topic.slice("memory/".length).replaceAll("_", " ")],
    ["Size", ([, value]) => bytes(value), "number"],
    ["Share of the limit", ([, value]) => `${brief.format((100 * value) / now["memory/limit"])} %`, "number"],
  ], all.sort(([, one], [, other]) => other - one), "")];
}

// The times, in microseconds, within which half of the events and 99 % of them ended. The figures count events up to powers of two,
// and leave out a power at which nothing was added. `before` are the figures of the last look: if nothing has happened since, all
// events since the start count.
function quantiles(now, before, topic) {
  const start = `${topic}/le/`;
  const powers = Object.keys(now).filter((name) => name.startsWith(start)).map((name) => Number(name.slice(start.length))).sort((one, other) => one - other);
  const upTo = (figures, most) => { const below = powers.filter((power) => power <= most && figures[start + power] != null); return below.length ? figures[start + below.at(-1)] : 0; };
  const last = powers.at(-1);
  if (last == null) return null;
  const earlier = before && upTo(now, last) > upTo(before, last) ? before : {};
  const count = (power) => upTo(now, power) - upTo(earlier, power);
  return [0.5, 0.99].map((share) => powers.find((power) => count(power) >= share * count(last)));
}

const time = (micros) => (micros < 1000 ? `${number(micros)} µs` : micros < 1e6 ? `${brief.format(micros / 1000)} ms` : `${brief.format(micros / 1e6)} s`);

// A card with the times of one kind of work.
function times(title, now, before, topic, work) {
  const found = quantiles(now, before, topic);
  return found ? [title, `≤ ${time(found[0])}`, `half of the ${work}; 99 % ≤ ${time(found[1])}`] : [title, "–", `no ${work} yet`];
}

let before = null;
export const forgetRates = () => { before = null; };

export async function overview() {
  const [status, now] = await Promise.all([call("/api/v1/status"), call("/api/v1/counters")]);
  const at = performance.now();
  const seconds = before ? (at - before.at) / 1000 : 0;
  const rate = (topic) => (seconds ? brief.format((now[topic] - before.now[topic]) / seconds) : "…");
  const list = [...status.warnings, ...warnings(now, before?.now)];
  const earlier = before?.now;
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
      times("Turn of a thread", now, earlier, "turns_us", "turns"),
      ["Messages dropped", number(now["publish/messages/dropped"]), "since the start"],
      ["Waiting in queues", number(now["account/queues/queued"]), bytes(now["account/queues/queued_bytes"])],
      ["Retained messages", number(now["retained messages/count"]), `${bytes(now["retained messages/bytes"])}, with $SYS`],
      ["Subscriptions", number(now["subscriptions/count"]), `${number(now["subscriptions/filters"])} different filters`],
      ["Memory for clients", bytes(now["memory/used"]), `of ${bytes(now["memory/limit"])}`],
      ["Journal", now["journal/bytes/log"] == null ? "off" : bytes(now["journal/bytes/log"]), now["journal/bytes/live"] == null ? "a restart keeps nothing" : `${bytes(now["journal/bytes/live"])} needed`],
      times("Write of the journal", now, earlier, "journal/commit_us", "writes"),
      ["Running for", duration(status.uptime_seconds), `version ${status.version}, ${status.shards} shards`],
    ]),
    ...purposes(now),
    make("p", {}, `Your role: ${status.role}. This page looks again every five seconds while it is visible.`),
  ];
}
