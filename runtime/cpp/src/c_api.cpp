#include <atomic>
#include <cmath>
#include <limits>
#include <new>
#include <nlohmann/json.hpp>
#include <string>

#include "strict_json.h"
#include "tfexport/self_test.h"
#include "tfexport/tfexport.h"
#include "tfexport/translator.h"

struct tfexport_translator {
    tfexport::Translator translator;
};
struct tfexport_result {
    std::vector<tfexport::Translation> translations;
};
struct tfexport_cancel {
    std::atomic<bool> set{false};
};

namespace {

using tfexport::Hypothesis;

constexpr std::size_t kMaxMessage = 1024;

/// The message of the last failure of this thread. Fixed memory: it must work when there is none left.
thread_local char last_error[kMaxMessage];

void remember(const char* message) noexcept {
    std::size_t i = 0;
    for (; message[i] != 0 && i + 1 < kMaxMessage; ++i) last_error[i] = message[i] == '\n' ? ' ' : message[i];
    last_error[i] = 0;
}

/// Runs `work`; whatever it throws becomes a status and a message.
template <typename Work>
tfexport_status guarded(Work work) noexcept {
    try {
        work();
        return TFEXPORT_OK;
    } catch (const tfexport::Error& error) {
        remember(error.what());
        return static_cast<tfexport_status>(error.exit_status);
    } catch (const std::bad_alloc&) {
        remember("not enough memory; use a smaller batch or a machine with more");
    } catch (const std::exception& error) {
        remember(error.what());
    } catch (...) {
        remember("unknown failure");
    }
    return TFEXPORT_INTERNAL;
}

template <typename T>
T& required(T* pointer, const char* name) {
    if (pointer == nullptr) throw tfexport::OptionError(std::string(name) + " must not be NULL");
    return *pointer;
}

tfexport::SessionOptions session_options(const char* json) {
    tfexport::SessionOptions options;
    if (json == nullptr) return options;
    tfexport::Problems problems;
    std::int64_t threads = options.threads;
    std::int64_t parallel_batches = options.parallel_batches;
    try {
        const tfexport::Json values = tfexport::parse_json(json, "session");
        tfexport::ObjectReader reader(values, "", problems, tfexport::ObjectReader::Missing::allowed);
        reader.integer("threads", threads, 0, 4096);
        reader.integer("parallel_batches", parallel_batches, 1, 4096);
        reader.boolean("spinning", options.spinning);
        reader.boolean("prepacking", options.prepacking);
        reader.boolean("arena", options.arena);
        reader.boolean("verify", options.verify);
        reader.finish();
    } catch (const tfexport::BundleError& error) {
        throw tfexport::OptionError(error.what());
    }
    if (!problems.empty()) throw tfexport::OptionError("session: " + tfexport::joined(problems));
    options.threads = static_cast<int>(threads);
    options.parallel_batches = static_cast<int>(parallel_batches);
    return options;
}

std::vector<std::string> strings(const char* const* texts, std::size_t count, const char* name) {
    std::vector<std::string> all;
    for (std::size_t i = 0; i < count; ++i) {
        all.emplace_back(&required(texts[i], (std::string(name) + " " + std::to_string(i + 1)).c_str()));
    }
    return all;
}

const Hypothesis* hypothesis(const tfexport_result* result, std::size_t text, std::size_t place) noexcept {
    if (place >= tfexport_result_hypotheses(result, text)) return nullptr;
    return &result->translations[text].hypotheses[place];
}

}  // namespace

const char* tfexport_version(void) { return tfexport::version(); }

const char* tfexport_last_error(void) { return last_error; }

tfexport_status tfexport_open(const char* path, const char* session, tfexport_translator** translator) {
    return guarded([&] {
        required(translator, "translator") = nullptr;
        const auto native = std::filesystem::u8path(std::string(&required(path, "path")));
        *translator = new tfexport_translator{tfexport::Translator(native, session_options(session))};
    });
}

tfexport_status tfexport_open_memory(const void* zip, size_t size, const char* session,
                                     tfexport_translator** translator) {
    return guarded([&] {
        required(translator, "translator") = nullptr;
        *translator = new tfexport_translator{tfexport::Translator(zip, size, session_options(session))};
    });
}

void tfexport_close(tfexport_translator* translator) { delete translator; }

tfexport_status tfexport_translate(const tfexport_translator* translator, const char* const* texts,
                                   const char* const* prefixes, size_t count, const char* options,
                                   const tfexport_cancel* cancel, tfexport_progress progress, void* user,
                                   tfexport_result** result) {
    return guarded([&] {
        required(result, "result") = nullptr;
        const tfexport::Translator& open = required(translator, "translator").translator;
        if (count > 0) required(texts, "texts");
        tfexport::TranslationOptions chosen = open.default_options();
        if (options != nullptr) chosen = tfexport::with_changes(chosen, options);
        if (cancel != nullptr || progress != nullptr) {
            chosen.callback = [&](const tfexport::Progress& p) {
                const bool ended = progress != nullptr &&
                                   progress(user, p.sentence, p.sample, p.tokens.data(), p.tokens.size(), p.score) != 0;
                return ended || (cancel != nullptr && cancel->set.load(std::memory_order_relaxed));
            };
        }
        const auto beginnings = prefixes == nullptr ? std::vector<std::string>{} : strings(prefixes, count, "prefix");
        *result = new tfexport_result{open.translate(strings(texts, count, "text"), chosen, beginnings)};
    });
}

size_t tfexport_result_texts(const tfexport_result* result) {
    return result == nullptr ? 0 : result->translations.size();
}

size_t tfexport_result_hypotheses(const tfexport_result* result, size_t text) {
    return text < tfexport_result_texts(result) ? result->translations[text].hypotheses.size() : 0;
}

const char* tfexport_result_text(const tfexport_result* result, size_t text, size_t place) {
    const Hypothesis* h = hypothesis(result, text, place);
    return h == nullptr ? nullptr : h->text.c_str();
}

double tfexport_result_score(const tfexport_result* result, size_t text, size_t place) {
    const Hypothesis* h = hypothesis(result, text, place);
    return h == nullptr ? std::numeric_limits<double>::quiet_NaN() : h->score;
}

tfexport_finish tfexport_result_finish(const tfexport_result* result, size_t text, size_t place) {
    const Hypothesis* h = hypothesis(result, text, place);
    return h == nullptr ? TFEXPORT_FINISH_EOS : static_cast<tfexport_finish>(h->finish_reason);
}

const int64_t* tfexport_result_ids(const tfexport_result* result, size_t text, size_t place, size_t* count) {
    const Hypothesis* h = hypothesis(result, text, place);
    if (count != nullptr) *count = h == nullptr ? 0 : h->ids.size();
    return h == nullptr ? nullptr : h->ids.data();
}

const float* tfexport_result_token_scores(const tfexport_result* result, size_t text, size_t place, size_t* count) {
    const Hypothesis* h = hypothesis(result, text, place);
    if (count != nullptr) *count = h == nullptr ? 0 : h->token_scores.size();
    return h == nullptr ? nullptr : h->token_scores.data();
}

const char* tfexport_result_token(const tfexport_result* result, size_t text, size_t place, size_t position) {
    const Hypothesis* h = hypothesis(result, text, place);
    return h == nullptr || position >= h->tokens.size() ? nullptr : h->tokens[position].c_str();
}

const char* tfexport_result_warning(const tfexport_result* result, size_t text) {
    return text < tfexport_result_texts(result) ? result->translations[text].warning.c_str() : nullptr;
}

void tfexport_result_free(tfexport_result* result) { delete result; }

tfexport_status tfexport_cancel_new(tfexport_cancel** cancel) {
    return guarded([&] { required(cancel, "cancel") = new tfexport_cancel; });
}

void tfexport_cancel_set(tfexport_cancel* cancel) {
    if (cancel != nullptr) cancel->set.store(true, std::memory_order_relaxed);
}

void tfexport_cancel_free(tfexport_cancel* cancel) { delete cancel; }

tfexport_status tfexport_self_test(const tfexport_translator* translator, size_t* differences) {
    return guarded([&] {
        required(differences, "differences") = 0;
        const tfexport::SelfTest report = tfexport::self_test(required(translator, "translator").translator);
        *differences = report.differences.size();
        if (!report.differences.empty()) remember(report.differences.front().c_str());
    });
}
