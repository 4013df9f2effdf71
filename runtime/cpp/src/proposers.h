// Where the candidates of a step come from: the graph itself, the graph's logits under rules, or a draw.
#pragma once

#include <memory>
#include <vector>

#include "hypothesis.h"
#include "random.h"
#include "step_model.h"
#include "tfexport/options.h"

namespace tfexport {

using LiveSentences = std::vector<SentenceSearch*>;

/// The strategy that differs between ways of searching.
class Proposer {
public:
    virtual ~Proposer() = default;

    /// One step for tokens [R] of the live sentences.
    virtual Candidates propose(const Ids& tokens, DecoderState& state, const LiveSentences& live) = 0;
};

std::unique_ptr<Proposer> make_proposer(const TranslationOptions& options, const Target& target);

/// A token of the distribution after temperature, then top-k, then top-p: the first in a race of random times.
/// logits [V]; block: what draw_block gives for the step.
std::int64_t draw_token(const std::vector<float>& logits, const TranslationOptions& options, const Block& block);

/// Appends the `count` best of a row [V], best first; of equals the lower id. NaN comes first, so that it is found.
void append_best(const std::vector<float>& log_probs, std::size_t count, std::vector<float>& best, Ids& ids);

/// The same of log-softmax(logits + bias), both [V].
void append_best_of_logits(const float* logits, const std::vector<float>& bias, std::size_t count,
                           std::vector<float>& best, Ids& ids);

}  // namespace tfexport
