// A bundle with real graphs, named by TFEXPORT_TEST_BUNDLE: the C interface, threads, and all ways to open one.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "bundle_fixture.h"
#include "check.h"
#include "tfexport/self_test.h"
#include "tfexport/tfexport.h"
#include "tfexport/translator.h"

using namespace tfexport;

namespace {

/// Empty when there is none; the tests then say so and pass.
std::string bundle_path() {
    const char* path = std::getenv("TFEXPORT_TEST_BUNDLE");
    if (path == nullptr) std::cout << "skipped: TFEXPORT_TEST_BUNDLE names no bundle\n";
    return path == nullptr ? "" : path;
}

SessionOptions one_thread() {
    SessionOptions options;
    options.threads = 1;
    return options;
}

std::vector<std::string> golden_texts(const Translator& translator) {
    std::vector<std::string> texts;
    const Json golden = Json::parse(translator.read_file("golden.json"));
    for (const Json& test : golden.at("cases")) texts.push_back(test.at("text"));
    texts.resize(std::min<std::size_t>(texts.size(), 8));
    return texts;
}

bool same(const Translation& a, const Translation& b) {
    bool fine = a.hypotheses.size() == b.hypotheses.size();
    for (std::size_t i = 0; fine && i < a.hypotheses.size(); ++i) {
        fine = a.hypotheses[i].ids == b.hypotheses[i].ids &&
               std::abs(a.hypotheses[i].score - b.hypotheses[i].score) < 1e-5;
    }
    return fine;
}

test::Contents contents(const std::filesystem::path& folder) {
    test::Contents files;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        std::ifstream file(entry.path(), std::ios::binary);
        std::stringstream text;
        text << file.rdbuf();
        files[entry.path().filename().string()] = text.str();
    }
    return files;
}

}  // namespace

TEST(real_bundle_passes_its_golden_file_from_folder_zip_and_memory) {
    const std::string path = bundle_path();
    if (path.empty()) return;
    const auto check_golden = [](const Translator& translator) {
        const SelfTest report = self_test(translator);
        CHECK(report.cases > 0);
        for (const std::string& difference : report.differences) check::report(false, __FILE__, __LINE__, difference);
    };
    check_golden(Translator(path, one_thread()));
    const std::string zip = test::zip_of(contents(path));
    check_golden(Translator(zip.data(), zip.size(), one_thread()));
    const test::Folder around({{"b\xC3\xBCndel.zip", zip}});
    check_golden(Translator(around.path / std::filesystem::u8path("b\xC3\xBCndel.zip"), one_thread()));
}

TEST(real_bundle_gives_eight_threads_what_it_gives_one) {
    const std::string path = bundle_path();
    if (path.empty()) return;
    constexpr int kThreads = 8;
    const int count = check::repeats("TFEXPORT_TEST_REQUESTS", 200);
    const Translator translator(path, one_thread());
    const std::vector<std::string> texts = golden_texts(translator);
    const TranslationOptions options =
        with_changes(translator.default_options(), R"({"beam_size": 2, "max_length": 6})");
    const std::vector<Translation> expected = translator.translate(texts, options);
    std::vector<int> wrong(kThreads, 0);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
        threads.emplace_back([&, t] {
            for (int i = 0; i < count; ++i) {
                const std::size_t place = static_cast<std::size_t>(t + i) % texts.size();
                const Translation found = translator.translate({texts[place]}, options).front();
                if (!same(found, expected[place])) ++wrong[static_cast<std::size_t>(t)];
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    for (const int errors : wrong) CHECK(errors == 0);
}

TEST(real_bundle_refuses_bad_text_by_its_place) {
    const std::string path = bundle_path();
    if (path.empty()) return;
    const Translator translator(path, one_thread());
    CHECK_THROWS(InputError, "text 2 is not UTF-8", translator.translate({"a", "\xFF"}));
    std::string long_text;
    for (int i = 0; i < 3000; ++i) long_text += "t52 ";
    CHECK_THROWS(InputError, "000 tokens, the model takes", translator.translate({long_text}));
    const auto cut =
        translator.translate({long_text, ""}, with_changes({}, R"({"truncate_source": true, "max_length": 2})"));
    CHECK(cut[0].warning.find("was cut from ") == 0);
    CHECK(cut[1].text().empty() && cut[1].best().score == 0 && cut[1].best().finish_reason == FinishReason::eos);
    CHECK_THROWS(OptionError, "1 prefixes for 2 texts", translator.translate({"a", "b"}, {}, {"c"}));
}

TEST(real_bundle_gives_parallel_batches_and_mapped_weights_what_it_gives_one) {
    const std::string path = bundle_path();
    if (path.empty()) return;
    const Translator translator(path, one_thread());
    SessionOptions session = one_thread();
    session.parallel_batches = 3;
    session.prepacking = false;
    const Translator parallel(path, session);
    const std::vector<std::string> texts = golden_texts(translator);
    for (const char* changes : {R"({"max_batch_tokens": 30, "max_length": 9})", R"({"beam_size": 3, "max_length": 7})",
                                R"({"sampling": true, "n_best": 3, "max_length": 5})"}) {
        const TranslationOptions options = with_changes({}, changes);
        const auto expected = translator.translate(texts, options);
        const auto found = parallel.translate(texts, options);
        for (std::size_t i = 0; i < texts.size(); ++i) CHECK(same(found[i], expected[i]));
    }
    TranslationOptions failing = with_changes({}, R"({"max_batch_tokens": 1})");
    failing.callback = [](const Progress&) -> bool { throw std::runtime_error("enough"); };
    CHECK(check::message_of<std::runtime_error>([&] { parallel.translate(texts, failing); }) == "enough");
    session.parallel_batches = 0;
    CHECK_THROWS(OptionError, "parallel_batches must be at least 1", Translator(path, session));
}

TEST(real_bundle_through_the_c_interface_translates_and_frees) {
    const std::string path = bundle_path();
    if (path.empty()) return;
    tfexport_translator* translator = nullptr;
    const char* session =
        R"({"threads": 1, "parallel_batches": 2, "spinning": false, "prepacking": false, "arena": false})";
    CHECK(tfexport_open(path.c_str(), session, &translator) == TFEXPORT_OK);
    const Translator same_bundle(path, one_thread());
    const std::vector<std::string> golden = golden_texts(same_bundle);
    const char* texts[] = {golden[0].c_str(), ""};
    tfexport_result* result = nullptr;
    CHECK(tfexport_translate(translator, texts, nullptr, 2, R"({"beam_size": 3, "n_best": 2, "max_length": 7})",
                             nullptr, nullptr, nullptr, &result) == TFEXPORT_OK);
    const Translation expected = same_bundle.translate(
        {golden[0]},
        with_changes(same_bundle.default_options(), R"({"beam_size": 3, "n_best": 2, "max_length": 7})"))[0];
    CHECK(tfexport_result_texts(result) == 2);
    CHECK(tfexport_result_hypotheses(result, 0) == 2 && tfexport_result_hypotheses(result, 1) == 1);
    CHECK(tfexport_result_hypotheses(result, 2) == 0 && tfexport_result_text(result, 0, 2) == nullptr);
    for (std::size_t h = 0; h < 2; ++h) {
        const Hypothesis& wanted = expected.hypotheses[h];
        CHECK(tfexport_result_text(result, 0, h) == wanted.text);
        CHECK(std::abs(tfexport_result_score(result, 0, h) - wanted.score) < 1e-6);
        CHECK(tfexport_result_finish(result, 0, h) == static_cast<tfexport_finish>(wanted.finish_reason));
        std::size_t count = 0;
        const std::int64_t* ids = tfexport_result_ids(result, 0, h, &count);
        CHECK(std::vector<std::int64_t>(ids, ids + count) == wanted.ids);
        CHECK(tfexport_result_token(result, 0, h, 0) == wanted.tokens[0]);
        tfexport_result_token_scores(result, 0, h, &count);
        CHECK(count == wanted.token_scores.size());
    }
    tfexport_result_free(result);
    std::size_t differences = 1;
    CHECK(tfexport_self_test(translator, &differences) == TFEXPORT_OK && differences == 0);
    tfexport_close(translator);
}

TEST(real_bundle_through_the_c_interface_reports_errors_and_cancels) {
    const std::string path = bundle_path();
    if (path.empty()) return;
    tfexport_translator* translator = nullptr;
    CHECK(tfexport_open("/nowhere", nullptr, &translator) == TFEXPORT_INPUT && translator == nullptr);
    CHECK(std::strstr(tfexport_last_error(), "no such file") != nullptr);
    CHECK(tfexport_open(path.c_str(), R"({"thread": 1})", &translator) == TFEXPORT_OPTION);
    CHECK(tfexport_open(path.c_str(), R"({"parallel_batches": 0})", &translator) == TFEXPORT_OPTION);
    CHECK(tfexport_open(nullptr, nullptr, &translator) == TFEXPORT_OPTION);
    CHECK(tfexport_open(path.c_str(), R"({"threads": 1})", &translator) == TFEXPORT_OK);
    const char* texts[] = {"t52 t65 t174", nullptr};
    tfexport_result* result = nullptr;
    const auto run = [&](std::size_t count, const char* options, const tfexport_cancel* cancel,
                         tfexport_progress progress, void* user) {
        return tfexport_translate(translator, texts, nullptr, count, options, cancel, progress, user, &result);
    };
    CHECK(run(2, nullptr, nullptr, nullptr, nullptr) == TFEXPORT_OPTION && result == nullptr);
    CHECK(run(1, R"({"beam_size": 0})", nullptr, nullptr, nullptr) == TFEXPORT_OPTION);
    tfexport_cancel* cancel = nullptr;
    CHECK(tfexport_cancel_new(&cancel) == TFEXPORT_OK);
    tfexport_cancel_set(cancel);
    CHECK(run(1, R"({"min_length": 5})", cancel, nullptr, nullptr) == TFEXPORT_OK);
    CHECK(tfexport_result_finish(result, 0, 0) == TFEXPORT_FINISH_CANCELLED);
    tfexport_result_free(result);
    int calls = 0;
    const auto count_calls = [](void* user, std::size_t, std::size_t, const std::int64_t*, std::size_t, double) {
        return ++*static_cast<int*>(user) == 3 ? 1 : 0;
    };
    CHECK(run(1, R"({"min_length": 5})", nullptr, count_calls, &calls) == TFEXPORT_OK && calls == 3);
    std::size_t count = 0;
    tfexport_result_ids(result, 0, 0, &count);
    CHECK(count == 3);
    tfexport_result_free(result);
    tfexport_cancel_free(cancel);
    tfexport_close(translator);
}

TEST(real_bundle_through_the_c_interface_gives_outputs_on_request) {
    const std::string path = bundle_path();
    if (path.empty()) return;
    const Translator same_bundle(path, one_thread());
    tfexport_translator* translator = nullptr;
    CHECK(tfexport_open(path.c_str(), R"({"threads": 1})", &translator) == TFEXPORT_OK);
    const std::vector<std::string> golden = golden_texts(same_bundle);
    const char* texts[] = {golden[0].c_str(), ""};
    tfexport_result* result = nullptr;
    const auto translate = [&](const char* options) {
        return tfexport_translate(translator, texts, nullptr, 2, options, nullptr, nullptr, nullptr, &result);
    };
    CHECK(translate(R"({"attention": 1})") == TFEXPORT_OPTION);
    CHECK(translate(R"({"attention": false, "max_length": 3})") == TFEXPORT_OK);
    CHECK(tfexport_result_attention_name(result, 0, 0, 0) == nullptr);
    tfexport_result_free(result);
    tfexport_states* states = nullptr;
    const tfexport_status given = tfexport_encoder_states(translator, texts, 2, &states);
    if (given == TFEXPORT_OPTION) {  // a bundle that was exported without
        CHECK(states == nullptr && translate(R"({"attention": true})") == TFEXPORT_OPTION);
        tfexport_close(translator);
        return;
    }
    std::size_t shape[3] = {};
    CHECK(given == TFEXPORT_OK && tfexport_states_texts(states) == 2);
    const FloatArray expected_states = same_bundle.encoder_states({golden[0]})[0];
    const float* found = tfexport_states_of(states, 0, shape);
    CHECK(shape[0] == expected_states.shape[0] && shape[1] == expected_states.shape[1]);
    CHECK(std::equal(expected_states.values.begin(), expected_states.values.end(), found,
                     [](float a, float b) { return std::abs(a - b) < 1e-5F; }));
    tfexport_states_of(states, 1, shape);
    CHECK(shape[0] == 0 && shape[1] == expected_states.shape[1]);
    CHECK(tfexport_states_of(states, 2, shape) == nullptr && shape[1] == 0);
    tfexport_states_free(states);

    CHECK(translate(R"({"attention": true, "beam_size": 3, "n_best": 2, "max_length": 7})") == TFEXPORT_OK);
    const auto options =
        with_changes(same_bundle.default_options(), R"({"beam_size": 3, "n_best": 2, "max_length": 7})");
    const Translation expected = same_bundle.translate({golden[0]}, options, {}, true)[0];
    for (std::size_t h = 0; h < 2; ++h) {
        std::size_t output = 0;
        for (const auto& [name, weights] : expected.hypotheses[h].attention) {
            CHECK(tfexport_result_attention_name(result, 0, h, output) == name);
            const float* values = tfexport_result_attention(result, 0, h, output++, shape);
            CHECK(std::equal(shape, shape + 3, weights.shape.begin(), weights.shape.end()));
            CHECK(std::equal(weights.values.begin(), weights.values.end(), values,
                             [](float a, float b) { return std::abs(a - b) < 1e-5F; }));
        }
        CHECK(output > 0 && tfexport_result_attention(result, 0, h, output, nullptr) == nullptr);
    }
    CHECK(tfexport_result_attention(result, 1, 0, 0, shape) == nullptr && shape[0] == 0);
    tfexport_result_free(result);
    tfexport_close(translator);
}
