// Serves a packaged site as a static host does, with or without the isolation headers, and with faults on demand.
import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { extname, join, normalize } from "node:path";

const TYPES = {
  ".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".mjs": "text/javascript", ".json": "application/json",
  ".svg": "image/svg+xml", ".wasm": "application/wasm", ".webmanifest": "application/manifest+json",
};
const ISOLATION = {
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-embedder-policy": "require-corp",
  "cross-origin-resource-policy": "same-origin",
};

/**
 * `bundle` is a folder that takes the place of the site's own; `change(name, bytes)` may return other bytes, or null for
 * a file that is missing.
 */
export async function serveSite(folder, { isolated = false, bundle = null, change = (name, bytes) => bytes } = {}) {
  const server = createServer(async ({ url }, response) => {
    const name = normalize(decodeURIComponent(new URL(url, "http://x").pathname)).replace(/^\/$/, "/index.html");
    const place = bundle !== null && name.startsWith("/bundle/") ? join(bundle, name.slice(8)) : join(folder, name);
    const bytes = change(name.slice(1), await readFile(place).catch(() => null));
    if (bytes === null) return response.writeHead(404).end();
    const type = TYPES[extname(name)] ?? "application/octet-stream";
    response.writeHead(200, { "content-type": type, ...(isolated ? ISOLATION : {}) }).end(bytes);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    address: `http://127.0.0.1:${server.address().port}/`,
    close: () => new Promise((resolve) => (server.close(resolve), server.closeAllConnections())),
  };
}
