// The main of the step loop's tests: also the child that examines plugins.

#include <gtest/gtest.h>

#include <cstring>

#include "daemon/plugin/probe.hpp"

int main(int argc, char** argv) {
    if (argc == 3 && std::strcmp(argv[1], "--probe-plugin") == 0) return plugin::probe_main(argv[2]);
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
