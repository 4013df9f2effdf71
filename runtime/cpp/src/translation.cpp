#include "translation.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <functional>
#include <map>
#include <thread>

#include "further_outputs.h"
#include "hypothesis.h"
#include "options.h"
#include "search.h"
#include "tfexport/errors.h"
#include "unicode.h"

namespace tfexport {

namespace {

Ids prefix_ids(const std::vector<std::string>& prefixes, std::size_t index, const Vocabularies& vocabularies) {
    if (prefixes.empty()) return {};
    if (!is_utf8(prefixes[index])) throw InputError("has a prefix that is not UTF-8; convert it first", index);
    Ids ids = vocabularies.target.encode(prefixes[index]);
    const auto size = static_cast<std::int64_t>(vocabularies.target.tokenizer->size());
    if (std::any_of(ids.begin(), ids.end(), [&](std::int64_t id) { return id >= size; })) {
        throw InputError("has a prefix that the target tokenizer does not know", index);
    }
    return ids;
}

void check_room(const Request& request, const TranslationOptions& options, const Target& target) {
    const std::size_t forced = options.prefix_strength == 1 ? request.prefix.size() : 0;
    const auto room = target.max_length - static_cast<std::int64_t>(target.prefix_ids.size());
    if (static_cast<std::int64_t>(forced) >= room) {
        throw InputError("has a prefix of " + std::to_string(forced) +
                             " tokens, which leaves no room to generate; the model takes " + std::to_string(room),
                         request.index);
    }
    if (length_limit(request.source.size(), forced, options, target) < 1) {
        throw InputError(
            "has " + std::to_string(request.source.size()) +
                " tokens, for which max_length_ratio and max_length_extra allow no output; raise one of them",
            request.index);
    }
}

Hypothesis in_words(const Decoded& decoded, const Tokenizer& tokenizer) {
    Hypothesis h{tokenizer.decode(decoded.ids),
                 {},
                 decoded.ids,
                 decoded.score,
                 decoded.token_scores,
                 decoded.finish_reason,
                 decoded.attention};
    for (const std::int64_t id : decoded.ids) h.tokens.push_back(tokenizer.token(id));
    return h;
}

/// Does work 0 to count-1 in order, `threads` of it at the same time. Throws what the first of it throws, and leaves
/// out what has not begun by then.
void in_parallel(std::size_t count, std::size_t threads, const std::function<void(std::size_t)>& work) {
    std::atomic<std::size_t> next{0};
    std::vector<std::exception_ptr> failures(count);
    const auto run = [&] {
        for (std::size_t i = next++; i < count; i = next++) {
            try {
                work(i);
            } catch (...) {
                failures[i] = std::current_exception();
                next = count;
            }
        }
    };
    std::vector<std::thread> others;
    for (std::size_t i = 1; i < std::min(count, threads); ++i) others.emplace_back(run);
    run();
    for (std::thread& other : others) other.join();
    for (const std::exception_ptr& failure : failures) {
        if (failure) std::rethrow_exception(failure);
    }
}

}  // namespace

Ids Vocabulary::encode(std::string_view text) const {
    Ids ids = tokenizer->encode(text);
    for (std::int64_t& id : ids) id = id < size ? id : unk_id;
    return ids;
}

Ids source_ids(const std::string& text, std::size_t index, const Vocabularies& vocabularies,
               const TranslationOptions& options, std::string& warning) {
    if (!is_utf8(text)) throw InputError("is not UTF-8; convert it first", index);
    Ids ids = vocabularies.source.encode(text);
    if (ids.empty()) return ids;
    const std::size_t added = vocabularies.before.size() + vocabularies.after.size();
    const std::size_t room = vocabularies.max_source_length - std::min(added, vocabularies.max_source_length);
    if (ids.size() > room) {
        const std::string found = std::to_string(ids.size());
        if (!options.truncate_source) {
            throw InputError("has " + found + " tokens, the model takes " + std::to_string(room) +
                                 "; split it, or allow truncate_source",
                             index);
        }
        warning = "was cut from " + found + " to " + std::to_string(room) + " tokens";
        ids.resize(room);
    }
    ids.insert(ids.begin(), vocabularies.before.begin(), vocabularies.before.end());
    ids.insert(ids.end(), vocabularies.after.begin(), vocabularies.after.end());
    return ids;
}

std::vector<Translation> translate(const StepModel& model, const Vocabularies& vocabularies, const Target& target,
                                   const std::vector<std::string>& texts, const TranslationOptions& options,
                                   const std::vector<std::string>& prefixes, std::size_t parallel_batches,
                                   bool attention) {
    if (!prefixes.empty() && prefixes.size() != texts.size()) {
        throw OptionError(std::to_string(prefixes.size()) + " prefixes for " + std::to_string(texts.size()) + " texts");
    }
    check_options(options, target);
    if (attention) check_attention(model);
    std::vector<Translation> translations(texts.size());
    std::vector<Request> requests;
    for (std::size_t i = 0; i < texts.size(); ++i) {
        Request request{source_ids(texts[i], i, vocabularies, options, translations[i].warning), {}, i, 0};
        if (request.source.empty()) {
            translations[i].hypotheses.emplace_back();  // no tokens, no text, score 0
            continue;
        }
        request.prefix = prefix_ids(prefixes, i, vocabularies);
        const auto samples = static_cast<std::size_t>(options.sampling ? options.n_best : 1);
        for (; request.sample < samples; ++request.sample) requests.push_back(request);
    }
    for (const Request& request : requests) {
        check_room(request, options, target);
    }
    std::map<std::pair<std::size_t, std::size_t>, std::vector<Decoded>> found;  // by text and sample
    const auto planned = batches(std::move(requests), options, parallel_batches);
    std::vector<std::vector<std::vector<Decoded>>> decoded(planned.size());
    in_parallel(planned.size(), parallel_batches, [&](std::size_t batch) {
        decoded[batch] = search(model, planned[batch], options, target);
        for (std::size_t i = 0; attention && i < planned[batch].size(); ++i) {
            add_attention(model, planned[batch][i].source, decoded[batch][i], target);
        }
    });
    for (std::size_t batch = 0; batch < planned.size(); ++batch) {
        for (std::size_t i = 0; i < planned[batch].size(); ++i) {
            found[{planned[batch][i].index, planned[batch][i].sample}] = std::move(decoded[batch][i]);
        }
    }
    for (const auto& [place, hypotheses] : found) {
        for (const Decoded& d : hypotheses) {
            translations[place.first].hypotheses.push_back(in_words(d, *vocabularies.target.tokenizer));
        }
    }
    for (Translation& t : translations) {  // in order already, unless they are samples
        std::stable_sort(t.hypotheses.begin(), t.hypotheses.end(),
                         [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
    }
    return translations;
}

std::vector<std::vector<Request>> batches(std::vector<Request> requests, const TranslationOptions& options,
                                          std::size_t parallel) {
    auto limit = static_cast<double>(options.max_batch_tokens);
    if (parallel > 1) {
        double total = 0;
        for (const Request& request : requests) total += static_cast<double>(request.source.size());
        limit =
            std::min(limit, std::ceil(total * static_cast<double>(options.beam_size) / static_cast<double>(parallel)));
    }
    std::stable_sort(requests.begin(), requests.end(),
                     [](const Request& a, const Request& b) { return a.source.size() > b.source.size(); });
    std::vector<std::vector<Request>> all;
    for (Request& request : requests) {
        const bool first = all.empty();
        const double rows =
            first ? 0 : static_cast<double>(all.back().size() + 1) * static_cast<double>(options.beam_size);
        const double tokens = first ? 0 : rows * static_cast<double>(all.back().front().source.size());
        if (first || tokens > limit) all.emplace_back();
        all.back().push_back(std::move(request));
    }
    return all;
}

const char* name_of(FinishReason reason) noexcept {
    switch (reason) {
        case FinishReason::eos:
            return "eos";
        case FinishReason::length:
            return "length";
        case FinishReason::cancelled:
            return "cancelled";
    }
    return "";
}

}  // namespace tfexport
