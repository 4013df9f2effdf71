// What a bundle gives on request of its export: what tokens look at, the encoder's states. See SPEC.md, section 3.
//
// Letters: R rows, T tokens, S source length.
#pragma once

#include <string>
#include <vector>

#include "hypothesis.h"
#include "manifest.h"
#include "step_model.h"

namespace tfexport {

constexpr const char* kEncoderState = "encoder_state";  // output of the encoder

/// Outputs of the decoder that say what tokens look at; none where they were not asked for at export.
std::vector<std::string> attention_names(const Manifest& manifest);

/// Whether the encoder gives its states.
bool gives_encoder_states(const Manifest& manifest);

/// Throws OptionError for a model that does not give attention.
void check_attention(const StepModel& model);

/// Adds to the hypotheses of one source, which are read once more for it, by output [T, heads, S]; T as of
/// token_scores. Throws ModelOutputError.
void add_attention(const StepModel& model, const Ids& source, std::vector<Decoded>& hypotheses, const Target& target);

}  // namespace tfexport
