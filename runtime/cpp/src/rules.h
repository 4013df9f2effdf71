// Rules on tokens: what they do to the logits of one row before the softmax. See SPEC.md, "Rules on tokens".
#pragma once

#include <cstdint>
#include <vector>

#include "step_model.h"
#include "tfexport/options.h"

namespace tfexport {

/// True when a rule depends on what a row has generated, so that a bias common to all rows cannot express it.
bool needs_all_logits(const TranslationOptions& options);

/// -inf on the tokens that no row may generate now, 0 elsewhere. [V]
std::vector<float> common_bias(const TranslationOptions& options, const Target& target, std::int64_t generated);

/// Changes the logits [V] of one row by all rules, in the order of the specification. `history` has the prefix.
void apply_rules(std::vector<float>& logits, const Ids& history, const std::vector<float>& bias,
                 const TranslationOptions& options, const Target& target);

/// The tokens that would complete an n-gram of that size which the history holds already.
Ids repeating_tokens(const Ids& history, std::int64_t size);

/// In place, natural logarithm, float32; the sum alone is taken in float64.
void log_softmax(std::vector<float>& logits);

/// log((1 - strength) * p + strength * [token is wanted]), in place: a soft prefix. [V]
void mix_prefix(std::vector<float>& log_probs, std::int64_t wanted, double strength);

}  // namespace tfexport
