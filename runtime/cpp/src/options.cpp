#include "options.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tfexport/errors.h"

namespace tfexport {

namespace {

constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();

template <typename T>
std::string said(T value) {
    std::ostringstream text;
    text.imbue(std::locale::classic());
    text << value;
    return text.str();
}

/// Collects a message for each condition that does not hold.
class Conditions {
public:
    template <typename T>
    void require(bool holds, const char* rule, T found) {
        if (!holds) problems.push_back(std::string(rule) + ", not " + said(found));
    }
    void require(bool holds, const std::string& problem) {
        if (!holds) problems.push_back(problem);
    }
    Problems problems;
};

bool within(double value, double least, double most) { return least <= value && value <= most; }  // NaN is not

/// A step must always find a token that it may generate.
bool leaves_a_token(const TranslationOptions& o, const Target& target) {
    std::set<std::int64_t> forbidden(target.never_generated.begin(), target.never_generated.end());
    forbidden.insert(o.suppress_tokens.begin(), o.suppress_tokens.end());
    if (o.min_length > 0) forbidden.insert(target.eos_id);
    return static_cast<std::int64_t>(forbidden.size()) < target.vocab_size;
}

}  // namespace

TranslationOptions with_changes(const TranslationOptions& base, std::string_view json) {
    TranslationOptions options = base;
    Problems problems;
    try {
        const Json changes = parse_json(json, "options");
        ObjectReader reader(changes, "", problems, ObjectReader::Missing::allowed);
        read_options(reader, options, false);
        reader.finish();
    } catch (const BundleError& error) {
        throw OptionError(error.what());
    }
    if (!problems.empty()) throw OptionError("options: " + joined(problems));
    return options;
}

void read_options(ObjectReader& reader, TranslationOptions& o, bool bounded) {
    const std::int64_t most_beams = bounded ? 1024 : kHuge;
    reader.integer("beam_size", o.beam_size, bounded ? 1 : kLeast, most_beams);
    reader.integer("n_best", o.n_best, bounded ? 1 : kLeast, most_beams);
    static constexpr const char* kNames[] = {"none", "average", "gnmt", "word_reward"};
    std::string penalty = kNames[static_cast<int>(o.length_penalty)];
    reader.choice("length_penalty", penalty, {kNames[0], kNames[1], kNames[2], kNames[3]});
    o.length_penalty = static_cast<LengthPenalty>(std::find(kNames, kNames + 4, penalty) - kNames);
    reader.number("alpha", o.alpha);
    reader.integer("length_offset", o.length_offset, kLeast);
    reader.number("word_reward", o.word_reward);
    reader.boolean("early_stopping", o.early_stopping);
    reader.integer("min_length", o.min_length, kLeast);
    reader.integer("max_length", o.max_length, kLeast);
    reader.number("max_length_ratio", o.max_length_ratio);
    reader.integer("max_length_extra", o.max_length_extra, kLeast);
    reader.boolean("sampling", o.sampling);
    reader.number("temperature", o.temperature);
    reader.integer("top_k", o.top_k, kLeast);
    reader.number("top_p", o.top_p);
    reader.unsigned_integer("seed", o.seed);
    reader.integer("no_repeat_ngram_size", o.no_repeat_ngram_size, kLeast);
    reader.number("repetition_penalty", o.repetition_penalty);
    reader.integers("suppress_tokens", o.suppress_tokens, std::size_t{1} << 20);
    reader.number("prefix_strength", o.prefix_strength);
    reader.boolean("truncate_source", o.truncate_source);
    reader.integer("max_batch_tokens", o.max_batch_tokens, bounded ? 1 : kLeast, bounded ? 1 << 24 : kHuge);
}

Problems contradictions(const TranslationOptions& o, const Target& target) {
    Conditions c;
    c.require(o.beam_size >= 1, "beam_size must be at least 1", o.beam_size);
    c.require(o.n_best >= 1, "n_best must be at least 1", o.n_best);
    c.require(o.sampling || o.n_best <= o.beam_size,
              "n_best " + said(o.n_best) + " needs a beam_size of at least " + said(o.n_best));
    c.require(!o.sampling || o.beam_size == 1, "sampling and beam search exclude each other; leave beam_size at 1");
    c.require(within(o.alpha, -10, 10), "alpha must be in [-10, 10]", o.alpha);
    c.require(within(o.word_reward, -1e6, 1e6), "word_reward must be in [-1e6, 1e6]", o.word_reward);
    c.require(o.length_offset >= 0, "length_offset must not be negative", o.length_offset);
    c.require(o.min_length >= 0, "min_length must not be negative", o.min_length);
    c.require(o.max_length.value_or(1) >= 1, "max_length must be at least 1", o.max_length.value_or(1));
    c.require(o.min_length <= o.max_length.value_or(kHuge),
              "min_length " + said(o.min_length) + " is above max_length " + said(o.max_length.value_or(kHuge)));
    c.require(o.max_length_ratio.value_or(0) >= 0, "max_length_ratio must not be negative",
              o.max_length_ratio.value_or(0));
    c.require(o.max_length_extra >= 0, "max_length_extra must not be negative", o.max_length_extra);
    c.require(within(o.temperature, 1e-9, 1e9),
              "temperature must be in [1e-9, 1e9]; for the best token use greedy search", o.temperature);
    c.require(o.top_k >= 0, "top_k must not be negative", o.top_k);
    c.require(o.top_p > 0 && o.top_p <= 1, "top_p must be in (0, 1]", o.top_p);
    c.require(o.no_repeat_ngram_size >= 0, "no_repeat_ngram_size must not be negative", o.no_repeat_ngram_size);
    c.require(within(o.repetition_penalty, 1e-3, 1e3), "repetition_penalty must be in [0.001, 1000]",
              o.repetition_penalty);
    const auto known = [&](std::int64_t id) { return id >= 0 && id < target.vocab_size; };
    c.require(std::all_of(o.suppress_tokens.begin(), o.suppress_tokens.end(), known),
              "suppress_tokens must be ids below the vocabulary size " + said(target.vocab_size));
    c.require(o.prefix_strength > 0 && o.prefix_strength <= 1, "prefix_strength must be in (0, 1]", o.prefix_strength);
    c.require(!o.sampling || o.prefix_strength == 1,
              "sampling and a soft prefix exclude each other; leave prefix_strength at 1");
    c.require(o.max_batch_tokens >= 1, "max_batch_tokens must be at least 1", o.max_batch_tokens);
    if (c.problems.empty()) {
        c.require(leaves_a_token(o, target),
                  "suppress_tokens, min_length and the bundle together leave no token to generate");
    }
    return c.problems;
}

void check_options(const TranslationOptions& options, const Target& target) {
    const Problems problems = contradictions(options, target);
    if (!problems.empty()) throw OptionError(joined(problems));
}

}  // namespace tfexport
