#pragma once

// The rows of the attention tables: every class, phase and edge that a backend must serve.

#include "image.hpp"

#include <array>
#include <cstdint>

namespace attention_test {

enum class Tag { smoke, edge, sweep };

struct LayerCase {
    const char* name;
    assay_attn_layer layer;
};

struct BatchCase {
    const char* name;  // unique; with the layer's name it is the name of the test
    Tag tag;
    std::array<int, 5> q_len;   // per sequence; kv_len 0 and q_len 0 together: an empty sequence
    std::array<int, 5> kv_len;  // tokens in cache, the new ones included; -1 ends the list
    int page_tokens;
    bool shared_prefix;  // sequences 0 and 1 hold the same first page
};

inline assay_attn_layer with_window(assay_attn_layer layer, std::int32_t window) {
    layer.window = window;
    return layer;
}
inline assay_attn_layer with_softcap(assay_attn_layer layer, float cap) {
    layer.logit_softcap = cap;
    return layer;
}
inline assay_attn_layer with_sinks(assay_attn_layer layer) {
    layer.has_sinks = true;
    return layer;
}

// clang-format off
inline const LayerCase kLayers[] = {
    {"gqa4_d64",          gqa_layer(8, 2, 64, 64, 0.125F)},
    {"mha_d16",           gqa_layer(3, 3, 16, 16, 0.25F)},
    {"mqa_d128",          gqa_layer(9, 1, 128, 128, 0.088388F)},
    {"gqa_d40v24",        gqa_layer(4, 2, 40, 24, 0.158F)},
    {"gqa_d256",          gqa_layer(2, 1, 256, 256, 0.0625F)},
    {"gqa_window16",      with_window(gqa_layer(4, 2, 32, 32, 0.177F), 16)},
    {"gqa_window1",       with_window(gqa_layer(4, 2, 32, 32, 0.177F), 1)},
    {"gqa_window70_sink", with_sinks(with_window(gqa_layer(8, 2, 32, 32, 0.177F), 70))},
    {"gqa_sink",          with_sinks(gqa_layer(8, 1, 64, 64, 0.125F))},
    {"gqa_softcap",       with_softcap(gqa_layer(4, 2, 64, 64, 0.3F), 20.0F)},
    {"mla4_80",           mla_layer(4, 64, 16, 0.14F)},
    {"mla4_288",          mla_layer(4, 256, 32, 0.1F)},
    {"mla5_576",          mla_layer(5, 512, 64, 0.0625F)},
    {"mla3_72",           mla_layer(3, 60, 12, 0.14F)},
    {"dsa_k24",           dsa_layer(mla_layer(4, 64, 32, 0.125F), 16, 64, 24)},
    {"dsa_k100",          dsa_layer(mla_layer(5, 256, 32, 0.1F), 4, 40, 100)},
};

inline constexpr BatchCase kBatches[] = {
    {"decode_one",          Tag::smoke, {1, 0, 0, 0, 0},   {64, -1, 0, 0, 0},      32, false},
    {"decode_first_token",  Tag::edge,  {1, 1, 0, 0, 0},   {1, 2, -1, 0, 0},       16, false},
    {"decode_page_edges",   Tag::edge,  {1, 1, 1, 1, 0},   {15, 16, 17, 33, -1},   16, false},
    {"decode_tile_edges",   Tag::edge,  {1, 1, 1, 1, 1},   {63, 64, 65, 128, 129}, 64, false},
    {"decode_shared_page",  Tag::edge,  {1, 1, 0, 0, 0},   {70, 90, -1, 0, 0},     64, true},
    {"decode_split_edges",  Tag::edge,  {1, 1, 1, 0, 0},   {511, 512, 513, -1, 0}, 32, false},
    {"decode_long",         Tag::sweep, {1, 1, 0, 0, 0},   {1100, 70, -1, 0, 0},  256, false},
    {"decode_speculative",  Tag::edge,  {4, 3, 0, 0, 0},   {67, 3, -1, 0, 0},      32, false},
    {"prefill_whole",       Tag::smoke, {37, 0, 0, 0, 0},  {37, -1, 0, 0, 0},      32, false},
    {"prefill_with_prefix", Tag::edge,  {33, 70, 0, 0, 0}, {97, 140, -1, 0, 0},    16, false},
    {"prefill_one_token",   Tag::edge,  {1, 40, 0, 0, 0},  {1, 40, -1, 0, 0},      48, false},
    {"mixed_ragged",        Tag::smoke, {1, 1, 0, 40, 9},  {130, 7, 0, 40, 109},   32, false},
    {"mixed_empty_chunk",   Tag::edge,  {1, 0, 18, 0, 5},  {33, 50, 18, 0, 5},     16, false},
    {"all_empty",           Tag::edge,  {0, 0, 0, 0, 0},   {0, 20, -1, 0, 0},      16, false},
};
// clang-format on

}  // namespace attention_test
