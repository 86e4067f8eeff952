// The main program of tests that need a GPU: without one, each test is skipped with the reason. Tests of
// what the image says without a GPU run everywhere.

#include "tests/support/cuda_mirror.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <string_view>

namespace {

class NeedsGpu : public testing::EmptyTestEventListener {
    void OnTestStart(const testing::TestInfo& info) override {
        if (std::string_view{info.test_suite_name()} == "CudaModule" || support::CudaDevice::get() != nullptr) return;
        GTEST_SKIP() << "no GPU: " << support::CudaDevice::why();
    }
};

}  // namespace

int main(int argc, char** argv) {
    testing::InitGoogleTest(&argc, argv);
    testing::UnitTest::GetInstance()->listeners().Append(new NeedsGpu);
    return RUN_ALL_TESTS();
}
