// What the parts of a manifest must have to do with each other.
#pragma once

#include <cstddef>
#include <string_view>

#include "manifest.h"
#include "strict_json.h"

namespace tfexport {

/// Whether a file may be a graph of any format: a plain name with the ending of one.
bool is_graph_name(std::string_view name);

/// Every contradiction between the parts; the parts themselves are right.
Problems contradictions(const Manifest& manifest);

/// Sizes of graphs whose every shape is a number.
struct FixedShape {
    std::size_t rows = 0;        // R, of the decoder
    std::size_t source = 0;      // S
    std::size_t target = 0;      // T
    std::size_t heads = 0;       // of the self-attention cache
    std::size_t head_size = 0;   // likewise
    std::size_t candidates = 0;  // N
};

/// Throws BundleError for a manifest whose graphs have no such sizes.
FixedShape fixed_shape(const Manifest& manifest);

}  // namespace tfexport
