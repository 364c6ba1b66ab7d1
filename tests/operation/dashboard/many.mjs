// Lists and searches 100,000 clients in the dashboard. Their broker is a server in this script, which answers as the API does: a
// page of clients at most, of a part of all places at most.
//
// node many.mjs PROFILE: PROFILE is a directory for the browser. Prints a line for each check, and ends with 1 if one fails.

import { createServer } from "node:http";
import { readFileSync } from "node:fs";
import { DEADLINE_MS, end, open } from "../../browser/browser.mjs";

const CLIENTS = 100_000;
// Places that one answer of the API is about: `QUESTIONS_MAX` answers of a shard, with `PLACES_PER_ANSWER` each.
const PLACES = 64 * 256;
// Elements of a view with a whole page of clients. The number does not grow with that of all clients.
const ELEMENTS_MAX = 2_000;
const KINDS = { html: "text/html", js: "text/javascript", css: "text/css" };

const name = (place) => `client-${String(place).padStart(5, "0")}`;
let lists = 0;

function clients(query) {
  lists += 1;
  const found = [], first = Number(query.get("cursor") ?? 0), match = query.get("match") ?? "";
  let place = first;
  for (; place < Math.min(first + PLACES, CLIENTS) && found.length < Number(query.get("limit")); place += 1) {
    if (name(place).includes(match)) found.push({ client_id: name(place), connected: true, state: "open", protocol: "5.0", subscriptions: 1 });
  }
  return { clients: found, cursor: place < CLIENTS ? String(place) : null };
}

const server = createServer((request, answer) => {
  const { pathname, searchParams } = new URL(request.url, "http://localhost");
  if (pathname.startsWith("/api/")) {
    const value = pathname === "/api/v1/clients" ? clients(searchParams) : { role: "admin" };
    return answer.setHeader("Content-Type", "application/json").end(JSON.stringify(value));
  }
  const file = pathname === "/" ? "/index.html" : pathname;
  const text = readFileSync(new URL(`../../../crates/admin/src/page${file}`, import.meta.url));
  answer.setHeader("Content-Type", KINDS[file.split(".").pop()]).end(text);
});
await new Promise((resolve) => { server.listen(0, "127.0.0.1", resolve); });

const [profile] = process.argv.slice(2);
const problems = [];
const page = await open(profile, problems);
const evaluate = (expression) => page.evaluate(expression);

// Opens a view, and waits until it is shown with as many rows. Returns the first client, and the number of lists that were asked for.
async function view(what, hash, rows) {
  lists = 0;
  const seen = await evaluate(`new Promise((resolve) => {
    const until = Date.now() + ${DEADLINE_MS / 3};
    document.querySelector("#content").replaceChildren();
    location.hash = ${JSON.stringify(hash)};
    const look = () => {
      const count = document.querySelectorAll("main tbody tr").length;
      const is_shown = document.querySelector("main h1") && count === ${rows};
      if (!is_shown && Date.now() < until) return setTimeout(look, 20);
      resolve({ count, text: document.querySelector("main").innerText, first: document.querySelector("main td a")?.textContent,
        next: [...document.querySelectorAll("main button")].some((one) => one.textContent === "Next page"), elements: document.querySelectorAll("*").length });
    };
    look();
  })`);
  if (seen.count !== rows) problems.push(`${what}: ${seen.count} rows instead of ${rows}: ${seen.text}`);
  if (seen.elements > ELEMENTS_MAX) problems.push(`${what}: ${seen.elements} elements`);
  return { first: seen.first, lists, next: seen.next, text: seen.text };
}

function check(what, { first, lists: asked, next }, expected) {
  if (JSON.stringify([first, asked, next]) !== JSON.stringify(expected)) problems.push(`${what}: ${JSON.stringify([first, asked, next])} instead of ${JSON.stringify(expected)}`);
  console.log(what);
}

try {
  await page.load(`http://127.0.0.1:${server.address().port}/`);
  await evaluate(`sessionStorage.setItem("token", "a token")`);
  check("a page of clients is one request", await view("clients", "#/clients", 100), [name(0), 1, true]);
  check("so is a page in the middle", await view("middle", "#/clients?cursor=50000", 100), [name(50_000), 1, true]);
  check("the last client is found", await view("last", `#/clients?match=${name(CLIENTS - 1)}`, 1), [name(CLIENTS - 1), 7, false]);
  check("a client in the first part is found at once", await view("first", `#/clients?match=${name(7)}`, 1), [name(7), 1, true]);
  const nobody = await view("nobody", "#/clients?match=nobody", 0);
  check("all places are searched before the page says that there is none", nobody, [null, 7, false]);
  if (!nobody.text.includes("No client is like this.")) problems.push(`nobody: ${nobody.text}`);
} catch (error) {
  problems.push(String(error));
}
end(problems);
