// Which files an ONNX graph reads its tensors from, found and changed without the onnx library.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>

namespace tfexport {

/// Every `location` of external data in a serialised ModelProto. Throws BundleError for bytes that are not one.
std::set<std::string> external_locations(std::string_view model);

/// The same graph with its external data in the one file `into`, further back by `shifts`, which has a number of bytes
/// for each location: so an engine can map weights that lie inside of a zip. The model must have passed
/// `external_locations`. Throws BundleError for an offset that is none, and for a location without a shift.
std::string with_moved_data(std::string_view model, const std::string& into,
                            const std::map<std::string, std::uint64_t, std::less<>>& shifts);

}  // namespace tfexport
