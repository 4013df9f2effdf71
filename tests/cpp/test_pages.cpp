// Memory that is given back to the system, or gets large pages; where it is not Linux, little is checked.
#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "bundle_fixture.h"
#include "check.h"
#include "files.h"
#include "pages.h"

#ifdef __linux__
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#endif

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

#ifdef __linux__
TEST(what_was_written_over_a_mapped_file_stays) {
    const test::Folder folder({{"weights.bin", std::string(kSize, 'w')}});
    const int file = ::open((folder.path / "weights.bin").c_str(), O_RDONLY | O_CLOEXEC);
    auto* memory = static_cast<char*>(::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0));
    ::close(file);
    memory[kSize / 2] = 'x';
    drop_pages_of({folder.path / "weights.bin"});
    CHECK(memory[kSize / 2] == 'x' && memory[0] == 'w');
    ::munmap(memory, kSize);
}
#endif

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

TEST(whole_pages_are_those_of_which_every_part_is_new) {
    const auto pages = [](std::vector<AddressRange> now, std::vector<AddressRange> before) {
        for (auto* ranges : {&now, &before}) {
            for (AddressRange& range : *ranges) range = {range.begin * kLargePage / 4, range.end * kLargePage / 4};
        }
        std::vector<std::uintptr_t> found;
        for (const auto& [begin, end] : whole_pages(now, before)) {
            for (std::uintptr_t page = begin; page < end; page += kLargePage) found.push_back(page / kLargePage);
        }
        return found;
    };
    using Pages = std::vector<std::uintptr_t>;
    CHECK(pages({}, {{0, 8}}).empty());
    CHECK((pages({{0, 8}}, {}) == Pages{0, 1}));
    CHECK((pages({{1, 11}}, {}) == Pages{1}));
    CHECK((pages({{0, 20}}, {{6, 9}}) == Pages{0, 3, 4}));
    CHECK((pages({{0, 4}, {5, 20}}, {{0, 2}, {7, 8}, {18, 30}}) == Pages{2, 3}));
    CHECK(pages({{4, 8}}, {{0, 12}}).empty());
}

TEST(new_memory_keeps_its_content_in_large_pages) {
    LargePagesSoon soon;
    const std::string content(2 * kSize, 'l');
    std::vector<char> memory(content.begin(), content.end());
    LargePagesSoon().start();  // ended at once
    soon.start();
    std::this_thread::sleep_for(std::chrono::milliseconds(1200));
    CHECK(std::equal(memory.begin(), memory.end(), content.begin(), content.end()));
}
