#include "tfexport/translator.h"

#include <future>
#include <system_error>

#include "bundle.h"
#include "session.h"
#include "translation.h"
#include "unicode.h"

namespace tfexport {

namespace {

Ids with(bool added, std::int64_t id, const Ids& ids) {
    Ids all(added ? 1 : 0, id);
    all.insert(all.end(), ids.begin(), ids.end());
    return all;
}

Vocabularies read_vocabularies(const Bundle& bundle) {
    const Manifest& m = bundle.manifest();
    const Tokenizers tokenizers = bundle.tokenizers();
    return {{tokenizers.source, m.model.source_vocab_size, m.source.unk_id},
            {tokenizers.target, m.model.target_vocab_size, m.target.unk_id},
            with(m.source.add_bos, m.source.start_id, m.source.prefix_ids),
            with(m.source.add_eos, m.source.eos_id, m.source.suffix_ids),
            static_cast<std::size_t>(m.model.max_source_length)};
}

/// Checks the weights in another thread: that takes as long as loading the graphs.
std::future<void> check_beside(const Bundle& bundle, bool verify) {
    if (!verify) return {};
    const auto check = [&bundle] { bundle.check_weights(); };
    try {
        return std::async(std::launch::async, check);
    } catch (const std::system_error&) {  // no more threads
        return std::async(std::launch::deferred, check);
    }
}

}  // namespace

struct Translator::Parts {
    Parts(Bundle opened, const SessionOptions& options)
        : bundle(std::move(opened)),
          checked(check_beside(bundle, options.verify)),
          model(open_model(bundle, options)),
          vocabularies(read_vocabularies(bundle)),
          target(bundle.manifest().search_target()),
          parallel_batches(static_cast<std::size_t>(options.parallel_batches)) {
        if (checked.valid()) checked.get();
    }

    Bundle bundle;
    std::future<void> checked;         // of no more use afterwards
    std::unique_ptr<StepModel> model;  // before the rest, as loading it takes the most memory
    Vocabularies vocabularies;
    Target target;
    std::size_t parallel_batches;
};

Translator::Translator(const std::filesystem::path& path, const SessionOptions& options)
    : parts_(std::make_unique<const Parts>(Bundle::open(path, options.verify, true), options)) {}

Translator::Translator(const void* zip, std::size_t size, const SessionOptions& options)
    : parts_(std::make_unique<const Parts>(Bundle::from_memory(zip, size, options.verify, true), options)) {}

Translator::Translator(Translator&&) noexcept = default;
Translator& Translator::operator=(Translator&&) noexcept = default;
Translator::~Translator() = default;

std::vector<Translation> Translator::translate(const std::vector<std::string>& texts, const TranslationOptions& options,
                                               const std::vector<std::string>& prefixes, bool attention) const {
    return tfexport::translate(*parts_->model, parts_->vocabularies, parts_->target, texts, options, prefixes,
                               parts_->parallel_batches, attention);
}

std::vector<Translation> Translator::translate(const std::vector<std::string>& texts) const {
    return translate(texts, default_options());
}

std::vector<FloatArray> Translator::encoder_states(const std::vector<std::string>& texts) const {
    const auto width = static_cast<std::size_t>(parts_->bundle.manifest().model.d_model);
    std::vector<FloatArray> all;
    std::vector<Ids> sources;
    std::string warning;
    for (std::size_t i = 0; i < texts.size(); ++i) {
        sources.push_back(tfexport::source_ids(texts[i], i, parts_->vocabularies, default_options(), warning));
    }
    for (const Ids& source : sources) {
        all.push_back(source.empty() ? FloatArray{{0, width}, {}} : parts_->model->encoder_states(source));
    }
    return all;
}

const TranslationOptions& Translator::default_options() const noexcept { return parts_->bundle.manifest().generation; }

std::vector<std::int64_t> Translator::source_ids(std::string_view text) const {
    if (!is_utf8(text)) throw InputError("is not UTF-8; convert it first", 0);
    return parts_->vocabularies.source.encode(text);
}

std::string Translator::read_file(const std::string& name) const { return std::string(parts_->bundle.read(name).view); }

const char* version() noexcept { return TFEXPORT_VERSION; }

}  // namespace tfexport
