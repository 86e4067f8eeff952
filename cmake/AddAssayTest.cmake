# add_assay_test(<name> SOURCES <file>... [LIBRARIES <target>...] [LABELS <label>...])
# One GoogleTest program; each of its tests is a ctest test named <Suite>.<Test>.
# Tests find golden data through the macro ASSAY_TEST_DATA (absolute path of tests/golden) and
# the build tree (plugins, binaries) through ASSAY_BUILD_DIR.
include(GoogleTest)
function(add_assay_test name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "SOURCES;LIBRARIES;LABELS;DEPENDS")
    add_executable(${name} ${arg_SOURCES})
    target_link_libraries(${name} PRIVATE project_options ${arg_LIBRARIES} GTest::gtest GTest::gtest_main)
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/sdk)
    target_compile_definitions(${name} PRIVATE
        ASSAY_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/golden"
        ASSAY_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
        ASSAY_BUILD_DIR="${PROJECT_BINARY_DIR}")
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
    if(arg_DEPENDS)
        add_dependencies(${name} ${arg_DEPENDS})
    endif()
    if(NOT arg_LABELS)
        set(arg_LABELS unit)
    endif()
    if(NOT arg_TIMEOUT)
        set(arg_TIMEOUT 120)
    endif()
    # tests_<label> builds the programs of one label, for builds that need no more.
    foreach(label ${arg_LABELS})
        if(NOT TARGET tests_${label})
            add_custom_target(tests_${label})
        endif()
        add_dependencies(tests_${label} ${name})
    endforeach()
    gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST PROPERTIES TIMEOUT ${arg_TIMEOUT})
    # Not among the PROPERTIES above: discovery before a test run flattens a list of several labels.
    set(script ${CMAKE_CURRENT_BINARY_DIR}/${name}_labels.cmake)
    file(WRITE ${script}
        "if(${name}_TESTS)\n"
        "  set_tests_properties(\${${name}_TESTS} PROPERTIES LABELS \"${arg_LABELS}\")\n"
        "endif()\n")
    set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${script})
endfunction()
