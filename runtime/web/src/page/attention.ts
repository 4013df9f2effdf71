/** The heat map: how much each target token looked at each source token, the mean over the heads of the last output. */

import type { Translation } from "../translation.js";
import { element } from "./element.js";

const END = "⏎"; // of the source or the target

/** Of the best hypothesis of one line; nothing where the bundle does not give attention. */
export function showAttention(translation: Translation | undefined): void {
  const best = translation?.hypotheses[0];
  const rows = (Object.values(best?.attention ?? {}).at(-1) ?? []).map(meanOverHeads);
  element("attention").hidden = rows.length === 0;
  if (translation === undefined || best === undefined || rows.length === 0) return;
  const sources = (translation.source_tokens ?? []).map(written);
  const targets = rows.map((_, t) => written(best.tokens[t] ?? END));
  const corner = cell("td", "", null);
  const head = part("tr", [corner, ...sources.map((token) => cell("th", token, "col"))]);
  const body = rows.map((weights, t) => {
    const shades = weights.map((weight, s) => shade(weight, `${targets[t]} looks at ${sources[s]}`));
    return part("tr", [cell("th", targets[t]!, "row"), ...shades]);
  });
  element("heat-map").replaceChildren(part("thead", [head]), part("tbody", body));
}

function meanOverHeads(heads: readonly Float32Array[]): number[] {
  return Array.from(heads[0] ?? [], (_, s) => heads.reduce((sum, weights) => sum + weights[s]!, 0) / heads.length);
}

/** Without SentencePiece's mark at the beginning of a word, unless there is nothing else. */
function written(token: string): string {
  return /^<\/?s>$/.test(token) ? END : token.replace(/^\u2581(?=.)/u, "").replaceAll("\u2581", "␣");
}

function shade(weight: number, meaning: string): HTMLElement {
  const box = cell("td", "", null);
  const percent = `${Math.round(100 * weight)} %`;
  box.style.setProperty("--weight", weight.toFixed(3));
  box.title = `${meaning}: ${percent}`;
  const text = document.createElement("span");
  text.className = "spoken";
  text.textContent = percent;
  box.append(text);
  return box;
}

function cell(kind: "th" | "td", text: string, scope: "col" | "row" | null): HTMLElement {
  const box = document.createElement(kind);
  box.textContent = text;
  if (scope !== null) box.setAttribute("scope", scope);
  return box;
}

function part(kind: "thead" | "tbody" | "tr", children: readonly HTMLElement[]): HTMLElement {
  const box = document.createElement(kind);
  box.append(...children);
  return box;
}
