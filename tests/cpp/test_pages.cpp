// Memory that is given back to the system; where it is not Linux, nothing is checked.
#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "bundle_fixture.h"
#include "check.h"
#include "files.h"
#include "pages.h"

using namespace tfexport;

namespace {

constexpr std::size_t kSize = std::size_t{8} << 20;

/// What this process has in memory; 0 where the system does not say.
std::size_t resident_bytes() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
        if (line.rfind("VmRSS:", 0) == 0) return std::stoul(line.substr(6)) << 10;
    }
    return 0;
}

}  // namespace

TEST(pages_of_a_mapped_file_are_given_back_and_come_again) {
    const test::Folder folder({{"weights.bin", std::string(kSize, 'w')}, {"other.bin", std::string(kSize, 'o')}});
    const Bytes weights = map_file(folder.path / "weights.bin");
    const Bytes other = map_file(folder.path / "other.bin");
    const auto count = [](const Bytes& bytes) { return std::count(bytes.view.begin(), bytes.view.end(), 'w'); };
    CHECK(count(weights) == kSize && count(other) == 0);
    const std::size_t before = resident_bytes();
    drop_pages_of({folder.path / "weights.bin", folder.path / "missing.bin"});
    const std::size_t after = resident_bytes();
    CHECK(before == 0 || before - after > kSize * 9 / 10);
    CHECK(before == 0 || before - after < kSize * 3 / 2);
    CHECK(count(weights) == kSize && count(other) == 0);
}

TEST(pages_of_a_block_are_given_back_but_for_its_ends) {
    std::vector<char> memory(kSize, 'm');
    const std::size_t before = resident_bytes();
    drop_pages(memory.data() + 1, kSize - 2);
    const std::size_t after = resident_bytes();
    CHECK(before == 0 || before - after > kSize * 9 / 10);
    CHECK(memory.front() == 'm' && memory.back() == 'm');
    drop_pages(memory.data(), 100);
    CHECK(memory.front() == 'm');
}
