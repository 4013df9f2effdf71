/** Small checks that add up to a type: each names every problem of a value, and all are reported at once. */

import { BundleError } from "./errors.js";

const SHOWN_PROBLEMS = 6; // of a long list, in an error message

/** Adds what is wrong with `value`, which stands at `where`. */
export type Check = (value: unknown, where: string, problems: string[]) => void;

export function raiseAll(problems: readonly string[], origin: string): void {
  if (problems.length === 0) return;
  const more = problems.length > SHOWN_PROBLEMS ? `; and ${problems.length - SHOWN_PROBLEMS} more` : "";
  throw new BundleError(`${origin}: ${problems.slice(0, SHOWN_PROBLEMS).join("; ")}${more}`);
}

export const anything: Check = () => undefined;

export function whole(least: number, most: number): Check {
  return (value, where, problems) => {
    // Between 2^53 and 2^64 a whole number is a BigInt.
    const fine = Number.isInteger(value) || typeof value === "bigint";
    if (!fine) problems.push(`${where} must be a whole number, not ${shown(value)}`);
    else if ((value as number) < least || (value as number) > most) {
      problems.push(`${where} must be from ${least} to ${most}, not ${shown(value)}`);
    }
  };
}

export const number: Check = (value, where, problems) => {
  if (typeof value !== "number" && typeof value !== "bigint") {
    problems.push(`${where} must be a number, not ${shown(value)}`);
  }
};

export const flag: Check = (value, where, problems) => {
  if (typeof value !== "boolean") problems.push(`${where} must be true or false, not ${shown(value)}`);
};

export function orNull(check: Check): Check {
  return (value, where, problems) => {
    if (value !== null) check(value, where, problems);
  };
}

export function text(least: number, most: number, pattern = /[^]*/): Check {
  return (value, where, problems) => {
    if (typeof value !== "string") problems.push(`${where} must be a string, not ${shown(value)}`);
    else if (value.length < least || value.length > most) {
      problems.push(`${where} has ${value.length} characters, allowed are ${least} to ${most}`);
    } else if (!matches(pattern, value)) problems.push(`${where} is not allowed: ${shown(value)}`);
  };
}

export function oneOf(...choices: readonly string[]): Check {
  return (value, where, problems) => {
    if (!choices.includes(value as string)) {
      problems.push(`${where} must be one of ${choices.join(", ")}, not ${shown(value)}`);
    }
  };
}

export function either(one: Check, other: Check): Check {
  return (value, where, problems) => {
    const attempts = [one, other].map((check) => {
      const found: string[] = [];
      check(value, where, found);
      return found;
    });
    if (attempts.every((found) => found.length > 0)) problems.push(...attempts[0]!);
  };
}

export function list(item: Check, least: number, most: number): Check {
  return (value, where, problems) => {
    if (!Array.isArray(value)) problems.push(`${where} must be a list, not ${shown(value)}`);
    else if (value.length < least || value.length > most) {
      problems.push(`${where} holds ${value.length} items, allowed are ${least} to ${most}`);
    } else for (const [i, v] of value.entries()) item(v, `${where}[${i}]`, problems);
  };
}

/** Any keys that match the pattern as a whole. */
export function record(item: Check, least: number, most: number, pattern = /[^]*/): Check {
  return (value, where, problems) => {
    if (!isObject(value)) return void problems.push(`${where} must be an object, not ${shown(value)}`);
    const entries = Object.entries(value);
    if (entries.length < least || entries.length > most) {
      problems.push(`${where} holds ${entries.length} members, allowed are ${least} to ${most}`);
    }
    for (const [key, v] of entries) {
      if (!matches(pattern, key)) problems.push(`${where}: ${shown(key)} is not allowed here`);
      item(v, `${where}.${key}`, problems);
    }
  };
}

/** Exactly these keys; `optional` ones may be missing. */
export function object(required: Record<string, Check>, optional: Record<string, Check> = {}): Check {
  const checks = { ...required, ...optional };
  return (value, where, problems) => {
    if (!isObject(value)) return void problems.push(`${where || "the whole"} must be an object, not ${shown(value)}`);
    const prefix = where === "" ? "" : `${where}.`;
    for (const key of Object.keys(value)) {
      if (!Object.hasOwn(checks, key)) problems.push(`unknown field ${prefix}${shown(key).slice(1, -1)}`);
    }
    for (const [key, check] of Object.entries(checks)) {
      if (Object.hasOwn(value, key)) check(value[key], prefix + key, problems);
      else if (Object.hasOwn(required, key)) problems.push(`missing field ${prefix}${key}`);
    }
  };
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** A value for an error message: on one line, cut where it is long. */
export function shown(value: unknown): string {
  const written = typeof value === "object" && value !== null ? (Array.isArray(value) ? "list" : "object") : literal(value);
  return written.length <= 60 ? written : `${written.slice(0, 60)}...`;
}

function literal(value: unknown): string {
  return typeof value === "string" ? JSON.stringify(value) : String(value);
}

function matches(pattern: RegExp, value: string): boolean {
  return new RegExp(`^(?:${pattern.source})$`).test(value);
}
