/** The form of options: what it shows, and what it says to the translator. */

import type { LengthPenaltyName, TranslationOptions } from "../options.js";
import { element } from "./element.js";

const SLIDERS = ["beam_size", "n_best", "alpha", "temperature"] as const;

/** The bundle's defaults where they are given, and the number beside each slider. */
export function showOptions(form: HTMLFormElement, defaults: TranslationOptions | null): void {
  if (defaults !== null) {
    if (defaults.beam_size > 1) field(form, "beam_size").value = String(defaults.beam_size);
    if (defaults.n_best > 1) field(form, "n_best").value = String(defaults.n_best);
    for (const name of ["length_penalty", "alpha", "temperature"] as const) field(form, name).value = String(defaults[name]);
  }
  const sampling = field(form, "sampling").checked;
  for (const name of ["beam_size", "length_penalty", "alpha"] as const) field(form, name).disabled = sampling;
  for (const name of ["temperature", "seed"] as const) field(form, name).disabled = !sampling;
  for (const name of SLIDERS) element(`${name}-value`).textContent = field(form, name).value;
}

export function readOptions(form: HTMLFormElement): Partial<TranslationOptions> {
  const wanted = number(form, "n_best");
  if (field(form, "sampling").checked) {
    const seed = Math.max(0, Math.floor(number(form, "seed")) || 0);
    return { sampling: true, beam_size: 1, n_best: wanted, temperature: number(form, "temperature"), seed };
  }
  const beam_size = number(form, "beam_size");
  return {
    beam_size,
    n_best: Math.min(wanted, beam_size),
    length_penalty: field(form, "length_penalty").value as LengthPenaltyName,
    alpha: number(form, "alpha"),
  };
}

function number(form: HTMLFormElement, name: string): number {
  return Number(field(form, name).value);
}

function field(form: HTMLFormElement, name: string): HTMLInputElement {
  return form.elements.namedItem(name) as HTMLInputElement;
}
