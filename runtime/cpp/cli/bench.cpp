#include "bench.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

namespace tfexport::cli {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRepeats = 5;

struct Timing {
    double seconds;
    std::size_t tokens;
};

std::vector<std::string> golden_texts(const Translator& translator) {
    std::vector<std::string> texts;
    const auto golden = nlohmann::json::parse(translator.read_file("golden.json"));
    for (const auto& test : golden.at("cases")) {
        const auto text = test.at("text").get<std::string>();
        if (!text.empty() && std::find(texts.begin(), texts.end(), text) == texts.end()) texts.push_back(text);
    }
    if (texts.empty()) throw BundleError("golden.json: holds no text to time");
    return texts;
}

Timing timed(const Translator& translator, const std::vector<std::string>& texts, const TranslationOptions& options) {
    const auto start = Clock::now();
    std::size_t tokens = 0;
    for (const Translation& t : translator.translate(texts, options)) tokens += t.best().token_scores.size();
    return {std::chrono::duration<double>(Clock::now() - start).count(), tokens};
}

Timing one_by_one(const Translator& translator, const std::vector<std::string>& texts,
                  const TranslationOptions& options) {
    Timing total{0, 0};
    for (const std::string& text : texts) {
        const Timing one = timed(translator, {text}, options);
        total.seconds += one.seconds;
        total.tokens += one.tokens;
    }
    return total;
}

void print(std::ostream& out, const char* name, Timing best, std::size_t sentences) {
    char line[120];
    std::snprintf(line, sizeof line, "%-20s %10.2f ms a sentence %12.0f tokens a second\n", name,
                  1000 * best.seconds / static_cast<double>(sentences),
                  static_cast<double>(best.tokens) / best.seconds);
    out << line;
}

}  // namespace

void bench(const Translator& translator, const TranslationOptions& options, std::ostream& out) {
    const std::vector<std::string> texts = golden_texts(translator);
    out << texts.size() << " sentences, beam size " << options.beam_size << ", ONNX Runtime " << onnxruntime_version()
        << ", best of " << kRepeats << "\n";
    const auto best_of = [&](auto run) {
        Timing best = run(translator, texts, options);
        for (int repeat = 1; repeat < kRepeats; ++repeat) {
            const Timing next = run(translator, texts, options);
            if (next.seconds < best.seconds) best = next;
        }
        return best;
    };
    print(out, "one at a time", best_of(one_by_one), texts.size());
    print(out, "all together", best_of(timed), texts.size());
}

}  // namespace tfexport::cli
