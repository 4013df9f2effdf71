// What the search knows of one sentence: its live beams, its finished hypotheses, and when it is done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "step_model.h"
#include "tfexport/options.h"
#include "tfexport/translation.h"

namespace tfexport {

/// One hypothesis as ids.
struct Decoded {
    Ids ids;  // prefix and generated tokens, without `eos`
    double score = 0;
    std::vector<float> token_scores;  // of each id (0 for a hard prefix), then of `eos` if it was reached
    FinishReason finish_reason = FinishReason::eos;
    std::map<std::string, FloatArray> attention;  // on request, as of Hypothesis
};

/// A possible next token of one sentence.
struct Ranked {
    std::size_t beam;
    std::int64_t token;
    float log_prob;
    double total;  // sum of log-probabilities with this token
};

/// The beams of one sentence. `advance` takes the ranked candidates of one step.
class SentenceSearch {
public:
    SentenceSearch(const Request& request, const TranslationOptions& options, const Target& target);

    const Request& request() const { return *request_; }
    bool done() const { return done_; }

    /// How many tokens every live beam has, the hard prefix not counted.
    std::int64_t generated() const { return nodes_[live_.front()].length; }

    /// Sum of a beam; -inf for a row that holds none.
    double sum(std::size_t beam) const;

    /// The newest token of a row; rows without a live beam repeat the first.
    std::int64_t token(std::size_t beam) const { return nodes_[live_[beam < live_.size() ? beam : 0]].token; }

    /// Prefix and generated tokens of a beam; empty for a row that holds none.
    Ids history(std::size_t beam) const;

    /// Takes the 2K best candidates of the step, best first. Returns the parent beam of each new row, K of them.
    std::vector<std::size_t> advance(const std::vector<Ranked>& ranked);

    /// Ends the sentence here, unless it has ended.
    void cancel();

    /// Ids and sum of log-probabilities of the best live beam, or of the best finished hypothesis.
    Progress best_so_far() const;

    /// Finished hypotheses by score; then, where they are too few, the live beams that were cut.
    std::vector<Decoded> result() const;

private:
    /// The newest token of a beam, linked to what came before by its place in `nodes_`.
    struct Node {
        std::size_t parent;
        std::int64_t token;
        float log_prob;
        double total;
        std::int64_t length;  // generated tokens; a hard prefix does not count
    };
    struct Finished {
        double score;
        std::size_t node;
    };

    std::size_t add(std::size_t parent, std::int64_t token, float log_prob, double total, std::int64_t length);
    void finish(std::size_t node);
    double score(const Node& node) const;
    bool nothing_better_can_follow() const;
    std::vector<std::size_t> path(std::size_t node) const;
    Decoded decoded(std::size_t node, double score, FinishReason reason) const;

    const Request* request_;
    const TranslationOptions* options_;
    std::size_t beam_size_;
    std::int64_t eos_id_;
    const Ids* common_prefix_;  // of every sentence: given, in no hypothesis
    std::size_t forced_;        // tokens of a hard prefix: given, not scored
    std::int64_t limit_;
    std::size_t steps_ = 0;
    std::vector<Node> nodes_;
    std::vector<std::size_t> live_;   // places of the live beams in `nodes_`, by rank
    std::vector<Finished> finished_;  // best first, at most K
    bool done_ = false;
    FinishReason cut_ = FinishReason::length;
};

/// The most tokens that may be generated for a source of that many ids; below 1 where a prefix leaves no room.
std::int64_t length_limit(std::size_t source, std::size_t forced, const TranslationOptions& options,
                          const Target& target);

}  // namespace tfexport
