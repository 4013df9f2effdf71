/** Where a bundle comes from: an address, files that a user picked, or one zip. */

import { readZip } from "./archive.js";
import type { BundleFiles } from "./bundle.js";
import { BundleError, UnavailableError } from "./errors.js";
import { MANIFEST_NAME, MAX_MANIFEST_BYTES, type FileInfo } from "./manifest.js";
import { sha256 } from "./sha256.js";

const STORE = "tfexport-bundles"; // of the Cache API: what has been fetched, for the next visit and without a network
const MAX_ZIP_BYTES = 2 ** 32 - 1;

export type BundleSource = string | URL | Uint8Array | Blob | Iterable<File> | BundleFiles;

/** An address of a folder, of its bundle.json or of a zip; a zip; or the files of a folder. */
export async function bundleFiles(source: BundleSource): Promise<BundleFiles> {
  if (typeof source === "string" || source instanceof URL) return filesAtAddress(String(source));
  if (source instanceof Uint8Array) return filesOfZip(source, "the zip");
  if (typeof Blob !== "undefined" && source instanceof Blob) {
    return filesOfZip(new Uint8Array(await source.arrayBuffer()), "name" in source ? String(source.name) : "the zip");
  }
  return "read" in source ? source : pickedFiles(source as Iterable<File>);
}

async function pickedFiles(picked: Iterable<File>): Promise<BundleFiles> {
  const files = [...picked];
  if (files.length === 1 && files[0]!.name.endsWith(".zip")) return bundleFiles(files[0]!);
  const byName = new Map(files.map((file) => [file.name, file]));
  return {
    origin: "the picked files",
    names: [...byName.keys()],
    read: async (name, info) => {
      const file = byName.get(name)!;
      const limit = info?.bytes ?? MAX_MANIFEST_BYTES;
      return new Uint8Array(await file.slice(0, limit + 1).arrayBuffer());
    },
  };
}

export function filesOfZip(zip: Uint8Array, origin: string): BundleFiles {
  const members = readZip(zip, origin);
  // A copy for each: engines take whole buffers, and the zip may go.
  return { origin, names: [...members.keys()], read: async (name) => members.get(name)!.slice() };
}

async function filesAtAddress(address: string): Promise<BundleFiles> {
  const url = new URL(address, globalThis.location?.href);
  if (url.pathname.endsWith(".zip")) {
    return filesOfZip(await fetchNewest(url, MAX_ZIP_BYTES), url.href);
  }
  const folder = url.pathname.endsWith("/" + MANIFEST_NAME) ? new URL(".", url) : withSlash(url);
  return {
    origin: folder.href.replace(/\/$/, ""),
    names: null,
    read: (name, info, received) => {
      const file = new URL(name, folder);
      return info === null ? fetchNewest(file, MAX_MANIFEST_BYTES) : fetchOnce(file, info, received);
    },
  };
}

/** From the network if it is there, else what it gave the last time. */
async function fetchNewest(url: URL, limit: number): Promise<Uint8Array> {
  const store = await openStore();
  try {
    const bytes = await receive(await request(url, { cache: "no-cache" }), url, limit, () => undefined);
    await keep(store, url.href, bytes);
    return bytes;
  } catch (error) {
    const kept = error instanceof UnavailableError ? await store?.match(url.href) : undefined;
    if (kept === undefined) throw error;
    return new Uint8Array(await kept.arrayBuffer());
  }
}

/** From the store if this very content is there, else from the network. */
async function fetchOnce(url: URL, info: FileInfo, received: (bytes: number) => void): Promise<Uint8Array> {
  const store = await openStore();
  const key = `${url.href}?sha256=${info.sha256}`;
  const kept = await store?.match(key);
  if (kept !== undefined) {
    const bytes = new Uint8Array(await kept.arrayBuffer());
    if (bytes.length === info.bytes) return bytes;
  }
  const bytes = await receive(await request(url), url, info.bytes, received);
  if ((await sha256(bytes)) === info.sha256) {
    // Damaged content must not be kept: it would be found again when the server is mended.
    for (const old of (await store?.keys(url.href, { ignoreSearch: true })) ?? []) await store?.delete(old);
    await keep(store, key, bytes);
  }
  return bytes;
}

async function request(url: URL, init: RequestInit = {}): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(url, init);
  } catch {
    const foreign = globalThis.location !== undefined && url.origin !== globalThis.location.origin;
    const advice = foreign
      ? "is it right, and does its server allow this page (CORS header Access-Control-Allow-Origin)?"
      : "is the address right, and is there a network?";
    throw new UnavailableError(`${url.href}: cannot be fetched; ${advice}`);
  }
  if (!response.ok) {
    throw new BundleError(`${url.href}: the server answers ${response.status} ${response.statusText}`.trim());
  }
  return response;
}

/** At most `limit` bytes, as they come; one more than it says that there are more. */
async function receive(response: Response, url: URL, limit: number, received: (bytes: number) => void): Promise<Uint8Array> {
  const reader = response.body?.getReader();
  if (reader === undefined) return new Uint8Array(await response.arrayBuffer());
  const parts: Uint8Array[] = [];
  let size = 0;
  try {
    for (let part = await reader.read(); !part.done && size <= limit; part = await reader.read()) {
      parts.push(part.value);
      size += part.value.length;
      received(Math.min(size, limit));
    }
    if (size > limit) await reader.cancel();
  } catch {
    throw new UnavailableError(`${url.href}: the connection broke after ${size} bytes; try again`);
  }
  const bytes = new Uint8Array(size);
  let place = 0;
  for (const part of parts) {
    bytes.set(part, place);
    place += part.length;
  }
  return bytes;
}

/** Not there in Node, on pages without HTTPS, and where a user forbids it. */
async function openStore(): Promise<Cache | undefined> {
  try {
    return await globalThis.caches?.open(STORE);
  } catch {
    return undefined;
  }
}

/** A full disk or quota only means that the next visit fetches again. */
async function keep(store: Cache | undefined, key: string, bytes: Uint8Array): Promise<void> {
  try {
    await store?.put(key, new Response(bytes as Uint8Array<ArrayBuffer>));
  } catch (error) {
    console.warn(`tfexport: not kept for the next visit: ${String(error)}`);
  }
}

function withSlash(url: URL): URL {
  const folder = new URL(url);
  if (!folder.pathname.endsWith("/")) folder.pathname += "/";
  return folder;
}
