import { make, number, bytes, duration, call, change, table, field, values, go, order, orders } from "./page.js";
import { addsUp, TRAFFIC } from "./account.js";

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
    ["Accepted", (one) => number(one.connections_accepted), "number"],
    ["Refused", (one) => number(one.connections_refused + one.connects_refused), "number"],
    ...TRAFFIC,
  ], found.listeners, ""), addsUp(found.totals),
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
