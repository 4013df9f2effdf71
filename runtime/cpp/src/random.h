// The counter-based generator behind sampling: the same numbers in every language and in every batch.
//
// Philox4x32-10, Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3". See SPEC.md, "Sampling".
#pragma once

#include <array>
#include <cstdint>

#include "step_model.h"

namespace tfexport {

using Block = std::array<std::uint32_t, 4>;

Block philox4x32(Block counter, std::array<std::uint32_t, 2> key);

/// What tells the draws of a step from all others.
Block draw_block(std::uint64_t seed, std::uint32_t step, std::uint32_t sample, std::uint64_t stream);

/// For one id after another, a time above 0 of the exponential distribution of rate 1.
class ExponentialTimes {
public:
    explicit ExponentialTimes(const Block& block) : block_(block) {}

    double of(std::int64_t id);

private:
    Block block_;
    std::int64_t held_ = -1;  // four ids share a block of words
    Block words_{};
};

/// FNV-1a over the ids, each as four bytes, the lowest first: what tells one sentence's numbers from another's.
std::uint64_t fnv1a_64(const Ids& ids);

}  // namespace tfexport
