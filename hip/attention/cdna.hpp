// Attention of 16-bit types on CDNA 2 and later: eight waves of 16 queries.
//
// Registers: while a tile of K and V is multiplied, the next one is loaded, with one wait for both. Q and the output do not go through LDS,
//   except for a Q that is rotated.
// LDS: a tile of K, then one of V, transposed. Fragments are read in pairs, of 16 bytes per lane: channel 32 · n + 8 · part + 4 · half + e is
//   element 4 · part + e of fragment 2 · n + half, of K and Q along k, and of V along i. Blocks of 16 bytes are XORed with the row, so that
//   no access to heads of 32, 64, 96 and 128 channels has a bank conflict, without padding.
// Waves without queries multiply nothing, nor does the last tile multiply groups of 16 keys beyond the last one.
#pragma once
#include "attention/core.hpp"
#include "attention/policy.hpp"
#include "float8.hpp"
#include "staged_copy.hpp"

namespace hipvit {

template <class T, int D, class Policy> struct CdnaAttention : Attention<T, D, Policy> {
    using Base = Attention<T, D, Policy>;
    using typename Base::Scores, typename Base::Tile;
    using Base::a, Base::policy, Base::THREADS, Base::QUERIES, Base::KEYS, Base::lds, Base::first_query,
        Base::q_fragment, Base::acc_o, Base::key_end;
    using Fragment = typename Tile::X;

    static constexpr int CHUNKS = D / 16; // fragments of a row
    static constexpr int ROW = (D + 31) / 32 * 32; // of K and Q
    static constexpr int KV_ELEMENTS = KEYS * (ROW + D), Q_ELEMENTS = Policy::ROTATES ? QUERIES * ROW : 0;
    static constexpr int LDS_VECS = (KV_ELEMENTS > Q_ELEMENTS ? KV_ELEMENTS : Q_ELEMENTS) / int(VEC<T>);

    static constexpr int VECS_PER_ROW = D / VEC<T>;
    static constexpr int K_ALL = KEYS * VECS_PER_ROW, K_VECS = (K_ALL + THREADS - 1) / THREADS;
    static constexpr int V_ALL = KEYS / 4 * (D / 2), V_VECS = (V_ALL + THREADS - 1) / THREADS;

    static constexpr u32 NONE = 0xffffffff;
    // Whether a thread's place in a tile is computed for every tile, which saves registers: those of the addresses.
    static constexpr bool RECOMPUTES = D >= 64 && !is_plain<Policy>();

    T *const lds_v;
    const int part; // of the lane
    // Whether rows of K and V are aligned, and their addresses within a tile are offsets of 32 bits.
    const bool aligned_rows;
    // The next tile. A thread has vec128s of K, and two channels of four keys of V.
    Vec128 staged_k[K_VECS], staged_v[V_VECS];

    HIPVIT_DEVICE CdnaAttention(const AttentionArgs &a, Vec128 *memory, u32 image, u32 head, u32 first_query, const Policy &policy)
        : Base(a, memory, image, head, first_query, policy), lds_v(lds + KEYS * ROW), part(lane_index() / 16),
          aligned_rows(this->vector_k && this->vector_v && (a.k_token | a.v_token) < 1u << 25) {
        static_assert(Base::GROUPS == 1 && KEYS % 32 == 0);
    }

    // Whether the wave has a query. The compiler does not know that a wave's threads agree.
    HIPVIT_DEVICE bool has_queries() const {
        return first_query + u32(__builtin_amdgcn_readfirstlane(wave_index())) * 16 < a.queries;
    }

    // The element of K or Q in LDS.
    static HIPVIT_DEVICE u32 k_element(u32 row, u32 column) {
        const u32 mask = ROW % 64 == 0 ? row % 8 : row / 2 % 4;
        return row * ROW + (column / 8 ^ mask) * 8 + column % 8;
    }
    // The element of V in LDS of the first of the four keys of a quad. Rows are those of fragments. Two fragments' keys are 16 bytes: quad
    // `part` of 16 keys, and of the next 16; in odd fragments the other way round.
    static HIPVIT_DEVICE u32 v_element(u32 quad, u32 row) {
        const u32 line = row / 2, part = quad % 4, half = quad / 4 % 2;
        return quad / 8 * (32 * D) + line * 64 + ((row % 2 * 4 + part) ^ line % 8) * 8 + (half ^ row / 16 % 2) * 4;
    }
    // The row of V in LDS that has the channel.
    static HIPVIT_DEVICE u32 row_of_channel(u32 channel) {
        if (CHUNKS % 2 && channel >= D / 32 * 32) return channel;
        return channel / 32 * 32 + channel / 4 % 2 * 16 + channel / 8 % 4 * 4 + channel % 4;
    }
    // The first channel of the lane in a fragment, or in the pair of fragments that begins with it.
    static HIPVIT_DEVICE u32 column_of(int c, u32 part) { return c * 16 + part * (is_pair(c) ? 8 : 4); }
    static HIPVIT_DEVICE constexpr bool is_pair(int c) { return c + 1 < CHUNKS; }

    // Loads N elements of a row from `column` on, of which those from `d` on are 0. `vector`: all exist or none, and are aligned.
    template <int N> static HIPVIT_DEVICE void load_elements(void *to, const T *row, u32 column, u32 d, bool vector) {
        struct alignas(N * sizeof(T)) Whole {
            u32 word[N / 2];
        } whole = {};
        if (column < d) {
            if (vector) {
                whole = *reinterpret_cast<const Whole *>(row + column);
            } else {
                const u32 last = opaque(d - 1 - column);
#pragma unroll
                for (u32 i = 0; i < N; ++i) {
                    const u32 element = row[column + (i < last ? i : last)].bits;
                    if (i <= last) whole.word[i / 2] |= element << i % 2 * 16;
                }
            }
        }
        __builtin_memcpy(to, &whole, sizeof whole);
    }

    // Loads Q to registers.
    HIPVIT_DEVICE void load_q() {
        if constexpr (Policy::ROTATES) return load_rotated_q();
        const u32 query = this->query_at(0, Tile::row());
        const T *const row = this->q + u64(query < a.queries ? query : a.queries - 1) * a.q_token;
#pragma unroll
        for (int c = 0; c < CHUNKS; c += 2) {
            if (is_pair(c)) {
                load_elements<8>(&q_fragment[0][c], row, column_of(c, part), a.head_dim, this->vector_q);
            } else {
                load_elements<4>(&q_fragment[0][c], row, column_of(c, part), a.head_dim, this->vector_q);
            }
        }
    }

    // Rotates the rows in LDS of COUNT tokens from token `first` on; tokens from `tokens` on do not exist.
    template <int COUNT> HIPVIT_DEVICE void rotate(u32 first, u32 tokens) const {
        policy.template rotate_rows<D, COUNT, THREADS>(opaque(thread_index()), first, tokens, a.head_dim,
                                                       [this](u32 row, u32 column) { return lds + k_element(row, column); });
    }

    // Loads Q to registers through LDS, where it is rotated.
    HIPVIT_DEVICE void load_rotated_q() {
        Staged<T, D, QUERIES, VECS_PER_ROW, THREADS>::copy(
            this->q, a.q_token, first_query, a.queries, a.head_dim, this->vector_q,
            [this](int row, int column, const Vec<T> &vec) { store_k(row, column, vec.whole); });
        barrier();
        if (policy.rotates_queries) {
            rotate<QUERIES>(first_query, a.queries);
            barrier();
        }
#pragma unroll
        for (int c = 0; c < CHUNKS; c += 2)
            load_pair(&q_fragment[0][c], lds + k_element(wave_index() * 16 + Tile::row(), column_of(c, part)), c);
        barrier(); // every wave has loaded its fragments
    }

    // Loads the pair of fragments that begins with fragment c, or that one alone.
    static HIPVIT_DEVICE void load_pair(Fragment *to, const T *from, int c) {
        if (is_pair(c)) {
            load_two(to, from);
        } else {
            to[0] = *reinterpret_cast<const Fragment *>(from);
        }
    }
    // Loads two fragments by one instruction. clang would split it where a branch follows that needs one of them only.
    static HIPVIT_DEVICE void load_two(Fragment *to, const T *from) {
        using Words = u32 __attribute__((ext_vector_type(4)));
        Words both = *reinterpret_cast<const Words *>(from);
        asm("" : "+v"(both));
        __builtin_memcpy(to, &both, sizeof both);
    }

    // Whether the tile that begins at key `start` is loaded to registers in advance: all of it exists, in aligned rows.
    HIPVIT_DEVICE bool is_whole(u32 start) const { return aligned_rows && start + KEYS <= a.keys; }

    // The thread's index. Where RECOMPUTES, the compiler keeps nothing that it computes from it.
    static HIPVIT_DEVICE u32 thread_of_tile() { return RECOMPUTES ? opaque(thread_index()) : thread_index(); }

    // Loads a whole tile to registers, by offsets of 32 bits from a uniform address. Channels that do not exist are replaced by the last ones.
    HIPVIT_DEVICE void load_tile(u32 start) {
        const u8 *const k = reinterpret_cast<const u8 *>(this->k + u64(start) * a.k_token);
        const u32 thread = thread_of_tile();
#pragma unroll
        for (int n = 0; n < K_VECS; ++n) {
            if (!has_k(n)) break;
            const u32 column = k_column(thread, n), last = a.head_dim - VEC<T>;
            const u32 offset = k_row(thread, n) * a.k_token + (column < last ? column : last);
            staged_k[n] = *reinterpret_cast<const Vec128 *>(k + opaque(offset * u32(sizeof(T))));
        }
#pragma unroll
        for (int n = 0; n < V_VECS; ++n) {
            if (!has_v(n)) break;
            const u32 column = v_column(thread, n), last = a.head_dim - 2;
            const u32 offset = opaque((v_quad(thread, n) * 4 * a.v_token + (column < last ? column : last)) * u32(sizeof(T)));
            const T *row = this->v + u64(start) * a.v_token;
#pragma unroll
            for (int i = 0; i < 4; ++i, row += a.v_token)
                staged_v[n].word[i] = *reinterpret_cast<const u32 *>(reinterpret_cast<const u8 *>(row) + offset);
        }
    }

    // Stores the tile in registers to LDS.
    HIPVIT_DEVICE void store_tile() const {
        const u32 thread = thread_of_tile();
#pragma unroll
        for (int n = 0; n < K_VECS; ++n) {
            if (!has_k(n)) break;
            Vec128 vec;
#pragma unroll
            for (int w = 0; w < 4; ++w) vec.word[w] = k_column(thread, n) < a.head_dim ? staged_k[n].word[w] : 0;
            store_k(k_row(thread, n), k_column(thread, n), vec);
        }
#pragma unroll
        for (int n = 0; n < V_VECS; ++n) {
            if (!has_v(n)) break;
            store_v(v_quad(thread, n), v_column(thread, n), staged_v[n]);
        }
    }

    // Copies a tile that is not whole to LDS. Keys that do not exist are replaced by the last one: they are hidden.
    HIPVIT_DEVICE void copy_tile(u32 start) const {
        const T *const k = this->k + u64(start) * a.k_token, *const v = this->v + u64(start) * a.v_token;
        const u32 last = a.keys - 1 - start, thread = opaque(thread_index()); // keeps no address for the next tile
#pragma unroll
        for (int n = 0; n < K_VECS; ++n) {
            if (!has_k(n)) break;
            const u32 row = k_row(thread, n), column = k_column(thread, n);
            Vec128 vec;
            load_elements<8>(&vec, k + u64(row < last ? row : last) * a.k_token, column, a.head_dim, this->vector_k);
            store_k(row, column, vec);
        }
#pragma unroll
        for (int n = 0; n < V_VECS; ++n) {
            if (!has_v(n)) break;
            const u32 quad = v_quad(thread, n), column = v_column(thread, n);
            Vec128 keys;
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const u32 row = quad * 4 + i;
                load_elements<2>(&keys.word[i], v + u64(row < last ? row : last) * a.v_token, column, a.head_dim, this->vector_v);
            }
            store_v(quad, column, keys);
        }
    }

    // The places in a tile of a thread's vec128 `n` of K, and of its two channels of four keys of V.
    static HIPVIT_DEVICE bool has_k(int n) { return K_ALL % THREADS == 0 || thread_index() + n * THREADS < K_ALL; }
    static HIPVIT_DEVICE bool has_v(int n) { return V_ALL % THREADS == 0 || thread_index() + n * THREADS < V_ALL; }
    static HIPVIT_DEVICE u32 k_row(u32 thread, int n) { return (thread + n * THREADS) / VECS_PER_ROW; }
    static HIPVIT_DEVICE u32 k_column(u32 thread, int n) { return (thread + n * THREADS) % VECS_PER_ROW * VEC<T>; }
    static HIPVIT_DEVICE u32 v_quad(u32 thread, int n) { return (thread + n * THREADS) / (D / 2); }
    static HIPVIT_DEVICE u32 v_column(u32 thread, int n) { return (thread + n * THREADS) % (D / 2) * 2; }

    HIPVIT_DEVICE void store_k(u32 row, u32 column, const Vec128 &vec) const {
        *reinterpret_cast<Vec128 *>(lds + k_element(row, column)) = vec;
    }
    // Stores two channels from `column` on of four keys, a word each.
    HIPVIT_DEVICE void store_v(u32 quad, u32 column, const Vec128 &keys) const {
        const u32 row = row_of_channel(column);
        const u32 *const w = keys.word;
        *reinterpret_cast<Vec64 *>(lds_v + v_element(quad, row)) = {{(w[0] & 0xffff) | w[1] << 16, (w[2] & 0xffff) | w[3] << 16}};
        *reinterpret_cast<Vec64 *>(lds_v + v_element(quad, row + 1)) = {
            {w[0] >> 16 | (w[1] & 0xffff0000), w[2] >> 16 | (w[3] & 0xffff0000)}};
    }

    // Multiplies the tile in LDS, which begins at key `start`. LAST: without groups of 16 keys beyond the last one.
    template <bool LAST> HIPVIT_DEVICE void process_tile(u32 start) {
        const u32 keys = LAST ? key_end - start : KEYS;
        // The addresses are computed for every tile, which saves registers.
        const u32 lane = D < 64 ? u32(lane_index()) : opaque(thread_index()) % WAVE, row = lane % 16, part = lane / 16;
        Scores acc_s = {};
        float subtrahend[Base::COLUMNS];
#pragma unroll
        for (int t = 0; t < KEYS / 16; ++t) {
            if (t > 0 && t * 16 >= keys) break;
            Fragment k[CHUNKS];
#pragma unroll
            for (int c = 0; c < CHUNKS; c += 2) load_pair(k + c, lds + k_element(t * 16 + row, column_of(c, part)), c);
#pragma unroll
            for (int c = 0; c < CHUNKS; ++c) Tile::multiply(acc_s[0][t], k[c], q_fragment[0][c]);
            schedule_fence();
        }
        this->template mask<!LAST>(acc_s, start, KEYS);
        this->update_softmax(acc_s, KEYS, subtrahend);
        typename Base::Probabilities p[KEYS / 16];
#pragma unroll
        for (int t = 0; t < KEYS / 16; ++t) this->probabilities(p[t], acc_s, t, subtrahend);
#pragma unroll
        for (int t = 0; t < KEYS / 16; t += 2) {
            if (t > 0 && t * 16 >= keys) break;
            const bool both = t * 16 + 16 < keys;
#pragma unroll
            for (int c = 0; c < CHUNKS; c += 2) {
                Fragment v[2][2];
#pragma unroll
                for (int i = 0; i < 2 && c + i < CHUNKS; ++i)
                    load_two(v[i], lds_v + v_element(t * 4 + i * 4 + part, (c + i) * 16 + row));
#pragma unroll
                for (int i = 0; i < 2 && c + i < CHUNKS; ++i) Tile::multiply(acc_o[0][c + i], v[i][i], p[t][0]);
                if (both) {
#pragma unroll
                    for (int i = 0; i < 2 && c + i < CHUNKS; ++i) Tile::multiply(acc_o[0][c + i], v[i][1 - i], p[t + 1][0]);
                }
            }
        }
    }

    HIPVIT_DEVICE void run() {
        const bool works = has_queries();
        load_q();
        u32 start = NONE, next = this->tile_from(this->key_begin);
        while (next < key_end) {
            const bool whole = is_whole(next);
            if (whole) load_tile(next);
            if (works && start != NONE) process_tile<false>(start);
            barrier(); // the previous tile has been read
            if (whole) {
                store_tile();
            } else {
                copy_tile(next);
            }
            barrier(); // the tile is in LDS
            if constexpr (Policy::ROTATES) {
                rotate<KEYS>(next, a.keys);
                barrier();
            }
            start = next;
            next = this->tile_from(start + KEYS);
        }
        if (!works) return;
        if (start != NONE) process_tile<true>(start);
        if constexpr (Policy::STATISTICS) {
            this->store_statistics();
            if (!a.out) return;
        }
        if constexpr (Policy::LOG_SUM_EXP) {
            if (policy.sums) this->store_log_sum_exp(policy.sums);
        }
        store();
    }

    // Stores O / row_sum to the output.
    HIPVIT_DEVICE void store() const {
        const bool vector_out = this->is_vector_out();
        float inverse[Tile::COLUMNS];
        this->inverse_sums(0, inverse);
        const u32 query = this->query_at(0, Tile::row());
        if (query >= a.queries) return;
        const u64 row = this->out_offset() + u64(query) * a.out_token;
#pragma unroll
        for (int c = 0; c < CHUNKS; c += 2) {
            const u32 column = column_of(c, part);
            if (column >= a.head_dim) continue;
            if (is_pair(c)) {
                store_elements<8>(c, inverse[0], row + column, a.head_dim - column, vector_out);
            } else {
                store_elements<4>(c, inverse[0], row + column, a.head_dim - column, vector_out);
            }
        }
    }

    // Stores a lane's N elements of fragment c, and of the next one, to the output; the first `valid` exist.
    template <int N> HIPVIT_DEVICE void store_elements(int c, float factor, u64 at, u32 valid, bool vector) const {
        struct alignas(N * sizeof(T)) Whole {
            T element[N];
        } whole;
#pragma unroll
        for (int i = 0; i < N; ++i) whole.element[i] = from_float<T>(acc_o[0][c + i / 4].value[i % 4] * factor);
        if (this->writes_float8()) {
            float x[N];
#pragma unroll
            for (int i = 0; i < N; ++i) x[i] = to_float(whole.element[i]);
            store_float8((u8 *)a.out + at, valid, vector, a.float8_factor, x);
            return;
        }
        T *const to = (T *)a.out + at;
        if (vector) {
            *reinterpret_cast<Whole *>(to) = whole;
        } else {
#pragma unroll
            for (int i = 0; i < N; ++i)
                if (u32(i) < valid) to[i] = whole.element[i];
        }
    }
};

} // namespace hipvit
