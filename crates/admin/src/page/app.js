// The dashboard: the place of the page in its address, the login, and the views.
import { access, rules, user } from "./views/access.js";
import { account, users } from "./views/account.js";
import { figures, listeners } from "./views/server.js";
import { audit, log } from "./views/log.js";
import { bans } from "./views/bans.js";
import { begin, call, field, logIn, logOut, isCurrent, later, learnRole, make, Refused, say, values, whenChanged } from "./views/page.js";
import { busiest } from "./views/busiest.js";
import { client, clients } from "./views/clients.js";
import { configuration } from "./views/settings.js";
import { explain } from "./views/explain.js";
import { forgetRates, overview } from "./views/overview.js";
import { group, groups } from "./views/groups.js";
import { publish, retained, subscribers, topics } from "./views/messages.js";
import { forgetLines, trace, watchTrace } from "./views/trace.js";
import { forget as forgetClient, trial } from "./views/try.js";

const INTERVAL_MS = 5000;
const content = document.getElementById("content");
const VIEWS = { "": overview, access, account, audit, bans, busiest, client, clients, configuration, explain, figures, group, groups, listeners, log, publish,
  retained, rules, subscribers, topics, trace, try: trial, user, users };
// Views that show a state which changes all the time.
const LIVE = [overview, account, busiest, client, log, users];
// The entry of the menu for views that have none of their own.
const ABOVE = { client: "clients", group: "groups", rules: "access", user: "access" };
let known = null;

// Asks for the role of the token, once for each token. Over TLS, the certificate of the browser may be enough.
async function learn() {
  const token = sessionStorage.getItem("token") ?? "";
  if (!token && location.protocol !== "https:") throw new Refused(401, "");
  if (known === token) return;
  const status = await call("/api/v1/status");
  known = token;
  learnRole(status.role);
  document.getElementById("role").textContent = `Role: ${status.role}`;
}

// Forgets all that the holder of the former token has seen.
function forgetEverything() {
  known = null;
  forgetRates();
  forgetLines();
  forgetClient();
}

// Shows the page with a new token, or why there is none.
async function enter(form, find) {
  try {
    sessionStorage.setItem("token", await find(values(form)));
    show(true);
  } catch (error) {
    say(`Refused: ${error.message}`);
  }
}

const entrance = (find, ...parts) => {
  const form = make("form", { class: "row", onsubmit: (event) => { event.preventDefault(); enter(form, find); } }, ...parts);
  return form;
};

function login(text) {
  const withToken = entrance(({ token }) => token.trim(),
    field("Token", { name: "token", type: "password", required: true, autocomplete: "off", autofocus: true }), make("button", {}, "Open"));
  const withPassword = entrance(({ user, password }) => logIn(user, password),
    field("User name", { name: "user", required: true, autocomplete: "username", pattern: "[^:]+" }),
    field("Password", { name: "password", type: "password", required: true, autocomplete: "current-password" }), make("button", {}, "Log in"));
  return [make("h1", {}, "A token is needed"), make("p", {}, text), withToken,
    make("p", {}, "The broker has printed the place of its token at its start. The token stays in this tab until it is closed."),
    make("h2", {}, "Or log in as a user"), withPassword,
    make("p", {}, "The configuration of the broker names users with their roles (users of [admin]). The password does not stay in this tab: a session takes its place.")];
}

function explainError(error) {
  if (error.status === 401 || error.status === 429) {
    forgetEverything();
    return login(sessionStorage.getItem("token") ? `The token is not right: ${error.message}.` : "Only operators may look at the broker.");
  }
  const title = error instanceof Refused ? "Refused" : "The broker does not answer";
  return [make("section", { class: "verdict bad" }, make("h1", {}, title), make("p", {}, error.message))];
}

function markMenu(name) {
  for (const anchor of document.querySelectorAll("nav.views a")) {
    const is_here = anchor.getAttribute("href") === `#/${ABOVE[name] ?? name}`;
    if (is_here) anchor.setAttribute("aria-current", "page"); else anchor.removeAttribute("aria-current");
  }
}

// Whether somebody is at work in the view: a look that replaces it would take away the focus or the selection.
const isInUse = () => content !== document.activeElement && content.contains(document.activeElement) || !getSelection().isCollapsed || document.getElementById("ask").open;

function refresh() {
  if (isInUse()) later(refresh, INTERVAL_MS); else show(false);
}

async function show(is_new) {
  const mine = begin();
  const [path, search = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/").map(decodeURIComponent);
  markMenu(name);
  const view = VIEWS[name] ?? overview;
  let parts, is_shown = true;
  try {
    await learn();
    parts = await view(rest, new URLSearchParams(search));
  } catch (error) {
    parts = explainError(error);
    is_shown = false;
  }
  if (!isCurrent(mine)) return;
  const has_token = known !== null;
  document.getElementById("leave").hidden = !sessionStorage.getItem("token");
  document.getElementById("role").hidden = !has_token;
  // The element with the focus goes: without another place, the next Tab would begin at the top of the page.
  const is_focus_lost = content.contains(document.activeElement);
  content.replaceChildren(...parts.flat().filter((part) => part != null));
  document.title = `${content.querySelector("h1")?.textContent ?? "Pondhawk"} – Pondhawk`;
  if (is_new || is_focus_lost) content.focus({ preventScroll: true });
  if (is_new) scrollTo(0, 0);
  if (document.getElementById("trace-lines")?.dataset.runs) watchTrace(mine);
  // A page that asks for a token asks the broker for nothing.
  if (LIVE.includes(view) && (is_shown || known !== null)) later(refresh, INTERVAL_MS);
}

whenChanged(() => show(false));
addEventListener("hashchange", () => { say(""); show(true); });
document.addEventListener("visibilitychange", () => { if (!document.hidden) show(false); });
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); content.focus(); });
document.getElementById("leave").addEventListener("click", () => { logOut(); sessionStorage.removeItem("token"); forgetEverything(); show(true); });
show(true);
