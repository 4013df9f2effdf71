// What comes out of a translation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tfexport/export.h"

namespace tfexport {

/// Why a hypothesis ended: with the end token, at its limit of tokens, or by the callback.
enum class FinishReason { eos, length, cancelled };

/// Numbers of any shape, the last axis running fastest.
struct FloatArray {
    std::vector<std::size_t> shape;
    std::vector<float> values;
};

/// One translation of a text.
struct Hypothesis {
    std::string text;
    std::vector<std::string> tokens;  // written form of `ids`
    std::vector<std::int64_t> ids;    // prefix and generated tokens, without `eos`
    double score = 0;                 // sum of log-probabilities under the length penalty
    std::vector<float> token_scores;  // log-probability of each token (0 for a hard prefix), then of `eos` if reached
    FinishReason finish_reason = FinishReason::eos;
    /// On request, by output: what each of the tokens in `token_scores` looked at, [tokens, heads, source ids].
    std::map<std::string, FloatArray> attention;

    /// True when it was cut before `eos`.
    bool truncated() const { return finish_reason != FinishReason::eos; }
};

/// The hypotheses of one text, best first; there is always at least one.
struct Translation {
    std::vector<Hypothesis> hypotheses;
    std::string warning;  // what was done to the source, such as "was cut from 80 to 60 tokens"; mostly empty

    const Hypothesis& best() const { return hypotheses.front(); }
    const std::string& text() const { return best().text; }
};

/// "eos", "length" or "cancelled".
TFEXPORT_API const char* name_of(FinishReason reason) noexcept;

}  // namespace tfexport
