#include "daemon/assay/calibration.hpp"

#include <gtest/gtest.h>

#include "daemon/base/error.hpp"

namespace {

using assay::Calibration;
using assay::ContentHash;

Calibration record() {
    Calibration c;
    c.model_hash = "abc";
    c.tensors = {{"blk.0.attn_q.weight", "0123"}};
    c.tokens = {1, 2, 3, 4};
    c.rows = {0, 3};
    c.ids = {5, 6, 7};
    c.logits = {1, 2, 3, 4, 5, 6};
    c.logprob = -1.5;
    c.note = "looked at";
    return c;
}

TEST(Calibration, GoesThroughJsonAndBack) {
    const Calibration c = record();
    EXPECT_EQ(Calibration::from_json(c.to_json(), "f").to_json(), c.to_json());
}

TEST(Calibration, WhatDoesNotFitTogetherIsNamed) {
    const auto refusal = [](const Calibration& c) -> std::string {
        try {
            (void)Calibration::from_json(c.to_json(), "m.json");
        } catch (const base::ConfigError& e) {
            return e.what();
        }
        return "";
    };
    Calibration c = record();
    c.logits.pop_back();
    EXPECT_EQ(refusal(c), "calibration m.json: expected rows x ids logits, found 5 for 2 x 3");
    c = record();
    c.rows = {0, 4};
    EXPECT_EQ(refusal(c), "calibration m.json: rows[1] is 4, expected ascending positions below 4");
    c.rows = {3, 0};
    EXPECT_NE(refusal(c), "");
    for (const char* text : {"", "{}", "[1]", "{\"object\":\"assay.report\"}", "{\"object\":\"assay.calibration\",\"version\":2}"})
        EXPECT_THROW((void)Calibration::from_json(text, "x"), base::ConfigError) << text;
}

TEST(ContentHash, EveryByteAndItsPlaceCounts) {
    std::string text(1000, 'a');
    const auto hash = [](const std::string& s) {
        ContentHash h;
        h.update(s.data(), s.size());
        return h.value();
    };
    const auto whole = hash(text);
    for (const std::size_t at : {0U, 31U, 32U, 500U, 991U, 992U, 999U}) {
        std::string other = text;
        other[at] = 'b';
        EXPECT_NE(hash(other), whole) << at;
    }
    EXPECT_NE(hash(text + '\0'), whole);
    EXPECT_NE(hash(std::string(31, '\0')), hash(std::string(32, '\0')));
    std::string swapped = text;
    for (std::size_t i = 0; i < 64; ++i) swapped[i] = i < 32 ? 'x' : 'y';
    std::string back = text;
    for (std::size_t i = 0; i < 64; ++i) back[i] = i < 32 ? 'y' : 'x';
    EXPECT_NE(hash(swapped), hash(back));
}

}  // namespace
