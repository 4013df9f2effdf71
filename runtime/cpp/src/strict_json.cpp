#include "strict_json.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "tfexport/errors.h"
#include "unicode.h"

namespace tfexport {

namespace {

constexpr int kMaxDepth = 64;
constexpr std::size_t kShownProblems = 6;
constexpr std::size_t kShownCharacters = 60;

std::string range(std::int64_t least, std::int64_t most) {
    return most == kHuge ? std::to_string(least) + " or more" : std::to_string(least) + " to " + std::to_string(most);
}

/// Sees every event of the parser and refuses what the parser alone would take.
class Strictness {
public:
    explicit Strictness(const std::string& origin) : origin_(origin) {}

    bool operator()(int depth, Json::parse_event_t event, const Json& parsed) {
        if (depth > kMaxDepth) throw BundleError(origin_ + ": nested too deep");
        if (event == Json::parse_event_t::object_start) keys_.emplace_back();
        if (event == Json::parse_event_t::object_end) keys_.pop_back();
        if (event == Json::parse_event_t::key && !keys_.back().insert(parsed.get<std::string>()).second) {
            throw BundleError(origin_ + ": key " + shown(parsed) + " appears twice in one object");
        }
        return true;
    }

private:
    const std::string& origin_;
    std::vector<std::set<std::string>> keys_;
};

}  // namespace

Json parse_json(std::string_view text, const std::string& origin) {
    if (!is_utf8(text)) throw BundleError(origin + ": not UTF-8");
    if (text.substr(0, 3) == "\xEF\xBB\xBF") throw BundleError(origin + ": not JSON: begins with a byte order mark");
    try {
        return Json::parse(text.begin(), text.end(), Strictness(origin));
    } catch (const Json::exception& error) {
        std::string reason = error.what();  // "[json.exception.parse_error.101] parse error at line 1, ..."
        reason = reason.substr(std::min(reason.find("] ") + 2, reason.size()));
        for (char& c : reason) c = c == '\n' ? ' ' : c;
        throw BundleError(origin + ": not JSON: " + reason.substr(0, 200));
    }
}

std::string joined(const Problems& problems) {
    std::string text;
    for (std::size_t i = 0; i < std::min(problems.size(), kShownProblems); ++i)
        text += (i > 0 ? "; " : "") + problems[i];
    if (problems.size() > kShownProblems) text += "; and " + std::to_string(problems.size() - kShownProblems) + " more";
    return text;
}

std::string shown(std::string_view text) {
    static constexpr char kHex[] = "0123456789abcdef";
    std::string out = "'";
    for (const char c : text) {
        if (out.size() > kShownCharacters) return out + "...";
        const auto byte = static_cast<unsigned char>(c);
        if (byte >= 0x20 && byte < 0x7F) {
            out += c;
        } else {
            out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
        }
    }
    return out + "'";
}

std::string shown(const Json& value) {
    if (value.is_string()) return shown(std::string_view(value.get_ref<const std::string&>()));
    if (value.is_object()) return "an object";
    if (value.is_array()) return "a list";
    return value.dump().substr(0, kShownCharacters);
}

ObjectReader::ObjectReader(const Json& object, std::string where, Problems& problems, Missing missing)
    : object_(object), where_(std::move(where)), problems_(problems), missing_(missing) {
    if (!object.is_object()) {
        problems_.push_back((where_.empty() ? "the whole" : where_) + " must be an object, not " + shown(object));
    }
}

void ObjectReader::finish() {
    if (!object_.is_object()) return;
    for (const auto& member : object_.items()) {
        if (known_.count(member.key()) == 0) {
            const std::string name = shown(std::string_view(member.key()));
            problems_.push_back("unknown field " + path(name.substr(1, name.size() - 2).c_str()));
        }
    }
}

bool ObjectReader::has(const char* name) const { return object_.is_object() && object_.contains(name); }

void ObjectReader::integer(const char* name, std::int64_t& target, std::int64_t least, std::int64_t most) {
    const Json* value = take(name);
    if (value == nullptr) return;
    if (!value->is_number_integer()) return problem(name, "must be a whole number, not " + shown(*value));
    const bool large = value->is_number_unsigned() && value->get<std::uint64_t>() > static_cast<std::uint64_t>(kHuge);
    const std::int64_t number = large ? kHuge : value->get<std::int64_t>();
    if (number < least || number > most || (large && most != kHuge)) {
        return problem(name, "must be " + range(least, most) + ", not " + shown(*value));
    }
    target = number;
}

void ObjectReader::integer(const char* name, std::optional<std::int64_t>& target, std::int64_t least) {
    if (has(name) && object_[name].is_null()) {
        take(name);
        target.reset();
        return;
    }
    std::int64_t number = target.value_or(least);
    integer(name, number, least);
    if (has(name)) target = number;
}

void ObjectReader::unsigned_integer(const char* name, std::uint64_t& target) {
    const Json* value = take(name);
    if (value == nullptr) return;
    if (!value->is_number_unsigned()) return problem(name, "must be a whole number from 0, not " + shown(*value));
    target = value->get<std::uint64_t>();
}

void ObjectReader::number(const char* name, double& target) {
    const Json* value = take(name);
    if (value == nullptr) return;
    if (!value->is_number()) return problem(name, "must be a number, not " + shown(*value));
    target = value->get<double>();
}

void ObjectReader::number(const char* name, std::optional<double>& target) {
    if (has(name) && object_[name].is_null()) {
        take(name);
        target.reset();
        return;
    }
    double number_read = target.value_or(0);
    number(name, number_read);
    if (has(name)) target = number_read;
}

void ObjectReader::boolean(const char* name, bool& target) {
    const Json* value = take(name);
    if (value == nullptr) return;
    if (!value->is_boolean()) return problem(name, "must be true or false, not " + shown(*value));
    target = value->get<bool>();
}

void ObjectReader::text(const char* name, std::string& target, std::size_t least, std::size_t most,
                        bool (*fits)(std::string_view)) {
    const Json* value = take(name);
    if (value == nullptr) return;
    if (!value->is_string()) return problem(name, "must be a string, not " + shown(*value));
    const auto& found = value->get_ref<const std::string&>();
    const std::size_t size = code_points(found).size();
    if (size < least || size > most) {
        return problem(name, "has " + std::to_string(size) + " characters, allowed are " + std::to_string(least) +
                                 " to " + std::to_string(most));
    }
    if (fits != nullptr && !fits(found)) return problem(name, "must not be " + shown(*value));
    target = found;
}

void ObjectReader::choice(const char* name, std::string& target, std::initializer_list<std::string_view> choices) {
    const Json* value = take(name);
    if (value == nullptr) return;
    if (value->is_string() &&
        std::find(choices.begin(), choices.end(), value->get_ref<const std::string&>()) != choices.end()) {
        target = value->get<std::string>();
        return;
    }
    std::string all;
    for (const std::string_view c : choices) all += (all.empty() ? "" : ", ") + std::string(c);
    problem(name, "must be one of " + all + ", not " + shown(*value));
}

void ObjectReader::integers(const char* name, std::vector<std::int64_t>& target, std::size_t most_items) {
    std::vector<std::int64_t> found;
    list(name, 0, most_items, [&](const Json& item, const std::string& where) {
        const bool fine = item.is_number_unsigned() && item.get<std::uint64_t>() <= INT32_MAX;
        if (!fine) problems_.push_back(where + " must be an id from 0, not " + shown(item));
        found.push_back(fine ? item.get<std::int64_t>() : 0);
    });
    if (has(name)) target = std::move(found);
}

void ObjectReader::object(const char* name, const std::function<void(ObjectReader&)>& read, Missing missing) {
    const Json* value = take(name);
    if (value == nullptr) return;
    ObjectReader reader(*value, path(name), problems_, missing);
    if (!value->is_object()) return;
    read(reader);
    reader.finish();
}

void ObjectReader::list(const char* name, std::size_t least, std::size_t most,
                        const std::function<void(const Json&, const std::string& where)>& read) {
    const Json* value = take(name);
    if (value == nullptr) return;
    if (!value->is_array()) return problem(name, "must be a list, not " + shown(*value));
    if (value->size() < least || value->size() > most) {
        return problem(name, "holds " + std::to_string(value->size()) + " items, allowed are " + std::to_string(least) +
                                 " to " + std::to_string(most));
    }
    for (std::size_t i = 0; i < value->size(); ++i) read((*value)[i], path(name) + "[" + std::to_string(i) + "]");
}

void ObjectReader::mapping(
    const char* name, std::size_t least, std::size_t most, bool (*key_fits)(std::string_view),
    const std::function<void(const std::string& key, const Json&, const std::string& where)>& read) {
    const Json* value = take(name);
    if (value == nullptr) return;
    if (!value->is_object()) return problem(name, "must be an object, not " + shown(*value));
    if (value->size() < least || value->size() > most) {
        return problem(name, "holds " + std::to_string(value->size()) + " members, allowed are " +
                                 std::to_string(least) + " to " + std::to_string(most));
    }
    for (const auto& member : value->items()) {
        const std::string key = shown(std::string_view(member.key()));
        if (!key_fits(member.key())) problems_.push_back(path(name) + ": " + key + " is not allowed here");
        read(member.key(), member.value(), path(name) + "." + key.substr(1, key.size() - 2));
    }
}

const Json* ObjectReader::take(const char* name) {
    known_.insert(name);
    if (!object_.is_object()) return nullptr;
    const auto found = object_.find(name);
    if (found != object_.end()) return &*found;
    if (missing_ == Missing::refused) problems_.push_back("missing field " + path(name));
    return nullptr;
}

void ObjectReader::problem(const char* name, const std::string& text) { problems_.push_back(path(name) + " " + text); }

std::string ObjectReader::path(const char* name) const { return where_.empty() ? name : where_ + "." + name; }

}  // namespace tfexport
