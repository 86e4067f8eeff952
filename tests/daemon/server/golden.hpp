#pragma once

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>

#include <fstream>
#include <iterator>
#include <string>

/// A file of tests/golden/protocol.
inline boost::json::value read_golden(const std::string& name) {
    std::ifstream file{std::string{ASSAY_TEST_DATA "/protocol/"} + name};
    boost::json::parse_options options;
    options.max_depth = 64;
    return boost::json::parse(std::string{std::istreambuf_iterator<char>{file}, {}}, {}, options);
}
