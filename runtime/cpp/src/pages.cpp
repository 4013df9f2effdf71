#include "pages.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>

#ifdef __linux__
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace tfexport {

namespace {

constexpr auto kSoon = std::chrono::seconds(1);
constexpr std::size_t kLarge = 2 * kLargePage;

/// A line "7f12a0000000-7f12a0021000 rw-p 00000000 00:00 0 [heap]" of /proc/self/maps.
struct Mapping {
    AddressRange addresses;
    std::string access;
    std::string name;  // a path, a word in brackets, or nothing
};

/// None where it is not Linux. /proc/self/smaps would say more, and count all pages for it: milliseconds.
std::vector<Mapping> mappings() {
    std::vector<Mapping> found;
    std::ifstream lines("/proc/self/maps");
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        Mapping mapping;
        std::string skipped;
        char dash = 0;
        words >> std::hex >> mapping.addresses.begin >> dash >> mapping.addresses.end;
        words >> mapping.access >> skipped >> skipped >> skipped >> std::ws;
        std::getline(words, mapping.name);
        found.push_back(std::move(mapping));
    }
    return found;
}

#ifdef __linux__
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25  // from Linux 6.1 on; older ones refuse it, and move the memory in their own time
#endif

/// For the whole pages of a block.
void advise(void* begin, std::size_t size, int advice) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    if (std::align(page, page, begin, size) != nullptr) ::madvise(begin, size / page * page, advice);
}

/// Whether this process has written to none of these pages of a file: what is written would be lost with them.
bool all_as_in_file(AddressRange memory) {
    constexpr std::uint64_t kThere = std::uint64_t{3} << 62;  // in memory, or moved out to the disk
    constexpr std::uint64_t kOfFile = std::uint64_t{1} << 61;
    const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    const int file = ::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);  // 64 bits for each page
    std::vector<std::uint64_t> states((memory.end - memory.begin) / page);
    const std::size_t size = states.size() * sizeof(std::uint64_t);
    const auto place = static_cast<off_t>(memory.begin / page * sizeof(std::uint64_t));
    const bool read = file >= 0 && ::pread(file, states.data(), size, place) == static_cast<ssize_t>(size);
    if (file >= 0) ::close(file);
    return read && std::none_of(states.begin(), states.end(),
                                [](std::uint64_t state) { return (state & kThere) != 0 && (state & kOfFile) == 0; });
}

void drop(void* begin, std::size_t size) { advise(begin, size, MADV_DONTNEED); }
void enlarge(void* begin, std::size_t size) { advise(begin, size, MADV_HUGEPAGE); }
void enlarge_now(void* begin, std::size_t size) { advise(begin, size, MADV_COLLAPSE); }
#else
bool all_as_in_file(AddressRange) { return false; }
void drop(void*, std::size_t) {}
void enlarge(void*, std::size_t) {}
void enlarge_now(void*, std::size_t) {}
#endif

void* address(std::uintptr_t number) { return reinterpret_cast<void*>(number); }  // NOLINT(performance-no-int-to-ptr)

}  // namespace

void drop_pages(void* begin, std::size_t size) { drop(begin, size); }

void drop_pages_of(const std::vector<std::filesystem::path>& files) {
    std::set<std::string> wanted;
    std::error_code failed;
    for (const auto& file : files) wanted.insert(std::filesystem::canonical(file, failed).string());
    wanted.erase("");
    for (const Mapping& mapping : mappings()) {
        const auto [begin, end] = mapping.addresses;
        if (wanted.count(mapping.name) > 0 && all_as_in_file(mapping.addresses)) drop(address(begin), end - begin);
    }
}

void use_large_pages(void* begin, std::size_t size) {
    if (size >= kLarge) enlarge(begin, size);
}

std::vector<AddressRange> private_memory() {
    std::vector<AddressRange> found;
    for (const Mapping& mapping : mappings()) {
        const bool of_no_file = mapping.name.empty() || mapping.name == "[heap]";
        if (mapping.access == "rw-p" && of_no_file) found.push_back(mapping.addresses);
    }
    return found;
}

std::vector<AddressRange> whole_pages(const std::vector<AddressRange>& now, const std::vector<AddressRange>& before) {
    std::vector<AddressRange> pages;
    const auto add = [&pages](std::uintptr_t begin, std::uintptr_t end) {
        const std::uintptr_t first = (begin + kLargePage - 1) / kLargePage * kLargePage;
        const std::uintptr_t last = end / kLargePage * kLargePage;
        if (first < last) pages.push_back({first, last});
    };
    for (const AddressRange& memory : now) {
        std::uintptr_t begin = memory.begin;
        for (const AddressRange& old : before) {
            if (begin >= old.end || old.begin >= memory.end) continue;
            add(begin, old.begin);
            begin = old.end;
        }
        add(begin, memory.end);
    }
    return pages;
}

void LargePagesSoon::start() {
    if (before_.empty()) return;  // not Linux
    try {
        thread_ = std::thread([this] { wait(); });
    } catch (const std::system_error&) {  // no more threads: small pages will do
        before_.clear();
    }
}

LargePagesSoon::~LargePagesSoon() {
    {
        const std::scoped_lock lock(mutex_);
        ended_ = true;
    }
    end_.notify_all();
    if (thread_.joinable()) thread_.join();
}

/// Memory that is freed meanwhile, or a system without large pages: what cannot be done is not done.
void LargePagesSoon::wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    if (end_.wait_for(lock, kSoon, [this] { return ended_; })) return;
    for (const auto& [begin, end] : whole_pages(private_memory(), before_)) {
        enlarge(address(begin), end - begin);
        enlarge_now(address(begin), end - begin);
    }
}

}  // namespace tfexport
