// How fast a bundle runs on this machine.
#pragma once

#include <ostream>

#include "tfexport/translator.h"

namespace tfexport::cli {

/// Times the sentences of the golden file, one at a time and all together; prints milliseconds a sentence and tokens a
/// second, the best of several repeats.
void bench(const Translator& translator, const TranslationOptions& options, std::ostream& out);

}  // namespace tfexport::cli
