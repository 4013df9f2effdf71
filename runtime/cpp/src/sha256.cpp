#include "sha256.h"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__) && defined(__GNUC__)
#define TFEXPORT_SHA_X86 1
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace tfexport {

namespace {

alignas(16) constexpr std::uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

using State = std::array<std::uint32_t, 8>;
using Compress = void (*)(State& state, const unsigned char* data, std::size_t blocks);

std::uint32_t rotated(std::uint32_t x, int n) { return (x >> n) | (x << (32 - n)); }

void compress_portable(State& state, const unsigned char* data, std::size_t blocks) {
    for (; blocks > 0; --blocks, data += 64) {
        std::uint32_t w[64];
        for (int i = 0; i < 16; ++i) {
            w[i] = std::uint32_t{data[4 * i]} << 24 | std::uint32_t{data[4 * i + 1]} << 16 |
                   std::uint32_t{data[4 * i + 2]} << 8 | data[4 * i + 3];
        }
        for (int i = 16; i < 64; ++i) {
            const std::uint32_t s0 = rotated(w[i - 15], 7) ^ rotated(w[i - 15], 18) ^ (w[i - 15] >> 3);
            const std::uint32_t s1 = rotated(w[i - 2], 17) ^ rotated(w[i - 2], 19) ^ (w[i - 2] >> 10);
            w[i] = w[i - 16] + s0 + w[i - 7] + s1;
        }
        State s = state;
        for (int i = 0; i < 64; ++i) {
            const std::uint32_t s1 = rotated(s[4], 6) ^ rotated(s[4], 11) ^ rotated(s[4], 25);
            const std::uint32_t t1 = s[7] + s1 + ((s[4] & s[5]) ^ (~s[4] & s[6])) + kRound[i] + w[i];
            const std::uint32_t s0 = rotated(s[0], 2) ^ rotated(s[0], 13) ^ rotated(s[0], 22);
            const std::uint32_t t2 = s0 + ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
            s = {t1 + t2, s[0], s[1], s[2], s[3] + t1, s[4], s[5], s[6]};
        }
        for (std::size_t i = 0; i < 8; ++i) state[i] += s[i];
    }
}

#ifdef TFEXPORT_SHA_X86
// The instructions keep the state as ABEF and CDGH; four rounds take four words of the schedule at a time.
__attribute__((target("sha,sse4.1"))) void compress_x86(State& state, const unsigned char* data, std::size_t blocks) {
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    const __m128i dcba = _mm_loadu_si128(reinterpret_cast<const __m128i*>(state.data()));
    const __m128i hgfe = _mm_loadu_si128(reinterpret_cast<const __m128i*>(state.data() + 4));
    const __m128i cdab = _mm_shuffle_epi32(dcba, 0xB1);
    const __m128i efgh = _mm_shuffle_epi32(hgfe, 0x1B);
    __m128i abef = _mm_alignr_epi8(cdab, efgh, 8);
    __m128i cdgh = _mm_blend_epi16(efgh, cdab, 0xF0);
    for (; blocks > 0; --blocks, data += 64) {
        const __m128i abef_before = abef;
        const __m128i cdgh_before = cdgh;
        __m128i w[4];
        for (int group = 0; group < 16; ++group) {
            __m128i& words = w[group & 3];
            if (group < 4) {
                const auto* source = reinterpret_cast<const __m128i*>(data + 16 * group);
                words = _mm_shuffle_epi8(_mm_loadu_si128(source), swap);
            } else {
                const __m128i minus7 = _mm_alignr_epi8(w[(group + 3) & 3], w[(group + 2) & 3], 4);
                words = _mm_add_epi32(_mm_sha256msg1_epu32(words, w[(group + 1) & 3]), minus7);
                words = _mm_sha256msg2_epu32(words, w[(group + 3) & 3]);
            }
            const auto* constants = reinterpret_cast<const __m128i*>(kRound + 4 * group);
            const __m128i sum = _mm_add_epi32(words, _mm_load_si128(constants));
            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0E));
        }
        abef = _mm_add_epi32(abef, abef_before);
        cdgh = _mm_add_epi32(cdgh, cdgh_before);
    }
    const __m128i feba = _mm_shuffle_epi32(abef, 0x1B);
    const __m128i dchg = _mm_shuffle_epi32(cdgh, 0xB1);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(state.data()), _mm_blend_epi16(feba, dchg, 0xF0));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(state.data() + 4), _mm_alignr_epi8(dchg, feba, 8));
}

bool has_sha_instructions() {
    unsigned a = 0;
    unsigned b = 0;
    unsigned c = 0;
    unsigned d = 0;
    if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & bit_SSE4_1) == 0) return false;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & bit_SHA) != 0;
}
#endif

Compress best_compress() {
#ifdef TFEXPORT_SHA_X86
    if (has_sha_instructions()) return compress_x86;
#endif
    return compress_portable;
}

void compress(State& state, const unsigned char* data, std::size_t blocks) {
    static const Compress best = best_compress();
    best(state, data, blocks);
}

}  // namespace

void Sha256::update(std::string_view bytes) {
    if (bytes.empty()) return;
    const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
    std::size_t left = bytes.size();
    size_ += left;
    if (filled_ > 0) {
        const std::size_t taken = std::min(left, block_.size() - filled_);
        std::memcpy(block_.data() + filled_, data, taken);
        filled_ += taken;
        data += taken;
        left -= taken;
        if (filled_ < block_.size()) return;
        compress(state_, block_.data(), 1);
        filled_ = 0;
    }
    compress(state_, data, left / 64);
    filled_ = left % 64;
    std::memcpy(block_.data(), data + left - filled_, filled_);
}

std::string Sha256::hex() {
    const std::uint64_t bits = size_ * 8;
    const std::size_t zeros = (filled_ < 56 ? 56 : 120) - filled_;
    std::string padding(zeros, '\0');
    padding[0] = '\x80';
    for (int shift = 56; shift >= 0; shift -= 8) padding += static_cast<char>(bits >> shift);
    update(padding);
    std::string text;
    for (const std::uint32_t word : state_) {
        for (int shift = 28; shift >= 0; shift -= 4) text += "0123456789abcdef"[(word >> shift) & 15];
    }
    return text;
}

}  // namespace tfexport
