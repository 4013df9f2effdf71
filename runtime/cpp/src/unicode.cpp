#include "unicode.h"

#include <algorithm>

namespace tfexport {

namespace {

/// Bytes of the code point that begins here; 0 if there is none.
std::size_t code_point_size(std::string_view text) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned char first = byte(0);
    if (first < 0x80) return 1;
    const std::size_t size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
    if (first < 0xC2 || first > 0xF4 || text.size() < size) return 0;
    for (std::size_t i = 1; i < size; ++i) {
        if ((byte(i) & 0xC0) != 0x80) return 0;
    }
    if (first == 0xE0 && byte(1) < 0xA0) return 0;   // overlong
    if (first == 0xED && byte(1) >= 0xA0) return 0;  // half of a surrogate pair
    if (first == 0xF0 && byte(1) < 0x90) return 0;   // overlong
    if (first == 0xF4 && byte(1) >= 0x90) return 0;  // beyond U+10FFFF
    return size;
}

bool is_white_space(std::string_view c) {
    static constexpr std::string_view kAll[] = {
        "\t",     "\n",     "\v",     "\f",     "\r",     " ",      "\u0085", "\u00a0", "\u1680",
        "\u2000", "\u2001", "\u2002", "\u2003", "\u2004", "\u2005", "\u2006", "\u2007", "\u2008",
        "\u2009", "\u200a", "\u200b", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000", "\ufeff",
    };
    return std::find(std::begin(kAll), std::end(kAll), c) != std::end(kAll);
}

}  // namespace

bool is_utf8(std::string_view text) {
    while (!text.empty()) {
        const std::size_t size = code_point_size(text);
        if (size == 0) return false;
        text.remove_prefix(size);
    }
    return true;
}

std::vector<std::string_view> code_points(std::string_view text) {
    std::vector<std::string_view> points;
    while (!text.empty()) {
        const std::size_t size = std::max<std::size_t>(code_point_size(text), 1);
        points.push_back(text.substr(0, size));
        text.remove_prefix(size);
    }
    return points;
}

std::string_view trimmed(std::string_view text) {
    const char* begin = nullptr;
    const char* end = nullptr;
    for (const std::string_view c : code_points(text)) {
        if (is_white_space(c)) continue;
        if (begin == nullptr) begin = c.data();
        end = c.data() + c.size();
    }
    return begin == nullptr ? std::string_view{} : std::string_view(begin, static_cast<std::size_t>(end - begin));
}

std::vector<std::string_view> words(std::string_view text) {
    std::vector<std::string_view> parts;
    bool inside = false;
    for (const std::string_view c : code_points(text)) {
        const bool outside = is_white_space(c);
        if (!outside && !inside) parts.push_back(c);
        if (!outside && inside) {
            std::string_view& word = parts.back();
            word = std::string_view(word.data(), word.size() + c.size());
        }
        inside = !outside;
    }
    return parts;
}

}  // namespace tfexport
