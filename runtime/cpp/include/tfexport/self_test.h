// The golden file of a bundle, run on this device.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tfexport/export.h"
#include "tfexport/translator.h"

namespace tfexport {

/// What a self-test found. It passed when `differences` is empty.
struct SelfTest {
    std::size_t cases = 0;
    double largest_score_difference = 0;   // of scores and token scores, as far as ids agree
    std::vector<std::string> differences;  // one line each, with the text, what was expected and what came out
};

/// Replays golden.json: ids, texts and finish reasons must be equal, scores within `tolerance`. Throws Error.
TFEXPORT_API SelfTest self_test(const Translator& translator, double tolerance = 1e-4);

}  // namespace tfexport
