#!/usr/bin/env node
/** `npx tfexport-translate BUNDLE < in.txt > out.txt`. */

import { once } from "node:events";
import { parseArgs } from "node:util";
import { BundleError, InputError, OptionError, UnavailableError } from "./errors.js";
import { formatted, translateLines, type Format } from "./line_stream.js";
import { loadTranslator, type NodeOptions } from "./node.js";
import { DEFAULT_OPTIONS, type TranslationOptions } from "./options.js";

const USAGE = `usage: tfexport-translate BUNDLE [options] < in.txt > out.txt

Translates standard input line by line to standard output. BUNDLE is a folder, a zip, or an http(s) address.

  --engine native|wasm   ONNX Runtime as native code (default) or as WebAssembly
  --threads N            of the engine
  --scores               print the score and a TAB before each text
  --json                 print one JSON object for each line
  --debug                show where an error came from

Options of the translation are those of the Python command:
${Object.keys(DEFAULT_OPTIONS).map((name) => `  ${flagOf(name)}`).join("\n")}

example: tfexport-translate bundle/ --beam-size 4 < in.txt > out.txt
`;

type Flags = Record<string, string | boolean | undefined>;

async function main(args: readonly string[]): Promise<void> {
  const [bundle, flags] = parsed(args);
  if (flags["help"] === true) return void process.stdout.write(USAGE);
  if (bundle === undefined) throw new OptionError("no bundle is given; see tfexport-translate --help");
  const changes = chosenOptions(flags);
  const translator = await loadTranslator(bundle, engineOptions(flags));
  const form: Format = flags["json"] ? "json" : flags["scores"] ? "scores" : "text";
  const nBest = changes.n_best ?? translator.default_options.n_best;
  for await (const chunk of translateLines(translator, process.stdin, changes, (message) => say(message))) {
    const written = chunk.map(([line, translation]) => formatted(line, translation, form, nBest)).join("");
    if (!process.stdout.write(written)) await once(process.stdout, "drain");
  }
  await translator.release();
}

function parsed(args: readonly string[]): [string | undefined, Flags] {
  const option = (value: unknown) => ({ type: typeof value === "boolean" ? "boolean" : "string" }) as const;
  const own = { engine: "", threads: "", scores: false, json: false, debug: false, help: false };
  const known = { ...own, ...DEFAULT_OPTIONS };
  const entries = Object.entries(known).map(([name, value]) => [name.replaceAll("_", "-"), option(value)]);
  const options = Object.fromEntries(entries) as Record<string, ReturnType<typeof option>>;
  try {
    const { values, positionals } = parseArgs({ args: [...args], options, allowPositionals: true, allowNegative: true });
    if (positionals.length > 1) throw new Error(`unexpected ${positionals[1]}`);
    return [positionals[0], values as Flags];
  } catch (error) {
    throw new OptionError(`${(error as Error).message.split(". ")[0]}; see tfexport-translate --help`);
  }
}

function engineOptions(flags: Flags): NodeOptions {
  const engine = flags["engine"] ?? "native";
  if (engine !== "native" && engine !== "wasm") throw new OptionError(`--engine must be native or wasm, not ${engine}`);
  return flags["threads"] === undefined ? { engine } : { engine, threads: numberOf("threads", flags["threads"]) };
}

/** What is not given stays as the bundle has it. */
function chosenOptions(flags: Flags): Partial<TranslationOptions> {
  const changes: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(DEFAULT_OPTIONS)) {
    const given = flags[name.replaceAll("_", "-")];
    if (given === undefined) continue;
    if (name === "suppress_tokens") changes[name] = String(given).split(",").map((id) => numberOf(name, id));
    else if (name === "seed") changes[name] = seedOf(String(given));
    else changes[name] = typeof value === "boolean" || name === "length_penalty" ? given : numberOf(name, given);
  }
  return changes as Partial<TranslationOptions>;
}

function seedOf(given: string): bigint {
  if (!/^[0-9]{1,20}$/.test(given)) throw new OptionError(`--seed takes a whole number, not ${given}`);
  return BigInt(given);
}

function numberOf(name: string, given: unknown): number {
  const value = Number(given);
  if (String(given).trim() !== "" && !Number.isNaN(value)) return value;
  throw new OptionError(`--${name.replaceAll("_", "-")} takes a number, not ${String(given)}`);
}

function flagOf(name: string): string {
  const value = DEFAULT_OPTIONS[name as keyof TranslationOptions];
  return `--${name.replaceAll("_", "-")}${typeof value === "boolean" ? "" : " VALUE"}`;
}

function say(message: string): void {
  process.stderr.write(`tfexport-translate: ${message.replace(/\s+/g, " ")}\n`);
}

/** 2 usage, 4 a file or text that cannot be used, 5 something missing on this machine, 1 anything else. */
function statusOf(error: unknown): number {
  if (error instanceof OptionError) return 2;
  if (error instanceof BundleError || error instanceof InputError) return 4;
  return error instanceof UnavailableError ? 5 : 1;
}

process.stdout.on("error", (error: NodeJS.ErrnoException) => process.exit(error.code === "EPIPE" ? 141 : 4));
try {
  await main(process.argv.slice(2));
} catch (error) {
  if (process.argv.includes("--debug")) console.error(error);
  say(error instanceof Error ? error.message : String(error));
  process.exitCode = statusOf(error);
}
