#include "bundle_fixture.h"

#include <atomic>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>

#include "protobuf.h"
#include "sha256.h"

namespace tfexport::test {

namespace {

/// A ModelProto with one tensor whose data lies in `location`.
std::string graph_reading(const std::string& location) {
    std::string entry;
    append_field(entry, 1, "location");
    append_field(entry, 2, location);
    std::string tensor;
    append_field(tensor, 13, entry);
    std::string graph;
    append_field(graph, 5, tensor);
    std::string model;
    append_field(model, 7, graph);
    return model;
}

std::string little_endian(std::uint64_t value, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i));
    return text;
}

std::uint32_t crc32(const std::string& bytes) {
    std::uint32_t crc = ~std::uint32_t{0};
    for (const char c : bytes) {
        crc ^= static_cast<unsigned char>(c);
        for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? (crc >> 1) ^ 0xEDB88320 : crc >> 1;
    }
    return ~crc;
}

Json side() {
    return {{"tokenizer", {{"kind", "words"}, {"file", "shared.txt"}}},
            {"pad_id", 0},
            {"start_id", 1},
            {"eos_id", 2},
            {"unk_id", 3}};
}

Json graph(const char* file) {
    const Json tensors = Json::array({{{"name", "x"}, {"type", "int64"}, {"shape", {"batch", 2}}}});
    return {{"file", file}, {"inputs", tensors}, {"outputs", tensors}};
}

}  // namespace

Contents small_bundle() {
    Contents files{{"encoder.onnx", graph_reading("weights.bin")},
                   {"decoder.onnx", graph_reading("weights.bin")},
                   {"weights.bin", std::string(128, 'w')},
                   {"shared.txt", "<pad>\n<s>\n</s>\n<unk>\nein\nhund\n"}};
    files["bundle.json"] = manifest_of(files).dump();
    return files;
}

Json manifest_of(const Contents& files) {
    Json source = side();
    source["add_bos"] = false;
    source["add_eos"] = true;
    Json target = side();
    target["never_generated"] = {0, 1};
    Json manifest{{"format", "tfexport-bundle"},
                  {"format_version", 1},
                  {"producer", {{"tfexport", "0.1.0"}}},
                  {"source", source},
                  {"target", target},
                  {"weights", {"weights.bin"}},
                  {"cache", {{"form", "in_place"}}},
                  {"precision", "fp32"},
                  {"operators", "ort"},
                  {"opset", 18},
                  {"ir_version", 9},
                  {"requirements", {{"onnxruntime", "1.20"}, {"domains", {""}}}}};
    manifest["model"]["name"] = "small";
    for (const char* size :
         {"parameters", "d_model", "num_heads", "head_size", "num_encoder_layers", "num_decoder_layers", "d_ff"}) {
        manifest["model"][size] = 1;
    }
    for (const char* size : {"source_vocab_size", "target_vocab_size"}) manifest["model"][size] = 6;
    for (const char* size : {"max_source_length", "max_target_length"}) manifest["model"][size] = 20;
    manifest["graphs"] = {{"encoder", graph("encoder.onnx")}, {"decoder", graph("decoder.onnx")}};
    for (const auto& [name, content] : files) {
        if (name == "bundle.json") continue;
        Sha256 sha;
        sha.update(content);
        manifest["files"][name] = {{"sha256", sha.hex()}, {"bytes", content.size()}};
    }
    return manifest;
}

std::string zip_of(const Contents& files, unsigned mode, unsigned method) {
    std::string zip;
    std::string directory;
    for (const auto& [name, content] : files) {
        const std::string common = little_endian(0, 2) + little_endian(method, 2) + little_endian(0, 4) +
                                   little_endian(crc32(content), 4) + little_endian(content.size(), 4) +
                                   little_endian(content.size(), 4) + little_endian(name.size(), 2) +
                                   little_endian(0, 2);
        directory.append("PK\x01\x02").append(little_endian(0x031e, 2)).append(little_endian(20, 2)).append(common);
        directory.append(little_endian(0, 6)).append(little_endian(mode << 16, 4)).append(little_endian(zip.size(), 4));
        directory.append(name);
        zip.append("PK\x03\x04").append(little_endian(20, 2)).append(common).append(name).append(content);
    }
    return zip + directory + "PK\x05\x06" + little_endian(0, 4) + little_endian(files.size(), 2) +
           little_endian(files.size(), 2) + little_endian(directory.size(), 4) + little_endian(zip.size(), 4) +
           little_endian(0, 2);
}

namespace {

std::filesystem::path new_folder() {
    static std::atomic<int> count{0};
    const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
    const std::string name = "tfexport-test-" + std::to_string(now) + "-" + std::to_string(count++);
    const std::filesystem::path path = std::filesystem::temp_directory_path() / name;
    std::filesystem::create_directories(path);
    return path;
}

}  // namespace

Folder::Folder(const Contents& files) : path(new_folder()) {
    for (const auto& [name, content] : files) {
        std::ofstream file(path / std::filesystem::u8path(name), std::ios::binary);
        file << content;
    }
}

Folder::~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
}

}  // namespace tfexport::test
