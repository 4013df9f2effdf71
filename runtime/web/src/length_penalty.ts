/** How the sum of log-probabilities of a hypothesis becomes its score. See SPEC.md, "Length penalty". */

import type { TranslationOptions } from "./options.js";

/** (sum of log-probabilities, length in tokens with `eos`) -> score. Monotone in the length. */
export type LengthPenalty = (total: number, length: number) => number;

export function lengthPenalty(options: TranslationOptions): LengthPenalty {
  const { alpha, length_offset: offset, word_reward: reward } = options;
  switch (options.length_penalty) {
    case "none":
      return (total) => total;
    case "average":
      return (total, length) => total / (length + offset) ** alpha;
    case "gnmt": // Wu et al. 2016, equation 14
      return (total, length) => total / ((5 + length) / 6) ** alpha;
    case "word_reward":
      return (total, length) => total + reward * length;
  }
}
