// Bundles that are not what the specification says.
#include <fstream>
#include <nlohmann/json.hpp>

#include "bundle.h"
#include "bundle_fixture.h"
#include "check.h"
#include "external_data.h"
#include "files.h"
#include "manifest_rules.h"
#include "protobuf.h"
#include "session.h"
#include "sha256.h"
#include "tfexport/errors.h"

using namespace tfexport;
using test::Contents;
using test::Folder;

namespace {

std::string problem(const Contents& files) {
    const Folder folder(files);
    return check::message_of<BundleError>([&] { Bundle::open(folder.path, true); });
}

/// The problem of a bundle whose manifest was changed.
template <typename Change>
std::string manifest_problem(Change change) {
    Contents files = test::small_bundle();
    Json manifest = test::manifest_of(files);
    change(manifest);
    files["bundle.json"] = manifest.dump();
    return problem(files);
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string zip_problem(const std::string& zip) {
    return check::message_of<BundleError>([&] { Bundle::from_memory(zip.data(), zip.size(), true); });
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
    for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
        text.replace(at, from.size(), to);
    }
    return text;
}

}  // namespace

TEST(a_right_bundle_opens_from_folder_zip_and_memory) {
    const Contents files = test::small_bundle();
    const Folder folder(files);
    const Bundle bundle = Bundle::open(folder.path, true);
    CHECK(bundle.tokenizers().source->encode("ein hund") == Ids{4, 5});
    CHECK(bundle.place("weights.bin")->offset == 0);
    const std::string zip = test::zip_of(files);
    CHECK(Bundle::from_memory(zip.data(), zip.size(), true).read("weights.bin").view == files.at("weights.bin"));
    const Folder around({{"b\xC3\xBCndel.zip", zip}});
    const Bundle zipped = Bundle::open(around.path / std::filesystem::u8path("b\xC3\xBCndel.zip"), true);
    CHECK(zipped.read("shared.txt").view == files.at("shared.txt"));
    CHECK(zip.compare(zipped.place("weights.bin")->offset, 128, files.at("weights.bin")) == 0);
}

TEST(a_missing_changed_or_foreign_file_is_named) {
    Contents files = test::small_bundle();
    files.erase("weights.bin");
    CHECK(has(problem(files), "weights.bin missing"));
    files = test::small_bundle();
    files["more.txt"] = "";
    CHECK(has(problem(files), "'more.txt' not part of the bundle"));
    files = test::small_bundle();
    files["weights.bin"] += 'x';
    CHECK(has(problem(files), "weights.bin: has 129 bytes, the manifest says 128"));
    files = test::small_bundle();
    files["weights.bin"][5] = 'x';
    CHECK(has(problem(files), "weights.bin: its content has changed"));
    files.erase("bundle.json");
    CHECK(has(problem(files), "not a bundle: no bundle.json"));
    CHECK_THROWS(BundleError, "no such file", Bundle::open("/nowhere/at/all", true));
}

TEST(a_manifest_that_was_changed_after_it_was_sealed_is_refused) {
    const std::string body = test::small_bundle().at("bundle.json");
    const auto sealed = [&](const std::string& digest) {
        return body.substr(0, body.size() - 1) + ",\n  \"digest\": \"" + digest + "\"\n}\n";
    };
    Sha256 sha;
    sha.update(sealed(std::string(64, '0')));
    const std::string right = sealed(sha.hex());
    Contents files = test::small_bundle();
    const auto problem_of = [&](const std::string& manifest) {
        files["bundle.json"] = manifest;
        return problem(files);
    };
    CHECK(problem_of(right).empty());
    const char* changed = "bundle.json: was changed after it was written";
    CHECK(has(problem_of(replaced(right, "small", "large")), changed));
    CHECK(has(problem_of(replaced(right, "\n}", "\n }")), changed));
    CHECK(has(problem_of(sealed(std::string(64, '0'))), changed));
    CHECK(has(problem_of("{\"digest\":\"" + std::string(64, '0') + "\"," + body.substr(1)), changed));
    const Folder folder(files);
    CHECK(Bundle::open(folder.path, false).manifest().weights == std::vector<std::string>{"weights.bin"});
}

TEST(without_verification_only_the_digests_are_left_out) {
    Contents files = test::small_bundle();
    files["weights.bin"][5] = 'x';
    const Folder folder(files);
    CHECK(Bundle::open(folder.path, false).manifest().weights == std::vector<std::string>{"weights.bin"});
}

TEST(links_and_folders_are_refused) {
    const Folder folder(test::small_bundle());
    std::filesystem::rename(folder.path / "weights.bin", folder.path / "../weights-of-test.bin");
    std::filesystem::create_symlink("../weights-of-test.bin", folder.path / "weights.bin");
    CHECK_THROWS(BundleError, "is a link", Bundle::open(folder.path, true));
    std::filesystem::remove(folder.path / "../weights-of-test.bin");
    std::filesystem::remove(folder.path / "weights.bin");
    std::filesystem::create_directory(folder.path / "weights.bin");
    CHECK_THROWS(BundleError, "is not a plain file", Bundle::open(folder.path, true));
}

TEST(a_newer_format_is_refused_with_advice) {
    CHECK(
        has(manifest_problem([](Json& m) { m["format_version"] = 2; }), "newer than this runtime reads (1); upgrade"));
    CHECK(has(manifest_problem([](Json& m) { m["format_version"] = 0; }), "whole number from 1"));
    CHECK(has(manifest_problem([](Json& m) { m["format"] = "other"; }), "not the manifest"));
}

TEST(every_problem_of_a_manifest_is_told_at_once) {
    const std::string several = manifest_problem([](Json& m) {
        m["model"].erase("d_ff");
        m["model"]["num_heads"] = "8";
        m["surprise"] = 1;
    });
    CHECK(has(several, "missing field model.d_ff"));
    CHECK(has(several, "model.num_heads must be a whole number, not '8'"));
    CHECK(has(several, "unknown field surprise"));
    CHECK(has(several, "bundle.json"));
}

TEST(values_of_a_manifest_are_bounded) {
    const auto refused = [](const char* pointer, const Json& value) {
        const std::string found = manifest_problem([&](Json& m) { m[Json::json_pointer(pointer)] = value; });
        check::report(!found.empty(), __FILE__, __LINE__, std::string(pointer) + " was taken as " + value.dump());
    };
    refused("/model/num_decoder_layers", 1025);
    refused("/model/target_vocab_size", 0);
    refused("/model/max_target_length", 4294967296);
    refused("/model/name", std::string(257, 'x'));
    refused("/source/eos_id", 6);
    refused("/source/add_bos", 1);
    refused("/target/never_generated", {2});
    refused("/target/never_generated", {-1});
    refused("/source/prefix_ids", {6});
    refused("/source/suffix_ids", {-1});
    refused("/target/prefix_ids", 3);
    refused("/target/prefix_ids", {1.5});
    refused("/weights", "weights.bin");
    refused("/weights/0", 1);
    refused("/weights/0", "none.bin");
    refused("/weights", Json::array_t(257, "weights.bin"));
    refused("/graph_format", "tflite");
    refused("/opset", -1);
    refused("/opset", 1001);
    refused("/ir_version", -1);
    refused("/cache/form", "growing_fast");
    refused("/operators", "other");
    refused("/precision", "FP32");
    refused("/graphs/encoder/file", "encoder.bin");
    refused("/graphs/encoder/inputs/0/type", "float64");
    refused("/graphs/encoder/inputs/0/shape", {-1});
    refused("/graphs/encoder/file", ".onnx");
    refused("/graphs/search", test::manifest_of({})["graphs"]["encoder"]);
    refused("/requirements/domains", Json::array_t(65, ""));
    refused("/files/weights.bin/sha256", std::string(64, 'G'));
    refused("/generation", {{"beam_size", 2000}});
    refused("/generation", {{"beams", 2}});
    refused("/generation", {{"n_best", 2}});
}

TEST(names_that_leave_the_bundle_are_refused) {
    for (const char* name : {"../weights.bin", "a/b", "a\\b", "C:w", ".", "..", "", ".hidden", "-x", "w\xC3\xA4.bin"}) {
        const std::string found = manifest_problem([&](Json& m) {
            m["weights"][0] = name;
            m["files"][name] = m["files"]["weights.bin"];
        });
        check::report(has(found, "bundle.json"), __FILE__, __LINE__, std::string("was taken: ") + name);
    }
}

TEST(the_graphs_are_those_of_the_format) {
    const auto rename = [](Json& m, const std::string& ending) {
        for (auto& graph : m["graphs"]) {
            const auto file = graph["file"].get<std::string>();
            graph["file"] = file.substr(0, 7) + ending;
            m["files"].erase(file);
            m["files"][graph["file"].get<std::string>()] = m["files"]["weights.bin"];
        }
    };
    for (const auto& [format, ending] : {std::pair{"onnx", ".onnx"},
                                         {"ort", ".ort"},
                                         {"torchscript", ".pt"},
                                         {"torch-export", ".pt2"},
                                         {"aoti", ".pt2"},
                                         {"executorch", ".pte"}}) {
        Json m = test::manifest_of(test::small_bundle());
        rename(m, ending);
        m["graph_format"] = format;
        CHECK(read_manifest(m.dump(), "m").graph_format == format);
        m["graph_format"] = std::string(format) == "ort" ? "onnx" : "ort";
        const std::string wrong = check::message_of<BundleError>([&] { read_manifest(m.dump(), "m"); });
        CHECK(has(wrong, "graphs.encoder.file encoder" + std::string(ending) + " must end with ."));
        m["graph_format"] = "single";
        CHECK_THROWS(BundleError, "graphs of format single must be search", read_manifest(m.dump(), "m"));
    }
    Json m = test::manifest_of(test::small_bundle());
    m["graphs"].erase("encoder");
    CHECK_THROWS(BundleError, "graphs of format onnx must be decoder and encoder", read_manifest(m.dump(), "m"));
    m["graphs"] = {{"search", m["graphs"]["decoder"]}};
    m["graph_format"] = "single";
    for (const char* number : {"opset", "ir_version"}) m[number] = 0;
    m["weights"] = Json::array();
    m["requirements"] = {{"onnxruntime", ""}, {"domains", Json::array()}};
    const Manifest read = read_manifest(m.dump(), "m");
    CHECK(read.graphs.count("search") == 1 && read.weights.empty());
    m["graphs"]["decoder"] = m["graphs"]["search"];
    CHECK_THROWS(BundleError, "graphs of format single must be search", read_manifest(m.dump(), "m"));
}

TEST(fixed_shapes_are_numbers_that_fit_the_model) {
    Json m = test::manifest_of(test::small_bundle());
    m["cache"]["form"] = "fixed";
    CHECK_THROWS(BundleError, "graphs.decoder: x has the axis 'batch', but cache.form is fixed: it must be a number",
                 read_manifest(m.dump(), "m"));
    for (const char* role : {"encoder", "decoder"}) {
        for (const char* side : {"inputs", "outputs"}) m["graphs"][role][side][0]["shape"] = {2, 2};
    }
    CHECK(read_manifest(m.dump(), "m").cache == CacheForm::fixed);
    CHECK_THROWS(BundleError, "decoder graph: no past_key_values.0.decoder.key of 4 axes whose sizes are numbers",
                 fixed_shape(read_manifest(m.dump(), "m")));
    m["graphs"]["encoder"]["inputs"][0] = {{"name", "input_ids"}, {"type", "int32"}, {"shape", {1, 19}}};
    m["graphs"]["decoder"]["inputs"][0] = {
        {"name", "past_key_values.0.decoder.key"}, {"type", "float32"}, {"shape", {4, 1, 18, 1}}};
    CHECK_THROWS(BundleError, "model.max_source_length is 20, but input_ids of the encoder has another length",
                 read_manifest(m.dump(), "m"));
    CHECK_THROWS(BundleError, "model.max_target_length is 20, but past_key_values.0.decoder.key of the decoder has",
                 read_manifest(m.dump(), "m"));
    m["model"]["max_source_length"] = 19;
    m["model"]["max_target_length"] = 18;
    m["graphs"]["decoder"]["outputs"][0] = {{"name", "candidate_scores"}, {"type", "float32"}, {"shape", {4, 5}}};
    const FixedShape sizes = fixed_shape(read_manifest(m.dump(), "m"));
    CHECK(sizes.rows == 4 && sizes.source == 19 && sizes.target == 18 && sizes.candidates == 5);
    m["graphs"]["decoder"]["outputs"][0]["shape"][1] = 0;
    CHECK_THROWS(BundleError, "candidate_scores has the axis 0, but cache.form is fixed", read_manifest(m.dump(), "m"));
}

TEST(a_format_of_another_engine_is_refused_in_one_line) {
    Contents files = test::small_bundle();
    Json m = test::manifest_of(files);
    for (const char* role : {"encoder", "decoder"}) {
        m["graphs"][role]["file"] = "model.pt2";
        m["files"].erase(role + std::string(".onnx"));
        files.erase(role + std::string(".onnx"));
    }
    files["model.pt2"] = files["weights.bin"];
    m["files"]["model.pt2"] = m["files"]["weights.bin"];
    m["graph_format"] = "aoti";
    files["bundle.json"] = m.dump();
    const Folder folder(files);
    CHECK_THROWS(BundleError, "of format aoti, which another engine runs: see the README.md in it",
                 open_model(Bundle::open(folder.path, true), {}));
}

TEST(a_graph_may_read_all_of_the_weights) {
    Contents files = test::small_bundle();
    files["more.bin"] = "m";
    files["decoder.onnx"] = replaced(files["decoder.onnx"], "weights.bin", "weights2.bi");
    files["weights2.bi"] = "n";
    Json m = test::manifest_of(files);
    m["weights"] = {"weights.bin", "weights2.bi", "more.bin"};
    files["bundle.json"] = m.dump();
    CHECK(problem(files).empty());
    m["weights"] = {"weights.bin", "more.bin"};
    files["bundle.json"] = m.dump();
    CHECK(has(problem(files), "decoder.onnx: refused: reads 'weights2.bi', not only weights.bin, more.bin"));
    m["weights"] = Json::array();
    files["bundle.json"] = m.dump();
    CHECK(has(problem(files), "refused: reads 'weights2.bi', not only itself"));
}

TEST(json_is_read_strictly) {
    const auto json_problem = [](const std::string& json) {
        Contents files = test::small_bundle();
        files["bundle.json"] = json;
        return problem(files);
    };
    const std::string good = test::small_bundle().at("bundle.json");
    CHECK(json_problem(good).empty());
    CHECK(has(json_problem("{\"format\":1," + good.substr(1)), "appears twice"));
    CHECK(has(json_problem(replaced(good, "\"opset\":18", "\"opset\":NaN")), "not JSON"));
    CHECK(has(json_problem(replaced(good, "\"opset\":18", "\"opset\":1e999")), "not JSON"));
    CHECK(has(json_problem(replaced(good, "small", "sm\xFFll")), "not UTF-8"));
    CHECK(has(json_problem("\xEF\xBB\xBF" + good), "byte order mark"));
    CHECK(has(json_problem(good.substr(0, good.size() / 2)), "not JSON"));
    CHECK(has(json_problem(std::string(100000, '[')), "too deep"));
    CHECK(has(json_problem(std::string((16 << 20) + 1, ' ')), "larger than 16 MiB"));
}

TEST(a_graph_that_reads_another_file_is_refused) {
    Contents files = test::small_bundle();
    files["encoder.onnx"] = replaced(files["encoder.onnx"], "weights.bin", "/etc/passwd");
    files["bundle.json"] = test::manifest_of(files).dump();
    CHECK(has(problem(files), "encoder.onnx: refused: reads '/etc/passwd'"));
    files["encoder.onnx"] = "\xFF\xFF";
    files["bundle.json"] = test::manifest_of(files).dump();
    CHECK(has(problem(files), "encoder.onnx: not an ONNX graph"));
}

TEST(external_data_moves_into_a_zip) {
    std::string model = test::small_bundle().at("encoder.onnx");
    model = with_moved_data(model, "some bundle.zip", {{"weights.bin", 4096}, {"more.bin", 1}});
    CHECK(external_locations(model) == std::set<std::string>{"some bundle.zip"});
    CHECK(has(model, "offset") && has(model, "4096"));
    model = with_moved_data(model, "other.zip", {{"some bundle.zip", 64}});
    CHECK(has(model, "4160") && !has(model, "4096"));
    CHECK_THROWS(BundleError, "external data that has no place", with_moved_data(model, "x.zip", {{"y.zip", 64}}));
}

TEST(a_graph_that_is_nested_too_deep_is_refused) {
    std::string graph;
    for (int depth = 0; depth < 60; ++depth) {
        std::string attribute;
        append_field(attribute, 6, graph);
        std::string node;
        append_field(node, 5, attribute);
        graph.clear();
        append_field(graph, 1, node);
    }
    std::string model;
    append_field(model, 7, graph);
    CHECK_THROWS(BundleError, "nested too deep", external_locations(model));
}

TEST(every_id_that_may_be_generated_needs_a_token) {
    Contents files = test::small_bundle();
    files["shared.txt"] = "a\nb\nc\nd\n";
    files["bundle.json"] = test::manifest_of(files).dump();
    const Folder smaller(files);
    CHECK_THROWS(BundleError, "generate ids without a token", Bundle::open(smaller.path, true).tokenizers());
}

TEST(zips_that_are_no_bundle_are_refused) {
    const Contents files = test::small_bundle();
    const std::string zip = test::zip_of(files);
    CHECK(zip_problem(zip).empty());
    CHECK(has(zip_problem(""), "neither the folder of a bundle nor a zip"));
    CHECK(has(zip_problem(std::string(100, 'x')), "neither"));
    CHECK(has(zip_problem(test::zip_of(files, 0100644, 8)), "is compressed"));
    CHECK(has(zip_problem(test::zip_of(files, 0120777)), "not a plain file"));
    CHECK(has(zip_problem(test::zip_of({{"../bundle.json", "{}"}})), "not a plain file name"));
    CHECK(has(zip_problem(test::zip_of({{"bundle/bundle.json", "{}"}})), "not the folder around them"));
    CHECK(has(zip_problem(test::zip_of({{"a.txt", ""}})), "no bundle.json at the top"));
    CHECK(has(zip_problem(replaced(zip, "\"opset\":18", "\"opset\":19")), "checksum of bundle.json differs"));
    CHECK(has(zip_problem(replaced(zip, std::string(128, 'w'), std::string(128, 'v'))),
              "weights.bin: its content has changed"));
    CHECK(has(zip_problem(zip.substr(20)), "zip"));
}

TEST(no_cut_or_changed_byte_of_a_zip_gets_further_than_an_error) {
    const std::string zip = test::zip_of(test::small_bundle());
    for (std::size_t size = 0; size < zip.size(); size += 7) CHECK(!zip_problem(zip.substr(0, size)).empty());
    std::uint64_t state = 1;
    int taken = 0;
    const int rounds = check::repeats("TFEXPORT_TEST_ROUNDS", 10000);
    for (int round = 0; round < rounds; ++round) {
        std::string changed = zip;
        for (int i = 0; i <= round % 3; ++i) {
            state = state * 6364136223846793005 + 1442695040888963407;
            changed[(state >> 33) % changed.size()] = static_cast<char>(state >> 25);
        }
        taken += zip_problem(changed).empty() ? 1 : 0;  // times of the zip, for example, mean nothing
    }
    CHECK(taken < rounds * 3 / 10);
}

TEST(no_changed_manifest_gets_further_than_an_error) {
    const std::string good = test::small_bundle().at("bundle.json");
    std::uint64_t state = 7;
    for (int round = check::repeats("TFEXPORT_TEST_ROUNDS", 10000); round > 0; --round) {
        std::string changed = good;
        for (int i = 0; i <= round % 4; ++i) {
            state = state * 6364136223846793005 + 1442695040888963407;
            const std::size_t at = (state >> 33) % changed.size();
            if (round % 5 == 0)
                changed.erase(at, (state >> 20) % 9);
            else
                changed[at] = "0123456789-{}[]\",:eE.\\u"[(state >> 25) % 23];
        }
        check::message_of<BundleError>(
            [&] { read_manifest(changed, "bundle.json"); });  // any other error fails the test
    }
}
