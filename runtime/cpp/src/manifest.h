// `bundle.json`: what is in a bundle and how to run it. See SPEC.md and bundle.schema.json.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "step_model.h"
#include "tfexport/options.h"

namespace tfexport {

constexpr const char* kManifestName = "bundle.json";
constexpr std::size_t kMaxManifestBytes = std::size_t{16} << 20;
constexpr std::int64_t kFormatVersion = 1;

/// An input or output of a graph.
struct TensorInfo {
    std::string name;
    std::string type;
    std::vector<std::int64_t> shape;  // -1 where the size varies
    std::string open_axis;            // the first one that varies or is 0, for people; empty if there is none
};

/// One graph, the file that holds it, and what goes in and out of it, in its order.
struct GraphInfo {
    std::string file;
    std::vector<TensorInfo> inputs;
    std::vector<TensorInfo> outputs;
};

/// Sizes of the model. Lengths are in tokens, start and end tokens counted.
struct ModelInfo {
    std::int64_t d_model = 0;
    std::int64_t num_heads = 0;
    std::int64_t head_size = 0;
    std::int64_t cache_head_size = 0;  // of the self-attention cache: a graph may pad the heads
    std::int64_t num_decoder_layers = 0;
    std::int64_t source_vocab_size = 0;
    std::int64_t target_vocab_size = 0;
    std::int64_t max_source_length = 0;
    std::int64_t max_target_length = 0;
};

/// Which file turns text into ids, and the ids that stand for no text.
struct TextInfo {
    std::string kind;
    std::string file;
    std::int64_t pad_id = 0;
    std::int64_t start_id = 0;
    std::int64_t eos_id = 0;
    std::int64_t unk_id = 0;
};

struct SourceInfo : TextInfo {
    bool add_bos = false;  // the start token before the text
    bool add_eos = false;  // the end token behind it
    Ids prefix_ids;        // between start token and text, such as a language code
    Ids suffix_ids;        // behind the end token
};

struct TargetInfo : TextInfo {
    Ids never_generated;  // ids that the search never picks, in any mode
    Ids prefix_ids;       // what the decoder reads behind the start token; in no hypothesis
};

/// How the decoder remembers earlier steps. in_place: buffers of fixed capacity and a used length a row. growing: each
/// step returns longer tensors. fixed: every shape is a number, and the graph returns the buffers with one position
/// written.
enum class CacheForm { in_place, growing, fixed };

/// Size and digest of a file of the bundle.
struct FileInfo {
    std::string sha256;
    std::int64_t bytes = 0;
};

/// What of `bundle.json` a runtime uses. All of it is checked.
struct Manifest {
    ModelInfo model;
    SourceInfo source;
    TargetInfo target;
    std::string graph_format = "onnx";        // of the graphs' files; decides which engine runs them
    std::map<std::string, GraphInfo> graphs;  // `encoder` and `decoder`, or `search` alone
    std::vector<std::string> weights;         // external data of the graphs; none: inside them
    CacheForm cache = CacheForm::growing;
    std::string onnxruntime;                // the lowest version that runs the graphs; empty: another engine runs them
    std::map<std::string, FileInfo> files;  // every file but bundle.json itself
    TranslationOptions generation;          // the defaults of the runtime with those of this bundle laid over

    /// What the search must know of this model.
    Target search_target() const;
};

/// `origin` names the file in errors. Throws BundleError, with every problem at once.
Manifest read_manifest(std::string_view json, const std::string& origin);

/// Whether a file of a bundle may be called so: letters, digits, dot, dash and underscore; not hidden.
bool is_file_name(std::string_view name);

}  // namespace tfexport
