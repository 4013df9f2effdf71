#include "random.h"

#include <cmath>

namespace tfexport {

Block philox4x32(Block c, std::array<std::uint32_t, 2> k) {
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t p0 = std::uint64_t{0xD2511F53} * c[0];
        const std::uint64_t p1 = std::uint64_t{0xCD9E8D57} * c[2];
        c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ k[0], static_cast<std::uint32_t>(p1),
             static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ k[1], static_cast<std::uint32_t>(p0)};
        k[0] += 0x9E3779B9;
        k[1] += 0xBB67AE85;
    }
    return c;
}

Block draw_block(std::uint64_t seed, std::uint32_t step, std::uint32_t sample, std::uint64_t stream) {
    return philox4x32({step, sample, static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)},
                      {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
}

double ExponentialTimes::of(std::int64_t id) {
    if (id / 4 != held_) {
        held_ = id / 4;
        words_ = philox4x32({static_cast<std::uint32_t>(held_), 0, block_[2], block_[3]}, {block_[0], block_[1]});
    }
    return -std::log((words_.at(static_cast<std::size_t>(id % 4)) + 0.5) * 0x1p-32);
}

std::uint64_t fnv1a_64(const Ids& ids) {
    std::uint64_t value = 0xCBF29CE484222325;
    for (const std::int64_t id : ids) {
        for (int shift = 0; shift < 32; shift += 8) {
            value = (value ^ ((static_cast<std::uint64_t>(id) >> shift) & 0xFF)) * 0x100000001B3;
        }
    }
    return value;
}

}  // namespace tfexport
