// What is added to a lane's scores of a tile, loaded during the softmax of the tile before: the addends of a pattern, or rows of a bias. They are
// in the order of Attention::for_each_element with the accumulators of NVIDIA GPUs.
#pragma once
#include "attention/policy.hpp"
#include "vec128.hpp"
#include "wave.hpp"

namespace hipvit {

// Addends that attention_pattern_tiles has stored (pattern.hpp).
template <class T, int VECS> struct StoredAddends {
    Vec<T> vecs[VECS];

    template <class Block> HIPVIT_DEVICE void load(const Block &block, u32 start) {
#pragma unroll
        for (int vec = 0; vec < VECS; ++vec) vecs[vec] = block.addends_at(start, vec);
    }
    HIPVIT_DEVICE Vec<T> vec(int vec) const { return vecs[vec]; }
};

// A lane's biases of one query and the keys of a whole tile: pairs of consecutive keys, 8 apart. In a row that is not aligned to pairs, a
// lane loads the aligned word with its first bias, whose other half is unused, and gets the second one from the next lane.
template <class T, int KEYS> struct BiasPairs {
    static constexpr int WORDS = KEYS / 8;
    u32 words[WORDS];
    u32 last; // the bits of the tile's last bias, if the row is shifted
    bool is_shifted;

    HIPVIT_DEVICE void load(const T *row) {
        is_shifted = !aligned(row, sizeof(u32));
        const u32 *const from = reinterpret_cast<const u32 *>(row + lane_index() % 4 * 2 - is_shifted);
#pragma unroll
        for (int i = 0; i < WORDS; ++i) words[i] = from[i * 4];
        if (is_shifted) last = row[KEYS - 1].bits;
    }
    template <bool MAY_SHIFT> HIPVIT_DEVICE u32 pair(int i) const {
        if (!MAY_SHIFT) return words[i];
        const int lane = lane_index();
        const u32 following = lane % 4 > 0 ? words[i] : i + 1 < WORDS ? words[i + 1] : last; // of the first lane, for the last one
        const u32 next = read_lane(following, (lane & ~3) | ((lane + 1) & 3));
        return is_shifted ? __byte_perm(words[i], next, 0x5432) : words[i];
    }
};

template <class T, int KEYS, int ROWS> struct BiasAddends {
    BiasPairs<T, KEYS> rows[ROWS];
    bool may_shift;

    // Whole tiles only.
    template <class Block> HIPVIT_DEVICE void load(const Block &block, u32 start) {
        if (start + KEYS > block.a.keys) return;
        const T *first[ROWS];
        block.bias_rows(first);
        may_shift = block.policy.query_stride % 2 != 0 || !aligned(block.policy.rows, sizeof(u32));
#pragma unroll
        for (int row = 0; row < ROWS; ++row) rows[row].load(first[row] + start);
    }
    template <bool MAY_SHIFT> HIPVIT_DEVICE Vec<T> vec(int vec) const {
        Vec<T> pairs;
#pragma unroll
        for (int w = 0; w < 4; ++w) {
            const int pair = vec * 4 + w, group = pair / (KEYS / 4), of_group = pair % (KEYS / 4);
            pairs.whole.word[w] = rows[group * 2 + of_group % 2].template pair<MAY_SHIFT>(of_group / 2);
        }
        return pairs;
    }
};

struct NoAddends {};

template <class Policy> HIPVIT_DEVICE constexpr bool loads_addends() { return Policy::HAS_BIAS && !Policy::SCORES && !Policy::STATISTICS; }

// An object of the type for a policy, for tiles of KEYS keys of which a lane has scores of ROWS queries.
template <class T, class Policy, int KEYS, int ROWS> HIPVIT_DEVICE auto addends_of() {
    if constexpr (Policy::ADDS) {
        return StoredAddends<T, KEYS / 4 * ROWS / VEC<T>>();
    } else if constexpr (loads_addends<Policy>()) {
        return BiasAddends<T, KEYS, ROWS>();
    } else {
        return NoAddends();
    }
}

} // namespace hipvit
