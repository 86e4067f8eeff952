# Flags that every target of ours takes and no dependency does.
add_library(project_options INTERFACE)
target_compile_features(project_options INTERFACE cxx_std_20)
target_compile_options(project_options INTERFACE
    # CMake 3.25 does not know the feature cuda_std_20 for nvcc 13, so the flag is given by hand.
    $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>
    $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion
        -Wno-missing-field-initializers>
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${WARNINGS_AS_ERRORS}>>:-Werror>)
# No contraction of a*b+c behind our backs: whether a fused multiply-add is used is part of the
# arithmetic that batch invariance rests on, so kernels ask for it by intrinsic.
target_compile_options(project_options INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-ffp-contract=off>)

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
    set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()

# Programs look for libraries in a folder lib beside their own first, for themselves and for what they load:
# scripts/dist fills it. DT_RPATH and not DT_RUNPATH, which holds for direct needs only.
set(CMAKE_BUILD_RPATH "$ORIGIN/../lib")
target_link_options(project_options INTERFACE
    $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-Wl,--disable-new-dtags>)

set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
