#include "seal.h"

#include <cstddef>

#include "sha256.h"
#include "tfexport/errors.h"

namespace tfexport {

namespace {

constexpr std::string_view kKey = "\"digest\"";
constexpr std::size_t kDigits = 64;

/// Reads from the end of a text.
class Backwards {
public:
    explicit Backwards(std::string_view text) : rest_(text) {}

    bool take(std::string_view expected) {
        const std::size_t last = rest_.find_last_not_of(" \t\r\n");
        rest_ = rest_.substr(0, last == std::string_view::npos ? 0 : last + 1);
        const bool found = rest_.size() >= expected.size() && rest_.substr(rest_.size() - expected.size()) == expected;
        if (found) rest_.remove_suffix(expected.size());
        return found;
    }
    std::string_view take(std::size_t size) {
        const std::string_view taken = rest_.substr(rest_.size() < size ? 0 : rest_.size() - size);
        rest_.remove_suffix(taken.size());
        return taken;
    }

private:
    std::string_view rest_;
};

/// The digits of the digest; empty if the text does not end with one.
std::string_view digest_in(std::string_view text) {
    Backwards end(text);
    if (!end.take("}") || !end.take("\"")) return {};
    const std::string_view digits = end.take(kDigits);
    return end.take("\"") && end.take(":") && end.take(kKey) && end.take(",") ? digits : std::string_view{};
}

}  // namespace

void check_seal(std::string_view text, const std::string& origin) {
    if (text.find(kKey) == std::string_view::npos) return;
    const std::string_view digits = digest_in(text);
    Sha256 sha;
    if (!digits.empty()) {
        const auto place = static_cast<std::size_t>(digits.data() - text.data());
        sha.update(text.substr(0, place));
        sha.update(std::string(kDigits, '0'));
        sha.update(text.substr(place + kDigits));
    }
    if (digits.empty() || sha.hex() != digits) {
        throw BundleError(origin + ": was changed after it was written; export the bundle again");
    }
}

}  // namespace tfexport
