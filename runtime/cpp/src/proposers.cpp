#include "proposers.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "rules.h"

namespace tfexport {

namespace {

/// K + 1 of each row: without `eos`, K live on.
std::size_t candidate_count(const TranslationOptions& options, const Target& target) {
    return static_cast<std::size_t>(std::min(options.beam_size + 1, target.vocab_size));
}

/// What the proposers on the host share: the options, and the candidates that they hand out.
class HostProposer : public Proposer {
protected:
    HostProposer(const TranslationOptions& options, const Target& target) : options_(options), target_(target) {}

    std::vector<float> copied(const float* logits) const { return {logits, logits + target_.vocab_size}; }

    Candidates candidates(std::size_t count) const { return {best_.data(), ids_.data(), ids_.size() / count, count}; }

    const TranslationOptions& options_;
    const Target& target_;
    std::vector<float> best_;
    Ids ids_;
};

/// The fast way: the graph ranks the tokens, and only K + 1 a row leave it.
class GraphCandidates final : public HostProposer {
public:
    GraphCandidates(const TranslationOptions& options, const Target& target)
        : HostProposer(options, target),
          count_(candidate_count(options, target)),
          open_(common_bias(options, target, options.min_length)),
          without_eos_(common_bias(options, target, 0)) {}

    Candidates propose(const Ids& tokens, DecoderState& state, const LiveSentences& live) override {
        const bool first = below(*live.front());
        const bool same =
            std::all_of(live.begin(), live.end(), [&](const SentenceSearch* s) { return below(*s) == first; });
        if (same) return state.step(tokens, first ? without_eos_ : open_, count_);
        // Prefixes of unequal length: some sentences may end and others may not.
        const std::vector<const float*> logits = state.step_logits(tokens);
        best_.clear();
        ids_.clear();
        for (std::size_t r = 0; r < tokens.size(); ++r) {
            const auto& bias = below(*live[r * live.size() / tokens.size()]) ? without_eos_ : open_;
            append_best_of_logits(logits[r], bias, count_, best_, ids_);
        }
        return candidates(count_);
    }

private:
    bool below(const SentenceSearch& sentence) const { return sentence.generated() < options_.min_length; }

    std::size_t count_;
    std::vector<float> open_;
    std::vector<float> without_eos_;
};

/// All logits come to the host, because a rule looks at what each row has generated.
class RuledCandidates final : public HostProposer {
public:
    RuledCandidates(const TranslationOptions& options, const Target& target) : HostProposer(options, target) {}

    Candidates propose(const Ids& tokens, DecoderState& state, const LiveSentences& live) override {
        const std::vector<const float*> logits = state.step_logits(tokens);
        const std::size_t beams = tokens.size() / live.size();
        const std::size_t count = candidate_count(options_, target_);
        best_.clear();
        ids_.clear();
        for (std::size_t r = 0; r < tokens.size(); ++r) {
            append_best(log_probs(copied(logits[r]), *live[r / beams], r % beams), count, best_, ids_);
        }
        return candidates(count);
    }

private:
    std::vector<float> log_probs(std::vector<float> logits, const SentenceSearch& sentence, std::size_t beam) const {
        const Ids history = sentence.history(beam);
        apply_rules(logits, history, common_bias(options_, target_, sentence.generated()), options_, target_);
        log_softmax(logits);
        const Ids& prefix = sentence.request().prefix;
        if (options_.prefix_strength < 1 && history.size() < prefix.size() &&
            std::equal(history.begin(), history.end(), prefix.begin())) {
            mix_prefix(logits, prefix[history.size()], options_.prefix_strength);
        }
        return logits;
    }
};

/// One token a row, drawn from its distribution with the specified generator.
class SampledCandidates final : public HostProposer {
public:
    SampledCandidates(const TranslationOptions& options, const Target& target) : HostProposer(options, target) {}

    Candidates propose(const Ids& tokens, DecoderState& state, const LiveSentences& live) override {
        const std::vector<const float*> logits = state.step_logits(tokens);
        best_.clear();
        ids_.clear();
        for (std::size_t r = 0; r < live.size(); ++r) {
            const SentenceSearch& sentence = *live[r];
            std::vector<float> ruled = copied(logits[r]);
            apply_rules(ruled, sentence.history(0), common_bias(options_, target_, sentence.generated()), options_,
                        target_);
            const Request& request = sentence.request();
            const Block block = draw_block(options_.seed, static_cast<std::uint32_t>(sentence.generated()),
                                           static_cast<std::uint32_t>(request.sample), fnv1a_64(request.source));
            const std::int64_t token = draw_token(ruled, options_, block);
            log_softmax(ruled);
            ids_.push_back(token);
            best_.push_back(ruled[static_cast<std::size_t>(token)]);
        }
        return candidates(1);
    }
};

/// The ids that top-k and then top-p leave, in ascending order.
template <typename Weight>
Ids kept_ids(const std::vector<float>& logits, const TranslationOptions& options, const Weight& weight) {
    Ids ids(logits.size());
    std::iota(ids.begin(), ids.end(), 0);
    if (options.top_k == 0 && options.top_p == 1) return ids;
    const auto before = [&](std::int64_t a, std::int64_t b) {
        const float x = logits[static_cast<std::size_t>(a)];
        const float y = logits[static_cast<std::size_t>(b)];
        return x != y ? x > y : a < b;
    };
    std::size_t kept = ids.size();
    if (options.top_k > 0) kept = std::min(kept, static_cast<std::size_t>(options.top_k));
    std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(kept), ids.end(), before);
    ids.resize(kept);
    if (options.top_p < 1) {
        std::vector<double> mass(kept);
        double sum = 0;
        for (std::size_t j = 0; j < kept; ++j) mass[j] = sum += weight(ids[j]);
        const auto last = std::lower_bound(mass.begin(), mass.end(), options.top_p * sum);
        if (last != mass.end()) ids.resize(static_cast<std::size_t>(last - mass.begin()) + 1);
    }
    std::sort(ids.begin(), ids.end());
    return ids;
}

}  // namespace

std::unique_ptr<Proposer> make_proposer(const TranslationOptions& options, const Target& target) {
    if (options.sampling) return std::make_unique<SampledCandidates>(options, target);
    if (needs_all_logits(options)) return std::make_unique<RuledCandidates>(options, target);
    return std::make_unique<GraphCandidates>(options, target);
}

std::int64_t draw_token(const std::vector<float>& logits, const TranslationOptions& options, const Block& block) {
    // NaN makes every log-probability NaN, which the search finds; it must not reach the sort.
    if (std::any_of(logits.begin(), logits.end(), [](float z) { return std::isnan(z); })) return 0;
    const auto largest = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
    const auto weight = [&](std::int64_t id) {
        return std::exp((static_cast<double>(logits[static_cast<std::size_t>(id)]) - largest) / options.temperature);
    };
    std::int64_t drawn = 0;
    double earliest = std::numeric_limits<double>::infinity();
    ExponentialTimes times(block);
    for (const std::int64_t id : kept_ids(logits, options, weight)) {
        const double time = times.of(id) / weight(id);
        if (time < earliest) {
            earliest = time;
            drawn = id;
        }
    }
    return drawn;
}

void append_best(const std::vector<float>& log_probs, std::size_t count, std::vector<float>& best, Ids& ids) {
    const auto better = [&](std::int64_t a, std::int64_t b) {
        const float x = log_probs[static_cast<std::size_t>(a)];
        const float y = log_probs[static_cast<std::size_t>(b)];
        return x != y ? x > y : a < b;
    };
    Ids heap;  // the best so far, the worst of them on top
    for (std::size_t id = 0; id < log_probs.size(); ++id) {
        const float value = log_probs[id];
        if (std::isnan(value)) {
            heap.assign(count, static_cast<std::int64_t>(id));
            break;
        }
        if (heap.size() == count) {
            if (!(value > log_probs[static_cast<std::size_t>(heap.front())])) continue;  // of equals the lower id stays
            std::pop_heap(heap.begin(), heap.end(), better);
            heap.pop_back();
        }
        heap.push_back(static_cast<std::int64_t>(id));
        std::push_heap(heap.begin(), heap.end(), better);
    }
    if (!std::isnan(log_probs[static_cast<std::size_t>(heap.front())]))
        std::sort_heap(heap.begin(), heap.end(), better);
    for (const std::int64_t id : heap) {
        best.push_back(log_probs[static_cast<std::size_t>(id)]);
        ids.push_back(id);
    }
}

void append_best_of_logits(const float* logits, const std::vector<float>& bias, std::size_t count,
                           std::vector<float>& best, Ids& ids) {
    std::vector<float> log_probs(bias.size());
    std::transform(bias.begin(), bias.end(), logits, log_probs.begin(), std::plus<>());
    log_softmax(log_probs);
    append_best(log_probs, count, best, ids);
}

}  // namespace tfexport
