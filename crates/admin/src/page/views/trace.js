import { make, say, number, bytes, duration, Refused, call, change, table, field, values, link, may, needs, again, isCurrent, later } from "./page.js";

// The lines of the trace that this page has read, since answers begin behind a cursor.
let traced = { number: 0, cursor: "0", lines: [], reading: null };
const TRACE_INTERVAL_MS = 1000;
const TRACE_LINES_SHOWN = 500;
const TRACE_KINDS = { client_id: "client", user: "user", address: "address or network", topic: "topic filter" };
const TRACE_STATES = { running: "Recording", full: "Ended: there is no room for more", ended: "Ended" };

export const forgetLines = (number = 0) => { traced = { number, cursor: "0", lines: [], reading: null }; };

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
    const { kind, value, seconds, into } = values(event.target);
    forgetLines();
    change(null, "/api/v1/trace", "POST", { kind, value, seconds: Number(seconds), into: into || null }, `The trace of ${value} has begun.`);
  } },
  make("label", {}, "Kind", make("select", { name: "kind" }, Object.entries(TRACE_KINDS).map(([kind, text]) => make("option", { value: kind, selected: kind === query.get("kind") }, text)))),
  field("Value", { name: "value", required: true, value: query.get("value") ?? "" }),
  field("Seconds", { name: "seconds", type: "number", min: "1", max: "3600", value: "60", required: true }),
  field("Also publish to topic", { name: "into", maxlength: "1024", placeholder: "nowhere else", value: query.get("into") ?? "" }),
  make("button", {}, "Begin"));
}

function traceState(found) {
  const left = found.state === "running" ? ` for ${duration(found.seconds_left)} more` : "";
  const out = found.lines_left_out ? ` ${number(found.lines_left_out)} further lines had no room; their packets are in the file.` : "";
  const into = found.into === null ? "" : ` ${number(found.lines_published)} lines are published to ${found.into}.`;
  const lost = found.lines_unpublished ? ` ${number(found.lines_unpublished)} could not be.` : "";
  return `${TRACE_STATES[found.state]}${left}. ${number(found.lines)} lines, ${bytes(found.capture_bytes)}.${out}${into}${lost}`;
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
    if (!isCurrent(mine)) return;
    if (found.number !== before) return again();
    document.getElementById("trace-state").textContent = traceState(found);
    if (found.is_complete) return again();
    if (document.getElementById("trace-lines").dataset.cursor !== traced.cursor) {
      document.getElementById("trace-lines").replaceChildren(traceTable(found));
      document.getElementById("trace-lines").dataset.cursor = traced.cursor;
    }
    watchTrace(mine);
  } catch {
    if (isCurrent(mine)) again();
  }
}

export const watchTrace = (mine) => { later(() => refreshTrace(mine), TRACE_INTERVAL_MS); };

export async function trace(_, query) {
  if (!may("admin")) return [make("h1", {}, "Trace"), needs("admin", "Seeing what clients send and receive")];
  let found = null;
  try {
    found = await readTrace();
  } catch (error) {
    if (error.status !== 404) throw error;
    forgetLines();
  }
  const title = make("h1", {}, "Trace");
  if (!found) {
    return [title, make("p", {}, "See what crosses the connections of a client, a user or a network, or all messages of a topic, as it happens. Passwords are hidden. It costs nothing while no trace is under way. If it is also published to a topic, all who may read the topic see the payloads."),
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
