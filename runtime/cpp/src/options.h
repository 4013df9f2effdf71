// Options out of JSON, and the check of all of them before any work.
#pragma once

#include <string>

#include "step_model.h"
#include "strict_json.h"
#include "tfexport/options.h"

namespace tfexport {

/// Lays the members that are there over `options`. `bounded`: the defaults of a bundle may not ask for unreasonable
/// memory; a caller may. The reader must allow missing members.
void read_options(ObjectReader& reader, TranslationOptions& options, bool bounded);

/// What is wrong with the options, all contradictions at once; empty if nothing is.
Problems contradictions(const TranslationOptions& options, const Target& target);

/// Throws OptionError.
void check_options(const TranslationOptions& options, const Target& target);

}  // namespace tfexport
