// SHA-256, FIPS 180-4.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tfexport {

/// A digest that is fed piece by piece. Uses the SHA instructions of the processor where it has them.
class Sha256 {
public:
    void update(std::string_view bytes);

    /// Lower-case hexadecimal. The object is used up.
    std::string hex();

private:
    std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    std::array<unsigned char, 64> block_{};
    std::size_t filled_ = 0;
    std::uint64_t size_ = 0;
};

}  // namespace tfexport
