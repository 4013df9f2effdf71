// The counter-based generator behind sampling: the same numbers in every language and in every batch.
//
// Philox4x32-10, Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3". See SPEC.md, "Sampling".
#pragma once

#include <array>
#include <cstdint>

#include "step_model.h"

namespace tfexport {

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

/// A number in [0, 1) with 24 bits.
double uniform(std::uint64_t seed, std::uint32_t step, std::uint32_t sample, std::uint64_t stream);

/// FNV-1a over the ids, each as four bytes, the lowest first: what tells one sentence's numbers from another's.
std::uint64_t fnv1a_64(const Ids& ids);

}  // namespace tfexport
