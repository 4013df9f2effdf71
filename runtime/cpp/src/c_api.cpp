#include <atomic>
#include <cmath>
#include <iterator>
#include <limits>
#include <new>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

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
struct tfexport_states {
    std::vector<tfexport::FloatArray> of_texts;
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
    std::string provider = "cpu";
    std::int64_t threads = options.threads;
    std::int64_t parallel_batches = options.parallel_batches;
    try {
        const tfexport::Json values = tfexport::parse_json(json, "session");
        tfexport::ObjectReader reader(values, "", problems, tfexport::ObjectReader::Missing::allowed);
        reader.integer("threads", threads, 0, 4096);
        reader.integer("parallel_batches", parallel_batches, 1, 4096);
        reader.choice("provider", provider, {"cpu", "cuda"});
        reader.boolean("spinning", options.spinning);
        reader.boolean("prepacking", options.prepacking);
        reader.boolean("arena", options.arena);
        reader.boolean("large_pages", options.large_pages);
        reader.boolean("verify", options.verify);
        reader.finish();
    } catch (const tfexport::BundleError& error) {
        throw tfexport::OptionError(error.what());
    }
    if (!problems.empty()) throw tfexport::OptionError("session: " + tfexport::joined(problems));
    if (provider == "cuda") options.provider = tfexport::Provider::cuda;
    options.threads = static_cast<int>(threads);
    options.parallel_batches = static_cast<int>(parallel_batches);
    return options;
}

/// What a call wants: the options of the bundle with changes, and whether hypotheses tell what their tokens looked at.
struct Wanted {
    tfexport::TranslationOptions options;
    bool attention = false;
};

Wanted wanted(const tfexport::Translator& open, const char* json) {
    Wanted found{open.default_options()};
    if (json == nullptr) return found;
    tfexport::Problems problems;
    tfexport::Json changes;
    try {
        changes = tfexport::parse_json(json, "options");
    } catch (const tfexport::BundleError& error) {
        throw tfexport::OptionError(error.what());
    }
    if (changes.is_object()) {
        tfexport::ObjectReader(changes, "", problems, tfexport::ObjectReader::Missing::allowed)
            .boolean("attention", found.attention);
        changes.erase("attention");
    }
    if (!problems.empty()) throw tfexport::OptionError("options: " + tfexport::joined(problems));
    found.options = tfexport::with_changes(found.options, changes.dump());
    return found;
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

/// One of the outputs of a hypothesis's attention, with its name.
const std::pair<const std::string, tfexport::FloatArray>* attention(const tfexport_result* result, std::size_t text,
                                                                    std::size_t place, std::size_t output) noexcept {
    const Hypothesis* h = hypothesis(result, text, place);
    if (h == nullptr || output >= h->attention.size()) return nullptr;
    return &*std::next(h->attention.begin(), static_cast<std::ptrdiff_t>(output));
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
        Wanted chosen = wanted(open, options);
        if (cancel != nullptr || progress != nullptr) {
            chosen.options.callback = [&](const tfexport::Progress& p) {
                const bool ended = progress != nullptr &&
                                   progress(user, p.sentence, p.sample, p.tokens.data(), p.tokens.size(), p.score) != 0;
                return ended || (cancel != nullptr && cancel->set.load(std::memory_order_relaxed));
            };
        }
        const auto beginnings = prefixes == nullptr ? std::vector<std::string>{} : strings(prefixes, count, "prefix");
        *result = new tfexport_result{
            open.translate(strings(texts, count, "text"), chosen.options, beginnings, chosen.attention)};
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

const char* tfexport_result_attention_name(const tfexport_result* result, size_t text, size_t place, size_t output) {
    const auto* found = attention(result, text, place, output);
    return found == nullptr ? nullptr : found->first.c_str();
}

const float* tfexport_result_attention(const tfexport_result* result, size_t text, size_t place, size_t output,
                                       size_t shape[3]) {
    const auto* found = attention(result, text, place, output);
    for (std::size_t axis = 0; shape != nullptr && axis < 3; ++axis) {
        shape[axis] = found == nullptr ? 0 : found->second.shape[axis];
    }
    return found == nullptr ? nullptr : found->second.values.data();
}

const char* tfexport_result_warning(const tfexport_result* result, size_t text) {
    return text < tfexport_result_texts(result) ? result->translations[text].warning.c_str() : nullptr;
}

void tfexport_result_free(tfexport_result* result) { delete result; }

tfexport_status tfexport_encoder_states(const tfexport_translator* translator, const char* const* texts, size_t count,
                                        tfexport_states** states) {
    return guarded([&] {
        required(states, "states") = nullptr;
        const tfexport::Translator& open = required(translator, "translator").translator;
        if (count > 0) required(texts, "texts");
        *states = new tfexport_states{open.encoder_states(strings(texts, count, "text"))};
    });
}

size_t tfexport_states_texts(const tfexport_states* states) { return states == nullptr ? 0 : states->of_texts.size(); }

const float* tfexport_states_of(const tfexport_states* states, size_t text, size_t shape[2]) {
    const bool there = text < tfexport_states_texts(states);
    for (std::size_t axis = 0; shape != nullptr && axis < 2; ++axis) {
        shape[axis] = there ? states->of_texts[text].shape[axis] : 0;
    }
    return there ? states->of_texts[text].values.data() : nullptr;
}

void tfexport_states_free(tfexport_states* states) { delete states; }

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
