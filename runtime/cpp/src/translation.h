// Text in, text out, over any step model: tokenise, batch, search, detokenise, put back in order.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "step_model.h"
#include "tfexport/options.h"
#include "tfexport/translation.h"
#include "tokenizer.h"

namespace tfexport {

/// The tokenizer of one side, and what the model knows of it.
struct Vocabulary {
    std::shared_ptr<const Tokenizer> tokenizer;
    std::int64_t size;    // of the model
    std::int64_t unk_id;  // stands for ids beyond it

    Ids encode(std::string_view text) const;
};

/// How text becomes what the encoder reads, and what the decoder gives becomes text.
struct Vocabularies {
    Vocabulary source;
    Vocabulary target;
    Ids before;  // ids in front of every source
    Ids after;   // ids behind it
    std::size_t max_source_length = 0;
};

/// What the encoder reads; empty for a text without tokens. `index` is the place of the text in the caller's list;
/// `warning` gets what was done to it. Throws InputError.
Ids source_ids(const std::string& text, std::size_t index, const Vocabularies& vocabularies,
               const TranslationOptions& options, std::string& warning);

/// See Translator::translate. parallel_batches: how many are translated at the same time.
std::vector<Translation> translate(const StepModel& model, const Vocabularies& vocabularies, const Target& target,
                                   const std::vector<std::string>& texts, const TranslationOptions& options,
                                   const std::vector<std::string>& prefixes, std::size_t parallel_batches = 1,
                                   bool attention = false);

/// Requests of similar length together, the longest first, so that the largest buffers are asked for once;
/// `max_batch_tokens` source tokens at most, beams counted. Where `parallel` batches run at the same time, there are
/// that many if there are requests for them.
std::vector<std::vector<Request>> batches(std::vector<Request> requests, const TranslationOptions& options,
                                          std::size_t parallel = 1);

}  // namespace tfexport
