// JSON read strictly: every problem is named, all in one error, and every size is bounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tfexport {

using Json = nlohmann::json;
using Problems = std::vector<std::string>;

/// Whole numbers beyond this are taken as this; no count here comes near it, and sums of two do not overflow.
constexpr std::int64_t kHuge = std::int64_t{1} << 62;

/// Refuses repeated keys, deep nesting, numbers beyond float64 and text that is not UTF-8. Throws BundleError.
Json parse_json(std::string_view text, const std::string& origin);

/// "; "-joined, cut where the list is long.
std::string joined(const Problems& problems);

/// A value for an error message: on one line, printable, cut where it is long.
std::string shown(std::string_view text);
std::string shown(const Json& value);

/// Members of one object, taken by name. Problems are added to a shared list; a member that has one keeps its target.
class ObjectReader {
public:
    enum class Missing { refused, allowed };

    ObjectReader(const Json& object, std::string where, Problems& problems, Missing missing = Missing::refused);

    /// Adds a problem for each member that was not asked for.
    void finish();

    bool has(const char* name) const;
    void integer(const char* name, std::int64_t& target, std::int64_t least, std::int64_t most = kHuge);
    void integer(const char* name, std::optional<std::int64_t>& target, std::int64_t least);  // null: not set
    void unsigned_integer(const char* name, std::uint64_t& target);
    void number(const char* name, double& target);
    void number(const char* name, std::optional<double>& target);  // null: not set
    void boolean(const char* name, bool& target);
    void text(const char* name, std::string& target, std::size_t least, std::size_t most,
              bool (*fits)(std::string_view) = nullptr);
    void choice(const char* name, std::string& target, std::initializer_list<std::string_view> choices);
    void integers(const char* name, std::vector<std::int64_t>& target, std::size_t most_items);
    void object(const char* name, const std::function<void(ObjectReader&)>& read, Missing missing = Missing::refused);
    void list(const char* name, std::size_t least, std::size_t most,
              const std::function<void(const Json&, const std::string& where)>& read);
    void mapping(const char* name, std::size_t least, std::size_t most, bool (*key_fits)(std::string_view),
                 const std::function<void(const std::string& key, const Json&, const std::string& where)>& read);

private:
    const Json* take(const char* name);
    void problem(const char* name, const std::string& text);
    std::string path(const char* name) const;

    const Json& object_;
    std::string where_;
    Problems& problems_;
    Missing missing_;
    std::set<std::string, std::less<>> known_;
};

}  // namespace tfexport
