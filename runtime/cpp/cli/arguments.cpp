#include "arguments.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "tfexport/errors.h"

namespace tfexport::cli {

namespace {

using Json = nlohmann::json;

/// `--field-name VALUE` for each field of TranslationOptions.
const std::set<std::string> kFields{
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
const std::set<std::string> kSwitchedFields{"early_stopping", "sampling", "truncate_source"};

int whole_number(const std::string& value) {
    const bool digits =
        !value.empty() && value.size() <= 4 && value.find_first_not_of("0123456789") == std::string::npos;
    if (!digits) throw OptionError("--threads and --parallel take a whole number, not " + value);
    return std::stoi(value);
}

Provider provider(const std::string& name) {
    if (name != "cpu" && name != "cuda") throw OptionError("--provider must be one of cpu, cuda, not " + name);
    return name == "cuda" ? Provider::cuda : Provider::cpu;
}

const std::map<std::string, void (*)(Arguments&)> kSwitches{
    {"--help", [](Arguments& a) { a.action = Action::help; }},
    {"-h", [](Arguments& a) { a.action = Action::help; }},
    {"--version", [](Arguments& a) { a.action = Action::version; }},
    {"--self-test", [](Arguments& a) { a.action = Action::self_test; }},
    {"--bench", [](Arguments& a) { a.action = Action::bench; }},
    {"--scores", [](Arguments& a) { a.format = Format::scores; }},
    {"--json", [](Arguments& a) { a.format = Format::json; }},
    {"--debug", [](Arguments& a) { a.debug = true; }},
    {"--no-verify", [](Arguments& a) { a.session.verify = false; }},
    {"--no-spinning", [](Arguments& a) { a.session.spinning = false; }},
    {"--no-prepacking", [](Arguments& a) { a.session.prepacking = false; }},
    {"--no-arena", [](Arguments& a) { a.session.arena = false; }},
    {"--no-large-pages", [](Arguments& a) { a.session.large_pages = false; }},
};
const std::map<std::string, void (*)(Arguments&, const std::string&)> kValues{
    {"--input", [](Arguments& a, const std::string& value) { a.input = value; }},
    {"-i", [](Arguments& a, const std::string& value) { a.input = value; }},
    {"--output", [](Arguments& a, const std::string& value) { a.output = value; }},
    {"-o", [](Arguments& a, const std::string& value) { a.output = value; }},
    {"--prefix", [](Arguments& a, const std::string& value) { a.prefix = value; }},
    {"--provider", [](Arguments& a, const std::string& value) { a.session.provider = provider(value); }},
    {"--threads", [](Arguments& a, const std::string& value) { a.session.threads = whole_number(value); }},
    {"--parallel", [](Arguments& a, const std::string& value) { a.session.parallel_batches = whole_number(value); }},
};

/// The value as JSON: a list for ids, a number or null where it is one, else a string.
Json parsed(const std::string& field, const std::string& value) {
    if (field == "suppress_tokens") {
        const Json list = Json::parse("[" + value + "]", nullptr, false);
        if (list.is_discarded()) throw OptionError("--suppress-tokens takes ids parted by commas, not " + value);
        return list;
    }
    if (value == "none") return field == "length_penalty" ? Json(value) : Json(nullptr);
    Json number = Json::parse(value, nullptr, false);
    if (number.is_number()) return number;
    char* end = nullptr;
    const double real = std::strtod(value.c_str(), &end);  // what is no JSON: `.5`, `inf`
    if (value.empty() || *end != '\0') return value;
    if (field == "max_length_ratio" && real == HUGE_VAL) return nullptr;  // no limit
    return std::isfinite(real) ? Json(real) : Json(value);
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
        const std::size_t equals = word.rfind("--", 0) == 0 ? word.find('=') : std::string::npos;
        const std::string option = word.substr(0, equals);
        const auto value = [&] {
            if (equals != std::string::npos) return word.substr(equals + 1);
            if (next_ == words_.size()) throw OptionError(word + " needs a value");
            return words_[next_++];
        };
        std::string field = option.substr(0, 2) == "--" ? option.substr(2) : "";
        std::replace(field.begin(), field.end(), '-', '_');
        if (const auto known = kValues.find(option); known != kValues.end()) {
            known->second(arguments_, value());
        } else if (kFields.count(field) > 0) {
            changes_[field] = parsed(field, value());
        } else if (equals == std::string::npos) {
            take_switch(word, field);
        } else {
            throw unknown(word);
        }
    }

    void take_switch(const std::string& word, const std::string& field) {
        const auto known = kSwitches.find(word);
        if (known != kSwitches.end()) {
            known->second(arguments_);
        } else if (kSwitchedFields.count(field) > 0) {
            changes_[field] = true;
        } else if (field.rfind("no_", 0) == 0 && kSwitchedFields.count(field.substr(3)) > 0) {
            changes_[field.substr(3)] = false;
        } else if (word.rfind('-', 0) == 0) {
            throw unknown(word);
        } else if (!arguments_.bundle.empty()) {
            throw OptionError("one bundle only, not also " + word);
        } else {
            arguments_.bundle = word;
        }
    }

    static OptionError unknown(const std::string& word) {
        return OptionError("unknown option " + word + "; tfexport-cli --help lists them");
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

Translates line by line: as many lines come out as go in, in their order.

  --self-test               run the bundle's golden file on this machine and report differences
  --bench                   time the sentences of the golden file, one at a time and all together
  --version, --help

  --input FILE, -i FILE     text to translate; standard input if not given
  --output FILE, -o FILE    where to write; the file appears when all is translated; standard output if not given
  --prefix FILE             beginnings of the translations, one for each line
  --scores                  print the score and a TAB before each text
  --json                    print one JSON object for each line
  --threads N               of one batch; 0 is one for each core that it may use, shared by the batches
  --parallel N              batches that are translated at the same time, over one copy of the weights
  --provider cpu|cuda       where it runs; cuda needs an ONNX Runtime that was built for it
  --no-spinning             let threads sleep between operators
  --no-prepacking           keep the weights mapped from their file: loads at once, but runs slower
  --no-arena                give memory back after each step
  --no-large-pages          leave the model in small pages of memory: Linux moves it after a second
  --no-verify               do not check the SHA-256 of the files
  --debug                   show what an error came from

Search: --beam-size N, --n-best N, --length-penalty none|average|gnmt|word_reward, --alpha X, --length-offset N,
  --word-reward X, --early-stopping
Length: --min-length N, --max-length N, --max-length-ratio X, --max-length-extra N
Sampling: --sampling, --temperature X, --top-k N, --top-p X, --seed N
Rules: --no-repeat-ngram-size N, --repetition-penalty X, --suppress-tokens 17,42, --prefix-strength X
Work: --truncate-source, --max-batch-tokens N

What is not given stays as the bundle has it. The names and defaults are those of the Python runtime.
)";

}  // namespace tfexport::cli
