// The search over table models, against results of the independent reference in tests/search.
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "check.h"
#include "options.h"
#include "proposers.h"
#include "search.h"
#include "strict_json.h"
#include "table_model.h"
#include "tfexport/errors.h"

using namespace tfexport;

namespace {

Json fixture() {
    std::ifstream file(TFEXPORT_TEST_FOLDER "/search_cases.json");
    std::stringstream text;
    text << file.rdbuf();
    return parse_json(text.str(), "search_cases.json").at("cases");
}

test::Table read_table(const Json& values) {
    const Json& table = values.at("table");
    test::Table read{table.at("seed"), table.at("kind"), {}, table.at("always"), values.at("target").at("vocab_size")};
    for (const Json& pair : table.at("raised")) read.raised[pair[0]] = pair[1];
    return read;
}

Target read_target(const Json& t) {
    return {t.at("vocab_size"),      t.at("start_id"),   t.at("eos_id"),
            t.at("never_generated"), t.at("max_length"), t.value("prefix_ids", Ids{})};
}

std::vector<Request> read_requests(const Json& values, const TranslationOptions& options) {
    std::vector<Request> requests;
    for (std::size_t i = 0; i < values.at("sources").size(); ++i) {
        const auto samples = static_cast<std::size_t>(options.sampling ? options.n_best : 1);
        for (std::size_t sample = 0; sample < samples; ++sample) {
            requests.push_back({values["sources"][i], values["prefixes"][i], i, sample});
        }
    }
    return requests;
}

bool close(double a, double b) { return std::abs(a - b) <= 1e-5 + 1e-5 * std::abs(b); }

bool same(const Decoded& found, const Json& expected) {
    bool fine = Json(found.ids) == expected.at("ids") && name_of(found.finish_reason) == expected.at("finish_reason") &&
                close(found.score, expected.at("score")) &&
                found.token_scores.size() == expected.at("token_scores").size();
    for (std::size_t i = 0; fine && i < found.token_scores.size(); ++i) {
        fine = close(static_cast<double>(found.token_scores[i]), expected["token_scores"][i]);
    }
    return fine;
}

/// Counts the calls of the callback by request, compares each with what was expected, and cancels where the case says
/// so.
class Watcher {
public:
    Watcher(const Json& values, const std::vector<Request>& requests) : values_(values), requests_(requests) {}

    bool operator()(const Progress& progress) {
        std::size_t place = 0;
        while (requests_[place].index != progress.sentence || requests_[place].sample != progress.sample) ++place;
        const Json& seen = values_["results"][place]["seen"];
        const std::size_t step = steps_[place]++;
        fine = fine && step < seen.size() && seen[step][0] == Json(progress.tokens) &&
               close(progress.score, seen[step][1]);
        const Json& cancels = values_.at("cancels");
        return std::any_of(cancels.begin(), cancels.end(),
                           [&](const Json& cancel) { return cancel[0] == progress.sentence && cancel[1] == step; });
    }

    bool saw_all() const {
        bool all = fine;
        for (std::size_t i = 0; i < requests_.size(); ++i) {
            const auto steps = steps_.find(i);
            all = all && steps != steps_.end() && steps->second == values_["results"][i]["seen"].size();
        }
        return all;
    }

    bool fine = true;

private:
    const Json& values_;
    const std::vector<Request>& requests_;
    std::map<std::size_t, std::size_t> steps_;
};

void run_case(const Json& values, std::size_t number, bool together) {
    TranslationOptions options = with_changes({}, values.at("options").dump());
    const Target target = read_target(values.at("target"));
    const std::vector<Request> requests = read_requests(values, options);
    Watcher watcher(values, requests);
    options.callback = [&](const Progress& progress) { return watcher(progress); };
    check_options(options, target);
    const test::TableModel model(read_table(values));
    std::vector<std::vector<Decoded>> found;
    if (together) {
        found = search(model, requests, options, target);
    } else {
        for (const Request& request : requests) found.push_back(search(model, {request}, options, target).front());
    }
    for (std::size_t i = 0; i < requests.size(); ++i) {
        const Json& expected = values["results"][i]["hypotheses"];
        bool fine = found[i].size() == expected.size();
        for (std::size_t h = 0; fine && h < expected.size(); ++h) fine = same(found[i][h], expected[h]);
        check::report(fine, "search_cases.json", static_cast<int>(number),
                      "case differs in request " + std::to_string(i));
    }
    check::report(watcher.saw_all(), "search_cases.json", static_cast<int>(number), "the callback saw something else");
}

/// A model whose logits are all the same number.
class ConstantModel final : public StepModel {
public:
    ConstantModel(float value, std::size_t vocab_size) : value_(value), vocab_size_(vocab_size) {}
    std::unique_ptr<DecoderState> start(const std::vector<Ids>& sources, std::size_t beams) const override {
        struct State final : DecoderState {
            State(float value, std::size_t rows, std::size_t vocab_size)
                : logits(rows * vocab_size, value), ids(rows * vocab_size, 1), size(vocab_size) {}
            Candidates step(const Ids& tokens, const std::vector<float>&, std::size_t count) override {
                return {logits.data(), ids.data(), tokens.size(), count};
            }
            std::vector<const float*> step_logits(const Ids& tokens) override {
                return std::vector<const float*>(tokens.size(), logits.data());
            }
            void select(const std::vector<std::size_t>&) override {}
            std::vector<float> logits;
            Ids ids;
            std::size_t size;
        };
        return std::make_unique<State>(value_, sources.size() * beams, vocab_size_);
    }

private:
    float value_;
    std::size_t vocab_size_;
};

const Target kTarget{5, 1, 2, {0, 1}, 8, {}};

}  // namespace

TEST(search_equals_the_reference_in_one_batch) {
    const Json cases = fixture();
    CHECK(cases.size() > 100);
    for (std::size_t i = 0; i < cases.size(); ++i) run_case(cases[i], i, true);
}

TEST(search_equals_the_reference_one_by_one) {
    const Json cases = fixture();
    for (std::size_t i = 0; i < cases.size(); ++i) run_case(cases[i], i, false);
}

TEST(nan_of_the_model_is_an_error_in_every_way_of_searching) {
    const ConstantModel model(std::numeric_limits<float>::quiet_NaN(), 5);
    for (const char* json : {"{}", R"({"beam_size": 2})", R"({"repetition_penalty": 2})", R"({"sampling": true})"}) {
        CHECK_THROWS(ModelOutputError, "NaN for text 3",
                     search(model, {{{4}, {}, 2, 0}}, with_changes({}, json), kTarget));
    }
}

TEST(a_model_without_a_possible_token_is_an_error) {
    const ConstantModel model(-std::numeric_limits<float>::infinity(), 5);
    CHECK_THROWS(ModelOutputError, "no token", search(model, {{{4}, {}, 0, 0}}, {}, kTarget));
}

TEST(of_equal_values_the_lower_id_is_better) {
    std::vector<float> best;
    Ids ids;
    append_best({1.0F, 3.0F, 3.0F, 2.0F, 3.0F}, 4, best, ids);
    CHECK(ids == Ids{1, 2, 4, 3});
    CHECK(best == std::vector<float>{3.0F, 3.0F, 3.0F, 2.0F});
}

TEST(a_draw_follows_temperature_top_k_and_top_p) {
    const std::vector<float> logits{0.0F, std::log(2.0F), std::log(1.0F), -std::numeric_limits<float>::infinity()};
    TranslationOptions options;  // order 1, 0, 2, 3 with weights 1/2, 1/4, 1/4, 0
    const auto drawn = [&] {
        std::vector<int> counts(4);
        for (std::uint32_t step = 0; step < 4000; ++step) {
            ++counts[static_cast<std::size_t>(draw_token(logits, options, draw_block(1, step, 0, 0)))];
        }
        return counts;
    };
    const auto about = [](int count, int wanted) { return std::abs(count - wanted) < 130; };  // 4 standard deviations
    std::vector<int> counts = drawn();
    CHECK(about(counts[0], 1000) && about(counts[1], 2000) && about(counts[2], 1000) && counts[3] == 0);
    options.top_k = 2;
    counts = drawn();
    CHECK(about(counts[0], 1333) && about(counts[1], 2667) && counts[2] == 0);
    options.top_k = 0;
    options.top_p = 0.5;
    CHECK(drawn()[1] == 4000);
    options.top_p = 1;
    options.temperature = 1e-9;
    CHECK(drawn()[1] == 4000);
    CHECK(draw_token({std::nanf(""), 0.0F}, options, {}) == 0);
}
