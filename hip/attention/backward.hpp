// Attention's backward pass in one block: the probabilities P = e^(s − ln Σ e^s), and the derivatives of the scores,
// dS = P · (dP − Σ o · dy) with dP = dy · Vᵀ. The kernels of backward_kv.hpp, backward_q.hpp and backward_bias.hpp build on it.
//
// A block holds queries or keys of a head, 16 per wave, or two groups of 16, and passes over the others in tiles. Each has two operands:
//
//   a   queries: Q    keys: K    S = a of the tile · a of the blockᵀ
//   b   queries: dy   keys: V    dP = b of the tile · b of the blockᵀ
//
// In mma.hpp's D, i is a row of the tile, j a row of the block. P and dS are rounded to T as Y, so no data moves across lanes: the gradients
// of the rows of the block are (a of the tile)ᵀ · dS and (b of the tile)ᵀ · P.
//
// LDS: both operands of a tile, then those that a gradient needs, transposed where fragments are not loaded by rows; the rows of the
//   block, if they do not stay in registers; log₂ Σ e^s and Σ o · dy of the tile's queries. The rows and gradients of the block go through
//   the same LDS.
#pragma once
#include "attention/backward_config.hpp"
#include "attention/backward_mask.hpp"
#include "online_softmax.hpp"
#include "staged_copy.hpp"

namespace hipvit {

// The rows of a head in memory: operands are const, gradients are not.
template <class T> struct HeadRows {
    T *first;
    u32 stride; // elements between rows
    bool vector;

    HIPVIT_DEVICE HeadRows(T *rows, u64 offset, u32 stride, u32 head_dim)
        : first(rows + offset), stride(stride),
          vector(head_dim % VEC<T> == 0 && stride % VEC<T> == 0 && aligned(first, VEC128_BYTES)) {}
};

// log₂ Σ e^s of a query, and Σ o · dy.
struct alignas(8) SoftmaxRow {
    float log2_sum, delta;
};
// The row of a query that does not exist: its probabilities are 0.
HIPVIT_DEVICE SoftmaxRow no_row() { return {infinity(), 0.0f}; }

// HOLDS_KEYS: the block holds keys and passes over queries. GRADIENTS: how many operands of a tile the gradients need, a first.
template <class T, int D, class PolicyOfEntry, bool HOLDS_KEYS, int GRADIENTS> struct AttentionBackward {
    using Policy = PolicyOfEntry;
    using PolicyArgs = typename Policy::Args;
    using Fragments = Mma<T>;
    using Acc = typename Fragments::Acc;
    using Y = typename Fragments::Y;
    using Layout = BackwardLayout<T, D, GRADIENTS>;

    static constexpr BackwardConfig CONFIG = backward_config<T, D, GRADIENTS>();
    static constexpr int WAVES = CONFIG.waves, GROUPS = CONFIG.groups, TILE = CONFIG.tile, THREADS = WAVES * WAVE;
    static constexpr int PART = WAVES * 16; // rows that go through LDS at once
    static constexpr int ROWS = GROUPS * PART; // that the block holds
    static_assert(WAVES % GROUPS == 0);
    static constexpr bool REGISTERS = CONFIG.registers, PREFETCH = CONFIG.prefetch, TRANSPOSED = Layout::TRANSPOSED;
    static constexpr bool ASYNC = CONFIG.stages > 1;
    static_assert(!ASYNC || (!PREFETCH && !TRANSPOSED && TILE <= THREADS && Layout::ROW % VEC<T> == 0));
    static constexpr bool WARPGROUPS = Layout::WARPGROUPS;
    static_assert(!WARPGROUPS || (ASYNC && REGISTERS && GROUPS == 1 && WAVES == WARPGROUP_WAVES));
    using Rows = typename Layout::Rows; // of a tile
    static constexpr int ROW = Layout::ROW, COLUMN = Layout::column(TILE);
    static constexpr int LDS_VECS = (Layout::bytes(CONFIG) + VEC128_BYTES - 1) / int(VEC128_BYTES);
    static constexpr int MIN_BLOCKS = ASYNC ? backward_blocks<T, D, GRADIENTS>() : 0;
    static constexpr int MIN_WAVES = Policy::IDENTITY && !Policy::MASKS ? backward_min_waves<T, D>() : 0;

    static constexpr int VECS_PER_ROW = D / VEC<T>;
    // Transposed, the vec128s of a row are stored to the same banks: so few adjacent threads share a row.
    template <bool TRANSPOSES>
    using StagedTile = Staged<T, D, TILE, !TRANSPOSES ? VECS_PER_ROW : VECS_PER_ROW % 4 == 0 ? 4 : 2, THREADS>;
    using StagedA = StagedTile<TRANSPOSED>;
    using StagedB = StagedTile<TRANSPOSED && (GRADIENTS > 1)>;
    using StagedRows = Staged<T, D, PART, VECS_PER_ROW, THREADS>;

    using Scores = Acc[GROUPS];
    using Weights = Y[GROUPS];
    using Gradient = Acc[GROUPS][D / 16];

    const AttentionBackwardOperands &a;
    const u32 image, head;
    const Policy policy;
    const u32 first_row; // of the block
    const u32 rows, tile_rows; // that exist: of queries and keys, those that the block holds, and the others
    const HeadRows<const T> row_a, row_b, tile_a, tile_b;
    T *const lds;
    Y a_fragment[REGISTERS ? GROUPS : 1][REGISTERS ? D / 16 : 1], b_fragment[REGISTERS ? GROUPS : 1][REGISTERS ? D / 16 : 1];
    SoftmaxRow row[HOLDS_KEYS ? 1 : GROUPS][Fragments::COLUMNS]; // of the lane's queries, if the block holds queries
    StagedA staged_a;
    StagedB staged_b;
    int stage = 0;             // of the tile that is multiplied
    bool has_started = false;  // to copy the first tile
    const bool shares_rows; // all waves hold the same rows, at most 16, and divide the rows of tiles
    TileMask<Policy, GROUPS, HOLDS_KEYS> mask;

    HIPVIT_DEVICE AttentionBackward(const AttentionBackwardOperands &a, const PolicyArgs &of_policy, Vec128 *memory, u32 image, u32 head,
                                    u32 first_row)
        : a(a), image(image), head(head), policy(of_policy, image, head), first_row(first_row), rows(HOLDS_KEYS ? a.keys : a.queries),
          tile_rows(HOLDS_KEYS ? a.queries : a.keys), row_a(HOLDS_KEYS ? k() : q()), row_b(HOLDS_KEYS ? v() : dy()),
          tile_a(HOLDS_KEYS ? q() : k()), tile_b(HOLDS_KEYS ? dy() : v()), lds(reinterpret_cast<T *>(memory)),
          shares_rows(WARPGROUPS && first_row + 16 >= rows) {}

    HIPVIT_DEVICE HeadRows<const T> operand(const void *rows, u64 image_stride, u32 token_stride) const {
        return {(const T *)rows, of_image(image_stride), token_stride, a.head_dim};
    }
    HIPVIT_DEVICE HeadRows<const T> q() const { return operand(a.q, a.q_image, a.q_token); }
    HIPVIT_DEVICE HeadRows<const T> k() const { return operand(a.k, a.k_image, a.k_token); }
    HIPVIT_DEVICE HeadRows<const T> v() const { return operand(a.v, a.v_image, a.v_token); }
    HIPVIT_DEVICE HeadRows<const T> dy() const { return operand(a.dy, a.dy_image, a.dy_token); }
    // The head's first element.
    HIPVIT_DEVICE u64 of_image(u64 image_stride) const { return image * image_stride + u64(head) * a.head_dim; }

    HIPVIT_DEVICE T *lds_of_stage(int index) const { return lds + (ASYNC ? index * Layout::of_tile(TILE) : 0); }
    HIPVIT_DEVICE T *lds_a() const { return lds_of_stage(stage); }
    HIPVIT_DEVICE T *lds_b() const { return lds_a() + TILE * Rows::PITCH; }
    HIPVIT_DEVICE T *transposed_a() const { return lds + 2 * TILE * ROW; }
    HIPVIT_DEVICE T *transposed_b() const { return transposed_a() + D * COLUMN; }
    // Operand `index` of the rows of the block, if they are not in registers.
    HIPVIT_DEVICE T *lds_rows(int index) const { return lds + CONFIG.stages * Layout::of_tile(TILE) + index * ROWS * ROW; }
    HIPVIT_DEVICE SoftmaxRow *softmax_of_stage(int index) const {
        return reinterpret_cast<SoftmaxRow *>(lds + Layout::elements(CONFIG)) + (ASYNC ? index * TILE : 0);
    }
    HIPVIT_DEVICE SoftmaxRow *lds_softmax() const { return softmax_of_stage(stage); }

    // The wave's first row in the block. Its groups are adjacent, so that fewer waves have rows at the end.
    static HIPVIT_DEVICE int wave_row() { return wave_index() * GROUPS * 16; }
    HIPVIT_DEVICE int first_wave_row() const { return WARPGROUPS && shares_rows ? 0 : wave_row(); }
    // The index of the wave's row `j` of a group.
    HIPVIT_DEVICE u32 row_at(int group, int j) const { return first_row + first_wave_row() + group * 16 + j; }
    // Whether the wave stores gradients of its rows.
    HIPVIT_DEVICE bool stores() const { return !WARPGROUPS || !shares_rows || wave_index() == 0; }
    // Whether the wave has no row. It copies its part of tiles, and multiplies in its warpgroup.
    HIPVIT_DEVICE bool idle() const { return row_at(0, 0) >= rows; }
    HIPVIT_DEVICE u32 last_row() const { return (first_row + ROWS < rows ? first_row + ROWS : rows) - 1; }

    HIPVIT_DEVICE SoftmaxRow softmax_row(u32 query) const {
        if (query >= a.queries) return no_row();
        return reinterpret_cast<const SoftmaxRow *>(a.rows)[(u64(image) * a.heads + head) * a.queries + query];
    }

    static HIPVIT_DEVICE auto write_rows(T *to) {
        return [to](int row, int column, const Vec<T> &vec) { Layout::store(to + row * ROW + column, vec); };
    }
    template <bool TRANSPOSES> static HIPVIT_DEVICE auto write_tile(T *to, T *transposed) {
        return [to, transposed](int row, int column, const Vec<T> &vec) {
            Layout::store(to + row * ROW + column, vec);
            if constexpr (TRANSPOSES) {
                const u32 swizzled = row ^ Layout::swizzle(TILE, column);
#pragma unroll
                for (u32 i = 0; i < VEC<T>; ++i) transposed[(column + i) * COLUMN + swizzled] = vec.element[i];
            }
        };
    }

    // Loads one operand of the rows of the block to registers through LDS, those of some waves at a time.
    template <class Fragment> HIPVIT_DEVICE void load_fragments(Fragment &fragment, const HeadRows<const T> &from) const {
        if constexpr (ASYNC) {
            if (from.vector) return gather_fragments(fragment, from);
        }
#pragma unroll
        for (int part = 0; part < GROUPS; ++part) {
            barrier(); // the previous rows have been read
            StagedRows::copy(from.first, from.stride, first_row + part * PART, rows, a.head_dim, from.vector, write_rows(lds));
            barrier();
            if (GROUPS > 1 && first_wave_row() / PART != part) continue;
#pragma unroll
            for (int g = 0; g < GROUPS; ++g) {
#pragma unroll
                for (int c = 0; c < D / 16; ++c)
                    fragment[g][c] = Fragments::load_y(lds + (first_wave_row() % PART + g * 16) * ROW + c * 16, ROW);
            }
        }
    }

    // Loads one operand of the wave's rows to registers without LDS, so that it is in flight together with the first tile.
    template <class Fragment> HIPVIT_DEVICE void gather_fragments(Fragment &fragment, const HeadRows<const T> &from) const {
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
            Fragments::gather_y(fragment[g], a.head_dim, [&](int row) -> const T * {
                const u32 index = row_at(g, row);
                return index < rows ? from.first + u64(index) * from.stride : nullptr;
            });
        }
    }

    // Copies one operand of the rows of the block to LDS.
    HIPVIT_DEVICE void copy_rows(int index, const HeadRows<const T> &from) const {
#pragma unroll
        for (int part = 0; part < GROUPS; ++part)
            StagedRows::copy(from.first, from.stride, first_row + part * PART, rows, a.head_dim, from.vector,
                             write_rows(lds_rows(index) + part * PART * ROW));
    }

    HIPVIT_DEVICE void load_rows() {
        if constexpr (REGISTERS) {
            load_fragments(a_fragment, row_a);
            load_fragments(b_fragment, row_b);
        } else {
            copy_rows(0, row_a);
            copy_rows(1, row_b);
        }
        if constexpr (!HOLDS_KEYS) {
#pragma unroll
            for (int g = 0; g < GROUPS; ++g) {
#pragma unroll
                for (int e = 0; e < Fragments::VALUES; ++e)
                    row[g][Fragments::column(e)] = softmax_row(row_at(g, Fragments::of_lane(e).j));
            }
        }
    }

    HIPVIT_DEVICE Y fragment_a(int g, int c) const {
        if constexpr (REGISTERS) {
            return a_fragment[g][c];
        } else {
            return Fragments::load_y(lds_rows(0) + (wave_row() + g * 16) * ROW + c * 16, ROW);
        }
    }
    HIPVIT_DEVICE Y fragment_b(int g, int c) const {
        if constexpr (REGISTERS) {
            return b_fragment[g][c];
        } else {
            return Fragments::load_y(lds_rows(1) + (wave_row() + g * 16) * ROW + c * 16, ROW);
        }
    }

    HIPVIT_DEVICE void load_tile(u32 start) {
        staged_a.load(tile_a.first, tile_a.stride, start, tile_rows, a.head_dim, tile_a.vector);
        staged_b.load(tile_b.first, tile_b.stride, start, tile_rows, a.head_dim, tile_b.vector);
    }

    // Copies the tile that begins at row `start` to LDS, from registers if it has been loaded.
    HIPVIT_DEVICE void store_tile(u32 start) {
        const auto write_a = write_tile<TRANSPOSED>(lds_a(), transposed_a());
        const auto write_b = write_tile<TRANSPOSED && (GRADIENTS > 1)>(lds_b(), transposed_b());
        if constexpr (PREFETCH) {
            staged_a.store(write_a);
            staged_b.store(write_b);
        } else {
            StagedA::copy(tile_a.first, tile_a.stride, start, tile_rows, a.head_dim, tile_a.vector, write_a);
            StagedB::copy(tile_b.first, tile_b.stride, start, tile_rows, a.head_dim, tile_b.vector, write_b);
        }
        if constexpr (HOLDS_KEYS) {
            for (u32 i = thread_index(); i < TILE; i += THREADS) lds_softmax()[i] = softmax_row(start + i);
        }
    }

    // The distance of a key from a query's position.
    HIPVIT_DEVICE long long distance(u32 query, u32 key) const { return (long long)key - query - a.visible.diagonal; }
    static HIPVIT_DEVICE u32 clamped(long long row, u32 count) {
        return row < 0 ? 0 : row < (long long)count ? u32(row) : count;
    }
    // Whether the query sees the key.
    HIPVIT_DEVICE bool sees(u32 query, u32 key) const {
        if constexpr (Policy::MASKS) return key < a.keys && policy.visible(query, key);
        const int at = int(key - query) - a.visible.diagonal;
        const bool in_range = at >= -a.visible.left && at <= a.visible.right && key >= a.first_key && key < a.keys;
        if (!a.visible.key_mask) return in_range;
        return in_range & bool(a.visible.key_mask[u64(image) * a.keys + (key < a.keys ? key : a.keys - 1)]);
    }
    // The rows that the rows of the block see or are seen by, by position.
    HIPVIT_DEVICE u32 tiles_begin() const {
        if (HOLDS_KEYS) {
            if (last_row() < a.first_key) return a.queries;
            return clamped((long long)first_row - a.visible.diagonal - a.visible.right, a.queries) / TILE * TILE;
        }
        const u32 begin = clamped((long long)first_row + a.visible.diagonal - a.visible.left, a.keys);
        return (begin > a.first_key ? begin : a.first_key) / TILE * TILE;
    }
    HIPVIT_DEVICE u32 tiles_end() const {
        if (HOLDS_KEYS) return clamped((long long)last_row() - a.visible.diagonal + a.visible.left + 1, a.queries);
        return clamped((long long)last_row() + a.visible.diagonal + a.visible.right + 1, a.keys);
    }
    // Whether a query does not see each key of the tile and the block. Keys of the tile must exist; those of the block are not stored otherwise.
    HIPVIT_DEVICE bool is_masked(u32 start) const {
        const u32 last = (start + TILE < tile_rows ? start + TILE : tile_rows) - 1;
        const u32 first_query = HOLDS_KEYS ? start : first_row, last_query = HOLDS_KEYS ? last : last_row();
        const u32 first_key = HOLDS_KEYS ? first_row : start, last_key = HOLDS_KEYS ? last_row() : last;
        const bool whole = HOLDS_KEYS || start + TILE <= tile_rows;
        return !whole || a.visible.key_mask || first_key < a.first_key ||
               distance(first_query, last_key) > a.visible.right || distance(last_query, first_key) < -a.visible.left;
    }

    HIPVIT_DEVICE u32 next_tile(u32 start, u32 end) { return mask.next_tile(*this, start, end); }
    // Whether the policy's mask hides 16 rows of a tile, from `start` on, from the wave.
    HIPVIT_DEVICE bool is_hidden(u32 start) { return mask.is_hidden(*this, start); }

    // Starts to copy the tile that begins at row `start` to a stage, and returns its softmax row that this thread stores.
    HIPVIT_DEVICE SoftmaxRow copy_tile(u32 start, int index) const {
        T *const to = lds_of_stage(index);
        copy_operand(tile_a, start, to);
        copy_operand(tile_b, start, to + TILE * Rows::PITCH);
        end_copies();
        return HOLDS_KEYS && thread_index() < TILE ? softmax_row(start + thread_index()) : no_row();
    }
    HIPVIT_DEVICE void store_softmax(const SoftmaxRow &softmax, int index) const {
        if (HOLDS_KEYS && thread_index() < TILE) softmax_of_stage(index)[thread_index()] = softmax;
    }
    // Starts to copy the first tile, if the rows of the block do not need its LDS.
    HIPVIT_DEVICE void start_tiles() {
        if constexpr (ASYNC && REGISTERS) {
            const u32 end = tiles_end(), start = next_tile(tiles_begin(), end);
            has_started = row_a.vector && row_b.vector;
            if (has_started && start < end) store_softmax(copy_tile(start, 0), 0);
        }
    }
    HIPVIT_DEVICE void copy_operand(const HeadRows<const T> &from, u32 start, T *to) const {
        const AsyncCopy<Rows, TILE, THREADS> copy(thread_index());
        copy.to_lds(to, from.first + u64(start + copy.row) * from.stride + copy.column, from.stride, tile_rows - start, a.head_dim,
                    from.vector);
    }

    // for_each_tile with two tiles in LDS: the next one is copied while a tile is multiplied.
    template <class Work> HIPVIT_DEVICE void for_each_async(const Work &work) {
        const u32 end = tiles_end();
        u32 start = next_tile(tiles_begin(), end);
        if (!has_started) {
            barrier(); // the rows of the block have been read
            if (start < end) store_softmax(copy_tile(start, 0), 0);
        }
        while (start < end) {
            const u32 next = next_tile(start + TILE, end);
            wait_copies<0>();
            if constexpr (WARPGROUPS) publish_to_products();
            barrier(); // the tile is in LDS, and the one before it has been read
            SoftmaxRow softmax;
            if (next < end) softmax = copy_tile(next, 1 - stage);
            if (WARPGROUPS || !idle()) work(start);
            stage = 1 - stage;
            if (next < end) store_softmax(softmax, stage);
            start = next;
        }
    }

    // Calls work(start) for each tile that is in LDS.
    template <class Work> HIPVIT_DEVICE void for_each_tile(const Work &work) {
        if constexpr (ASYNC) return for_each_async(work);
        const u32 begin = next_tile(tiles_begin(), tiles_end()), end = tiles_end();
        if constexpr (PREFETCH) load_tile(begin);
        for (u32 start = begin; start < end; start = next_tile(start + TILE, end)) {
            barrier(); // the previous tile, or the rows of the block, have been read
            store_tile(start);
            barrier();
            if constexpr (PREFETCH) load_tile(next_tile(start + TILE, end));
            if (!idle()) work(start);
        }
    }

    // Fragments of 16 rows and 16 columns of an operand of a tile.
    static HIPVIT_DEVICE typename Fragments::X load_x(const T *tile, int t, int c) {
        if constexpr (WARPGROUPS) {
            return Fragments::load(tile + Rows::shifted(Fragments::template x_element<Rows>(), c * 16) + t * 16 * Rows::PITCH);
        } else {
            return Fragments::load_x(tile + t * 16 * ROW + c * 16, ROW);
        }
    }
    static HIPVIT_DEVICE typename Fragments::X load_x_rows(const T *tile, int t, int c) {
        if constexpr (WARPGROUPS) {
            return Fragments::load_transposed(tile + Rows::shifted(Fragments::template x_rows_element<Rows>(), c * 16) +
                                              t * 16 * Rows::PITCH);
        } else {
            return Fragments::load_x_rows(tile + t * 16 * ROW + c * 16, ROW);
        }
    }

    // S and dP of 16 rows of the tile.
    HIPVIT_DEVICE void multiply(Scores &s, Scores &d_p, int t) const {
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) s[g] = {}, d_p[g] = {};
#pragma unroll
        for (int c = 0; c < D / 16; ++c) {
            const auto of_a = load_x(lds_a(), t, c), of_b = load_x(lds_b(), t, c);
#pragma unroll
            for (int g = 0; g < GROUPS; ++g) {
                Fragments::multiply(s[g], of_a, fragment_a(g, c));
                Fragments::multiply(d_p[g], of_b, fragment_b(g, c));
            }
            if (c % 2 == 1) schedule_fence();
        }
        schedule_fence();
    }

    HIPVIT_DEVICE SoftmaxRow softmax_of_element(int g, int t, int e) const {
        if constexpr (HOLDS_KEYS) {
            return lds_softmax()[t * 16 + Fragments::of_lane(e).i];
        } else {
            return row[g][Fragments::column(e)];
        }
    }

    // S becomes P, and dP becomes dS. Scores become final, and their derivatives apply, here; without a policy's score also in exponentiate().
    template <bool MASKED> HIPVIT_DEVICE void differentiate(Scores &s, Scores &d_p, u32 start, int t) const {
        const float scale_log2 = a.scale * LOG2_E; // e^(scale · s) = 2^(scale_log2 · s)
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
#pragma unroll
            for (int e = 0; e < Fragments::VALUES; ++e) {
                const auto at = Fragments::of_lane(e);
                const u32 of_tile = start + t * 16 + at.i, of_block = row_at(g, at.j);
                const u32 query = HOLDS_KEYS ? of_tile : of_block, key = HOLDS_KEYS ? of_block : of_tile;
                const SoftmaxRow softmax = softmax_of_element(g, t, e);
                float exponent, derivative = 1.0f;
                if constexpr (Policy::IDENTITY) {
                    exponent = multiply_add(s[g].value[e], scale_log2, -softmax.log2_sum);
                } else {
                    const float scaled = s[g].value[e] * a.scale;
                    exponent = multiply_add(policy.score(scaled, query, key), LOG2_E, -softmax.log2_sum);
                    derivative = policy.derivative(scaled, query, key);
                }
                if constexpr (MASKED) exponent = sees(query, key) ? exponent : -infinity();
                const float p = fast_exp2(exponent);
                d_p[g].value[e] = p * (d_p[g].value[e] - softmax.delta) * derivative;
                // Where the score is −∞, or there is no query, the derivative may be infinite.
                if constexpr (Policy::GUARDS) d_p[g].value[e] = p > 0.0f ? d_p[g].value[e] : 0.0f;
                s[g].value[e] = p;
            }
            schedule_fence();
        }
    }
    // P and dS of 16 rows of the tile that begins at row `start`.
    HIPVIT_DEVICE void probabilities(Scores &p, Scores &d_s, u32 start, int t) const {
        multiply(p, d_s, t);
        if (mask.is_partial(start + t * 16) || is_masked(start)) {
            differentiate<true>(p, d_s, start, t);
        } else {
            differentiate<false>(p, d_s, start, t);
        }
    }

    // Calls work(t) for the parts of a tile, of 16 rows each, that the wave multiplies.
    template <class Work> HIPVIT_DEVICE void for_each_part(u32 start, const Work &work) {
        const int first = WARPGROUPS && shares_rows ? wave_index() : 0, step = WARPGROUPS && shares_rows ? WAVES : 1;
#pragma unroll 1
        for (int t = first; t < TILE / 16 && start + t * 16 < tile_rows; t += step) {
            if (!is_hidden(start + t * 16)) work(t);
        }
    }

    // Adds (16 rows of the tile)ᵀ · weights.
    HIPVIT_DEVICE void accumulate(Gradient &gradient, const Scores &weights, const T *tile, const T *transposed, int t) const {
        Weights y;
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) y[g] = Fragments::as_y(weights[g]);
#pragma unroll
        for (int c = 0; c < D / 16; ++c) {
            const auto fragment = [&] {
                if constexpr (TRANSPOSED) {
                    return Fragments::load_x(transposed + c * 16 * COLUMN + (t * 16 ^ Layout::swizzle(TILE, c * 16)), COLUMN);
                } else {
                    return load_x_rows(tile, t, c);
                }
            }();
#pragma unroll
            for (int g = 0; g < GROUPS; ++g) Fragments::multiply(gradient[g][c], fragment, y[g]);
            if (c % 4 == 3) schedule_fence();
        }
        schedule_fence();
    }
    // Scores of N · 16 rows of a tile, and their fragments.
    template <int N> using TileScores = Acc[N];
    template <int N> using TileWeights = Y[N];

    // Starts S = a of the tile · a of the blockᵀ.
    template <int N, class Fragment> static HIPVIT_DEVICE void start_scores(TileScores<N> &s, const Fragment &fragment, const T *tile) {
        const WarpgroupMatrix<T, D> matrix(tile);
#pragma unroll
        for (int c = 0; c < D / 16; ++c) warpgroup_multiply<T, false>(s, fragment[0][c], matrix.at(0, c * 16), c > 0);
        end_products();
    }
    // Starts to add (rows of the tile)ᵀ · weights, which `y` holds until the products have ended.
    template <int N>
    static HIPVIT_DEVICE void start_gradient(Gradient &gradient, TileWeights<N> &y, const TileScores<N> &weights, const T *tile) {
        const WarpgroupMatrix<T, D> matrix(tile);
#pragma unroll
        for (int t = 0; t < N; ++t) y[t] = Fragments::as_y(weights[t]);
        pin(y);
        begin_products();
#pragma unroll
        for (int t = 0; t < N; ++t) warpgroup_multiply<T, true>(gradient[0], y[t], matrix.at(t * 16, 0), true);
        end_products();
    }

    // S becomes P. The score is s.
    template <int N> HIPVIT_DEVICE void exponentiate(TileScores<N> &s, u32 start) {
        const float scale_log2 = a.scale * LOG2_E;
        const bool masked = is_masked(start);
#pragma unroll
        for (int t = 0; t < N; ++t) {
            const bool hidden = is_hidden(start + t * 16), partial = masked || mask.is_partial(start + t * 16);
#pragma unroll
            for (int e = 0; e < Fragments::VALUES; ++e)
                s[t].value[e] = multiply_add(s[t].value[e], scale_log2, -softmax_of_element(0, t, e).log2_sum);
            if (hidden || partial) {
#pragma unroll
                for (int e = 0; e < Fragments::VALUES; ++e) {
                    const auto at = Fragments::of_lane(e);
                    const u32 of_tile = start + t * 16 + at.i, of_block = row_at(0, at.j);
                    const bool seen = !hidden && sees(HOLDS_KEYS ? of_tile : of_block, HOLDS_KEYS ? of_block : of_tile);
                    s[t].value[e] = seen ? s[t].value[e] : -infinity();
                }
            }
#pragma unroll
            for (int e = 0; e < Fragments::VALUES; ++e) s[t].value[e] = fast_exp2(s[t].value[e]);
        }
    }

    // P and dS of the first N · 16 rows of the tile that begins at row `start`. Calls use(P) as soon as P is there; it leaves at most PENDING
    // batches of products running.
    template <int PENDING, int N, class Use>
    HIPVIT_DEVICE void tile_probabilities(TileScores<N> &p, TileScores<N> &d_s, u32 start, const Use &use) {
        pin(p);
        pin(d_s);
        begin_products();
        start_scores<N>(p, a_fragment, lds_a());
        start_scores<N>(d_s, b_fragment, lds_b());
        if constexpr (Policy::IDENTITY) {
            wait_products<1>();
            pin(p);
            exponentiate<N>(p, start); // while dP is multiplied
            use(p);
            wait_products<PENDING>();
            pin(d_s);
#pragma unroll
            for (int t = 0; t < N; ++t) {
#pragma unroll
                for (int e = 0; e < Fragments::VALUES; ++e)
                    d_s[t].value[e] = p[t].value[e] * (d_s[t].value[e] - softmax_of_element(0, t, e).delta);
            }
            return;
        }
        wait_products<0>();
        pin(p);
        pin(d_s);
        const bool masked = is_masked(start);
#pragma unroll
        for (int t = 0; t < N; ++t) {
            Scores &s = reinterpret_cast<Scores &>(p[t]), &d_p = reinterpret_cast<Scores &>(d_s[t]);
            if (is_hidden(start + t * 16)) {
                p[t] = d_s[t] = {};
            } else if (mask.is_partial(start + t * 16) || masked) {
                differentiate<true>(s, d_p, start, t);
            } else {
                differentiate<false>(s, d_p, start, t);
            }
        }
        use(p);
    }

    // If the waves share rows, adds up their gradients in the first one.
    HIPVIT_DEVICE void combine(Gradient &gradient) const {
        if (!shares_rows) return;
        constexpr int VALUES = D / 16 * Fragments::VALUES; // of a lane
        static_assert((WAVES - 1) * VALUES * WAVE * int(sizeof(float)) <= LDS_VECS * int(VEC128_BYTES));
        float *const memory = reinterpret_cast<float *>(lds);
        barrier(); // the LDS has been read
        if (wave_index() > 0) {
#pragma unroll
            for (int i = 0; i < VALUES; ++i)
                memory[((wave_index() - 1) * VALUES + i) * WAVE + lane_index()] = gradient[0][i / Fragments::VALUES].value[i % Fragments::VALUES];
        }
        barrier();
        if (wave_index() > 0) return;
#pragma unroll 1
        for (int wave = 0; wave < WAVES - 1; ++wave) {
#pragma unroll
            for (int i = 0; i < VALUES; ++i)
                gradient[0][i / Fragments::VALUES].value[i % Fragments::VALUES] += memory[(wave * VALUES + i) * WAVE + lane_index()];
        }
    }

    HIPVIT_DEVICE void accumulate_a(Gradient &gradient, const Scores &weights, int t) const {
        accumulate(gradient, weights, lds_a(), transposed_a(), t);
    }
    HIPVIT_DEVICE void accumulate_b(Gradient &gradient, const Scores &weights, int t) const {
        accumulate(gradient, weights, lds_b(), transposed_b(), t);
    }

    // Stores factor · gradient through LDS, each wave its own rows.
    HIPVIT_DEVICE void store(const Gradient &gradient, float factor, void *gradients, u64 image_stride, u32 token_stride) const {
        const HeadRows<T> to((T *)gradients, of_image(image_stride), token_stride, a.head_dim);
        T *const wave_rows = lds + wave_index() * 16 * ROW;
        barrier(); // the LDS has been read
        if (!stores()) return;
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
#pragma unroll
            for (int c = 0; c < D / 16; ++c) {
                if constexpr (ASYNC) {
                    Acc scaled = gradient[g][c];
#pragma unroll
                    for (int e = 0; e < Fragments::VALUES; ++e) scaled.value[e] *= factor;
                    const auto packed = Fragments::as_y(scaled);
#pragma unroll
                    for (int w = 0; w < Fragments::VALUES / 2; ++w) {
                        const auto at = Fragments::of_lane(2 * w);
                        *reinterpret_cast<u32 *>(wave_rows + at.j * ROW + c * 16 + at.i) = packed.word[w];
                    }
                } else {
#pragma unroll
                    for (int e = 0; e < Fragments::VALUES; ++e) {
                        const auto at = Fragments::of_lane(e);
                        wave_rows[at.j * ROW + c * 16 + at.i] = from_float<T>(gradient[g][c].value[e] * factor);
                    }
                }
            }
            wave_barrier();
            for (int at = lane_index(); at < 16 * VECS_PER_ROW; at += WAVE) {
                const u32 column = at % VECS_PER_ROW * VEC<T>, index = row_at(g, at / VECS_PER_ROW);
                if (index >= rows || column >= a.head_dim) continue;
                const T *const from = wave_rows + at / VECS_PER_ROW * ROW + column;
                T *const element = to.first + u64(index) * to.stride + column;
                if (to.vector) {
                    *reinterpret_cast<Vec128 *>(element) = Layout::load(from);
                } else {
#pragma unroll
                    for (u32 i = 0; i < VEC<T>; ++i)
                        if (column + i < a.head_dim) element[i] = from[i];
                }
            }
            wave_barrier();
        }
    }
};

} // namespace hipvit
