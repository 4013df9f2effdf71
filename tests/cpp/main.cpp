#include <cstring>

#include "check.h"

// Runs all tests, or those whose name holds the argument.
int main(int argc, char** argv) {
    int run = 0;
    for (const check::Test& test : check::tests()) {
        if (argc > 1 && std::strstr(test.name, argv[1]) == nullptr) continue;
        const int before = check::failures();
        try {
            test.run();
        } catch (const std::exception& error) {
            check::report(false, test.name, 0, std::string("threw: ") + error.what());
        }
        std::cout << (check::failures() == before ? "ok   " : "FAIL ") << test.name << "\n";
        ++run;
    }
    std::cout << run << " tests, " << check::failures() << " failures\n";
    return run == 0 || check::failures() > 0 ? 1 : 0;
}
