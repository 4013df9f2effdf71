// Errors of the runtime: each message is one line that says what to do.
#pragma once

#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>

#include "tfexport/export.h"

namespace tfexport {

/// Base of every error that a user can mend. `exit_status` is what the command line returns for the kind:
/// 1 anything else, 2 usage, 4 a file or text that cannot be used, 5 something missing on this machine.
class TFEXPORT_API Error : public std::runtime_error {
public:
    explicit Error(const std::string& message, int status = 4) : std::runtime_error(message), exit_status(status) {}
    const int exit_status;
};

/// A bundle that is missing, damaged, too new, or not a bundle.
class TFEXPORT_API BundleError : public Error {
public:
    explicit BundleError(const std::string& message) : Error(message, 4) {}
};

/// Options that contradict each other or the bundle.
class TFEXPORT_API OptionError : public Error {
public:
    explicit OptionError(const std::string& message) : Error(message, 2) {}
};

/// Text that cannot be translated as it is: not UTF-8, or longer than the model allows.
class TFEXPORT_API InputError : public Error {
public:
    InputError(const std::string& problem_of_text, std::size_t index_of_text)
        : Error("text " + std::to_string(index_of_text + 1) + " " + problem_of_text, 4),
          problem(problem_of_text),
          index(index_of_text) {}
    const std::string problem;  // the message without the place of the text
    const std::size_t index;    // place of the text in the list
};

/// A library or function that is not there.
class TFEXPORT_API UnavailableError : public Error {
public:
    explicit UnavailableError(const std::string& message) : Error(message, 5) {}
};

/// The model gave something that is not a number, or an id outside of its vocabulary.
class TFEXPORT_API ModelOutputError : public Error {
public:
    explicit ModelOutputError(const std::string& message) : Error(message, 1) {}
};

}  // namespace tfexport
