/**
 * Serves the page from what was stored at its installation, so that all files are of one version and none needs a
 * network. The packager writes the version; another one makes browsers install anew.
 */

const VERSION = "@VERSION@";
const STORE = `tfexport-page-${VERSION}`;

interface WaitingEvent extends Event {
  waitUntil(done: Promise<unknown>): void;
}

interface RequestEvent extends Event {
  readonly request: Request;
  respondWith(response: Promise<Response>): void;
}

addEventListener("install", (event) => (event as WaitingEvent).waitUntil(install()));
addEventListener("activate", (event) => (event as WaitingEvent).waitUntil(removeOldVersions()));
addEventListener("fetch", (event) => {
  const { request } = event as RequestEvent;
  if (request.method === "GET" && isOfPage(new URL(request.url))) (event as RequestEvent).respondWith(answer(request));
});

async function install(): Promise<void> {
  const { files } = (await (await fetch("site.json", { cache: "no-cache" })).json()) as { files: string[] };
  await (await caches.open(STORE)).addAll(["./", ...files]);
}

async function removeOldVersions(): Promise<void> {
  const old = (await caches.keys()).filter((name) => name.startsWith("tfexport-page-") && name !== STORE);
  await Promise.all(old.map((name) => caches.delete(name)));
}

/** The bundle has its own store, which checks its content. */
function isOfPage(url: URL): boolean {
  return url.origin === location.origin && !url.pathname.includes("/bundle/");
}

async function answer(request: Request): Promise<Response> {
  const stored = await (await caches.open(STORE)).match(request, { ignoreSearch: true });
  return stored ?? fetch(request);
}
