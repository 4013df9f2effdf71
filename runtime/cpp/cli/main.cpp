// tfexport-cli: a bundle on the command line.
#include <cstdlib>
#include <exception>
#include <iostream>
#include <memory>
#include <new>
#include <string>
#include <typeinfo>
#include <vector>

#ifdef __GNUG__
#include <cxxabi.h>
#endif

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

/// The kind of an error and all of its message, then what it came from.
void show(const std::exception& error) {
    const char* kind = typeid(error).name();
#ifdef __GNUG__
    const std::unique_ptr<char, void (*)(void*)> readable(abi::__cxa_demangle(kind, nullptr, nullptr, nullptr),
                                                          std::free);
    if (readable) kind = readable.get();
#endif
    std::cerr << kind << ": " << error.what() << "\n";
    try {
        std::rethrow_if_nested(error);
    } catch (const std::exception& cause) {
        std::cerr << "which came from ";
        show(cause);
    }
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
    cli::Arguments arguments;
    try {
        arguments = cli::parse_arguments(argc, argv);
        return run(arguments);
    } catch (const std::exception& error) {
        if (arguments.debug) show(error);
        if (const auto* known = dynamic_cast<const Error*>(&error)) return failed(error.what(), known->exit_status);
        if (dynamic_cast<const std::bad_alloc*>(&error) == nullptr) return failed(error.what(), 1);
        return failed("not enough memory; use a smaller batch or a machine with more", 1);
    }
}
