// replay BUNDLE: answers requests, one JSON object a line, with all that a translation gives; so another runtime can
// be compared with this one. A request holds `texts` and, if wanted, `prefixes`, `options`, `attention`, and `cancels`,
// pairs of a sentence and the step at which the callback says stop; with `states` it asks for the encoder's states.
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "strict_json.h"
#include "tfexport/translator.h"

using namespace tfexport;

namespace {

Json as_json(const FloatArray& array) { return {{"shape", array.shape}, {"values", array.values}}; }

Json as_json(const Hypothesis& h) {
    Json attention = Json::object();
    for (const auto& [name, weights] : h.attention) attention[name] = as_json(weights);
    return {{"ids", h.ids},          {"tokens", h.tokens},
            {"text", h.text},        {"token_scores", h.token_scores},
            {"score", h.score},      {"finish_reason", name_of(h.finish_reason)},
            {"attention", attention}};
}

/// Notes every call of the callback, and cancels where the request says so.
class Watcher {
public:
    explicit Watcher(const Json& request) : cancels_(request.value("cancels", Json::array())) {}

    bool operator()(const Progress& progress) {
        seen.push_back({progress.sentence, progress.sample, progress.tokens, progress.score});
        const std::size_t step = steps_[{progress.sentence, progress.sample}]++;
        bool stop = false;
        for (const Json& cancel : cancels_) stop = stop || cancel == Json::array({progress.sentence, step});
        return stop;
    }

    Json seen = Json::array();

private:
    Json cancels_;
    std::map<std::pair<std::size_t, std::size_t>, std::size_t> steps_;
};

Json answer(const Translator& translator, const Json& request) {
    Watcher watcher(request);
    if (request.contains("states")) {
        Json states = Json::array();
        for (const FloatArray& state : translator.encoder_states(request.at("texts"))) states.push_back(as_json(state));
        return {{"states", states}};
    }
    TranslationOptions options =
        with_changes(translator.default_options(), request.value("options", Json::object()).dump());
    if (request.contains("cancels")) options.callback = [&](const Progress& progress) { return watcher(progress); };
    Json all = Json::array();
    for (const Translation& translation :
         translator.translate(request.at("texts"), options, request.value("prefixes", std::vector<std::string>{}),
                              request.value("attention", false))) {
        Json hypotheses = Json::array();
        for (const Hypothesis& h : translation.hypotheses) hypotheses.push_back(as_json(h));
        all.push_back({{"hypotheses", hypotheses}, {"warning", translation.warning}});
    }
    return {{"translations", all}, {"seen", watcher.seen}};
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) return 2;
    SessionOptions session;
    session.threads = 1;
    try {
        const Translator translator(std::filesystem::u8path(argv[1]), session);
        for (std::string line; std::getline(std::cin, line);) {
            Json said;
            try {
                said = answer(translator, Json::parse(line));
            } catch (const Error& error) {
                said = {{"error", error.what()}, {"status", error.exit_status}};
            }
            std::cout << said.dump() << "\n";
        }
    } catch (const std::exception& error) {
        std::cerr << error.what() << "\n";
        return 1;
    }
}
