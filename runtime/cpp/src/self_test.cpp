#include "tfexport/self_test.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "strict_json.h"

namespace tfexport {

namespace {

std::string ids_text(const Json& ids) { return ids.dump().substr(0, 120); }

/// The cases of one text and one set of options.
class Comparison {
public:
    Comparison(SelfTest& report, std::string where, double tolerance)
        : report_(report), where_(std::move(where)), tolerance_(tolerance) {}

    void compare(const Json& expected, const Hypothesis& found) {
        if (expected.at("ids") != Json(found.ids)) {
            return differ("ids", ids_text(expected.at("ids")), ids_text(Json(found.ids)));
        }
        if (expected.at("text") != found.text)
            differ("text", shown(expected.at("text")), shown(std::string_view(found.text)));
        if (expected.at("finish_reason") != name_of(found.finish_reason)) {
            differ("finish reason", shown(expected.at("finish_reason")), name_of(found.finish_reason));
        }
        compare_score("score", expected.at("score").get<double>(), found.score);
        const Json& scores = expected.at("token_scores");
        if (scores.size() != found.token_scores.size()) {
            return differ("token scores", std::to_string(scores.size()), std::to_string(found.token_scores.size()));
        }
        for (std::size_t i = 0; i < scores.size(); ++i) {
            compare_score("score of a token", scores[i].get<double>(), static_cast<double>(found.token_scores[i]));
        }
    }

    void differ(const char* what, const std::string& expected, const std::string& found) {
        report_.differences.push_back(where_ + ": " + what + ": expected " + expected + ", got " + found);
    }

private:
    void compare_score(const char* what, double expected, double found) {
        const double difference = std::abs(expected - found);
        report_.largest_score_difference = std::max(report_.largest_score_difference, difference);
        if (difference <= tolerance_) return;
        char text[80];
        std::snprintf(text, sizeof text, "%.7f, got %.7f", expected, found);
        report_.differences.push_back(where_ + ": " + what + ": expected " + text);
    }

    SelfTest& report_;
    std::string where_;
    double tolerance_;
};

void run_case(const Translator& translator, const Json& test, std::size_t number, double tolerance, SelfTest& report) {
    const auto text = test.at("text").get<std::string>();
    Comparison comparison(report, "case " + std::to_string(number) + " " + shown(std::string_view(text)), tolerance);
    const Json ids = translator.source_ids(text);
    if (ids != test.at("source_ids")) {
        return comparison.differ("source ids", ids_text(test.at("source_ids")), ids_text(ids));
    }
    TranslationOptions options;  // not those of the bundle: a golden file says all that it needs
    options.truncate_source = true;
    options = with_changes(options, test.at("options").dump());
    const Translation translation = translator.translate({text}, options).front();
    const Json& expected = test.at("hypotheses");
    if (expected.size() != translation.hypotheses.size()) {
        return comparison.differ("hypotheses", std::to_string(expected.size()),
                                 std::to_string(translation.hypotheses.size()));
    }
    for (std::size_t i = 0; i < expected.size(); ++i) comparison.compare(expected[i], translation.hypotheses[i]);
}

}  // namespace

SelfTest self_test(const Translator& translator, double tolerance) {
    const Json golden = parse_json(translator.read_file("golden.json"), "golden.json");
    SelfTest report;
    try {
        if (golden.at("format_version") != 1) throw BundleError("golden.json: made for a newer library; upgrade it");
        for (const Json& test : golden.at("cases")) run_case(translator, test, ++report.cases, tolerance, report);
    } catch (const Json::exception&) {
        throw BundleError("golden.json: case " + std::to_string(report.cases) + " is not as the specification says");
    }
    return report;
}

}  // namespace tfexport
