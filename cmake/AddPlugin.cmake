# add_plugin(<name> KIND <kind> SOURCES <file>... [LIBRARIES <target>...])
# One loadable image that exports assay_module_entry and nothing else, and that links only the SDK.
# The image lies at <build>/plugins/<kind>/<name>.so; the target is plugin_<kind>_<name>.
function(add_plugin name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "KIND" "SOURCES;LIBRARIES")
    string(REPLACE "-" "_" target plugin_${arg_KIND}_${name})
    add_library(${target} MODULE ${arg_SOURCES})
    target_link_libraries(${target} PRIVATE sdk::cxx project_options ${arg_LIBRARIES})
    # The daemon is waiting and copying, for which -O2 is enough and builds faster; here are the loops.
    target_compile_options(${target} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-O3>)
    set_target_properties(${target} PROPERTIES
        PREFIX "" OUTPUT_NAME ${name}
        LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/plugins/${arg_KIND}
        C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden
        VISIBILITY_INLINES_HIDDEN ON)
    target_link_options(${target} PRIVATE
        -Wl,-Bsymbolic -Wl,--build-id=sha1
        -Wl,--version-script=${PROJECT_SOURCE_DIR}/sdk/plugin.map)
    if(NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize")
        target_link_options(${target} PRIVATE -Wl,--no-undefined)
    endif()
    set_property(GLOBAL APPEND PROPERTY ASSAY_PLUGINS ${target})
endfunction()
