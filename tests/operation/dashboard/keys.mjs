// Uses the dashboard with the keyboard alone.
//
// node keys.mjs PROFILE URL TOKEN CLIENT: PROFILE is a directory for the browser, and CLIENT is a connected client, which is
// disconnected in the end. Prints a line for each check, and ends with 1 if one fails.

import { DEADLINE_MS, end, open } from "../../browser/browser.mjs";

const [profile, url, token, client] = process.argv.slice(2);
const problems = [];
const page = await open(profile, problems);
const evaluate = (expression) => page.evaluate(expression);
const KEYS = { Tab: 9, Enter: 13, Escape: 27 };
const SHIFT = 8;
// More than the page has places for the focus.
const PRESSES_MAX = 60;

async function press(key, modifiers = 0) {
  const event = { key, code: key, windowsVirtualKeyCode: KEYS[key], modifiers };
  await page.send("Input.dispatchKeyEvent", { type: "keyDown", ...event, ...(key === "Enter" && { text: "\r" }) });
  await page.send("Input.dispatchKeyEvent", { type: "keyUp", ...event });
}

// The element with the focus: its name, and what is wrong with the way in which it shows the focus.
const focused = () => evaluate(`(() => {
  const one = document.activeElement, style = getComputedStyle(one), box = one.getBoundingClientRect();
  const name = one.labels?.[0]?.firstChild.textContent || one.getAttribute("aria-label") || one.textContent.trim() || one.localName;
  const is_outlined = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1;
  const is_there = box.width > 1 && box.height > 1 && box.bottom > 0 && box.right > 0 && box.left < innerWidth;
  return { name: one.id === "content" ? "content" : name, kind: one.localName, wrong: is_outlined ? is_there ? "" : "outside of the window" : "no outline" };
})()`);

// Waits until an expression is true in the page.
const until = async (what, expression) => {
  const is_so = await evaluate(`new Promise((resolve) => {
    const until = Date.now() + ${DEADLINE_MS / 3};
    const look = () => ((${expression}) ? resolve(true) : Date.now() > until ? resolve(false) : setTimeout(look, 20));
    look();
  })`);
  if (!is_so) throw new Error(`${what}: not in: ${await evaluate("document.body.innerText")}`);
};

// Presses Tab until the focus is on this name. Returns the names on the way.
async function tabTo(name, modifiers = 0) {
  const names = [];
  for (let count = 0; count < PRESSES_MAX; count += 1) {
    await press("Tab", modifiers);
    const now = await focused();
    if (now.wrong) problems.push(`${now.kind} ${now.name}: ${now.wrong}`);
    names.push(now.name);
    if (now.name === name) return names;
  }
  throw new Error(`no way with Tab to ${name}: ${names.join(", ")}`);
}

function check(what, is, expected) {
  if (JSON.stringify(is) !== JSON.stringify(expected)) problems.push(`${what}: ${JSON.stringify(is)} instead of ${JSON.stringify(expected)}`);
  console.log(what);
}

const is_asked = `document.getElementById("ask").open`;

try {
  await page.resize(1200);
  await page.load(url);
  await until("it asks for a token", `document.querySelector("input[name=token]")`);
  await tabTo("Token");
  await page.send("Input.insertText", { text: token });
  await press("Enter");
  await until("it shows the overview", `document.body.innerText.includes("Everything is fine")`);
  check("a new view has the focus", (await focused()).name, "content");

  const menu = await evaluate(`[...document.querySelectorAll("nav.views a")].map((one) => one.textContent)`);
  const back = await tabTo("Skip to the content", SHIFT);
  check("the menu is in its order behind the link that skips it", back.reverse(), ["Skip to the content", ...menu, "Forget token"]);
  await press("Enter");
  check("the link skips the menu", (await focused()).name, "content");

  await tabTo("Clients", SHIFT);
  await press("Enter");
  await until("it shows the clients", `document.querySelector("main h1")?.textContent === "Clients"`);
  const way = await tabTo(client);
  check("the form is in front of the list, and the list can be scrolled", way.slice(0, 6), ["Identifier, user or address has", "Connection", "State", "MQTT", "Search",
    "Connected clients first, then sessions without a connection"]);
  await press("Enter");
  await until("it shows one client", `document.querySelector("main h1")?.textContent === "Client ${client}"`);

  await tabTo("Disconnect");
  await press("Enter");
  await until("it asks", is_asked);
  check("a question begins with its harmless answer", (await focused()).name, "No");
  await press("Escape");
  await until("Escape closes the question", `!${is_asked}`);
  check("the focus is where it was", (await focused()).name, "Disconnect");
  check("Escape changes nothing", await evaluate(`document.getElementById("said").textContent`), "");
  await press("Enter");
  await until("it asks again", is_asked);
  await press("Enter");
  await until("No closes the question", `!${is_asked}`);
  check("No changes nothing", await evaluate(`document.getElementById("said").textContent`), "");
  await press("Enter");
  await until("it asks once more", is_asked);
  await tabTo("Yes", SHIFT);
  await press("Enter");
  await until("the client is disconnected", `document.getElementById("said").textContent === "${client} is disconnected."`);
  await until("the focus is not lost", `document.activeElement.id === "content"`);
  check("the focus is not lost with the button", (await focused()).name, "content");
} catch (error) {
  problems.push(String(error));
}
end(problems);
