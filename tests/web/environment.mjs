// What the tests need from outside: fixtures made by Python, bundles, a browser. Each says why it is missing.
import { existsSync, readFileSync } from "node:fs";

/** A part of the fixtures: its path, or the reason to skip. */
export function fixtures(part) {
  const folder = process.env.TFEXPORT_WEB_FIXTURES;
  if (!folder) return { reason: "TFEXPORT_WEB_FIXTURES is not set; run: python tests/web/make_fixtures.py FOLDER" };
  const path = `${folder}/${part}`;
  return existsSync(path) ? { path, reason: false } : { reason: `${path} is missing` };
}

/** Folders of bundles to run, parted by colons. */
export function bundles() {
  const given = process.env.TFEXPORT_WEB_BUNDLES;
  if (!given) return { paths: [], reason: "TFEXPORT_WEB_BUNDLES is not set: folders of bundles, parted by colons" };
  return { paths: given.split(":"), reason: false };
}

/** A bundle whose decoder gives its attention. */
export function attentionBundle() {
  const path = process.env.TFEXPORT_WEB_ATTENTION;
  return path ? { path, reason: false } : { reason: "TFEXPORT_WEB_ATTENTION is not set: a bundle with attention" };
}

/** What Python says of the encoder's states and of attention, for each of some bundles. */
export function further() {
  const path = process.env.TFEXPORT_WEB_FURTHER;
  if (!path) return { cases: [], reason: "TFEXPORT_WEB_FURTHER is not set: a file of tests/web/further_fixture.py" };
  return { cases: JSON.parse(readFileSync(path, "utf8")), reason: false };
}

/** A Chromium or Chrome to drive. */
export function chromium() {
  const places = [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
  const path = places.find((place) => place && existsSync(place));
  return path ? { path, reason: false } : { reason: "no Chromium found; set CHROMIUM to its path" };
}

/** A packaged site. */
export function site() {
  const path = process.env.TFEXPORT_WEB_SITE;
  return path ? { path, reason: false } : { reason: "TFEXPORT_WEB_SITE is not set; run: tfexport package web BUNDLE -o FOLDER" };
}
