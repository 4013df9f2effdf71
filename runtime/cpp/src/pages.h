// What Linux and Android are told of a model's memory: what of it is not needed, and what is large. Elsewhere nothing
// is done.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <thread>
#include <vector>

namespace tfexport {

constexpr std::uintptr_t kLargePage = std::uintptr_t{2} << 20;  // bytes, where a small page has 4 KiB

/// Addresses, without the last.
struct AddressRange {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
};

/// The whole pages of a block, whose content is then lost.
void drop_pages(void* begin, std::size_t size);

/// The pages of files, whoever in this process has mapped them: what is needed again comes back by itself.
void drop_pages_of(const std::vector<std::filesystem::path>& files);

/// Large pages for a block that is at least as large as some of them: it is there faster, and read faster.
void use_large_pages(void* begin, std::size_t size);

/// Where this process has memory of its own, lowest address first.
std::vector<AddressRange> private_memory();

/// What of `now` is not in `before`, as far as it fills large pages. Both are in order and do not overlap.
std::vector<AddressRange> whole_pages(const std::vector<AddressRange>& now, const std::vector<AddressRange>& before);

/// Moves what is allocated from its making to its start into large pages, in the background: moving 100 MB takes 50 ms,
/// which a process that lives less than a second had better not spend. A step reads every weight once, and with small
/// pages it waits for their addresses: 5 to 15 % of its time.
class LargePagesSoon {
public:
    LargePagesSoon() = default;
    ~LargePagesSoon();
    LargePagesSoon(const LargePagesSoon&) = delete;
    LargePagesSoon& operator=(const LargePagesSoon&) = delete;

    void start();

private:
    void wait();

    std::vector<AddressRange> before_ = private_memory();
    std::mutex mutex_;
    std::condition_variable end_;
    bool ended_ = false;
    std::thread thread_;
};

}  // namespace tfexport
