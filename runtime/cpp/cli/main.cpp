// tfexport-cli: a bundle on the command line.
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "arguments.h"
#include "bench.h"
#include "lines.h"
#include "output_file.h"
#include "tfexport/self_test.h"
#include "tfexport/translator.h"

namespace {

using namespace tfexport;  // NOLINT(google-build-using-namespace): this is its program

constexpr int kDiffers = 3;  // exit status of a self-test that found differences

int run_self_test(const Translator& translator) {
    const SelfTest report = self_test(translator);
    for (const std::string& difference : report.differences) std::cout << difference << "\n";
    std::cout << report.cases << " cases, " << report.differences.size() << " differences, largest score difference "
              << report.largest_score_difference << "\n";
    return report.differences.empty() ? 0 : kDiffers;
}

int run(const cli::Arguments& arguments) {
    if (arguments.action == cli::Action::help) {
        std::cout << cli::kHelp;
        return 0;
    }
    if (arguments.action == cli::Action::version) {
        std::cout << "tfexport-cli " << version() << ", ONNX Runtime " << onnxruntime_version() << "\n";
        return 0;
    }
    const Translator translator(std::filesystem::u8path(arguments.bundle), arguments.session);
    if (arguments.action == cli::Action::self_test) return run_self_test(translator);
    const TranslationOptions options = with_changes(translator.default_options(), arguments.option_changes);
    if (arguments.action == cli::Action::bench) {
        cli::bench(translator, options, std::cout);
    } else if (arguments.output) {
        cli::OutputFile file(std::filesystem::u8path(*arguments.output));
        cli::translate_lines(translator, arguments, options, std::cin, file.stream(), std::cerr);
        file.complete();
    } else {
        cli::translate_lines(translator, arguments, options, std::cin, std::cout, std::cerr);
    }
    return 0;
}

int failed(const std::string& message, int status) {
    std::string line = message;
    for (char& c : line) c = c == '\n' || c == '\r' ? ' ' : c;
    std::cerr << "tfexport-cli: " << line << "\n";
    return status;
}

}  // namespace

int main(int argc, char** argv) {
#ifndef _WIN32
    ::setenv("ORT_DISABLE_TELEMETRY", "1", 0);  // else ONNX Runtime keeps a database of its use in the home folder
#endif
    std::ios::sync_with_stdio(false);
    std::vector<char> buffer(std::size_t{1} << 18);
    std::cin.rdbuf()->pubsetbuf(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    try {
        return run(cli::parse_arguments(argc, argv));
    } catch (const Error& error) {
        return failed(error.what(), error.exit_status);
    } catch (const std::bad_alloc&) {
        return failed("not enough memory; use a smaller batch or a machine with more", 1);
    } catch (const std::exception& error) {
        return failed(error.what(), 1);
    }
}
