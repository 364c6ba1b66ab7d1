// Starts Chromium, and speaks the DevTools protocol with it over the WebSocket of Node.js, so that no package is needed.

import { spawn } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

export const DEADLINE_MS = 30_000;

const FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-breakpad",
  "--remote-debugging-port=0"];

/** Ends this script with the problems, or with success if there are none. */
export function end(problems) {
  if (problems.length) console.error(problems.join("\n"));
  process.exit(problems.length ? 1 : 0);
}

/** A page in a browser of its own, whose directory is `profile`. `problems` gets the exceptions of the page. */
export async function open(profile, problems) {
  // A process group of its own, so that its children end with it, in whatever way this script ends.
  const flags = [...FLAGS, `--user-data-dir=${profile}`, "about:blank"];
  const browser = spawn("chromium", flags, { stdio: ["ignore", "ignore", "pipe"], detached: true });
  process.on("exit", () => { try { process.kill(-browser.pid, "SIGKILL"); } catch { /* it has ended */ } });
  setTimeout(() => end(["the browser has not finished in time"]), DEADLINE_MS * 6).unref();
  const port = await new Promise((resolve, reject) => {
    let text = "";
    browser.on("exit", () => reject(new Error(`the browser has ended: ${text}`)));
    browser.stderr.on("data", (piece) => {
      text += piece;
      const found = /ws:\/\/127\.0\.0\.1:(\d+)\//.exec(text);
      if (found) resolve(found[1]);
    });
  });
  const targets = await (await fetch(`http://127.0.0.1:${port}/json/list`)).json();
  const socket = new WebSocket(targets.find((target) => target.type === "page").webSocketDebuggerUrl);
  await new Promise((resolve) => { socket.onopen = resolve; });
  const page = new Page(socket, problems);
  for (const domain of ["Runtime", "Log", "Page"]) await page.send(`${domain}.enable`);
  return page;
}

class Page {
  #socket;
  #last = 0;
  #waiting = new Map();
  #listeners = new Map();

  constructor(socket, problems) {
    this.#socket = socket;
    socket.onmessage = ({ data }) => this.#receive(JSON.parse(data));
    this.on("Runtime.exceptionThrown", ({ exceptionDetails: { exception, text } }) => {
      problems.push(exception?.description ?? text);
    });
  }

  #receive({ id, result, error, method, params }) {
    if (!id) return this.#listeners.get(method)?.(params);
    const { resolve, reject } = this.#waiting.get(id);
    this.#waiting.delete(id);
    error ? reject(new Error(error.message)) : resolve(result);
  }

  /** Calls a function with the parameters of each event of this kind. */
  on(method, listener) {
    this.#listeners.set(method, listener);
  }

  send(method, params = {}) {
    return new Promise((resolve, reject) => {
      this.#last += 1;
      this.#waiting.set(this.#last, { resolve, reject });
      this.#socket.send(JSON.stringify({ id: this.#last, method, params }));
    });
  }

  async evaluate(expression) {
    const { result } = await this.send("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
    return result.value;
  }

  /** Opens an address, and waits until everything is loaded. Brings axe, which finds what people with a disability cannot use. */
  async load(url) {
    const isLoaded = new Promise((resolve) => this.on("Page.loadEventFired", resolve));
    await this.send("Page.navigate", { url });
    await isLoaded;
    const axe = createRequire(join(process.env.NODE_PATH, "look.mjs")).resolve("axe-core/axe.min.js");
    await this.evaluate(readFileSync(axe, "utf8"));
  }

  resize(width) {
    const size = { width, height: 900, deviceScaleFactor: 1, mobile: false };
    return this.send("Emulation.setDeviceMetricsOverride", size);
  }

  /** What axe finds, as a text; an empty one if that is nothing. */
  async examine() {
    const found = await this.evaluate(`(async () => {
      const { violations } = await axe.run(document, { resultTypes: ["violations"] });
      return violations.map(({ id, nodes }) => id + ": " + nodes.map((node) => node.target.join(" ")).join(", ")).join("; ");
    })()`);
    return found ?? "axe has not answered";
  }

  /** Takes a picture of the window, or of the whole page. */
  async picture(directory, name, isWhole = false) {
    if (!directory) return;
    const { data } = await this.send("Page.captureScreenshot", { format: "png", captureBeyondViewport: isWhole });
    mkdirSync(directory, { recursive: true });
    writeFileSync(join(directory, `${name}.png`), Buffer.from(data, "base64"));
  }
}
