// int8_gemm: out = activation((x · weightᵀ − zero · column_sums) · column_scale · scale + bias) + residual. x and the weight are signed
// bytes; each row of x has a scale and a zero point.
//
// Shapes: x i8 [rows, inner]; weight i8 [channels, inner]; ranges f32 [rows, 2], scale and zero − 128; scales f32, column_sums i32
//   [channels]; bias T [channels] or null; residual (or null), out T [rows, channels]. All row-major; out may alias residual.
// Alignment: any; vec128 access where inner, channels and the addresses allow it.
// Accumulator: i32, exact; then f32, in the order of dequantize (quantize.hip), so that the results have the same bits.
// Geometry: blocks of INT8_GEMM_THREADS, a tile of INT8_GEMM_TILE rows and channels per block, channels first. Each wave has 64 channels;
//   the waves share the tile's rows.
// Matrix cores: int8_mma.hpp; architectures without them have no entries.
#include "int8_gemm.h"
#include "activation.hpp"
#include "async_copy.hpp"
#include "int8_mma.hpp"
#include "staged_copy.hpp"

using namespace hipvit;

#if HIPVIT_INT8_MMA

template <class T> struct Int8Gemm {
    static constexpr int TILE = INT8_GEMM_TILE, THREADS = INT8_GEMM_THREADS, DEPTH = 64;
    static constexpr int CHANNELS = 64, ROWS = TILE * TILE / CHANNELS / (THREADS / WAVE); // of a wave
    static constexpr int I = CHANNELS / 16, J = ROWS / 16;                                // tiles of a wave
    static constexpr int STAGES = ASYNC_COPIES ? 3 : 1;

    using Rows = LdsRows<u8, DEPTH>;
    static constexpr int OPERAND = TILE * Rows::PITCH, STAGE = 2 * OPERAND; // bytes
    static constexpr int D_ROW = CHANNELS + 4;                              // i32, of 16 rows of a wave's result
    static constexpr int INPUT_BYTES = STAGES * STAGE, RESULT_BYTES = THREADS / WAVE * 16 * D_ROW * 4;
    static constexpr int FACTOR_BYTES = 2 * TILE * 12, AFTER_BYTES = RESULT_BYTES + FACTOR_BYTES;
    static constexpr int LDS_VECS = (INPUT_BYTES > AFTER_BYTES ? INPUT_BYTES : AFTER_BYTES) / int(VEC128_BYTES);

    const Int8GemmArgs &a;
    u8 *const lds;
    const u32 first_channel, first_row; // of the block
    const bool vector_w, vector_x;
    Int8Mma::Acc acc[I][J] = {};

    HIPVIT_DEVICE Int8Gemm(const Int8GemmArgs &a, Vec128 *memory, u32 first_channel, u32 first_row)
        : a(a), lds(reinterpret_cast<u8 *>(memory)), first_channel(first_channel), first_row(first_row),
          vector_w(a.inner % VEC128_BYTES == 0 && aligned(a.weight, VEC128_BYTES)),
          vector_x(a.inner % VEC128_BYTES == 0 && aligned(a.x, VEC128_BYTES)) {}

    static HIPVIT_DEVICE int wave_channel() { return wave_index() % 2 * CHANNELS; }
    static HIPVIT_DEVICE int wave_row() { return wave_index() / 2 * ROWS; }

    HIPVIT_DEVICE void multiply(const u8 *stage) {
        const u8 *const w_lds = stage + wave_channel() * Rows::PITCH, *const x_lds = stage + OPERAND + wave_row() * Rows::PITCH;
        const u32 w_at = Int8Mma::w_at<Rows>(), x_at = Int8Mma::x_at<Rows>();
#pragma unroll
        for (int k = 0; k < DEPTH; k += 32) {
            Int8Mma::W w[I];
#pragma unroll
            for (int i = 0; i < I; ++i)
                w[i] = Int8Mma::load_w<Rows>(w_lds + i * 16 * Rows::PITCH, Rows::shifted(w_at, k));
#pragma unroll
            for (int j = 0; j < J; ++j) {
                const Int8Mma::X x = Int8Mma::load_x<Rows>(x_lds + j * 16 * Rows::PITCH, Rows::shifted(x_at, k));
#pragma unroll
                for (int i = 0; i < I; ++i) Int8Mma::multiply(acc[i][j], w[i], x);
            }
        }
    }

    // The scale and the offsets of a row or of a channel.
    struct Factors {
        float scale;
        u32 zero; // for a channel, the sum of its bytes
        float bias;
    };
    // The thread's factors: the first threads have those of the tile's rows, the others those of its channels. They arrive while the tile
    // is multiplied.
    HIPVIT_DEVICE Factors factors() const {
        static_assert(THREADS == 2 * TILE, "a row or a channel for each thread");
        const u32 index = thread_index() % TILE, row = first_row + index, channel = first_channel + index;
        // x + −0 is x, even for zeros.
        Factors factors = {0.0f, 0, -0.0f};
        if (thread_index() < TILE) {
            if (row < a.rows) {
                const float *const range = (const float *)a.ranges + u64(row) * 2;
                factors.scale = range[0], factors.zero = u32(int(range[1]));
            }
        } else if (channel < a.channels) {
            factors.scale = ((const float *)a.scales)[channel], factors.zero = ((const u32 *)a.column_sums)[channel];
            if (a.bias) factors.bias = to_float(((const T *)a.bias)[channel]);
        }
        return factors;
    }

    HIPVIT_DEVICE void run() {
        const Factors mine = factors();
        if constexpr (ASYNC_COPIES) {
            run_async();
        } else {
            run_staged();
        }
        barrier(); // the inputs have been read
        Factors *const all = reinterpret_cast<Factors *>(lds + RESULT_BYTES);
        all[thread_index()] = mine;
        barrier();
        store(all, all + TILE + wave_channel());
    }

    // Fills the stages in turn, each while the previous ones are multiplied.
    HIPVIT_DEVICE void run_async() {
        const AsyncCopy<Rows, TILE, THREADS> copy(thread_index());
        const u8 *w = (const u8 *)a.weight + u64(first_channel + copy.row) * a.inner + copy.column;
        const u8 *x = (const u8 *)a.x + u64(first_row + copy.row) * a.inner + copy.column;
        u32 left = a.inner;
        u8 *to = lds;
        const u8 *const end = lds + STAGES * STAGE;
        auto load = [&] {
            if (left) {
                copy.to_lds(to, w, a.inner, a.channels - first_channel, left, vector_w);
                copy.to_lds(to + OPERAND, x, a.inner, a.rows - first_row, left, vector_x);
                w += DEPTH, x += DEPTH, left -= left < DEPTH ? left : DEPTH;
                to = to + STAGE == end ? lds : to + STAGE;
            }
            end_copies();
        };
#pragma unroll
        for (int stage = 1; stage < STAGES; ++stage) load();
        const u8 *from = lds;
#pragma unroll 1
        for (u32 k = 0; k < a.inner; k += DEPTH) {
            wait_copies<STAGES - 2>();
            barrier(); // this stage is complete, and the one that is filled next has been read
            load();
            multiply(from);
            from = from + STAGE == end ? lds : from + STAGE;
        }
    }

    // The next tile is in registers while one is multiplied.
    HIPVIT_DEVICE void run_staged() {
        using Copy = Staged<u8, DEPTH, TILE, DEPTH / VEC<u8>, THREADS>;
        Copy w, x;
        auto load = [&](u32 k) {
            if (k >= a.inner) return;
            w.load((const u8 *)a.weight + k, a.inner, first_channel, a.channels, a.inner - k, vector_w);
            x.load((const u8 *)a.x + k, a.inner, first_row, a.rows, a.inner - k, vector_x);
        };
        load(0);
        for (u32 k = 0; k < a.inner; k += DEPTH) {
            barrier(); // the previous part has been read
            w.store([this](int row, int column, const Vec<u8> &vec) {
                *reinterpret_cast<Vec128 *>(lds + Rows::at(row, column)) = vec.whole;
            });
            x.store([this](int row, int column, const Vec<u8> &vec) {
                *reinterpret_cast<Vec128 *>(lds + OPERAND + Rows::at(row, column)) = vec.whole;
            });
            barrier();
            load(k + DEPTH);
            multiply(lds);
        }
    }

    // Stores the sums through LDS, 16 rows of the wave at a time, so that lanes store adjacent vec128s. A lane always has the same channels.
    HIPVIT_DEVICE void store(const Factors *of_row, const Factors *of_channel) const {
        constexpr u32 VECS = CHANNELS / VEC<T>, STEP = WAVE / VECS; // of a row; rows of the wave's lanes
        int *const sums = reinterpret_cast<int *>(lds) + wave_index() * 16 * D_ROW;
        const u32 column = lane_index() % VECS * VEC<T>, channel = first_channel + wave_channel() + column;
        const u32 valid = channel >= a.channels ? 0 : a.channels - channel < VEC<T> ? a.channels - channel : VEC<T>;
        Factors factors[VEC<T>];
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) factors[i] = of_channel[column + i];
#pragma unroll
        for (int j = 0; j < J; ++j) {
#pragma unroll
            for (int i = 0; i < I; ++i) {
#pragma unroll
                for (int e = 0; e < Int8Mma::VALUES; ++e) {
                    const Element at = Int8Mma::of_lane(e);
                    sums[at.j * D_ROW + i * 16 + at.i] = acc[i][j].value[e];
                }
            }
            const u32 row = wave_row() + j * 16; // of the tile
            u32 of = lane_index() / VECS;
            // The residual of the next row is loaded ahead.
            float residual[VEC<T>] = {}, next[VEC<T>] = {};
            load_residual(first_row + row + of, channel, valid, next);
            wave_barrier();
#pragma unroll 1
            for (; of < 16; of += STEP) {
                const u32 index = first_row + row + of;
                if (index >= a.rows || !valid) break;
#pragma unroll
                for (u32 i = 0; i < VEC<T>; ++i) residual[i] = next[i];
                if (of + STEP < 16) load_residual(index + STEP, channel, valid, next);
                const Factors range = of_row[row + of];
                const Vec128 *const from = reinterpret_cast<const Vec128 *>(sums + of * D_ROW + column);
                float value[VEC<T>];
#pragma unroll
                for (u32 v = 0; v < VEC<T> / 4; ++v) {
                    const Vec128 four = from[v];
#pragma unroll
                    for (u32 w = 0; w < 4; ++w) {
                        const Factors &factor = factors[v * 4 + w];
                        const int sum = int(four.word[w] - range.zero * factor.zero);
                        value[v * 4 + w] = product(product(float(sum), factor.scale), range.scale) + factor.bias;
                    }
                }
#pragma unroll
                for (u32 i = 0; i < VEC<T>; ++i) value[i] = activate(a.activation, value[i]);
                if (a.residual) {
#pragma unroll
                    for (u32 i = 0; i < VEC<T>; ++i) value[i] += residual[i];
                }
                T *const to = (T *)a.out + (u64(index) * a.channels + channel);
                store_vec(to, valid, aligned(to, VEC128_BYTES), value);
            }
            wave_barrier(); // has been read
        }
    }

    HIPVIT_DEVICE void load_residual(u32 row, u32 channel, u32 valid, float (&value)[VEC<T>]) const {
        if (!a.residual || row >= a.rows || !valid) return;
        const T *const from = (const T *)a.residual + (u64(row) * a.channels + channel);
        load_vec(from, valid, aligned(from, VEC128_BYTES), value);
    }
};

template <class T> HIPVIT_DEVICE void int8_gemm(const Int8GemmArgs &a) {
    HIPVIT_LDS static Vec128 memory[Int8Gemm<T>::LDS_VECS];
    const u32 tiles = (a.channels + INT8_GEMM_TILE - 1) / INT8_GEMM_TILE;
    const u32 row = block_index() / tiles * INT8_GEMM_TILE;
    if (row >= a.rows) return;
    Int8Gemm<T>(a, memory, block_index() % tiles * INT8_GEMM_TILE, row).run();
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(INT8_GEMM_THREADS) name##_##T(Int8GemmArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, int8_gemm)

#endif
