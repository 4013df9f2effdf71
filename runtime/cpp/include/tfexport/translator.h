// `tfexport::Translator("bundle").translate(texts)`: a bundle, ready to run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tfexport/errors.h"
#include "tfexport/export.h"
#include "tfexport/options.h"
#include "tfexport/translation.h"

namespace tfexport {

/// A bundle, ready to translate. All const functions may be called from several threads at once.
class TFEXPORT_API Translator {
public:
    /// Opens a folder or a zip. Throws BundleError, UnavailableError.
    explicit Translator(const std::filesystem::path& path, const SessionOptions& options = {});

    /// Opens a zip that lies in memory, such as an asset of an app. The memory must outlive this object and not change.
    Translator(const void* zip, std::size_t size, const SessionOptions& options = {});

    Translator(Translator&&) noexcept;
    Translator& operator=(Translator&&) noexcept;
    ~Translator();

    /// The translations of the texts (UTF-8), in their order. `prefixes` are beginnings of the targets, one for each
    /// text, or empty. attention: hypotheses also tell what their tokens looked at; of a bundle that was exported with
    /// it. Throws OptionError before any work, and InputError for a text that is too long or not UTF-8.
    std::vector<Translation> translate(const std::vector<std::string>& texts, const TranslationOptions& options,
                                       const std::vector<std::string>& prefixes = {}, bool attention = false) const;

    /// The same with the default options of the bundle.
    std::vector<Translation> translate(const std::vector<std::string>& texts) const;

    /// The encoder's last hidden states of each text, [source ids, d_model]; of an empty text [0, d_model]. Throws
    /// OptionError where the bundle does not give them, and InputError for a text that is too long or not UTF-8.
    std::vector<FloatArray> encoder_states(const std::vector<std::string>& texts) const;

    /// The defaults of section 5 of the specification with those of this bundle laid over.
    const TranslationOptions& default_options() const noexcept;

    /// What the tokenizer makes of a text, without start and end ids. Throws InputError for bad UTF-8.
    std::vector<std::int64_t> source_ids(std::string_view text) const;

    /// The content of a file of the bundle, such as golden.json. Throws BundleError.
    std::string read_file(const std::string& name) const;

private:
    struct Parts;
    std::unique_ptr<const Parts> parts_;
};

/// Version of this library, and of the ONNX Runtime that it runs with. Throws UnavailableError for one that is too old.
TFEXPORT_API const char* version() noexcept;
TFEXPORT_API std::string onnxruntime_version();

}  // namespace tfexport
