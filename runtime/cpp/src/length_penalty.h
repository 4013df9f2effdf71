// How the sum of log-probabilities of a hypothesis becomes its score. See SPEC.md, "Length penalty".
#pragma once

#include <cstdint>

#include "tfexport/options.h"

namespace tfexport {

/// `length` counts the generated tokens with `eos`. Monotone in it.
double penalised(double sum, std::int64_t length, const TranslationOptions& options);

}  // namespace tfexport
