// Tests without a framework: TEST defines one, CHECK and CHECK_THROWS report and go on.
#pragma once

#include <cstdlib>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

namespace check {

struct Test {
    const char* name;
    std::function<void()> run;
};

inline std::vector<Test>& tests() {
    static std::vector<Test> all;
    return all;
}

inline int& failures() {
    static int count = 0;
    return count;
}

inline void report(bool holds, const char* file, int line, const std::string& what) {
    if (holds) return;
    ++failures();
    std::cerr << file << ":" << line << ": " << what << "\n";
}

struct Registered {
    Registered(const char* name, std::function<void()> run) { tests().push_back({name, std::move(run)}); }
};

/// The message of the error that `run` throws; empty if it throws none.
template <typename Error>
std::string message_of(const std::function<void()>& run) {
    try {
        run();
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

/// How often to repeat something: as the environment says, for slow machines, else `usual`.
inline int repeats(const char* variable, int usual) {
    const char* value = std::getenv(variable);
    return value == nullptr ? usual : std::stoi(value);
}

}  // namespace check

#define TEST(name)                                                 \
    static void name();                                            \
    static const check::Registered registered_##name{#name, name}; \
    static void name()
#define CHECK(...) check::report(static_cast<bool>(__VA_ARGS__), __FILE__, __LINE__, "not true: " #__VA_ARGS__)
// The error must be of the type, and its message must hold the part.
#define CHECK_THROWS(type, part, ...)                                                                 \
    do {                                                                                              \
        const std::string found = check::message_of<type>([&] { static_cast<void>(__VA_ARGS__); });   \
        check::report(!found.empty() && found.find(part) != std::string::npos, __FILE__, __LINE__,    \
                      "expected an error with \"" + std::string(part) + "\", got \"" + found + "\""); \
    } while (false)
