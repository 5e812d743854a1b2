// sparse_gemm: out = activation(x · weightᵀ + bias) + residual. Two of each four elements of the weight are 0.
//
// Shapes: x T [rows, inner]; the weight as in sparse_gemm.h; bias T [channels] or null; residual (or null), out
//   T [rows, channels]. All row-major; out may alias residual.
// Alignment: any; vec128 access where inner, channels and the addresses allow it.
// Accumulator: f32, through the epilogue.
// Geometry: blocks of SPARSE_GEMM_THREADS, a tile of SPARSE_GEMM_TILE rows and channels per block, channels first. Each wave has 64
//   channels; the waves share the tile's rows.
// Matrix cores: sparse_mma.hpp; architectures without them have no entries.
#include "sparse_gemm.h"
#include "activation.hpp"
#include "sparse_mma.hpp"
#include "staged_copy.hpp"

using namespace hipvit;

#if HIPVIT_SPARSE_MMA

template <class T> struct SparseGemm {
    using Tile = SparseMma<T>;
    static constexpr int TILE = SPARSE_GEMM_TILE, THREADS = SPARSE_GEMM_THREADS, DEPTH = SPARSE_INDEX_DEPTH;
    static constexpr int CHANNELS = 64, ROWS = TILE * TILE / CHANNELS / (THREADS / WAVE); // of a wave
    static constexpr int I = CHANNELS / 16, J = ROWS / 16;                                // tiles of a wave

    // Rows in LDS are 16 bytes longer than their contents, so that they start in different banks.
    static constexpr int W_ROW = DEPTH / 2 + int(VEC<T>), X_ROW = DEPTH + int(VEC<T>);
    static constexpr int D_ROW = CHANNELS + 4; // f32, of 16 rows of a wave's result
    static constexpr int INPUT_BYTES = TILE * (W_ROW + X_ROW) * int(sizeof(T)), RESULT_BYTES = THREADS / WAVE * 16 * D_ROW * 4;
    static constexpr int LDS_VECS = (INPUT_BYTES > RESULT_BYTES ? INPUT_BYTES : RESULT_BYTES) / int(VEC128_BYTES);

    using StagedW = Staged<T, DEPTH / 2, TILE, DEPTH / 2 / VEC<T>, THREADS>;
    using StagedX = Staged<T, DEPTH, TILE, DEPTH / VEC<T>, THREADS>;

    const SparseGemmArgs &a;
    T *const lds_w, *const lds_x;
    const u32 first_channel, first_row; // of the block
    const u32 chunks;                   // blocks of indices along k
    const bool vector_w, vector_x;
    StagedW staged_w;
    StagedX staged_x;
    typename Tile::Index index[I], next_index[I];
    typename Tile::Acc acc[I][J] = {};

    HIPVIT_DEVICE SparseGemm(const SparseGemmArgs &a, Vec128 *memory, u32 first_channel, u32 first_row)
        : a(a), lds_w(reinterpret_cast<T *>(memory)), lds_x(lds_w + TILE * W_ROW), first_channel(first_channel),
          first_row(first_row), chunks((a.inner + DEPTH - 1) / DEPTH),
          vector_w(a.inner / 2 % VEC<T> == 0 && aligned(a.values, VEC128_BYTES)),
          vector_x(a.inner % VEC<T> == 0 && aligned(a.x, VEC128_BYTES)) {}

    static HIPVIT_DEVICE int wave_channel() { return wave_index() % 2 * CHANNELS; }
    static HIPVIT_DEVICE int wave_row() { return wave_index() / 2 * ROWS; }

    // Loads a chunk to registers, to be multiplied next; nothing beyond the last chunk.
    HIPVIT_DEVICE void load(u32 chunk) {
        if (chunk >= chunks) return;
        const u32 k = chunk * DEPTH;
        staged_w.load((const T *)a.values + k / 2, a.inner / 2, first_channel, a.channels, (a.inner - k) / 2, vector_w);
        staged_x.load((const T *)a.x + k, a.inner, first_row, a.rows, a.inner - k, vector_x);
        const u32 last = (a.channels - 1) / SPARSE_INDEX_CHANNELS;
#pragma unroll
        for (int i = 0; i < I; ++i) {
            // Channels beyond the last one are 0 for any indices.
            const u32 of = (first_channel + wave_channel()) / SPARSE_INDEX_CHANNELS + i;
            const u64 block = u64(of < last ? of : last) * chunks + chunk;
            const u8 *const from = (const u8 *)a.indices + block * SPARSE_INDEX_BYTES;
            next_index[i] = reinterpret_cast<const typename Tile::Index *>(from)[lane_index()];
        }
    }

    HIPVIT_DEVICE void store_inputs() {
        staged_w.store([this](int row, int column, const Vec<T> &vec) {
            *reinterpret_cast<Vec128 *>(lds_w + row * W_ROW + column) = vec.whole;
        });
        staged_x.store([this](int row, int column, const Vec<T> &vec) {
            *reinterpret_cast<Vec128 *>(lds_x + row * X_ROW + column) = vec.whole;
        });
#pragma unroll
        for (int i = 0; i < I; ++i) index[i] = next_index[i];
    }

    template <int STEP> HIPVIT_DEVICE void multiply() {
        typename Tile::W w[I];
#pragma unroll
        for (int i = 0; i < I; ++i)
            w[i] = Tile::load_w(lds_w + (wave_channel() + i * 16) * W_ROW + STEP * 16, W_ROW);
#pragma unroll
        for (int j = 0; j < J; ++j) {
            const auto x = Tile::load_x(lds_x + (wave_row() + j * 16) * X_ROW + STEP * 32, X_ROW);
#pragma unroll
            for (int i = 0; i < I; ++i) Tile::template multiply<STEP>(acc[i][j], w[i], x, index[i]);
        }
    }

    HIPVIT_DEVICE void run() {
        load(0);
        for (u32 chunk = 0; chunk < chunks; ++chunk) {
            barrier(); // the previous chunk has been read
            store_inputs();
            barrier();
            load(chunk + 1); // while this one is multiplied
            multiply<0>();
            multiply<1>();
        }
        barrier();
        store();
    }

    // Stores the result through LDS, 16 rows of the wave at a time, so that lanes store adjacent vec128s.
    HIPVIT_DEVICE void store() const {
        float *const lds = reinterpret_cast<float *>(lds_w) + wave_index() * 16 * D_ROW;
#pragma unroll
        for (int j = 0; j < J; ++j) {
#pragma unroll
            for (int i = 0; i < I; ++i) {
#pragma unroll
                for (int e = 0; e < Tile::VALUES; ++e) {
                    const Element at = Tile::of_lane(e);
                    lds[at.j * D_ROW + i * 16 + at.i] = acc[i][j].value[e];
                }
            }
            wave_barrier();
#pragma unroll 1
            for (u32 at = lane_index(); at < 16 * CHANNELS / VEC<T>; at += WAVE) {
                const u32 of = at / (CHANNELS / VEC<T>), column = at % (CHANNELS / VEC<T>) * VEC<T>;
                store_vec128(first_row + wave_row() + j * 16 + of, first_channel + wave_channel() + column,
                             lds + of * D_ROW + column);
            }
            wave_barrier(); // has been read
        }
    }

    HIPVIT_DEVICE void store_vec128(u32 row, u32 channel, const float *sums) const {
        if (row >= a.rows || channel >= a.channels) return;
        const u32 valid = a.channels - channel < VEC<T> ? a.channels - channel : VEC<T>;
        const u64 at = u64(row) * a.channels + channel;
        float value[VEC<T>];
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) value[i] = sums[i];
        if (a.bias) add((const T *)a.bias + channel, valid, value);
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) value[i] = activate(a.activation, value[i]);
        if (a.residual) add((const T *)a.residual + at, valid, value);
        T *const to = (T *)a.out + at;
        store_vec(to, valid, aligned(to, VEC128_BYTES), value);
    }

    static HIPVIT_DEVICE void add(const T *from, u32 valid, float (&value)[VEC<T>]) {
        float x[VEC<T>];
        load_vec(from, valid, aligned(from, VEC128_BYTES), x);
#pragma unroll
        for (u32 i = 0; i < VEC<T>; ++i) value[i] += x[i];
    }
};

template <class T> HIPVIT_DEVICE void sparse_gemm(const SparseGemmArgs &a) {
    HIPVIT_LDS static Vec128 memory[SparseGemm<T>::LDS_VECS];
    const u32 tiles = (a.channels + SPARSE_GEMM_TILE - 1) / SPARSE_GEMM_TILE;
    const u32 row = block_index() / tiles * SPARSE_GEMM_TILE;
    if (row >= a.rows) return;
    SparseGemm<T>(a, memory, block_index() % tiles * SPARSE_GEMM_TILE, row).run();
}

// Entries for 16-bit types only.
#define ENTRY_f32(name)
#define ENTRY_f16(name) KERNEL(name, f16)
#define ENTRY_bf16(name) KERNEL(name, bf16)
#define ENTRY(name, T) ENTRY_##T(name)
#define KERNEL(name, T)                                                                                                \
    HIPVIT_KERNEL(SPARSE_GEMM_THREADS) name##_##T(SparseGemmArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, sparse_gemm)

#endif
