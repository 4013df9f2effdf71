#include "hypothesis.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "length_penalty.h"

namespace tfexport {

namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();
constexpr std::size_t kRoot = 0;  // in front of everything: the start token, or the last of `target.prefix_ids`

}  // namespace

SentenceSearch::SentenceSearch(const Request& request, const TranslationOptions& options, const Target& target)
    : request_(&request),
      options_(&options),
      beam_size_(static_cast<std::size_t>(options.beam_size)),
      eos_id_(target.eos_id),
      common_prefix_(&target.prefix_ids),
      forced_(options.prefix_strength == 1 ? request.prefix.size() : 0),
      limit_(length_limit(request.source.size(), forced_, options, target)),
      nodes_{{kRoot, target.start_id, 0.0F, 0.0, 0}},
      live_{kRoot} {}

double SentenceSearch::sum(std::size_t beam) const {
    return beam < live_.size() ? nodes_[live_[beam]].total : kMinusInfinity;
}

Ids SentenceSearch::history(std::size_t beam) const {
    Ids tokens;
    if (beam >= live_.size()) return tokens;
    for (const std::size_t place : path(live_[beam])) tokens.push_back(nodes_[place].token);
    return tokens;
}

std::vector<std::size_t> SentenceSearch::advance(const std::vector<Ranked>& ranked) {
    std::size_t step = steps_++;
    if (step < common_prefix_->size()) {  // takes the place of the start token, so it is in no history
        nodes_[kRoot].token = (*common_prefix_)[step];
        return std::vector<std::size_t>(beam_size_, 0);
    }
    step -= common_prefix_->size();
    if (step < forced_) {
        live_ = {add(live_.front(), request_->prefix[step], 0, 0, 0)};
        return std::vector<std::size_t>(beam_size_, 0);
    }
    std::vector<std::size_t> parents;
    std::vector<std::size_t> next;
    for (std::size_t rank = 0; rank < ranked.size() && ranked[rank].total != kMinusInfinity; ++rank) {
        const Ranked& candidate = ranked[rank];
        const std::size_t parent = live_[candidate.beam];
        const bool ends = candidate.token == eos_id_;
        if (ends ? rank >= beam_size_ : next.size() >= beam_size_) continue;
        const std::size_t node =
            add(parent, candidate.token, candidate.log_prob, candidate.total, nodes_[parent].length + 1);
        if (ends) {
            finish(node);
        } else {
            next.push_back(node);
            parents.push_back(candidate.beam);
        }
    }
    live_ = std::move(next);
    done_ = live_.empty() || nodes_[live_.front()].length >= limit_ || nothing_better_can_follow();
    parents.resize(beam_size_, parents.empty() ? 0 : parents.front());
    return parents;
}

void SentenceSearch::cancel() {
    if (done_) return;
    done_ = true;
    cut_ = FinishReason::cancelled;
}

Progress SentenceSearch::best_so_far() const {
    const bool ended = done_ && !finished_.empty();
    const std::size_t best = ended ? finished_.front().node : live_.front();
    Progress progress{request_->index, request_->sample, {}, nodes_[best].total};
    for (const std::size_t place : path(best)) progress.tokens.push_back(nodes_[place].token);
    if (ended) progress.tokens.pop_back();
    return progress;
}

std::vector<Decoded> SentenceSearch::result() const {
    std::vector<Decoded> all;
    for (const Finished& f : finished_) all.push_back(decoded(f.node, f.score, FinishReason::eos));
    std::vector<Decoded> cut;
    for (const std::size_t node : live_) cut.push_back(decoded(node, score(nodes_[node]), cut_));
    std::stable_sort(cut.begin(), cut.end(), [](const Decoded& a, const Decoded& b) { return a.score > b.score; });
    all.insert(all.end(), cut.begin(), cut.end());
    const auto wanted = options_->sampling ? std::size_t{1} : static_cast<std::size_t>(options_->n_best);
    if (all.size() > wanted) all.resize(wanted);
    return all;
}

std::size_t SentenceSearch::add(std::size_t parent, std::int64_t token, float log_prob, double total,
                                std::int64_t length) {
    nodes_.push_back({parent, token, log_prob, total, length});
    return nodes_.size() - 1;
}

void SentenceSearch::finish(std::size_t node) {
    const Finished finished{score(nodes_[node]), node};
    const auto worse = [](const Finished& a, const Finished& b) { return a.score > b.score; };
    finished_.insert(std::upper_bound(finished_.begin(), finished_.end(), finished, worse), finished);
    if (finished_.size() > beam_size_) finished_.pop_back();
}

double SentenceSearch::score(const Node& node) const {
    return node.length > 0 ? penalised(node.total, node.length, *options_) : 0.0;  // 0: cancelled in its prefix
}

/// True when no live beam can beat the worst kept hypothesis, however it goes on.
bool SentenceSearch::nothing_better_can_follow() const {
    if (finished_.size() < beam_size_) return false;
    if (beam_size_ == 1 || options_->early_stopping) return true;
    const Node& best = nodes_[live_.front()];
    // No later log-probability is positive, and a penalty is monotone in the length: one of the ends is the bound.
    const double bound =
        std::max(penalised(best.total, best.length + 1, *options_), penalised(best.total, limit_, *options_));
    return bound <= finished_.back().score;
}

/// From the first token to this one, without the start token.
std::vector<std::size_t> SentenceSearch::path(std::size_t node) const {
    std::vector<std::size_t> places;
    for (; node != kRoot; node = nodes_[node].parent) places.push_back(node);
    std::reverse(places.begin(), places.end());
    return places;
}

Decoded SentenceSearch::decoded(std::size_t node, double score, FinishReason reason) const {
    Decoded decoded;
    decoded.score = score;
    decoded.finish_reason = reason;
    for (const std::size_t place : path(node)) {
        if (place != node || reason != FinishReason::eos) decoded.ids.push_back(nodes_[place].token);
        decoded.token_scores.push_back(nodes_[place].log_prob);
    }
    return decoded;
}

std::int64_t length_limit(std::size_t source, std::size_t forced, const TranslationOptions& options,
                          const Target& target) {
    std::int64_t limit = target.max_length - static_cast<std::int64_t>(target.prefix_ids.size() + forced);
    if (options.max_length) limit = std::min(limit, *options.max_length);
    if (options.max_length_ratio) {  // it may be infinite
        const double by_ratio =
            std::min(*options.max_length_ratio * static_cast<double>(source), static_cast<double>(target.max_length));
        const std::int64_t extra = std::min(options.max_length_extra, target.max_length);
        limit = std::min(limit, static_cast<std::int64_t>(by_ratio) + extra);
    }
    return limit;
}

}  // namespace tfexport
