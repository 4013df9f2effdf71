// A fuzz target for what is read before anything is trusted: zips, manifests, graphs and token lists.
// Build with clang and TFEXPORT_BUILD_FUZZER=ON, run for a minute: fuzz_bundle -max_total_time=60
#include <cstddef>
#include <cstdint>

#include "bundle.h"
#include "bundle_fixture.h"
#include "external_data.h"
#include "tfexport/errors.h"

using namespace tfexport;

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

namespace {

template <typename Work>
void refusing(Work work) {
    try {
        work();
    } catch (const Error&) {
        return;  // what it should say; anything else ends the run
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
    switch (data[0] % 5) {
        case 0:
            refusing([&] { Bundle::from_memory(input.data(), input.size(), false).tokenizers(); });
            break;
        case 1:
            refusing([&] { read_manifest(input, "bundle.json"); });
            break;
        case 2:
            refusing([&] {
                std::map<std::string, std::uint64_t, std::less<>> shifts;
                for (const std::string& location : external_locations(input)) shifts[location] = 64;
                external_locations(with_moved_data(input, "a.zip", shifts));
            });
            break;
        case 3:
            refusing([&] { load_tokenizer("words", input, 0)->encode(input); });
            break;
        default:
            refusing([&] { with_changes({}, input); });
    }
    return 0;
}

/// Every other input begins as a right bundle, so that changes reach what lies behind the first checks.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed) {
    static const std::string zip = test::zip_of(test::small_bundle());
    static const std::string manifest = test::small_bundle().at("bundle.json");
    const std::string& start = seed % 4 < 2 ? zip : manifest;
    if (seed % 16 < 4 && start.size() + 1 <= most) {
        data[0] = static_cast<std::uint8_t>(seed % 4 < 2 ? 0 : 1);
        std::copy(start.begin(), start.end(), data + 1);
        size = start.size() + 1;
    }
    return LLVMFuzzerMutate(data, size, most);
}
