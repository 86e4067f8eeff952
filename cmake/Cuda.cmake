# CUDA, where nvcc is found (ENABLE_CUDA says whether that is wanted): sets ASSAY_HAS_CUDA and gives
# add_cuda_plugin(). Nothing but plugins links CUDA; they hold the runtime as a static library and no
# reference to the driver's, so that they load where there is no driver and can say so.
set(ASSAY_HAS_CUDA OFF)
if(NOT ENABLE_CUDA STREQUAL "OFF")
    if(NOT CMAKE_CUDA_COMPILER)
        find_program(NVCC_PROGRAM nvcc PATHS /usr/local/cuda/bin)
        if(NVCC_PROGRAM)
            set(CMAKE_CUDA_COMPILER ${NVCC_PROGRAM})
        endif()
    endif()
    if(CMAKE_CUDA_COMPILER)
        if(NOT CMAKE_CUDA_ARCHITECTURES)
            set(CMAKE_CUDA_ARCHITECTURES 90a)
        endif()
        enable_language(CUDA)
        find_package(CUDAToolkit REQUIRED)
        set(ASSAY_HAS_CUDA ON)
    elseif(ENABLE_CUDA STREQUAL "ON")
        message(FATAL_ERROR "ENABLE_CUDA is ON and there is no nvcc: put it into PATH or set CMAKE_CUDA_COMPILER")
    endif()
endif()
if(ASSAY_HAS_CUDA)
    message(STATUS "assay: CUDA ${CMAKE_CUDA_COMPILER_VERSION}, for compute capability ${CMAKE_CUDA_ARCHITECTURES}")
else()
    message(STATUS "assay: no CUDA plugins")
endif()

# Flags of everything that holds kernels. Host functions that are constexpr may be used on the device;
# a*b+c is one rounding there unless a kernel asks for two by intrinsic.
add_library(cuda_options INTERFACE)
if(ASSAY_HAS_CUDA)
    list(JOIN CMAKE_CUDA_ARCHITECTURES " " cuda_targets)
    target_link_libraries(cuda_options INTERFACE CUDA::cudart_static)
    target_compile_options(cuda_options INTERFACE
        $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr -lineinfo -diag-suppress 20012>)
    target_compile_definitions(cuda_options INTERFACE
        ASSAY_CUDA_TARGETS="${cuda_targets}" ASSAY_CUDA_VERSION="${CMAKE_CUDA_COMPILER_VERSION}")
endif()

# add_cuda_plugin(<name> KIND <kind> SOURCES <file>... [LIBRARIES <target>...]): add_plugin() with
# kernels in it; nothing where there is no nvcc.
function(add_cuda_plugin name)
    if(ASSAY_HAS_CUDA)
        cmake_parse_arguments(PARSE_ARGV 1 arg "" "KIND" "SOURCES;LIBRARIES")
        add_plugin(${name} KIND ${arg_KIND} SOURCES ${arg_SOURCES} LIBRARIES cuda_options ${arg_LIBRARIES})
    endif()
endfunction()

# add_cuda_test(<name> SOURCES ... [LIBRARIES ...] [DEPENDS ...] [WITHOUT <pattern>...]): a test program whose
# tests need a GPU and skip themselves where there is none. WITHOUT names tests of shared sources that do not
# hold on a GPU; scripts/test-gpu reads them from <name>.filter beside the program.
function(add_cuda_test name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBRARIES;DEPENDS;WITHOUT")
    add_executable(${name} ${arg_SOURCES} ${PROJECT_SOURCE_DIR}/tests/support/cuda_mirror.cpp
        ${PROJECT_SOURCE_DIR}/tests/support/cuda_main.cpp)
    target_link_libraries(${name} PRIVATE project_options ${arg_LIBRARIES} GTest::gtest)
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/sdk)
    target_compile_definitions(${name} PRIVATE
        ASSAY_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/golden" ASSAY_BUILD_DIR="${PROJECT_BINARY_DIR}")
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
    if(arg_DEPENDS)
        add_dependencies(${name} ${arg_DEPENDS})
    endif()
    list(JOIN arg_WITHOUT ":" filter)
    if(filter)
        set(filter "-${filter}")
    endif()
    file(WRITE ${PROJECT_BINARY_DIR}/tests/${name}.filter "${filter}")
    add_test(NAME ${name} COMMAND ${name} --gtest_filter=${filter})
    set_tests_properties(${name} PROPERTIES LABELS "unit;cuda" TIMEOUT 300)
endfunction()
