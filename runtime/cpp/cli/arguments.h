// The command line of tfexport-cli.
#pragma once

#include <optional>
#include <string>

#include "tfexport/options.h"

namespace tfexport::cli {

enum class Action { translate, self_test, bench, version, help };
enum class Format { text, scores, json };

struct Arguments {
    Action action = Action::translate;
    std::string bundle;
    Format format = Format::text;
    SessionOptions session;
    bool debug = false;
    std::string option_changes = "{}";  // JSON, for with_changes
    std::optional<std::string> input;   // files; not set: standard input and output
    std::optional<std::string> output;
    std::optional<std::string> prefix;  // file with a beginning of the target for each line
};

/// Throws OptionError.
Arguments parse_arguments(int count, char** values);

extern const char* const kHelp;

}  // namespace tfexport::cli
