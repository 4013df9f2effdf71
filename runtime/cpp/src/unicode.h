// UTF-8, and what counts as white space. See SPEC.md, "Tokenizers".
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace tfexport {

/// Whether the text is UTF-8: no overlong forms, no halves of surrogate pairs, nothing beyond U+10FFFF.
bool is_utf8(std::string_view text);

/// The code points of a text that is UTF-8, each as its bytes.
std::vector<std::string_view> code_points(std::string_view text);

/// The text without white space at both ends: Unicode's White_Space, U+200B and U+FEFF.
std::string_view trimmed(std::string_view text);

/// The parts between white space.
std::vector<std::string_view> words(std::string_view text);

}  // namespace tfexport
