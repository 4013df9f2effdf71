#include "arguments.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "tfexport/errors.h"

namespace tfexport::cli {

namespace {

using Json = nlohmann::json;

/// `--field-name VALUE` for each field of TranslationOptions.
const char* const kValues[] = {
    "beam_size",
    "n_best",
    "length_penalty",
    "alpha",
    "length_offset",
    "word_reward",
    "min_length",
    "max_length",
    "max_length_ratio",
    "max_length_extra",
    "temperature",
    "top_k",
    "top_p",
    "seed",
    "no_repeat_ngram_size",
    "repetition_penalty",
    "suppress_tokens",
    "prefix_strength",
    "max_batch_tokens",
};
/// `--field-name` and `--no-field-name`.
const char* const kSwitches[] = {"early_stopping", "sampling", "truncate_source"};

template <std::size_t N>
bool holds(const char* const (&names)[N], const std::string& name) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

/// The value as JSON: a number or null where it is one, a list for ids, else a string.
Json parsed(const std::string& name, const std::string& value) {
    if (name == "suppress_tokens") {
        const Json list = Json::parse("[" + value + "]", nullptr, false);
        if (list.is_discarded()) throw OptionError("--suppress-tokens takes ids parted by commas, not " + value);
        return list;
    }
    const Json number = Json::parse(value == "none" && name != "length_penalty" ? "null" : value, nullptr, false);
    return number.is_number() || number.is_null() ? number : Json(value);
}

int whole_number(const std::string& option, const std::string& value) {
    const bool digits =
        !value.empty() && value.size() <= 4 && value.find_first_not_of("0123456789") == std::string::npos;
    if (!digits) throw OptionError(option + " takes a whole number, not " + value);
    return std::stoi(value);
}

class Parser {
public:
    Parser(int count, char** values) : words_(values + 1, values + count) {}

    Arguments run() {
        while (next_ < words_.size()) take(words_[next_++]);
        arguments_.option_changes = changes_.dump();
        const bool alone = arguments_.action == Action::version || arguments_.action == Action::help;
        if (arguments_.bundle.empty() && !alone) throw OptionError("which bundle? tfexport-cli --help shows how");
        return arguments_;
    }

private:
    void take(const std::string& word) {
        if (word.rfind("--", 0) != 0 && word != "-h") {
            if (!arguments_.bundle.empty()) throw OptionError("one bundle only, not also " + word);
            arguments_.bundle = word;
        } else if (!take_plain(word)) {
            take_option(word);
        }
    }

    bool take_plain(const std::string& word) {
        if (word == "--help" || word == "-h")
            arguments_.action = Action::help;
        else if (word == "--version")
            arguments_.action = Action::version;
        else if (word == "--self-test")
            arguments_.action = Action::self_test;
        else if (word == "--bench")
            arguments_.action = Action::bench;
        else if (word == "--scores")
            arguments_.format = Format::scores;
        else if (word == "--json")
            arguments_.format = Format::json;
        else if (word == "--no-verify")
            arguments_.session.verify = false;
        else if (word == "--no-spinning")
            arguments_.session.spinning = false;
        else if (word == "--no-prepacking")
            arguments_.session.prepacking = false;
        else if (word == "--no-arena")
            arguments_.session.arena = false;
        else if (word == "--threads")
            arguments_.session.threads = whole_number(word, value(word));
        else if (word == "--parallel-batches")
            arguments_.session.parallel_batches = whole_number(word, value(word));
        else if (word == "--prefixes")
            arguments_.prefixes = value(word);
        else
            return false;
        return true;
    }

    void take_option(const std::string& word) {
        const std::size_t equals = word.find('=');
        std::string name = word.substr(2, equals == std::string::npos ? equals : equals - 2);
        std::replace(name.begin(), name.end(), '-', '_');
        if (holds(kValues, name)) {
            changes_[name] = parsed(name, equals == std::string::npos ? value(word) : word.substr(equals + 1));
        } else if (holds(kSwitches, name)) {
            changes_[name] = true;
        } else if (name.rfind("no_", 0) == 0 && holds(kSwitches, name.substr(3))) {
            changes_[name.substr(3)] = false;
        } else {
            throw OptionError("unknown option " + word + "; tfexport-cli --help lists them");
        }
    }

    const std::string& value(const std::string& word) {
        if (next_ == words_.size()) throw OptionError(word + " needs a value");
        return words_[next_++];
    }

    std::vector<std::string> words_;
    std::size_t next_ = 0;
    Arguments arguments_;
    Json changes_ = Json::object();
};

}  // namespace

Arguments parse_arguments(int count, char** values) { return Parser(count, values).run(); }

const char* const kHelp =
    R"(usage: tfexport-cli BUNDLE [options] < in.txt > out.txt
       tfexport-cli BUNDLE --self-test | --bench [options]

Translates standard input line by line to standard output.

  --self-test               run the bundle's golden file on this machine and report differences
  --bench                   time the sentences of the golden file, one at a time and all together
  --version, --help

  --scores                  print the score and a TAB before each text
  --json                    print one JSON object for each line
  --prefixes FILE           beginnings of the targets, one for each line
  --threads N               of one batch; 0 is one for each core that it may use, shared by the batches
  --parallel-batches N      batches that are translated at the same time, over one copy of the weights
  --no-spinning             let threads sleep between operators
  --no-prepacking           keep the weights mapped from their file: loads at once, but runs slower
  --no-arena                give memory back after each step
  --no-verify               do not check the SHA-256 of the files

Search: --beam-size N, --n-best N, --length-penalty none|average|gnmt|word_reward, --alpha X, --length-offset N,
  --word-reward X, --early-stopping
Length: --min-length N, --max-length N, --max-length-ratio X, --max-length-extra N
Sampling: --sampling, --temperature X, --top-k N, --top-p X, --seed N
Rules: --no-repeat-ngram-size N, --repetition-penalty X, --suppress-tokens 17,42, --prefix-strength X
Work: --truncate-source, --max-batch-tokens N

What is not given stays as the bundle has it. The names and defaults are those of the Python runtime.
)";

}  // namespace tfexport::cli
