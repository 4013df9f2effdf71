// The runtime and the page in a real Chromium.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { basename } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { attentionBundle, bundles, chromium, further, site } from "./environment.mjs";
import { assertGolden } from "./golden.mjs";
import { serveSite } from "./site_server.mjs";

const given = { site: site(), browser: chromium(), bundles: bundles() };
const skip = given.site.reason || given.browser.reason || given.bundles.reason;
const modules = new URL("../../runtime/web/node_modules/", import.meta.url);
const AXE = fileURLToPath(new URL("axe-core/axe.min.js", modules));
const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"];
const THREADS = availableParallelism() > 1 ? /[2-9] threads/ : /1 thread$/; // of an isolated page
let browser;

before(async () => {
  if (skip) return;
  const playwright = await import(new URL("playwright-core/index.mjs", modules));
  browser = await playwright.chromium.launch({ executablePath: given.browser.path, args: FLAGS });
});
after(() => browser?.close());

/** Opens the site in a fresh profile; errors of the page fail the test. */
async function opened(t, options, context = {}) {
  const server = await serveSite(given.site.path, options);
  const profile = await browser.newContext(context);
  const page = await profile.newPage();
  page.setDefaultTimeout(60_000);
  page.on("pageerror", (error) => assert.fail(error));
  t.after(async () => {
    await profile.close();
    await server.close();
  });
  return { page, server };
}

async function ready(page, address) {
  await page.goto(address);
  await page.waitForFunction(() => !document.getElementById("engine").textContent.startsWith("Starting"));
}

/** The page's translation of a text that was typed. */
async function translated(page, text) {
  await page.fill("#source", text);
  await page.waitForFunction(() => document.getElementById("result").classList.contains("stale"));
  await page.waitForFunction(() => !document.getElementById("result").classList.contains("stale"));
  return page.innerText("#result");
}

for (const path of given.bundles.paths) {
  for (const isolated of [true, false]) {
    test(`${basename(path)}: golden cases in a worker, ${isolated ? "with" : "without"} threads`, { skip }, async (t) => {
      const { page, server } = await opened(t, { isolated, bundle: path });
      const notices = [];
      page.on("console", (message) => notices.push(message.text()));
      await page.goto(`${server.address}icon.svg`);
      const cases = JSON.parse(readFileSync(`${path}/golden.json`, "utf8")).cases;
      const { backend, results } = await page.evaluate(async (cases) => {
        const { DEFAULT_OPTIONS, RemoteTranslator } = await import("/runtime/index.js");
        const translator = await RemoteTranslator.load("/bundle/", { ort: "/ort/ort-wasm-simd-threaded.mjs" });
        const results = [];
        for (const { text, options } of cases) {
          const all = { ...DEFAULT_OPTIONS, truncate_source: true, ...options, warn: () => undefined };
          results.push((await translator.translate([text], all))[0].hypotheses);
        }
        await translator.release();
        return { backend: translator.backend, results };
      }, cases);
      assert.match(backend, isolated ? THREADS : /1 thread$/);
      assert.equal(notices.filter((notice) => notice.includes("not cross-origin isolated")).length, isolated ? 0 : 1);
      cases.forEach((expected, i) => assertGolden(results[i], expected));
    });
  }
}

test("errors and warnings of the worker keep their class, and a callback can cancel", { skip }, async (t) => {
  const { page, server } = await opened(t, {});
  await page.goto(`${server.address}icon.svg`);
  const found = await page.evaluate(async () => {
    const runtime = await import("/runtime/index.js");
    const translator = await runtime.RemoteTranslator.load("/bundle/", { ort: "/ort/ort-wasm-simd-threaded.mjs", threads: 1 });
    const failure = (promise) => promise.then(() => null, (error) => error);
    const option = await failure(translator.translate(["a"], { beam_size: 0 }));
    const input = await failure(translator.translate(["a", "a b ".repeat(500)]));
    const abort = new AbortController();
    const aborted = failure(translator.translate(["a b c"], { signal: abort.signal }));
    abort.abort();
    const seen = [];
    await translator.translate(["a b c"], { callback: ({ tokens }) => void seen.push(tokens.length) });
    const none = await failure(runtime.RemoteTranslator.load("/nothing/", { ort: "/ort/ort-wasm-simd-threaded.mjs" }));
    return {
      option: option instanceof runtime.OptionError,
      input: [input instanceof runtime.InputError, input.index],
      aborted: (await aborted).name,
      seen,
      none: [none instanceof runtime.BundleError, none.message],
    };
  });
  assert.deepEqual([found.option, found.input, found.aborted], [true, [true, 1], "AbortError"]);
  assert.ok(found.seen.length > 0);
  assert.equal(found.none[0], true);
  assert.match(found.none[1], /\/nothing\/bundle\.json: the server answers 404/);
});

test("a worker gives the encoder's states", { skip: skip || further().reason }, async (t) => {
  const [{ bundle, texts, states }] = further().cases;
  const { page, server } = await opened(t, { bundle });
  await page.goto(`${server.address}icon.svg`);
  const found = await page.evaluate(async (texts) => {
    const { RemoteTranslator } = await import("/runtime/index.js");
    const translator = await RemoteTranslator.load("/bundle/", { ort: "/ort/ort-wasm-simd-threaded.mjs", threads: 1 });
    return (await translator.encoderStates(texts)).map((vectors) => vectors.map((vector) => Array.from(vector)));
  }, texts);
  assert.deepEqual(found.map((vectors) => vectors.length), states.map((vectors) => vectors.length));
  found.flat(2).forEach((value, i) => assert.ok(Math.abs(value - states.flat(2)[i]) < 1e-4));
});

test("the page translates, shows alternatives with scores, and confidence", { skip }, async (t) => {
  const { page, server } = await opened(t, { isolated: true });
  await ready(page, server.address);
  assert.notEqual(await translated(page, "March 5th, 2021"), "");
  const scores = (await page.locator("#hypotheses .score").allTextContents()).map(Number);
  assert.equal(scores.length, 3);
  assert.deepEqual(scores, [...scores].sort((a, b) => b - a));
  assert.ok((await page.locator("#result .token").count()) > 0);
  assert.match(await page.textContent("#speed"), /\d+ ms, \d+ tokens\/s/);
  await page.locator("#settings summary").click();
  await page.locator("input[name=beam_size]").fill("1");
  await page.waitForFunction(() => document.getElementById("alternatives").hidden);
  const lines = await translated(page, "one\n\ntwo");
  assert.equal((await page.locator("#result p").count()), 3, lines);
});

test("the page shows attention where the bundle has it", { skip: skip || attentionBundle().reason }, async (t) => {
  const { page, server } = await opened(t, { bundle: attentionBundle().path });
  await ready(page, server.address);
  await translated(page, "one two three");
  const rows = await page.locator("#heat-map tbody tr").count();
  const columns = await page.locator("#heat-map thead th").count();
  assert.ok(rows > 0 && columns > 3, `${rows} rows, ${columns} columns`);
  assert.equal(await page.locator("#heat-map td[title]").count(), rows * columns);
  assert.match(await page.locator("#heat-map td[title]").first().getAttribute("title"), /looks at .*: \d+ %/);
});

test("the page cancels, and translates again afterwards", { skip }, async (t) => {
  const { page, server } = await opened(t, {});
  await ready(page, server.address);
  await translated(page, "one");
  await page.fill("#source", "March 5th, 2021\n".repeat(400));
  await page.locator("#cancel:not([disabled])").click();
  await page.waitForFunction(() => document.getElementById("working").hidden);
  assert.equal(await page.locator("#result.stale").count(), 1);
  assert.equal(await page.isHidden("#error"), true);
  assert.notEqual(await translated(page, "March 5th, 2021"), "");
});

test("the second visit works without the server", { skip }, async (t) => {
  const { page, server } = await opened(t, { isolated: true });
  await ready(page, server.address);
  const online = await translated(page, "March 5th, 2021");
  await page.locator("#offline[data-ready]").waitFor();
  await server.close();
  await page.reload();
  await page.waitForFunction(() => document.getElementById("engine").textContent.startsWith("Engine"));
  assert.equal(await translated(page, "March 5th, 2021"), online);
  assert.match(await page.textContent("#engine"), THREADS); // the headers were kept too
});

test("a corrupted file of weights is named, with what to do, and not kept", { skip }, async (t) => {
  let damaged = true;
  const flipped = (name, bytes) => (damaged && name === "bundle/weights.bin" ? Buffer.from(bytes).fill(7, 90, 91) : bytes);
  const { page, server } = await opened(t, { change: flipped });
  await ready(page, server.address);
  assert.match(await page.textContent("#error"), /bundle\/weights\.bin: its content has changed \(SHA-256 differs\); copy/);
  assert.equal(await page.getAttribute("#error", "role"), "alert");
  damaged = false;
  await ready(page, server.address);
  assert.equal(await page.isHidden("#error"), true);
});

for (const colorScheme of ["light", "dark"]) {
  test(`axe finds nothing serious, ${colorScheme}`, { skip }, async (t) => {
    const bundle = attentionBundle().path ?? null;
    const { page, server } = await opened(t, { bundle }, { colorScheme, bypassCSP: true });
    await ready(page, server.address);
    await translated(page, "March 5th, 2021\nsomething else");
    await page.locator("#settings summary").click();
    await page.addScriptTag({ path: AXE });
    const { violations, passes } = await page.evaluate(() => globalThis.axe.run());
    assert.ok(passes.length > 15, `axe looked at ${passes.length} rules only`);
    const serious = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
    assert.deepEqual(serious.map(({ id, nodes }) => [id, nodes.map((node) => node.html)]), []);
  });
}

test("everything can be reached and used with the keyboard", { skip }, async (t) => {
  const { page, server } = await opened(t, {});
  await ready(page, server.address);
  const reached = [];
  for (let i = 0; i < 8; i++) {
    await page.keyboard.press("Tab");
    reached.push(await page.evaluate(() => document.activeElement.id || document.activeElement.tagName));
  }
  for (const id of ["theme", "source", "clear", "shading", "result", "SUMMARY"]) assert.ok(reached.includes(id), `${id}: ${reached}`);
  await page.focus("#source");
  await page.keyboard.type("March 5th, 2021");
  await page.keyboard.press("Control+Enter");
  await page.waitForFunction(() => document.querySelectorAll("#result .token").length > 0);
});
