// The manifest's own digest: its last key, over the text with that digest zeroed. See SPEC.md, "Bundle".
#pragma once

#include <string>
#include <string_view>

namespace tfexport {

/// Throws BundleError if the text is not the one that was sealed. Text without a digest passes.
void check_seal(std::string_view text, const std::string& origin);

}  // namespace tfexport
