// Opens a report of `pondhawk shootout` in Chromium: on a desktop and on a phone, in light and in dark, and as it is printed.
//
// node look.mjs PROFILE FILE [PICTURES]: PROFILE is a directory for the browser. Prints a line for each view, and ends with 1 if
// one is not as it should be.

import { pathToFileURL } from "node:url";
import { end, open } from "../browser/browser.mjs";

const [profile, file, pictures] = process.argv.slice(2);
const problems = [];
const page = await open(profile, problems);
page.on("Log.entryAdded", ({ entry }) => { if (entry.level === "error") problems.push(entry.text); });
page.on("Runtime.consoleAPICalled", ({ type, args }) => { if (type === "error") problems.push(JSON.stringify(args)); });
const requests = [];
page.on("Network.requestWillBeSent", ({ request }) => requests.push(request.url));
await page.send("Network.enable");

// Widths, links, and one chart of each pair, with letters of at least 9 pixels.
const CHECKS = `(() => {
  const found = [];
  const wide = document.documentElement.scrollWidth;
  if (wide > innerWidth) {
    const over = [...document.querySelectorAll("main *")].find((one) => one.getBoundingClientRect().right > innerWidth
      && !one.parentElement.closest(".wide"));
    found.push("wider than the window: " + wide + ", from " + over?.outerHTML.slice(0, 200));
  }
  const links = [...document.querySelectorAll("nav a")];
  if (links.length < 5) found.push(links.length + " links");
  for (const link of links) {
    if (!document.getElementById(decodeURIComponent(link.hash.slice(1)))) found.push("no place for " + link.href);
  }
  const figures = [...document.querySelectorAll("figure")];
  if (figures.length === 0) found.push("no charts");
  for (const figure of figures) {
    const charts = [...figure.querySelectorAll("svg")].filter((svg) => svg.getClientRects().length);
    if (charts.length !== 1) found.push(charts.length + " charts are shown: " + figure.textContent.slice(-80));
    for (const text of charts.flatMap((svg) => [...svg.querySelectorAll("text")])) {
      const { c, d } = text.getScreenCTM();
      const pixels = parseFloat(getComputedStyle(text).fontSize) * Math.hypot(c, d);
      if (pixels < 9) { found.push("letters of " + pixels + " pixels: " + figure.textContent.slice(-80)); break; }
    }
  }
  return found.join("; ");
})()`;

// The names of servers stay in sight when a table is scrolled to its right end.
const SCROLLS = `(() => {
  const regions = [...document.querySelectorAll(".wide")].filter((region) => region.scrollWidth > region.clientWidth);
  const lost = regions.map((region) => {
    region.scrollLeft = region.scrollWidth;
    const names = [...region.querySelectorAll("tbody th[scope=row], tbody th span")];
    const left = region.getBoundingClientRect().left;
    const away = names.find((name) => name.getBoundingClientRect().left < left - 1);
    const text = away && away.outerHTML + away.getBoundingClientRect().left;
    region.scrollLeft = 0;
    return text;
  });
  return [regions.length, lost.filter(Boolean).map((name) => "scrolled away: " + name).join("; ")];
})()`;

async function look(name, width, media, scheme) {
  await page.resize(width);
  await page.send("Emulation.setEmulatedMedia", { media, features: [{ name: "prefers-color-scheme", value: scheme }] });
  const wrong = [await page.evaluate(CHECKS), await page.examine()];
  if (media === "screen") {
    const [scrolling, lost] = await page.evaluate(SCROLLS);
    wrong.push(lost, name === "phone" && scrolling === 0 ? "no table is wider than a phone" : "");
  }
  problems.push(...wrong.filter(Boolean).map((what) => `${name}: ${what}`));
  await page.picture(pictures, name, true);
  console.log(name);
}

try {
  const url = pathToFileURL(file).href;
  await page.load(url);
  await look("desktop", 1200, "screen", "light");
  await look("desktop-dark", 1200, "screen", "dark");
  await look("phone", 390, "screen", "light");
  await look("phone-dark", 390, "screen", "dark");
  // The width of A4 at 96 pixels to an inch, less the margins.
  await look("print", 718, "print", "light");
  const foreign = requests.filter((request) => request !== url);
  if (foreign.length) problems.push(`the page loads ${foreign.join(", ")}`);
} catch (error) {
  problems.push(String(error));
}
end(problems);
