// Lines of text in, lines of text out. A line ends with LF (a CR before it is dropped); as many come out as go in.
#pragma once

#include <istream>
#include <ostream>

#include "arguments.h"
#include "tfexport/translator.h"

namespace tfexport::cli {

/// Translates in chunks as the lines arrive. Throws Error with the number of the line.
void translate_lines(const Translator& translator, const Arguments& arguments, const TranslationOptions& options,
                     std::istream& in, std::ostream& out, std::ostream& warnings);

}  // namespace tfexport::cli
