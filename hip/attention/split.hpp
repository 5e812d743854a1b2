// Attention for few queries, where the latency of a block counts: a block takes 16 queries of a head, and its waves share out the keys.
// Each wave has a softmax of its own; in the end their results are combined. K goes from memory straight to registers, V through LDS.
//
// Takes what AttentionArgs::split (src/kernels/attention.rs) allows: heads of D channels at aligned addresses, no mask, scale > 0.
// LDS: per wave a tile of V, transposed where its fragments are not loaded by rows, then the wave's O; the waves' maxima and sums.
//
// One image of ViT-S, B and L (6, 12 and 16 heads of 64, 197 tokens) takes 3.7, 4.9 and 5.0 µs instead of 7.1, 7.1 and 7.2. Four images of
// ViT-S take as long as with attention_64, two of ViT-L 8.3 µs instead of 7.3 (H200, CUDA 13, bf16, in a graph).
#pragma once
#include "async_copy.hpp"
#include "attention/policy.hpp"
#include "float8.hpp"
#include "mma.hpp"
#include "online_softmax.hpp"

namespace hipvit {

// Types that matrix cores do not multiply, and f32, whose V does not fit LDS, have no SplitAttention.
template <class T> constexpr bool SPLITS = !PLAIN<T> && sizeof(T) == 2;

template <class T, int D> struct SplitAttention {
    using Tile = Mma<T>;
    using Policy = PlainPolicy<T>;

    static constexpr int WAVES = D <= 80 ? 8 : 4, KEYS = 32, QUERIES = 16, THREADS = WAVES * WAVE;
    static constexpr int MIN_BLOCKS = 0, MIN_WAVES = 0;
    static constexpr int COLUMNS = Tile::COLUMNS, CHUNKS = D / 16;
    using Rows = LdsRows<T, D>;
    static constexpr int V_ROW = ASYNC_COPIES ? Rows::PITCH : KEYS + Tile::ALIGNED, O_ROW = D + 4;
    static constexpr int V_BYTES = (ASYNC_COPIES ? KEYS : D) * V_ROW * int(sizeof(T)), O_BYTES = 16 * O_ROW * 4;
    static constexpr int WAVE_VECS = ((V_BYTES > O_BYTES ? V_BYTES : O_BYTES) + 15) / 16;
    static constexpr int ROWS = WAVES * 16; // of maxima and sums, which are floats
    static constexpr int LDS_VECS = WAVES * WAVE_VECS + 2 * ROWS / 4;

    const AttentionArgs &a;
    Vec128 *const memory;
    const u32 image, head, first_query;

    using Output = typename Tile::Acc[CHUNKS];
    using Scores = typename Tile::Acc[KEYS / 16];
    using Softmax = OnlineSoftmax<Tile, COLUMNS>;

    HIPVIT_DEVICE SplitAttention(const AttentionArgs &a, Vec128 *memory, u32 image, u32 head, u32 first_query, const Policy &)
        : a(a), memory(memory), image(image), head(head), first_query(first_query) {}

    HIPVIT_DEVICE float *maxima() const { return reinterpret_cast<float *>(memory + WAVES * WAVE_VECS); }
    HIPVIT_DEVICE float *sums() const { return maxima() + ROWS; }
    HIPVIT_DEVICE float *wave_acc(int wave) const { return reinterpret_cast<float *>(memory + wave * WAVE_VECS); }
    HIPVIT_DEVICE T *lds_v() const { return reinterpret_cast<T *>(wave_acc(wave_index())); }

    // Copies the tile of V that begins at key `start` to the wave's LDS; keys beyond the last one become 0.
    HIPVIT_DEVICE void copy_v(const T *v, u32 start) const {
        if constexpr (ASYNC_COPIES) {
            const AsyncCopy<Rows, KEYS, WAVE> copy(lane_index());
            copy.to_lds(lds_v(), v + u64(start + copy.row) * a.v_token + copy.column, a.v_token, a.keys - start, D, true);
            end_copies();
        } else {
#pragma unroll 2
            for (int at = lane_index(); at < KEYS * D / int(VEC<T>); at += WAVE) {
                const int key = at % KEYS, channel = at / KEYS * int(VEC<T>);
                Vec<T> vec;
                vec.whole = {{0, 0, 0, 0}};
                if (start + key < a.keys)
                    vec.whole = *reinterpret_cast<const Vec128 *>(v + u64(start + key) * a.v_token + channel);
#pragma unroll
                for (u32 i = 0; i < VEC<T>; ++i) lds_v()[(channel + i) * V_ROW + key] = vec.element[i];
            }
        }
    }
    HIPVIT_DEVICE typename Tile::X load_v(int t, int c) const {
        if constexpr (ASYNC_COPIES) {
            const u32 element = Tile::template x_rows_element<Rows>();
            return Tile::load_transposed(lds_v() + Rows::shifted(element, c * 16) + t * 16 * Rows::PITCH);
        } else {
            return Tile::load_x(lds_v() + c * 16 * V_ROW + t * 16, V_ROW);
        }
    }

    HIPVIT_DEVICE void run() const {
        const u64 channel = u64(head) * D;
        const T *const q = (const T *)a.q + image * a.q_image + channel;
        const T *const k = (const T *)a.k + image * a.k_image + channel;
        const T *const v = (const T *)a.v + image * a.v_image + channel;
        const float scale_log2 = a.scale * LOG2_E;

        typename Tile::Y q_fragment[CHUNKS];
        Output acc_o = {};
        Softmax softmax;

        bool first = true;
        for (u32 start = wave_index() * KEYS; start < a.keys; start += WAVES * KEYS) {
            wave_barrier(); // the previous tile of V has been read
            copy_v(v, start);
            if (first) {
                Tile::gather_y(q_fragment, [&](int j) {
                    const u32 query = first_query + j;
                    return q + u64(query < a.queries ? query : a.queries - 1) * a.q_token;
                });
                first = false;
            }
            Scores acc_s = {};
#pragma unroll
            for (int t = 0; t < KEYS / 16; ++t) {
                typename Tile::X fragment[CHUNKS];
                Tile::gather_x(fragment, [&](int i) {
                    const u32 key = start + t * 16 + i;
                    return k + u64(key < a.keys ? key : a.keys - 1) * a.k_token;
                });
#pragma unroll
                for (int c = 0; c < CHUNKS; ++c) Tile::multiply(acc_s[t], fragment[c], q_fragment[c]);
            }
            update_softmax(softmax, acc_s, acc_o, start, scale_log2);
            wait_copies<0>();
            wave_barrier(); // V is in LDS
#pragma unroll
            for (int t = 0; t < KEYS / 16; ++t) {
                const auto p = Tile::as_y(acc_s[t]);
#pragma unroll
                for (int c = 0; c < CHUNKS; ++c) Tile::multiply(acc_o[c], load_v(t, c), p);
            }
        }
        combine(acc_o, softmax);
    }

    // S of the tile that begins at key `start` becomes P; O is rescaled to the new maxima.
    HIPVIT_DEVICE void update_softmax(Softmax &softmax, Scores &acc_s, Output &acc_o, u32 start, float scale_log2) const {
        float tile_max[COLUMNS], subtrahend[COLUMNS];
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) tile_max[c] = -infinity();
#pragma unroll
        for (int t = 0; t < KEYS / 16; ++t) {
#pragma unroll
            for (int e = 0; e < Tile::VALUES; ++e) {
                float &s = acc_s[t].value[e];
                s = start + t * 16 + Tile::of_lane(e).i < a.keys ? s * scale_log2 : -infinity();
                tile_max[Tile::column(e)] = larger(tile_max[Tile::column(e)], s);
            }
        }
        softmax.update(tile_max, 1.0f, [&](const float (&factors)[COLUMNS]) {
#pragma unroll
            for (int c = 0; c < CHUNKS; ++c) {
#pragma unroll
                for (int e = 0; e < Tile::VALUES; ++e) acc_o[c].value[e] *= factors[Tile::column(e)];
            }
        });
        softmax.subtrahends(subtrahend);
#pragma unroll
        for (int t = 0; t < KEYS / 16; ++t) {
#pragma unroll
            for (int e = 0; e < Tile::VALUES; ++e) {
                float &s = acc_s[t].value[e];
                s = softmax.probability(s, 1.0f, subtrahend[Tile::column(e)], Tile::column(e));
            }
        }
    }

    // Writes the waves' O, maxima and sums to LDS, combines them and stores the output.
    HIPVIT_DEVICE void combine(const Output &acc_o, const Softmax &softmax) const {
        wave_barrier(); // the last tile of V has been read
        float *const acc = wave_acc(wave_index());
#pragma unroll
        for (int c = 0; c < CHUNKS; ++c) {
#pragma unroll
            for (int e = 0; e < Tile::VALUES; ++e) {
                const auto at = Tile::of_lane(e);
                acc[at.j * O_ROW + c * 16 + at.i] = acc_o[c].value[e];
            }
        }
#pragma unroll
        for (int e = 0; e < Tile::VALUES; ++e) {
            const float sum = softmax.sum(Tile::column(e));
            const int at = wave_index() * 16 + Tile::of_lane(e).j; // several lanes store the same
            maxima()[at] = softmax.row_max[Tile::column(e)], sums()[at] = sum;
        }
        barrier();
        const u64 out = image * a.out_image + u64(head) * D;
        for (int at = int(thread_index()); at < 16 * D / 4; at += THREADS) {
            const int query = at / (D / 4), channel = at % (D / 4) * 4;
            if (first_query + query >= a.queries) continue;
            float largest = -infinity(), sum = 0.0f, o[4] = {};
#pragma unroll
            for (int w = 0; w < WAVES; ++w) largest = larger(largest, maxima()[w * 16 + query]);
            largest = subtrahend_of_max(largest);
#pragma unroll
            for (int w = 0; w < WAVES; ++w) {
                // 0 for a wave without keys.
                const float factor = fast_exp2(maxima()[w * 16 + query] - largest);
                const float *const from = wave_acc(w) + query * O_ROW + channel;
                sum = multiply_add(sums()[w * 16 + query], factor, sum);
#pragma unroll
                for (int i = 0; i < 4; ++i) o[i] = multiply_add(from[i], factor, o[i]);
            }
            const float inverse = inverse_of_sum(sum);
            union {
                Vec64 whole;
                T element[4];
            } vec;
#pragma unroll
            for (int i = 0; i < 4; ++i) vec.element[i] = from_float<T>(o[i] * inverse);
            const u64 element = out + u64(first_query + query) * a.out_token + channel;
            if (a.float8_factor != 0.0f) {
                float x[4];
#pragma unroll
                for (int i = 0; i < 4; ++i) x[i] = to_float(vec.element[i]);
                store_float8((u8 *)a.out + element, 4, true, a.float8_factor, x);
            } else {
                *reinterpret_cast<Vec64 *>((T *)a.out + element) = vec.whole;
            }
        }
    }
};

} // namespace hipvit
