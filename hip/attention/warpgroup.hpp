// Attention on Hopper: as async.hpp, but the waves of a warpgroup multiply together. The last 16 queries would be mostly zeros then, so all
// waves take the same ones and share out the keys, each with a softmax of its own.
#pragma once
#include "attention/addends.hpp"
#include "attention/async.hpp"
#include "warpgroup_mma.hpp"

namespace hipvit {

template <class T, int D, class Policy> struct WarpgroupAttention : AsyncAttention<T, D, Policy> {
    using Base = AsyncAttention<T, D, Policy>;
    using typename Base::Probabilities, typename Base::Scores, typename Base::Tile;
    using Base::a, Base::GROUPS, Base::KEYS, Base::WAVES, Base::COLUMNS, Base::stage, Base::acc_o, Base::q_fragment, Base::key_end,
        Base::softmax;

    static_assert(WAVES % WARPGROUP_WAVES == 0);
    static constexpr int PARTS = KEYS / 16;
    static constexpr bool LOADS_ADDENDS = loads_addends<Policy>();
    // Floats of a lane that combine() adds up.
    static constexpr int VALUES = D / 16 * Tile::VALUES, FLOATS = VALUES + 2 * COLUMNS;
    static constexpr bool FITS = (WAVES - 1) * FLOATS * WAVE * int(sizeof(float)) <= Base::LDS_VECS * int(VEC128_BYTES);
    static constexpr bool SHARES = GROUPS == 1 && !Policy::STATISTICS && FITS;

    decltype(addends_of<T, Policy, KEYS, COLUMNS>()) addends; // of the tile that is multiplied next

    HIPVIT_DEVICE WarpgroupAttention(const AttentionArgs &a, Vec128 *memory, u32 image, u32 head, u32 first_query, const Policy &policy)
        : Base(a, memory, image, head, first_query, policy) {
        this->shares_queries = SHARES && first_query + 16 >= a.queries;
    }

    HIPVIT_DEVICE bool shares() const { return SHARES && this->shares_queries; }

    HIPVIT_DEVICE void load_addends(u32 start) {
        if (start < key_end) addends.load(*this, start);
    }
    HIPVIT_DEVICE void add_loaded(Scores &acc_s) const {
        if constexpr (Policy::ADDS) {
            this->add_addends(acc_s, KEYS, [&](u32 vec) { return addends.vec(vec); });
        } else if (addends.may_shift) {
            this->add_addends(acc_s, KEYS, [&](u32 vec) { return addends.template vec<true>(vec); });
        } else {
            this->add_addends(acc_s, KEYS, [&](u32 vec) { return addends.template vec<false>(vec); });
        }
    }

    // S of a tile.
    HIPVIT_DEVICE void multiply_keys(Scores &acc_s) const {
        const WarpgroupMatrix<T, D> k(this->stage_at(stage));
        pin(acc_s);
        begin_products();
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
#pragma unroll
            for (int c = 0; c < D / 16; ++c) warpgroup_multiply<T, false>(acc_s[g], q_fragment[g][c], k.at(0, c * 16), c > 0);
        }
        end_products();
        wait_products<0>();
        pin(acc_s);
    }

    // O += Vᵀ·Pᵀ of a tile.
    HIPVIT_DEVICE void multiply_values(Probabilities (&p)[PARTS]) {
        const WarpgroupMatrix<T, D> v(this->stage_at(stage) + Base::V_AT);
        pin(p);
        pin(acc_o);
        begin_products();
#pragma unroll
        for (int t = 0; t < PARTS; ++t) {
#pragma unroll
            for (int g = 0; g < GROUPS; ++g) warpgroup_multiply<T, true>(acc_o[g], p[t][g], v.at(t * 16, 0), true);
        }
        end_products();
        wait_products<0>();
        pin(acc_o);
    }

    // whole: every query sees all keys of the tile.
    HIPVIT_DEVICE void process_tile(u32 start, bool whole) {
        Scores acc_s;
        float subtrahend[COLUMNS];
        const u32 visible = whole ? ~0u : this->visible_scores(start); // arrives during the product
        multiply_keys(acc_s);
        if (!whole) {
            this->mask(acc_s, start, KEYS, [&] { return visible; });
        } else if constexpr (LOADS_ADDENDS) {
            add_loaded(acc_s);
        } else if constexpr (Policy::HAS_BIAS) {
            this->template add_bias<true>(acc_s, start, KEYS);
        }
        if constexpr (LOADS_ADDENDS) load_addends(this->tile_from(start + KEYS));
        this->update_softmax(acc_s, KEYS, subtrahend);
        Probabilities p[PARTS];
#pragma unroll
        for (int t = 0; t < PARTS; ++t) this->probabilities(p[t], acc_s, t, subtrahend);
        multiply_values(p);
    }

    // Multiplies a part of a tile, of 16 keys, by the wave alone.
    HIPVIT_DEVICE void process_part(u32 start, u32 part) {
        Scores acc_s;
        float subtrahend[COLUMNS];
        this->qk(acc_s, 0, [&](int, int c) { return this->load_k()(part, c); });
        this->mask(acc_s, start + part * 16, 16);
        this->update_softmax(acc_s, 16, subtrahend);
        Probabilities p;
        this->probabilities(p, acc_s, 0, subtrahend);
        this->pv(p, part, this->load_v());
    }

    HIPVIT_DEVICE void process_tiles() {
        const bool shares = this->shares();
        const u32 first_wave = wave_index() / WARPGROUP_WAVES * WARPGROUP_WAVES;
        if (!shares && this->first_query + first_wave * 16 >= a.queries) return this->for_each_tile(publish_to_products, [](u32, bool) {});
        if constexpr (LOADS_ADDENDS) load_addends(this->tile_from(this->key_begin));
        this->for_each_tile(publish_to_products, [&](u32 start, bool whole) {
            if (shares || key_end - start <= 16) {
                for (u32 part = shares ? wave_index() : 0; part < PARTS && start + part * 16 < key_end; part += WAVES)
                    process_part(start, part);
            } else {
                process_tile(start, whole || Policy::ADDS); // addends hide keys too
            }
        });
        if (shares) combine();
    }

    // Adds up the waves' results in the first one.
    HIPVIT_DEVICE void combine() {
        float *const memory = reinterpret_cast<float *>(this->lds);
        const auto place = [&](int wave, int i) -> float & { return memory[((wave - 1) * FLOATS + i) * WAVE + lane_index()]; };
        barrier(); // the last tile has been read
        if (wave_index() > 0) {
#pragma unroll
            for (int i = 0; i < VALUES; ++i) place(wave_index(), i) = acc_o[0][i / Tile::VALUES].value[i % Tile::VALUES];
#pragma unroll
            for (int c = 0; c < COLUMNS; ++c) {
                place(wave_index(), VALUES + c) = softmax.row_max[c];
                place(wave_index(), VALUES + COLUMNS + c) = softmax.row_sum[c];
            }
        }
        barrier();
        if (wave_index() > 0) return;
#pragma unroll 1
        for (int wave = 1; wave < WAVES; ++wave) {
            float mine[COLUMNS], other[COLUMNS];
#pragma unroll
            for (int c = 0; c < COLUMNS; ++c) {
                const float of_other = place(wave, VALUES + c), largest = larger(softmax.row_max[c], of_other);
                mine[c] = fast_exp2(softmax.row_max[c] - subtrahend_of_max(largest));
                other[c] = fast_exp2(of_other - subtrahend_of_max(largest));
                softmax.row_max[c] = largest;
                softmax.row_sum[c] = multiply_add(place(wave, VALUES + COLUMNS + c), other[c], softmax.row_sum[c] * mine[c]);
            }
#pragma unroll
            for (int i = 0; i < VALUES; ++i) {
                float &o = acc_o[0][i / Tile::VALUES].value[i % Tile::VALUES];
                const int c = Tile::column(i % Tile::VALUES);
                o = multiply_add(place(wave, i), other[c], o * mine[c]);
            }
        }
    }

    HIPVIT_DEVICE void run() {
        this->load_q();
        process_tiles();
        if (!shares() || wave_index() == 0) this->finish();
    }
};

} // namespace hipvit
