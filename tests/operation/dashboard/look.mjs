// Opens the dashboard in Chromium, and checks that each view shows what it should. Each view is also examined by axe.
//
// node look.mjs PROFILE URL TOKENS [PICTURES]: PROFILE is a directory for the browser, and TOKENS are those of an admin, an
// operator and a viewer, with commas. Prints a line for each view, and ends with 1 if one is not as it should be.

import { DEADLINE_MS, end, open } from "../../browser/browser.mjs";

const [profile, url, tokens, pictures] = process.argv.slice(2);
const [token, operator, viewer] = tokens.split(",");
const problems = [];
const page = await open(profile, problems);
page.on("Log.entryAdded", ({ entry }) => { if (/Content Security Policy/.test(entry.text)) problems.push(entry.text); });
const evaluate = (expression) => page.evaluate(expression);
// Resolves when the page has the text, and rejects with the text that it has instead.
const shows = (text) => evaluate(`new Promise((resolve) => {
  const has = () => document.body.innerText.includes(${JSON.stringify(text)});
  const watch = new MutationObserver(() => { if (has()) { watch.disconnect(); resolve(""); } });
  watch.observe(document.body, { childList: true, subtree: true, characterData: true });
  setTimeout(() => resolve(document.body.innerText), ${DEADLINE_MS / 3});
  if (has()) resolve("");
})`);
// Names that a screen reader needs, and widths.
const CHECKS = `(() => {
  const found = [];
  for (const one of document.querySelectorAll("input, select, textarea")) if (!one.labels?.length) found.push("no label: " + one.outerHTML);
  for (const one of document.querySelectorAll("button, a")) if (!(one.textContent.trim() || one.getAttribute("aria-label"))) found.push("no name: " + one.outerHTML);
  for (const one of document.querySelectorAll("main table")) if (!one.caption) found.push("no caption");
  if (document.querySelectorAll("main h1").length !== 1) found.push("not one heading of level 1");
  if (document.documentElement.scrollWidth > innerWidth) found.push("wider than the window: " + document.documentElement.scrollWidth);
  return found.join("; ");
})()`;

async function look(name, hash, text) {
  await evaluate(`location.hash = ${JSON.stringify(hash)}`);
  const instead = await shows(text);
  if (instead) problems.push(`${name}: no "${text}" in: ${instead}`);
  for (const [size, width] of [["wide", 1200], ["narrow", 390]]) {
    await page.resize(width);
    const wrong = await evaluate(CHECKS);
    if (wrong) problems.push(`${name}, ${size}: ${wrong}`);
    if (size === "wide") {
      const found = await page.examine();
      if (found) problems.push(`${name}: ${found}`);
    }
    await page.picture(pictures, `${name}-${size}`);
  }
  console.log(`${name}: ${text}`);
}

try {
  await page.load(url);
  if (await shows("A token is needed")) problems.push("the page does not ask for a token");
  await look("login", "#/", "A token is needed");
  await evaluate(`document.querySelector("input[name=token]").value = ${JSON.stringify(token)};
    document.querySelector("main form button").click()`);
  await look("overview", "#/", "Everything is fine");
  await look("clients", "#/clients", "frog/1");
  await look("markup", "#/clients", "<img src=x onerror=");
  await look("client", "#/client/frog%2F1", "pond/#");
  await look("dots", "#/client/..", "Client ..");
  const ban = await evaluate(`document.querySelector('main a[href^="#/bans"]').getAttribute("href")`);
  if (ban !== "#/bans?kind=client_id&value=..") problems.push(`dots: the ban is of ${ban}`);
  await evaluate(`document.querySelector("main button.danger").click(); document.querySelector("#ask button[value=yes]").click()`);
  await look("dots-gone", "#/client/..", ".. is disconnected.");
  await look("queue", "#/client/newt", "<i>for the newt</i>");
  await look("busiest", "#/busiest", "Clients that connect often, in the last");
  await look("groups", "#/groups", "$share/workers/jobs/#");
  await look("group", "#/group/%24share%2Fworkers%2Fjobs%2F%23", "job 2");
  await evaluate(`document.querySelector("input[name=filter]").value = "jobs/odd";
    document.querySelector("main form button").click(); document.querySelector("#ask button[value=yes]").click()`);
  await look("discarded", "#/group/%24share%2Fworkers%2Fjobs%2F%23", "2 messages are discarded.");
  await evaluate(`document.querySelector("input[name=to]").value = "newt";
    document.querySelector("input[name=to]").form.querySelector("button").click(); document.querySelector("#ask button[value=yes]").click()`);
  await look("moved", "#/group/%24share%2Fworkers%2Fjobs%2F%23", "1 messages are moved.");
  await look("moved-here", "#/client/newt", "job 2");
  await look("retained", "#/retained", "<b>croak</b>");
  await look("topics", "#/topics", "pond");
  await look("topics-below", "#/topics?under=pond", "<b>croak</b>");
  await look("topics-none", "#/topics?under=desert", "No topic below these levels");
  await look("subscribers-ask", "#/subscribers", "Name a topic");
  await look("subscribers", "#/subscribers?topic=pond%2Fx", "frog/1");
  await look("subscribers-group", "#/subscribers?topic=jobs%2F1", "$share/workers/jobs/#");
  await look("subscribers-none", "#/subscribers?topic=desert", "Nobody subscribes to this topic");
  await look("account", "#/account", "The outcomes add up: no message is missing.");
  await look("account-sums", "#/account", "The sums are those of the broker, in all 31 figures.");
  await look("users", "#/users", "without a user name");
  await look("users-none", "#/users?match=unicorn", "No user has this text in the name.");
  await look("log", "#/log?match=frog", "client_id=frog/1");
  await look("log-none", "#/log?match=unicorn", "No line is like this.");
  await look("explain", "#/explain?publisher=toad&topic=Pond%2Fx&subscriber=frog%2F1&qos=0", "capital and small letters differ");
  await evaluate(`[...document.querySelectorAll("main button")].at(-1).click()`);
  await look("explain-recording", "#/explain?publisher=toad&topic=pond%2Fx&subscriber=frog%2F1&qos=0", "No message has come this way");
  await evaluate(`import("/views/page.js").then(({ call }) => call("/api/v1/publish", "POST", { topic: "pond/x", payload: "ribbit" }))`);
  await look("explain-recorded", "#/explain?publisher=toad&topic=pond%2Fx&subscriber=frog%2F1&qos=1", "QoS 0 is not acknowledged");
  await look("bans-none", "#/bans", "Nobody is banned.");
  await evaluate(`document.querySelector("input[name=value]").value = "toad<b>";
    document.querySelector("input[name=reason]").value = "noisy";
    document.querySelector("main form button").click(); document.querySelector("#ask button[value=yes]").click()`);
  await look("bans", "#/bans", "toad<b>");
  await look("explain-ban", "#/explain?publisher=toad%3Cb%3E&topic=pond%2Fx&subscriber=frog%2F1&qos=0", "is banned (client id toad<b>: noisy)");
  await look("trace-none", "#/trace?kind=topic&value=pond%2F%23", "It costs nothing while no trace is under way");
  await evaluate(`document.querySelector("input[name=into]").value = "watch/pond"; document.querySelector("main form button").click()`);
  await look("trace-begun", "#/trace", "Nothing has happened yet.");
  await evaluate(`import("/views/page.js").then(({ call }) => call("/api/v1/publish", "POST", { topic: "pond/y", payload: "<i>ribbit</i>" }))`);
  await look("trace", "#/trace", "<i>ribbit</i>");
  await evaluate(`document.querySelector("main button.danger").click(); document.querySelector("#ask button[value=yes]").click()`);
  await look("trace-forgotten", "#/trace", "The trace is forgotten.");
  await look("publish", "#/publish", "Publish a message");
  await look("try", "#/try", "the token of operators gives it no rights");
  await evaluate(`document.querySelector("input[name=client_id]").value = "newt/2"; document.querySelector("main form button").click()`);
  await look("try-connected", "#/try", "Subscribed to nothing yet.");
  await evaluate(`document.querySelector("input[name=filter]").value = "try/#"; document.querySelector("main form button").click()`);
  await look("try-subscribed", "#/try", "Subscribed to try/#.");
  await evaluate(`document.querySelector("input[name=topic]").value = "try/1"; document.querySelector("input[name=payload]").value = "<u>splash</u>";
    document.querySelectorAll("main form")[1].querySelector("button").click()`);
  await look("try-received", "#/try", "<u>splash</u>");
  await evaluate(`document.querySelector("main p button").click()`);
  await look("try-ended", "#/try", "You have disconnected.");
  await look("access", "#/access", "allow subscribePattern pond/#");
  await evaluate(`document.querySelector("input[name=name]").value = "bob<b>"; document.querySelectorAll("main form")[1].querySelector("button").click()`);
  await look("access-new", "#/access", "The user bob<b> is there.");
  await look("user", "#/user/anna", "<b>Anna</b>");
  await evaluate(`document.querySelector("select[name=role]").value = "writer"; document.querySelectorAll("main form")[1].querySelector("button").click()`);
  await look("user-role", "#/user/anna", "anna has the role writer.");
  await evaluate(`document.querySelector("main button.danger").click(); document.querySelector("#ask button[value=yes]").click()`);
  await look("user-gone", "#/user/anna", "no source here has this user");
  await look("access-none", "#/access?match=unicorn", "There is no such user.");
  const rules = await evaluate(`document.querySelector('main a[href^="#/rules"]').getAttribute("href")`);
  await look("rules", rules, "<i>pond</i>");
  await look("listeners", "#/listeners", "127.0.0.1:");
  await evaluate(`document.querySelector("input[name=seconds]").value = "3600";
    document.querySelector("main form button").click(); document.querySelector("#ask button[value=yes]").click()`);
  await look("draining", "#/listeners", "New clients are refused");
  await look("not-ready", "#/", "the broker is being drained");
  await look("draining-again", "#/listeners", "New clients are refused");
  await evaluate(`document.querySelector("main section button").click()`);
  await look("drained", "#/listeners", "Before maintenance");
  await look("audit", "#/audit", "toad<b>");
  await look("figures", "#/figures", "clients/connected");
  await look("configuration", "#/configuration", "# default");
  await evaluate(`document.querySelector("main p button").click(); document.querySelector("#ask button[value=yes]").click()`);
  await look("reloaded", "#/configuration", "The configuration is as before.");
  await look("gone", "#/client/nobody", "there is no client nobody");
  await page.send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: "dark" }] });
  await look("dark", "#/", "Everything is fine");
  // Whoever presses twice has one client, and the next person in this tab has none.
  await look("try-again", "#/try", "the token of operators gives it no rights");
  await evaluate(`document.querySelector("main form").requestSubmit(); document.querySelector("main form").requestSubmit()`);
  await look("try-twice", "#/try", "Connected to ws://");
  for (const [name, of, missing] of [["operator", operator, "Draining the broker needs the role admin. Yours is operator."], ["viewer", viewer, "Draining the broker needs the role admin. Yours is viewer."]]) {
    await evaluate(`document.getElementById("leave").click()`);
    await look(`${name}-login`, "#/", "A token is needed");
    await evaluate(`document.querySelector("input[name=token]").value = ${JSON.stringify(of)}; document.querySelector("main form button").click()`);
    await look(`${name}`, "#/", `Your role: ${name}`);
    await look(`${name}-listeners`, "#/listeners", missing);
    await look(`${name}-try`, "#/try", "the token of operators gives it no rights");
    await look(`${name}-trace`, "#/trace", "needs the role admin");
    await look(`${name}-client`, "#/client/frog%2F1", "pond/#");
    const off = await evaluate(`[...document.querySelectorAll("main button")].filter((one) => one.disabled).map((one) => one.textContent).join()`);
    const expected = { operator: "End session", viewer: "Disconnect,End session" }[name];
    if (off !== expected) problems.push(`${name}: the buttons that are off are ${off}, and not ${expected}`);
  }
  await evaluate(`document.getElementById("leave").click()`);
  await look("password-login", "#/", "Or log in as a user");
  await evaluate(`document.querySelector("input[name=user]").value = "zoe"; document.querySelector("input[name=password]").value = "z: é";
    document.querySelectorAll("main form")[1].querySelector("button").click()`);
  await look("password", "#/", "Your role: viewer");
  const kept = await evaluate("JSON.stringify(sessionStorage)");
  if (!/"session":"[0-9a-f]{64}"/.test(kept) || kept.includes("z:") || kept.includes(btoa("zoe:"))) problems.push(`the tab keeps ${kept}`);
  await look("viewer-publish", "#/publish", "Publishing needs the role operator. Yours is viewer.");
  await look("viewer-bans", "#/bans", "Banning clients needs the role operator.");
  await look("viewer-configuration", "#/configuration", "A backup needs the role admin.");
} catch (error) {
  problems.push(String(error));
}
end(problems);
