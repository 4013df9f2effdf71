// What a caller may ask of a translation. Semantics: runtime/SPEC.md, "Search". Names and defaults are those of Python.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tfexport/export.h"

namespace tfexport {

/// How the sum of log-probabilities of a hypothesis becomes its score.
enum class LengthPenalty { none, average, gnmt, word_reward };

/// What a callback sees after each step of a sentence.
struct Progress {
    std::size_t sentence;              // index in the list that was given to translate
    std::size_t sample;                // which of several samples; 0 in beam search
    std::vector<std::int64_t> tokens;  // ids of the best hypothesis so far
    double score;                      // sum of its log-probabilities
};

struct TranslationOptions {
    // Search
    std::int64_t beam_size = 1;  // 1 is greedy search
    std::int64_t n_best = 1;     // hypotheses returned a sentence; at most beam_size unless sampling
    LengthPenalty length_penalty = LengthPenalty::average;
    double alpha = 1.0;              // exponent of `average` and `gnmt`; 0 makes them `none`
    std::int64_t length_offset = 0;  // `average` only: added to the length (1 counts the start token)
    double word_reward = 0.0;        // `word_reward` only: added to the score for each token
    bool early_stopping = false;     // stop at beam_size finished hypotheses, without proof that none better can follow

    // Length of the output in tokens, `eos` included, a hard prefix not
    std::int64_t min_length = 0;                   // `eos` is not allowed before this many other tokens
    std::optional<std::int64_t> max_length;        // absolute; not set: only the ratio and the model limit
    std::optional<double> max_length_ratio = 2.0;  // times source tokens plus max_length_extra; not set: no such limit
    std::int64_t max_length_extra = 50;

    // Sampling, instead of beam search
    bool sampling = false;  // draw tokens; n_best draws that many independent samples
    double temperature = 1.0;
    std::int64_t top_k = 0;  // 0: all
    double top_p = 1.0;      // 1: all
    std::uint64_t seed = 0;

    // Rules on tokens
    std::int64_t no_repeat_ngram_size = 0;      // 0: off; never blocks `eos`
    double repetition_penalty = 1.0;            // 1: off
    std::vector<std::int64_t> suppress_tokens;  // ids that are never generated, beside those of the manifest
    double prefix_strength = 1.0;  // target prefix: 1 forces it, smaller values mix it with the model's distribution

    // Work
    bool truncate_source = false;          // cut a source that is too long, with a warning, instead of refusing it
    std::int64_t max_batch_tokens = 2048;  // source tokens decoded together, padding and beams counted

    /// Called after every step of every sentence, in the thread that translates; true cancels the sentence. Where
    /// batches run at the same time, several threads call it.
    std::function<bool(const Progress&)> callback;
};

/// `base` with the members of a JSON object laid over, such as {"beam_size": 4, "max_length": null}.
/// Throws OptionError for names that do not exist and values of a wrong type.
TFEXPORT_API TranslationOptions with_changes(const TranslationOptions& base, std::string_view json);

/// Where the graphs are run: what the ONNX Runtime that is linked to was built with.
enum class Provider { cpu, cuda };

/// How the graphs are run.
struct SessionOptions {
    int threads = 0;           // of one batch; 0: one for each core that the process may use, shared by the batches
    int parallel_batches = 1;  // batches that are translated at the same time, over one copy of the weights
    Provider provider = Provider::cpu;
    bool spinning = true;     // threads wait actively between operators: fastest, but keeps cores busy; phones: false
    bool prepacking = true;   // false: weights stay as they lie in the file, mapped; loads at once, but runs slower
    bool arena = true;        // keep freed memory for the next step; false needs less, and is slower for large batches
    bool large_pages = true;  // after a second, where Linux gives them on request: steps take 5-15 % less time
    bool verify = true;       // check the SHA-256 of every file, which costs a read of the whole bundle
};

}  // namespace tfexport
