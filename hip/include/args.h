// The argument struct of every kernel; src/ops/launch mirrors them in Rust, and a test there compares sizes and offsets
// with the assertions at the end of this file. All elements are row-major; `T` is the entry's dtype. A pointer that may
// be null says so. There is no padding between the fields.
#pragma once

namespace hipvit {

// patch_extract: see patch_extract.hip.
struct PatchExtractArgs {
    const void *pixels; // u8 [images, height, width, 3], or f32 [images, 3, height, width]
    void *out;          // T [images·patches, 3·patch_height·patch_width]
    float scale[3];     // of each channel
    float shift[3];
    unsigned images, height, width;
    unsigned patch_height, patch_width;
    unsigned reserved;
};

// resize: one pass, horizontal or vertical.
struct ResizeArgs {
    const unsigned char *input; // from the first byte that is used
    unsigned char *output;
    const int *weights;      // [outputs, taps], 22 fractional bits
    const unsigned *starts;  // [outputs]: the first input position
    const unsigned *counts;  // [outputs]: how many positions
    unsigned long long input_row; // bytes from one input row to the next
    unsigned taps;
    unsigned outputs; // positions along the resampled axis
    unsigned rows;    // horizontal: rows. Vertical: rows of the input, for those who check
    unsigned columns; // vertical: bytes of a row. Horizontal: pixels of an input row, for those who check
};

// resize_nearest: a lookup.
struct ResizeNearestArgs {
    const unsigned char *input;
    unsigned char *output;   // [height, width, 3]
    const unsigned *columns; // [width]: the input column
    const unsigned *rows;    // [height]: the input row
    unsigned long long input_row; // bytes
    unsigned width, height;
    unsigned input_height; // for those who check
    unsigned reserved;
};

// tokens: prefix tokens before x's, a position table added to x's.
struct TokensArgs {
    const void *x;        // T [images, tokens, channels]
    const void *prefix;   // T [prefixes, channels], null if prefixes is 0
    const void *position; // T [tokens, channels], may be null
    void *out;            // T [images, prefixes + tokens, channels]
    unsigned images, tokens, prefixes, channels;
};

// layer_norm, over the channels.
struct LayerNormArgs {
    const void *x;        // T [rows, channels]
    const void *residual; // T [rows, channels], may be null: added to x first
    const void *weight;   // T [channels]
    const void *bias;     // T [channels]
    void *sum;            // T [rows, channels], may be null, may be x or residual: gets x + residual
    void *out;            // T [rows, channels], may be x
    unsigned rows, channels;
    float epsilon;
    unsigned whole_block; // 1: a block a row; 0: a wave a row
};

// Which keys a query sees: key j is visible to query i if −left ≤ j − (i + diagonal) ≤ right, and if key_mask has a
// byte other than 0 for it. Without bounds: left = right = 2³¹ − 1. Causal: right = 0. Sliding: both finite.
struct Visibility {
    const unsigned char *key_mask; // u8 [images, keys], may be null
    int diagonal, left, right;
    unsigned reserved;
};

// softmax over scores.
struct SoftmaxArgs {
    const void *x; // T [images, heads, queries, keys]
    void *out;     // the same, may be x
    Visibility visible;
    unsigned images, heads, queries, keys;
    float scale;          // multiplies the scores
    unsigned whole_block; // 1: a block a row; 0: a wave a row
};

// attention.
struct AttentionArgs {
    const void *q; // T; head h of token n of image b begins at b·q_image + n·q_token + h·head_dim
    const void *k;
    const void *v;
    void *out;
    Visibility visible;
    unsigned long long q_image, k_image, v_image, out_image; // strides in elements; 0 shares one image's with all
    unsigned q_token, k_token, v_token, out_token;
    unsigned images, heads, queries, keys;
    unsigned head_dim;
    float scale; // multiplies Q·Kᵀ
};

// bias_activation: activation(x + bias) + residual.
struct BiasActivationArgs {
    const void *x;        // T [rows, channels]
    const void *bias;     // T [channels], may be null
    const void *residual; // T [rows, channels], may be null
    void *out;            // T [rows, channels], may be x or residual
    unsigned rows, channels;
    unsigned activation; // see activation.hpp
    unsigned reserved;
};

// swiglu: silu(x[:, :channels] + bias[:channels]) · (x[:, channels:] + bias[channels:]).
struct SwiGluArgs {
    const void *x;    // T [rows, 2·channels]
    const void *bias; // T [2·channels], may be null
    void *out;        // T [rows, channels]
    unsigned rows, channels;
};

// add: factor · gamma · x + y.
struct AddArgs {
    const void *x;     // T [rows, channels]
    const void *gamma; // T [channels], may be null: 1
    const void *y;     // T [y_rows, channels], repeated, may be null: 0
    void *out;         // T [rows, channels], may be x, or y if y_rows is rows
    unsigned rows, channels, y_rows;
    float factor;
};

// pool: from tokens to one vector an image.
struct PoolArgs {
    const void *x; // T [images, tokens, channels]
    void *out;     // T [images, channels]
    unsigned images, tokens, channels;
    unsigned mode; // 0: the token `first`. 1: the mean, 2: the maximum of the tokens from `first` on
    unsigned first;
    unsigned reserved;
};

// convert: one dtype to another.
struct ConvertArgs {
    const void *x; // [elements]
    void *out;     // [elements]
    unsigned long long elements;
};

// The layout, as Rust has it.
#define HIPVIT_SIZE(type, bytes) static_assert(sizeof(type) == bytes, #type)
#ifdef __CUDACC_RTC__
#define HIPVIT_FIELD(type, field, offset) // NVRTC 13.0 has no offsetof; every other compiler checks
#else
#define HIPVIT_FIELD(type, field, offset) static_assert(__builtin_offsetof(type, field) == offset, #type "." #field)
#endif

HIPVIT_SIZE(PatchExtractArgs, 64);
HIPVIT_FIELD(PatchExtractArgs, pixels, 0);
HIPVIT_FIELD(PatchExtractArgs, out, 8);
HIPVIT_FIELD(PatchExtractArgs, scale, 16);
HIPVIT_FIELD(PatchExtractArgs, shift, 28);
HIPVIT_FIELD(PatchExtractArgs, images, 40);
HIPVIT_FIELD(PatchExtractArgs, height, 44);
HIPVIT_FIELD(PatchExtractArgs, width, 48);
HIPVIT_FIELD(PatchExtractArgs, patch_height, 52);
HIPVIT_FIELD(PatchExtractArgs, patch_width, 56);
HIPVIT_FIELD(PatchExtractArgs, reserved, 60);

HIPVIT_SIZE(ResizeArgs, 64);
HIPVIT_FIELD(ResizeArgs, input, 0);
HIPVIT_FIELD(ResizeArgs, output, 8);
HIPVIT_FIELD(ResizeArgs, weights, 16);
HIPVIT_FIELD(ResizeArgs, starts, 24);
HIPVIT_FIELD(ResizeArgs, counts, 32);
HIPVIT_FIELD(ResizeArgs, input_row, 40);
HIPVIT_FIELD(ResizeArgs, taps, 48);
HIPVIT_FIELD(ResizeArgs, outputs, 52);
HIPVIT_FIELD(ResizeArgs, rows, 56);
HIPVIT_FIELD(ResizeArgs, columns, 60);

HIPVIT_SIZE(ResizeNearestArgs, 56);
HIPVIT_FIELD(ResizeNearestArgs, input, 0);
HIPVIT_FIELD(ResizeNearestArgs, output, 8);
HIPVIT_FIELD(ResizeNearestArgs, columns, 16);
HIPVIT_FIELD(ResizeNearestArgs, rows, 24);
HIPVIT_FIELD(ResizeNearestArgs, input_row, 32);
HIPVIT_FIELD(ResizeNearestArgs, width, 40);
HIPVIT_FIELD(ResizeNearestArgs, height, 44);
HIPVIT_FIELD(ResizeNearestArgs, input_height, 48);
HIPVIT_FIELD(ResizeNearestArgs, reserved, 52);

HIPVIT_SIZE(TokensArgs, 48);
HIPVIT_FIELD(TokensArgs, x, 0);
HIPVIT_FIELD(TokensArgs, prefix, 8);
HIPVIT_FIELD(TokensArgs, position, 16);
HIPVIT_FIELD(TokensArgs, out, 24);
HIPVIT_FIELD(TokensArgs, images, 32);
HIPVIT_FIELD(TokensArgs, tokens, 36);
HIPVIT_FIELD(TokensArgs, prefixes, 40);
HIPVIT_FIELD(TokensArgs, channels, 44);

HIPVIT_SIZE(LayerNormArgs, 64);
HIPVIT_FIELD(LayerNormArgs, x, 0);
HIPVIT_FIELD(LayerNormArgs, residual, 8);
HIPVIT_FIELD(LayerNormArgs, weight, 16);
HIPVIT_FIELD(LayerNormArgs, bias, 24);
HIPVIT_FIELD(LayerNormArgs, sum, 32);
HIPVIT_FIELD(LayerNormArgs, out, 40);
HIPVIT_FIELD(LayerNormArgs, rows, 48);
HIPVIT_FIELD(LayerNormArgs, channels, 52);
HIPVIT_FIELD(LayerNormArgs, epsilon, 56);
HIPVIT_FIELD(LayerNormArgs, whole_block, 60);

HIPVIT_SIZE(Visibility, 24);
HIPVIT_FIELD(Visibility, key_mask, 0);
HIPVIT_FIELD(Visibility, diagonal, 8);
HIPVIT_FIELD(Visibility, left, 12);
HIPVIT_FIELD(Visibility, right, 16);
HIPVIT_FIELD(Visibility, reserved, 20);

HIPVIT_SIZE(SoftmaxArgs, 64);
HIPVIT_FIELD(SoftmaxArgs, x, 0);
HIPVIT_FIELD(SoftmaxArgs, out, 8);
HIPVIT_FIELD(SoftmaxArgs, visible, 16);
HIPVIT_FIELD(SoftmaxArgs, images, 40);
HIPVIT_FIELD(SoftmaxArgs, heads, 44);
HIPVIT_FIELD(SoftmaxArgs, queries, 48);
HIPVIT_FIELD(SoftmaxArgs, keys, 52);
HIPVIT_FIELD(SoftmaxArgs, scale, 56);
HIPVIT_FIELD(SoftmaxArgs, whole_block, 60);

HIPVIT_SIZE(AttentionArgs, 128);
HIPVIT_FIELD(AttentionArgs, q, 0);
HIPVIT_FIELD(AttentionArgs, k, 8);
HIPVIT_FIELD(AttentionArgs, v, 16);
HIPVIT_FIELD(AttentionArgs, out, 24);
HIPVIT_FIELD(AttentionArgs, visible, 32);
HIPVIT_FIELD(AttentionArgs, q_image, 56);
HIPVIT_FIELD(AttentionArgs, k_image, 64);
HIPVIT_FIELD(AttentionArgs, v_image, 72);
HIPVIT_FIELD(AttentionArgs, out_image, 80);
HIPVIT_FIELD(AttentionArgs, q_token, 88);
HIPVIT_FIELD(AttentionArgs, k_token, 92);
HIPVIT_FIELD(AttentionArgs, v_token, 96);
HIPVIT_FIELD(AttentionArgs, out_token, 100);
HIPVIT_FIELD(AttentionArgs, images, 104);
HIPVIT_FIELD(AttentionArgs, heads, 108);
HIPVIT_FIELD(AttentionArgs, queries, 112);
HIPVIT_FIELD(AttentionArgs, keys, 116);
HIPVIT_FIELD(AttentionArgs, head_dim, 120);
HIPVIT_FIELD(AttentionArgs, scale, 124);

HIPVIT_SIZE(BiasActivationArgs, 48);
HIPVIT_FIELD(BiasActivationArgs, x, 0);
HIPVIT_FIELD(BiasActivationArgs, bias, 8);
HIPVIT_FIELD(BiasActivationArgs, residual, 16);
HIPVIT_FIELD(BiasActivationArgs, out, 24);
HIPVIT_FIELD(BiasActivationArgs, rows, 32);
HIPVIT_FIELD(BiasActivationArgs, channels, 36);
HIPVIT_FIELD(BiasActivationArgs, activation, 40);
HIPVIT_FIELD(BiasActivationArgs, reserved, 44);

HIPVIT_SIZE(SwiGluArgs, 32);
HIPVIT_FIELD(SwiGluArgs, x, 0);
HIPVIT_FIELD(SwiGluArgs, bias, 8);
HIPVIT_FIELD(SwiGluArgs, out, 16);
HIPVIT_FIELD(SwiGluArgs, rows, 24);
HIPVIT_FIELD(SwiGluArgs, channels, 28);

HIPVIT_SIZE(AddArgs, 48);
HIPVIT_FIELD(AddArgs, x, 0);
HIPVIT_FIELD(AddArgs, gamma, 8);
HIPVIT_FIELD(AddArgs, y, 16);
HIPVIT_FIELD(AddArgs, out, 24);
HIPVIT_FIELD(AddArgs, rows, 32);
HIPVIT_FIELD(AddArgs, channels, 36);
HIPVIT_FIELD(AddArgs, y_rows, 40);
HIPVIT_FIELD(AddArgs, factor, 44);

HIPVIT_SIZE(PoolArgs, 40);
HIPVIT_FIELD(PoolArgs, x, 0);
HIPVIT_FIELD(PoolArgs, out, 8);
HIPVIT_FIELD(PoolArgs, images, 16);
HIPVIT_FIELD(PoolArgs, tokens, 20);
HIPVIT_FIELD(PoolArgs, channels, 24);
HIPVIT_FIELD(PoolArgs, mode, 28);
HIPVIT_FIELD(PoolArgs, first, 32);
HIPVIT_FIELD(PoolArgs, reserved, 36);

HIPVIT_SIZE(ConvertArgs, 24);
HIPVIT_FIELD(ConvertArgs, x, 0);
HIPVIT_FIELD(ConvertArgs, out, 8);
HIPVIT_FIELD(ConvertArgs, elements, 16);

#undef HIPVIT_SIZE
#undef HIPVIT_FIELD

} // namespace hipvit
