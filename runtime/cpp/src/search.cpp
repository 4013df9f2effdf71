// Letters: B sentences, K beams, R = B*K rows, N candidates a row.
#include "search.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "proposers.h"
#include "tfexport/errors.h"

namespace tfexport {

namespace {

/// The newest token of every row. [R]
Ids newest_tokens(const LiveSentences& live, std::size_t beams) {
    Ids tokens;
    tokens.reserve(live.size() * beams);
    for (const SentenceSearch* sentence : live) {
        for (std::size_t beam = 0; beam < beams; ++beam) tokens.push_back(sentence->token(beam));
    }
    return tokens;
}

ModelOutputError impossible(const char* found, const SentenceSearch& sentence) {
    return ModelOutputError("the decoder gave " + std::string(found) + " for text " +
                            std::to_string(sentence.request().index + 1) +
                            "; verify the bundle with `tfexport verify`");
}

/// The 2K best candidates of one sentence, whose rows begin at `first`, best first.
std::vector<Ranked> rank(const SentenceSearch& sentence, const Candidates& candidates, std::size_t first,
                         std::size_t beams, std::int64_t vocab_size) {
    std::vector<Ranked> ranked;
    ranked.reserve(beams * candidates.count);
    for (std::size_t beam = 0; beam < beams; ++beam) {
        const double sum = sentence.sum(beam);
        for (std::size_t i = (first + beam) * candidates.count; i < (first + beam + 1) * candidates.count; ++i) {
            const double total = sum + static_cast<double>(candidates.log_probs[i]);
            if (std::isnan(total)) throw impossible("NaN", sentence);
            if (candidates.ids[i] < 0 || candidates.ids[i] >= vocab_size)
                throw impossible("an id that is none", sentence);
            ranked.push_back({beam, candidates.ids[i], candidates.log_probs[i], total});
        }
    }
    const std::size_t wanted = std::min(ranked.size(), 2 * beams);
    std::partial_sort(ranked.begin(), ranked.begin() + static_cast<std::ptrdiff_t>(wanted), ranked.end(),
                      [](const Ranked& a, const Ranked& b) {
                          if (a.total != b.total) return a.total > b.total;
                          return a.beam != b.beam ? a.beam < b.beam : a.token < b.token;
                      });
    ranked.resize(wanted);
    if (std::isinf(ranked.front().total)) throw impossible("no token that is possible", sentence);
    return ranked;
}

void report(const LiveSentences& live, const TranslationOptions& options) {
    if (!options.callback) return;
    for (SentenceSearch* sentence : live) {
        if (options.callback(sentence->best_so_far())) sentence->cancel();
    }
}

/// Keeps the unfinished sentences; the last ones fill the gaps, so that little of the cache moves.
/// Returns the old place of each.
std::vector<std::size_t> drop_finished(LiveSentences& live) {
    std::vector<std::size_t> slots;
    std::size_t end = live.size();
    for (std::size_t place = 0; place < end; ++place) {
        if (live[place]->done()) {
            do --end;
            while (end > place && live[end]->done());
            if (end == place) break;
            live[place] = live[end];
            slots.push_back(end);
        } else {
            slots.push_back(place);
        }
    }
    live.resize(end);
    return slots;
}

}  // namespace

std::vector<std::vector<Decoded>> search(const StepModel& model, const std::vector<Request>& requests,
                                         const TranslationOptions& options, const Target& target) {
    const auto beams = static_cast<std::size_t>(options.beam_size);
    std::vector<SentenceSearch> sentences;
    std::vector<Ids> sources;
    for (const Request& request : requests) {
        sentences.emplace_back(request, options, target);
        sources.push_back(request.source);
    }
    LiveSentences live;
    for (SentenceSearch& sentence : sentences) live.push_back(&sentence);
    const std::unique_ptr<Proposer> proposer = make_proposer(options, target);
    const std::unique_ptr<DecoderState> state = model.start(sources, beams);

    while (!live.empty()) {
        const Candidates candidates = proposer->propose(newest_tokens(live, beams), *state, live);
        std::vector<std::vector<std::size_t>> parents;  // [B, K]
        for (std::size_t place = 0; place < live.size(); ++place) {
            parents.push_back(
                live[place]->advance(rank(*live[place], candidates, place * beams, beams, target.vocab_size)));
        }
        report(live, options);
        std::vector<std::size_t> rows;  // old row of every new row, [R']
        for (const std::size_t slot : drop_finished(live)) {
            for (const std::size_t parent : parents[slot]) rows.push_back(slot * beams + parent);
        }
        if (!live.empty()) state->select(rows);
    }

    std::vector<std::vector<Decoded>> results;
    for (const SentenceSearch& sentence : sentences) results.push_back(sentence.result());
    return results;
}

}  // namespace tfexport
