// The search: one loop for greedy, beam and sampling. See SPEC.md, "Search".
#pragma once

#include <vector>

#include "hypothesis.h"
#include "step_model.h"
#include "tfexport/options.h"

namespace tfexport {

/// Decodes all requests together; for each the hypotheses, best first. The options are checked already.
/// Throws ModelOutputError when the model gives NaN.
std::vector<std::vector<Decoded>> search(const StepModel& model, const std::vector<Request>& requests,
                                         const TranslationOptions& options, const Target& target);

}  // namespace tfexport
