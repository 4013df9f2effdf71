// What the search needs of a model, and what it is asked: the seam between the search and any engine.
//
// Letters: B sentences, K beams, R = B*K rows, N candidates a row, V vocabulary. Row of beam k of sentence b: b*K + k.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tfexport/translation.h"

namespace tfexport {

using Ids = std::vector<std::int64_t>;

/// The best next tokens of every row, best first; of equals, the lower id first. Views: the next step overwrites them.
struct Candidates {
    const float* log_probs;   // [R, N]
    const std::int64_t* ids;  // [R, N]
    std::size_t rows;
    std::size_t count;  // N
};

/// The decoder in the middle of a batch: what it remembers of every row.
class DecoderState {
public:
    virtual ~DecoderState() = default;

    /// tokens [R], the newest of each row; bias [V] is added to the logits and must stay valid until the next step.
    virtual Candidates step(const Ids& tokens, const std::vector<float>& bias, std::size_t count) = 0;

    /// As `step`, but returns the logits [V] of every row as the model gives them; valid until the next step.
    virtual std::vector<const float*> step_logits(const Ids& tokens) = 0;

    /// As `step`, but returns what each row looks at: [R, heads, S] for each of StepModel::attention_names.
    virtual std::vector<FloatArray> step_attention(const Ids& tokens);

    /// rows [R']: the new row r continues the old row rows[r]. Rows of a sentence stay together.
    virtual void select(const std::vector<std::size_t>& rows) = 0;
};

/// A model that decodes step by step.
class StepModel {
public:
    virtual ~StepModel() = default;

    /// Encodes B sources; the state has length 0 and B * beam_size rows.
    virtual std::unique_ptr<DecoderState> start(const std::vector<Ids>& sources, std::size_t beam_size) const = 0;

    /// Outputs that say what tokens look at; none: the bundle was exported without.
    virtual const std::vector<std::string>& attention_names() const;

    /// The encoder's last hidden states, [S, d_model]. Throws OptionError where the bundle was exported without.
    virtual FloatArray encoder_states(const Ids& source) const;
};

/// What the search must know of the target vocabulary and the model.
struct Target {
    std::int64_t vocab_size = 0;
    std::int64_t start_id = 0;
    std::int64_t eos_id = 0;
    Ids never_generated;
    std::int64_t max_length = 0;  // positions of the decoder: all prefixes and generated tokens together
    Ids prefix_ids;               // what the decoder reads behind `start_id` in every sentence; in no hypothesis
};

/// One sentence to decode.
struct Request {
    Ids source;              // ids as the encoder reads them; not empty
    Ids prefix;              // target ids that are given
    std::size_t index = 0;   // its place in the caller's list; callbacks name it
    std::size_t sample = 0;  // which of several samples of the sentence
};

}  // namespace tfexport
