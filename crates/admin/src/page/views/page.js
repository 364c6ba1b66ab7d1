// The parts that all views are made of. Texts of clients reach the page as text nodes only, and never as markup.

// The beginning of a payload as the API describes it.
export const payload = (message) => `${message.payload}${message.is_whole ? "" : "…"}${message.encoding === "base64" ? " (base64)" : ""}`;

// Shows the view again: `app.js` says how.
let show = () => {};
export const again = () => show();
export const whenChanged = (change) => { show = change; };

// The number of the view that is shown, and the time of its next look.
let turn = 0;
let timer = 0;
export const begin = () => { clearTimeout(timer); turn += 1; return turn; };
export const isCurrent = (mine) => mine === turn;
export const later = (look, pause_ms) => { timer = setTimeout(() => { if (!document.hidden) look(); }, pause_ms); };

const said = document.getElementById("said");

export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value != null) element.setAttribute(key, value);
  }
  element.append(...children.flat().filter((child) => child != null));
  return element;
}

export const say = (text) => { said.textContent = text; };
// A value in the path of a request. Browsers take `.` and `..` out of paths, unless U+0000 is before them.
export const encode = (text) => (/^\.\.?$/.test(text) ? `%00${text}` : encodeURIComponent(text));
const whole = new Intl.NumberFormat("en");
export const brief = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
export const number = (value) => (value == null ? "–" : whole.format(value));

export function bytes(value) {
  if (value == null) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return `${brief.format(value)} ${units[unit]}`;
}

export function duration(seconds) {
  if (seconds == null) return "never";
  const days = Math.floor(seconds / 86400), hours = Math.floor(seconds / 3600) % 24;
  const minutes = Math.floor(seconds / 60) % 60;
  if (days) return `${days} d ${hours} h`;
  if (hours) return `${hours} h ${minutes} min`;
  return minutes ? `${minutes} min ${seconds % 60} s` : `${seconds} s`;
}

export class Refused extends Error {
  constructor(status, text) { super(text); this.status = status; }
}

const bearer = () => `Bearer ${sessionStorage.getItem("token") ?? ""}`;

async function request(path, method, body, authorization) {
  const headers = { Authorization: authorization };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const options = { method, headers, body: body && JSON.stringify(body) };
  const answer = await fetch(path, options);
  // The certificates of the server have changed. The connection is closed, and the next one has the new ones.
  return answer.status === 421 ? fetch(path, options) : answer;
}

async function asked(path, method, body, authorization) {
  const answer = await request(path, method, body, authorization);
  const value = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refused(answer.status, value.error?.message ?? `status ${answer.status}`);
  return value;
}

export const call = (path, method = "GET", body = undefined) => asked(path, method, body, bearer());

// The token of a new session, in place of a password.
export async function logIn(user, password) {
  const text = String.fromCharCode(...new TextEncoder().encode(`${user}:${password}`));
  const { token } = await asked("/api/v1/session", "POST", undefined, `Basic ${btoa(text)}`);
  sessionStorage.setItem("session", token);
  return token;
}

// Ends the session of this page, if its token is that of one. Nobody waits for the answer.
export function logOut() {
  if (sessionStorage.getItem("token") === sessionStorage.getItem("session")) call("/api/v1/session", "DELETE").catch(() => {});
}

// A piece of a list that has at least one item, if there is one. Each answer is about a part of what the broker has, and may be
// empty although more follows: a search goes on behind it, as long as its view is shown.
export async function list(path, asked, field) {
  const mine = turn;
  for (;;) {
    const found = await call(`${path}?${asked}`);
    if (found[field].length || found.cursor == null || !isCurrent(mine)) return found;
    asked.set("cursor", found.cursor);
  }
}

// The event of a dialog that closes comes later than its end: the next question waits for the event, which is not its own.
let asking = null;

export async function ask(text) {
  while (asking) await asking;
  asking = new Promise((resolve) => {
    const dialog = document.getElementById("ask");
    document.getElementById("question").textContent = text;
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
    dialog.returnValue = "no";
    dialog.showModal();
  });
  const isWanted = await asking;
  asking = null;
  return isWanted;
}

// Asks for a change, says how it ended, and shows the view again.
export async function change(question, path, method, body, done) {
  if (question && !(await ask(question))) return;
  try {
    const answer = await call(path, method, body);
    say(typeof done === "function" ? done(answer) : done);
    again();
  } catch (error) {
    say(`Refused: ${error.message}`);
  }
}

// A piece of a change that a DELETE request with these parameters makes, and further ones with the cursor of the answer.
export const deletion = (path, parameters) => (cursor) =>
  call(`${path}?${new URLSearchParams({ ...parameters, ...(cursor && { cursor }) })}`, "DELETE");

// Asks for a change that is carried out in pieces, a request for each, and says how much was done in all.
export async function changeInPieces(question, piece, field, done) {
  if (!(await ask(question))) return;
  let count = 0, next = null;
  try {
    do {
      const answer = await piece(next);
      count += answer[field];
      next = answer.cursor;
    } while (next);
    say(`${number(count)} ${done}`);
  } catch (error) {
    say(`${count ? `${number(count)} ${done} Then refused` : "Refused"}: ${error.message}`);
  }
  again();
}

// The roles in the order of their rights, and that of the token of this page.
const ROLES = ["viewer", "operator", "admin"];
let role = null;
export const learnRole = (word) => { role = word; };
export const may = (needed) => ROLES.indexOf(role) >= ROLES.indexOf(needed);
export const needs = (needed, deed) => make("p", { class: "needs" }, `${deed} needs the role ${needed}. Yours is ${role ?? "none"}.`);

// A button for a change. Without the right to it, the button is off, and says why.
export const order = (needed, attributes, text) => make("button", {
  type: "button", ...attributes,
  ...(!may(needed) && { disabled: true, title: `Needs the role ${needed}. Yours is ${role ?? "none"}.` }),
}, text);

// A form for a change, or in its place the role that the change needs.
export const orders = (needed, deed, attributes, ...children) =>
  (may(needed) ? make("form", { class: "row", ...attributes }, ...children) : needs(needed, deed));

export function table(caption, columns, items, empty) {
  if (!items.length) return make("p", {}, empty);
  const head = columns.map(([title, , kind]) => make("th", { scope: "col", class: kind }, title));
  const rows = items.map((item) => make("tr", {}, columns.map(([, cell, kind]) => {
    const value = cell(item);
    return make("td", { class: kind }, value == null || value === "" ? "–" : value);
  })));
  return make("div", { class: "wide", tabindex: "0", role: "region", "aria-label": caption },
    make("table", {}, make("caption", {}, caption), make("thead", {}, make("tr", {}, head)), make("tbody", {}, rows)));
}

export function cards(pairs) {
  return make("dl", { class: "cards" }, pairs.map(([title, value, more]) =>
    make("div", {}, make("dt", {}, title), make("dd", {}, value, more ? make("small", {}, more) : null))));
}

export function field(title, attributes) {
  return make("label", {}, title, make("input", attributes));
}

export const choice = (title, name, query, options) => make("label", {}, title, make("select", { name }, options.map(([value, text]) =>
  make("option", { value, selected: value === (query.get(name) ?? "") }, text))));

export const values = (form) => Object.fromEntries(new FormData(form));
export const go = (path, query = {}) => { location.hash = `${path}${Object.keys(query).length ? `?${new URLSearchParams(query)}` : ""}`; };
export const link = (id) => make("a", { href: `#/client/${encodeURIComponent(id)}` }, id);

export function more(path, query, cursor) {
  if (cursor == null) return null;
  const next = Object.fromEntries(query);
  return make("p", {}, make("button", { type: "button", onclick: () => go(path, { ...next, cursor }) }, "Next page"));
}
