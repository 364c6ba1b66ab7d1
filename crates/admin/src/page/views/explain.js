import { make, call, table, field, values, go } from "./page.js";

export async function explain(_, query) {
  const form = make("form", { class: "row", onsubmit: (event) => { event.preventDefault(); go("/explain", values(form)); } },
    field("Publisher (client)", { name: "publisher", required: true, value: query.get("publisher") ?? "" }),
    field("Topic", { name: "topic", required: true, value: query.get("topic") ?? "" }),
    field("Subscriber (client)", { name: "subscriber", required: true, value: query.get("subscriber") ?? "" }),
    make("label", {}, "QoS", make("select", { name: "qos" }, ["0", "1", "2"].map((qos) => make("option", { selected: qos === query.get("qos") }, qos)))),
    make("button", {}, "Explain"));
  const page = [make("h1", {}, "Why did a message not arrive?"), form];
  if (!query.get("publisher") || !query.get("topic") || !query.get("subscriber")) {
    return [...page, make("p", {}, "Name a publisher, a topic and a subscriber. The broker follows the path of such a message, with its state now.")];
  }
  const found = await call(`/api/v1/explain?${query}`);
  const kind = { delivered: "", waits: "warn", "to-group": "warn", unknown: "warn" }[found.outcome] ?? "bad";
  return [...page, make("section", { class: `verdict ${kind}` }, make("h2", {}, found.outcome.replaceAll("-", " ")),
    make("ol", {}, found.steps.map((step) => make("li", {}, step)))),
  found.nearly_matching.length ? table("Filters that nearly match", [["Filter", (one) => one.filter, "long"], ["Difference", (one) => one.difference, "long"]], found.nearly_matching, "") : null];
}
