#include "session.h"

#include <onnxruntime_session_options_config_keys.h>
#include <cstring>
#include <filesystem>
#include <thread>

#include "cache.h"
#include "external_data.h"
#include "tfexport/errors.h"
#include "tfexport/translator.h"

namespace tfexport {

namespace {

constexpr std::uint64_t kAlignment = 64;  // of tensors in weights.bin, as the exporter lays them

/// The engine's entry points in the version of the headers. Throws UnavailableError where the library is older.
void require_engine() {
    static const OrtApi* const api = OrtGetApiBase()->GetApi(ORT_API_VERSION);
    if (api == nullptr) {
        throw UnavailableError("ONNX Runtime " + std::string(OrtGetApiBase()->GetVersionString()) +
                               " is older than the headers of this build; use version 1." +
                               std::to_string(ORT_API_VERSION) + " or newer, or build with older headers");
    }
    static const bool ready = (Ort::InitApi(api), true);
    static_cast<void>(ready);
}

void drop_message(void*, OrtLoggingLevel, const char*, const char*, const char*, const char*) {}

/// One for the process: a library does not print.
Ort::Env& environment() {
    static Ort::Env env(ORT_LOGGING_LEVEL_FATAL, "tfexport", drop_message, nullptr);
    return env;
}

std::string first_line(const char* text) { return std::string(text, std::strcspn(text, "\n")); }

Ort::SessionOptions settings(const SessionOptions& options) {
    Ort::SessionOptions settings;
    const auto cores = static_cast<int>(std::thread::hardware_concurrency());
    settings.SetIntraOpNumThreads(options.threads > 0 ? options.threads : cores);
    settings.SetInterOpNumThreads(1);
    settings.SetLogSeverityLevel(ORT_LOGGING_LEVEL_FATAL);
    settings.AddConfigEntry("session.intra_op.allow_spinning", options.spinning ? "1" : "0");
    // Long enough to wait for the next step, short enough not to stand in the way of the other graph's threads.
    settings.AddConfigEntry("session.intra_op.spin_duration_us", "1000");
    // Add and LayerNormalization take half the time of SkipLayerNormalization.
    settings.AddConfigEntry("optimization.disable_specified_optimizers", "SkipLayerNormFusion");
    if (!options.arena) settings.DisableCpuMemArena().DisableMemPattern();
    return settings;
}

std::basic_string<ORTCHAR_T> native(const std::string& name) { return {name.begin(), name.end()}; }

/// A graph whose weights lie inside of a zip on disk: pointed to their place there, so that they are mapped.
Ort::Session open_in_zip(std::string_view graph, const Place& weights, Ort::SessionOptions& chosen) {
    const std::filesystem::path folder = std::filesystem::absolute(weights.file).parent_path();
    chosen.AddConfigEntry(kOrtSessionOptionsModelExternalInitializersFileFolderPath, folder.u8string().c_str());
    const std::string moved = with_moved_data(graph, weights.file.filename().u8string(), weights.offset);
    return {environment(), moved.data(), moved.size(), chosen};
}

/// A graph whose weights lie in memory; the engine copies them once.
Ort::Session open_in_memory(std::string_view graph, const Bundle& bundle, Ort::SessionOptions& chosen) {
    const std::string& name = bundle.manifest().weights;
    const std::string_view weights = bundle.read(name).view;
    chosen.AddExternalInitializersFromFilesInMemory({native(name)}, {const_cast<char*>(weights.data())},
                                                    {weights.size()});
    return {environment(), graph.data(), graph.size(), chosen};
}

Ort::Session open_anywhere(const Bundle& bundle, const std::string& file, Ort::SessionOptions& chosen) {
    const std::optional<Place> graph = bundle.place(file);
    const std::optional<Place> weights = bundle.place(bundle.manifest().weights);
    if (graph && graph->offset == 0) return {environment(), graph->file.c_str(), chosen};
    const Bytes bytes = bundle.read(file);
    const bool aligned = weights && weights->offset % kAlignment == 0;
    return aligned ? open_in_zip(bytes.view, *weights, chosen) : open_in_memory(bytes.view, bundle, chosen);
}

Ort::Session open_graph(const Bundle& bundle, const std::string& file, Ort::SessionOptions chosen) {
    try {
        Ort::Session session = open_anywhere(bundle, file, chosen);
        // The engine has copied most of the weights into the order that its kernels want.
        if (const auto weights = bundle.place(bundle.manifest().weights)) release_pages(weights->file);
        return session;
    } catch (const Ort::Exception& error) {
        throw BundleError(bundle.name(file) + ": ONNX Runtime " + onnxruntime_version() +
                          " cannot load this graph (made for " + bundle.manifest().onnxruntime +
                          " and newer): " + first_line(error.what()));
    }
}

Error failed_run(const Ort::Exception& error) {
    return Error("ONNX Runtime cannot run this bundle: " + first_line(error.what()), 1);
}

/// Turns the engine's errors into this library's.
class GuardedState final : public DecoderState {
public:
    explicit GuardedState(std::unique_ptr<DecoderState> state) : state_(std::move(state)) {}

    Candidates step(const Ids& tokens, const std::vector<float>& bias, std::size_t count) override try {
        return state_->step(tokens, bias, count);
    } catch (const Ort::Exception& error) {
        throw failed_run(error);
    }
    std::vector<const float*> step_logits(const Ids& tokens) override try {
        return state_->step_logits(tokens);
    } catch (const Ort::Exception& error) {
        throw failed_run(error);
    }
    void select(const std::vector<std::size_t>& rows) override try {
        state_->select(rows);
    } catch (const Ort::Exception& error) {
        throw failed_run(error);
    }

private:
    std::unique_ptr<DecoderState> state_;
};

std::vector<std::string> layer_names(const char* direction, const char* attention, std::int64_t layers) {
    std::vector<std::string> names;
    for (std::int64_t i = 0; i < layers; ++i) {
        for (const char* part : {"key", "value"}) {
            names.push_back(std::string(direction) + "." + std::to_string(i) + "." + attention + "." + part);
        }
    }
    return names;
}

class OnnxModel final : public StepModel {
public:
    OnnxModel(const Bundle& bundle, const SessionOptions& options)
        : in_place_(bundle.manifest().in_place), graphs_(open_graphs(bundle, options)) {}

    std::unique_ptr<DecoderState> start(const std::vector<Ids>& sources, std::size_t beam_size) const override try {
        auto state =
            in_place_ ? start_in_place(graphs_, sources, beam_size) : start_growing(graphs_, sources, beam_size);
        return std::make_unique<GuardedState>(std::move(state));
    } catch (const Ort::Exception& error) {
        throw failed_run(error);
    }

private:
    static Graphs open_graphs(const Bundle& bundle, const SessionOptions& options) {
        const Manifest& m = bundle.manifest();
        const std::int64_t layers = m.model.num_decoder_layers;
        // The larger graph first, and its pages given back before the other comes: the least memory at the highest
        // point.
        Ort::Session decoder = open_graph(bundle, m.decoder.file, settings(options));
        Ort::Session encoder = open_graph(bundle, m.encoder.file, settings(options));
        return {m.model,
                m.source.pad_id,
                std::move(encoder),
                std::move(decoder),
                layer_names("present", "encoder", layers),
                layer_names("past_key_values", "encoder", layers),
                layer_names("present", "decoder", layers),
                layer_names("past_key_values", "decoder", layers)};
    }

    bool in_place_;
    mutable Graphs graphs_;  // running a session is safe from any thread, though not const
};

}  // namespace

std::unique_ptr<StepModel> open_model(const Bundle& bundle, const SessionOptions& options) {
    if (options.threads < 0) throw OptionError("threads must not be negative");
    require_engine();
    return std::make_unique<OnnxModel>(bundle, options);
}

std::string onnxruntime_version() {
    require_engine();
    return OrtGetApiBase()->GetVersionString();
}

}  // namespace tfexport
