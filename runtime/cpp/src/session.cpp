#include "session.h"

#include <onnxruntime_session_options_config_keys.h>
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <thread>

#include "cache.h"
#include "external_data.h"
#include "further_outputs.h"
#include "pages.h"
#include "tfexport/errors.h"
#include "tfexport/translator.h"

#ifdef __linux__
#include <dlfcn.h>
#endif

namespace tfexport {

namespace {

constexpr const char* kNoCuda =
    "CUDAExecutionProvider is not available here: it needs an NVIDIA GPU and an ONNX Runtime built for it; or choose "
    "the provider cpu";
// The engine copies an input to a GPU when it is bound: what is changed in place afterwards would not be seen.
constexpr const char* kNotInPlace =
    "this bundle writes its cache in place, which the C++ runtime does on the processor only; for CUDA export it with "
    "--ops portable, or use the Python runtime";
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

/// One for the process: a library does not print, and does not tell others what it is used for.
Ort::Env& environment() {
    static Ort::Env env(ORT_LOGGING_LEVEL_FATAL, "tfexport", drop_message, nullptr);
    static const bool silent = (env.DisableTelemetryEvents(), true);
    static_cast<void>(silent);
    return env;
}

/// Where the engine's code lies on disk; empty where that cannot be known.
std::filesystem::path engine_library() {
#ifdef __linux__
    Dl_info found{};
    if (::dladdr(reinterpret_cast<const void*>(OrtGetApiBase()->GetVersionString), &found) != 0) return found.dli_fname;
#endif
    return {};
}

std::string first_line(const char* text) { return std::string(text, std::strcspn(text, "\n")); }

/// Throws UnavailableError where it is not there or cannot start.
void add_cuda(Ort::SessionOptions& settings) {
    const std::vector<std::string> there = Ort::GetAvailableProviders();
    if (std::find(there.begin(), there.end(), "CUDAExecutionProvider") == there.end()) throw UnavailableError(kNoCuda);
    try {
        settings.AppendExecutionProvider_CUDA(OrtCUDAProviderOptions{});
    } catch (const Ort::Exception&) {
        std::throw_with_nested(UnavailableError(kNoCuda));
    }
}

Ort::SessionOptions settings(const SessionOptions& options) {
    Ort::SessionOptions settings;
    const auto cores = static_cast<int>(std::thread::hardware_concurrency());
    settings.SetIntraOpNumThreads(options.threads > 0 ? options.threads
                                                      : std::max(1, cores / options.parallel_batches));
    settings.SetInterOpNumThreads(1);
    settings.SetLogSeverityLevel(ORT_LOGGING_LEVEL_FATAL);
    settings.AddConfigEntry(kOrtSessionOptionsConfigAllowIntraOpSpinning, options.spinning ? "1" : "0");
    settings.AddConfigEntry(kOrtSessionOptionsConfigDisablePrepacking, options.prepacking ? "0" : "1");
    // Long enough to wait for the next step, short enough not to stand in the way of the other graph's threads.
    settings.AddConfigEntry("session.intra_op.spin_duration_us", "1000");
    // Add and LayerNormalization take half the time of SkipLayerNormalization.
    settings.AddConfigEntry("optimization.disable_specified_optimizers", "SkipLayerNormFusion");
    if (!options.arena) settings.DisableCpuMemArena();
    if (options.provider == Provider::cuda) add_cuda(settings);
    return settings;
}

std::basic_string<ORTCHAR_T> native(const std::string& name) { return {name.begin(), name.end()}; }

/// Where the weights lie in the file on disk that holds all of the bundle; empty if there is none, or where a place
/// does not fit the alignment of the tensors.
std::map<std::string, std::uint64_t, std::less<>> weights_in_zip(const Bundle& bundle) {
    std::map<std::string, std::uint64_t, std::less<>> shifts;
    for (const std::string& name : bundle.manifest().weights) {
        const std::optional<Place> place = bundle.place(name);
        if (!place || place->offset % kAlignment != 0) return {};
        shifts[name] = place->offset;
    }
    return shifts;
}

/// A graph whose weights lie inside of a zip on disk: pointed to their place there, so that they are mapped.
Ort::Session open_in_zip(std::string_view graph, const std::filesystem::path& zip,
                         const std::map<std::string, std::uint64_t, std::less<>>& shifts, Ort::SessionOptions& chosen) {
    const std::filesystem::path folder = std::filesystem::absolute(zip).parent_path();
    chosen.AddConfigEntry(kOrtSessionOptionsModelExternalInitializersFileFolderPath, folder.u8string().c_str());
    const std::string moved = with_moved_data(graph, zip.filename().u8string(), shifts);
    return {environment(), moved.data(), moved.size(), chosen};
}

/// A graph whose weights lie in memory; the engine copies them once.
Ort::Session open_in_memory(std::string_view graph, const Bundle& bundle, Ort::SessionOptions& chosen) {
    std::vector<std::basic_string<ORTCHAR_T>> names;
    std::vector<Bytes> owners;
    std::vector<char*> contents;
    std::vector<std::size_t> sizes;
    for (const std::string& name : bundle.manifest().weights) {
        owners.push_back(bundle.read(name));
        names.push_back(native(name));
        contents.push_back(const_cast<char*>(owners.back().view.data()));
        sizes.push_back(owners.back().view.size());
    }
    if (!names.empty()) chosen.AddExternalInitializersFromFilesInMemory(names, contents, sizes);
    return {environment(), graph.data(), graph.size(), chosen};
}

/// A graph in ONNX Runtime's own format, which holds its weights: used where it lies, if that fits the alignment of the
/// tensors. The bytes must then live as long as the session.
Ort::Session open_ort_format(std::string_view graph, Ort::SessionOptions& chosen) {
    if (reinterpret_cast<std::uintptr_t>(graph.data()) % kAlignment == 0) {
        chosen.AddConfigEntry(kOrtSessionOptionsConfigUseORTModelBytesDirectly, "1");
        chosen.AddConfigEntry(kOrtSessionOptionsConfigUseORTModelBytesForInitializers, "1");
    }
    return {environment(), graph.data(), graph.size(), chosen};
}

/// `held` gets what the session reads from as long as it lives.
Ort::Session open_anywhere(const Bundle& bundle, const std::string& file, Ort::SessionOptions& chosen,
                           std::vector<Bytes>& held) {
    if (bundle.manifest().graph_format == "ort") {
        held.push_back(bundle.map(file));
        return open_ort_format(held.back().view, chosen);
    }
    const std::optional<Place> graph = bundle.place(file);
    if (graph && graph->offset == 0) return {environment(), graph->file.c_str(), chosen};
    const Bytes bytes = bundle.read(file);
    const auto shifts = weights_in_zip(bundle);
    return shifts.empty() ? open_in_memory(bytes.view, bundle, chosen)
                          : open_in_zip(bytes.view, graph->file, shifts, chosen);
}

/// What a session used to bring its weights into the order of its kernels lies in its arena, free: for the table of a
/// large vocabulary 16 MB that one sentence at a time never fills again.
void drop_free_pages(const Ort::Session& session) {
#if ORT_API_VERSION >= 23
    Ort::Allocator arena(session, Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault));
    const Ort::KeyValuePairs stats = arena.GetStats();
    const char* total = stats.GetValue("TotalAllocated");
    const char* used = stats.GetValue("InUse");
    if (total == nullptr || used == nullptr) return;
    const std::size_t size = std::stoull(total) - std::stoull(used);
    if (size == 0) return;
    void* block = arena.Alloc(size);  // where it lies in several pieces, the engine takes new memory, untouched
    drop_pages(block, size);
    arena.Free(block);
#endif
}

/// What a session is made of and no step needs again: of the engine's code more than half.
void drop_read_pages(const Bundle& bundle) {
    std::vector<std::filesystem::path> read{engine_library()};
    for (const auto& [name, info] : bundle.manifest().files) {  // the engine has copied most of the weights
        if (const auto place = bundle.place(name)) read.push_back(place->file);
    }
    drop_pages_of(read);
}

Ort::Session open_graph(const Bundle& bundle, const char* role, const SessionOptions& options,
                        std::vector<Bytes>& held) {
    const std::string& file = bundle.manifest().graphs.at(role).file;
    Ort::SessionOptions chosen = settings(options);
    try {
        Ort::Session session = open_anywhere(bundle, file, chosen, held);
        if (!options.prepacking) return session;
        if (options.arena) drop_free_pages(session);
        drop_read_pages(bundle);
        return session;
    } catch (const Ort::Exception& error) {
        std::throw_with_nested(BundleError(bundle.name(file) + ": ONNX Runtime " + onnxruntime_version() +
                                           " cannot load this graph (made for " + bundle.manifest().onnxruntime +
                                           " and newer): " + first_line(error.what())));
    }
}

/// Inside of a catch block.
[[noreturn]] void throw_failed_run(const Ort::Exception& error) {
    std::throw_with_nested(Error("ONNX Runtime cannot run this bundle: " + first_line(error.what()), 1));
}

/// Turns the engine's errors into this library's.
class GuardedState final : public DecoderState {
public:
    explicit GuardedState(std::unique_ptr<DecoderState> state) : state_(std::move(state)) {}

    Candidates step(const Ids& tokens, const std::vector<float>& bias, std::size_t count) override try {
        return state_->step(tokens, bias, count);
    } catch (const Ort::Exception& error) {
        throw_failed_run(error);
    }
    std::vector<const float*> step_logits(const Ids& tokens) override try {
        return state_->step_logits(tokens);
    } catch (const Ort::Exception& error) {
        throw_failed_run(error);
    }
    std::vector<FloatArray> step_attention(const Ids& tokens) override try {
        return state_->step_attention(tokens);
    } catch (const Ort::Exception& error) {
        throw_failed_run(error);
    }
    void select(const std::vector<std::size_t>& rows) override try {
        state_->select(rows);
    } catch (const Ort::Exception& error) {
        throw_failed_run(error);
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

/// The states of the real tokens, [S, d_model], from an output of the encoder for one source.
FloatArray states_of(const Ort::Value& value, std::size_t length, std::size_t width) {
    const auto info = value.GetTensorTypeAndShapeInfo();
    const std::vector<std::int64_t> shape = info.GetShape();
    if (shape.size() != 3 || shape[0] != 1 || shape[1] < static_cast<std::int64_t>(length) ||
        shape[2] != static_cast<std::int64_t>(width) || info.GetElementType() != ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT) {
        throw ModelOutputError("the encoder gave states of a wrong shape; verify the bundle with `tfexport verify`");
    }
    const auto* values = value.GetTensorData<float>();
    return {{length, width}, {values, values + length * width}};
}

class OnnxModel final : public StepModel {
public:
    OnnxModel(const Bundle& bundle, const SessionOptions& options)
        : form_(bundle.manifest().cache),
          gives_states_(gives_encoder_states(bundle.manifest())),
          graphs_(open_graphs(bundle, options)) {
        if (options.large_pages) large_pages_.start();
    }

    std::unique_ptr<DecoderState> start(const std::vector<Ids>& sources, std::size_t beam_size) const override try {
        const auto start = form_ == CacheForm::in_place ? start_in_place
                           : form_ == CacheForm::fixed  ? start_fixed
                                                        : start_growing;
        return std::make_unique<GuardedState>(start(graphs_, sources, beam_size));
    } catch (const Ort::Exception& error) {
        throw_failed_run(error);
    }

    const std::vector<std::string>& attention_names() const override { return graphs_.attention; }

    FloatArray encoder_states(const Ids& source) const override try {
        if (!gives_states_) {
            throw OptionError("this bundle does not give the encoder's states; export it with --with encoder-state");
        }
        const auto found = form_ == CacheForm::fixed
                               ? PaddedSources<std::int32_t>({source}, graphs_.fixed.source, graphs_.pad_id)
                                     .encoded(graphs_.encoder, {kEncoderState})
                               : PaddedSources<std::int64_t>({source}, source.size(), graphs_.pad_id)
                                     .encoded(graphs_.encoder, {kEncoderState});
        return states_of(found.front(), source.size(), static_cast<std::size_t>(graphs_.shape.d_model));
    } catch (const Ort::Exception& error) {
        throw_failed_run(error);
    }

private:
    static Graphs open_graphs(const Bundle& bundle, const SessionOptions& options) {
        const Manifest& m = bundle.manifest();
        const std::int64_t layers = m.model.num_decoder_layers;
        if (options.provider == Provider::cuda && m.cache == CacheForm::in_place) throw UnavailableError(kNotInPlace);
        const FixedShape fixed = m.cache == CacheForm::fixed ? fixed_shape(m) : FixedShape{};
        std::vector<Bytes> held;
        environment();
        drop_pages_of({engine_library()});  // it has registered its operators, with a third of its code
        // The larger graph first, and its pages given back before the other comes: the least memory at the highest
        // point.
        Ort::Session decoder = open_graph(bundle, "decoder", options, held);
        Ort::Session encoder = open_graph(bundle, "encoder", options, held);
        return {m.model,
                fixed,
                m.source.pad_id,
                std::move(held),
                std::move(encoder),
                std::move(decoder),
                layer_names("present", "encoder", layers),
                layer_names("past_key_values", "encoder", layers),
                layer_names("present", "decoder", layers),
                layer_names("past_key_values", "decoder", layers),
                tfexport::attention_names(m)};
    }

    CacheForm form_;
    bool gives_states_;
    LargePagesSoon large_pages_;  // knows the memory before the graphs were there
    mutable Graphs graphs_;       // running a session is safe from any thread, though not const
};

}  // namespace

std::unique_ptr<StepModel> open_model(const Bundle& bundle, const SessionOptions& options) {
    if (options.threads < 0) throw OptionError("threads must not be negative");
    if (options.parallel_batches < 1) throw OptionError("parallel_batches must be at least 1");
    const std::string& format = bundle.manifest().graph_format;
    if (format != "onnx" && format != "ort") {
        throw BundleError(bundle.origin() + ": of format " + format +
                          ", which another engine runs: see the README.md in it");
    }
    require_engine();
    return std::make_unique<OnnxModel>(bundle, options);
}

std::string onnxruntime_version() {
    require_engine();
    return OrtGetApiBase()->GetVersionString();
}

}  // namespace tfexport
