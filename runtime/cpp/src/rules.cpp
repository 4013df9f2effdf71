#include "rules.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tfexport {

namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

void penalise_repetition(std::vector<float>& logits, Ids history, float penalty) {
    std::sort(history.begin(), history.end());
    history.erase(std::unique(history.begin(), history.end()), history.end());
    for (const std::int64_t id : history) {
        float& logit = logits[static_cast<std::size_t>(id)];
        logit = logit > 0 ? logit / penalty : logit * penalty;
    }
}

}  // namespace

bool needs_all_logits(const TranslationOptions& options) {
    return options.no_repeat_ngram_size > 0 || options.repetition_penalty != 1 || options.prefix_strength != 1;
}

std::vector<float> common_bias(const TranslationOptions& options, const Target& target, std::int64_t generated) {
    std::vector<float> bias(static_cast<std::size_t>(target.vocab_size), 0.0F);
    for (const std::int64_t id : target.never_generated) bias[static_cast<std::size_t>(id)] = kMinusInfinity;
    for (const std::int64_t id : options.suppress_tokens) bias[static_cast<std::size_t>(id)] = kMinusInfinity;
    if (generated < options.min_length) bias[static_cast<std::size_t>(target.eos_id)] = kMinusInfinity;
    return bias;
}

void apply_rules(std::vector<float>& logits, const Ids& history, const std::vector<float>& bias,
                 const TranslationOptions& options, const Target& target) {
    if (options.repetition_penalty != 1) {
        penalise_repetition(logits, history, static_cast<float>(options.repetition_penalty));
    }
    for (const std::int64_t id : repeating_tokens(history, options.no_repeat_ngram_size)) {
        if (id != target.eos_id) logits[static_cast<std::size_t>(id)] = kMinusInfinity;
    }
    bool nothing_left = true;
    for (std::size_t id = 0; id < logits.size(); ++id) {
        logits[id] += bias[id];
        nothing_left = nothing_left && logits[id] == kMinusInfinity;
    }
    if (nothing_left) logits[static_cast<std::size_t>(target.eos_id)] = 0;  // the hypothesis ends
}

Ids repeating_tokens(const Ids& history, std::int64_t size) {
    Ids blocked;
    if (size <= 0 || size > static_cast<std::int64_t>(history.size())) return blocked;
    const std::ptrdiff_t known = size - 1;
    const auto last = history.end() - known;
    for (auto start = history.begin(); start + known < history.end(); ++start) {
        if (std::equal(last, history.end(), start)) blocked.push_back(start[known]);
    }
    return blocked;
}

void log_softmax(std::vector<float>& logits) {
    float largest = kMinusInfinity;
    for (const float logit : logits) largest = std::max(largest, logit);
    double sum = 0;
    for (float& logit : logits) {
        logit -= largest;
        sum += static_cast<double>(std::exp(logit));
    }
    const float log_sum = std::log(static_cast<float>(sum));
    for (float& logit : logits) logit -= log_sum;
}

void mix_prefix(std::vector<float>& log_probs, std::int64_t wanted, double strength) {
    const auto rest = static_cast<float>(std::log1p(-strength));
    for (float& log_prob : log_probs) log_prob += rest;
    float& mixed = log_probs[static_cast<std::size_t>(wanted)];
    const auto given = static_cast<float>(std::log(strength));
    const float larger = std::max(mixed, given);
    const float smaller = std::min(mixed, given);
    mixed = std::isnan(mixed) ? mixed : std::min(0.0F, larger + std::log1p(std::exp(smaller - larger)));
}

}  // namespace tfexport
