// all_reduce: out = sum of all ranks' x + bias + residual, directly over memory that 2 to 4 GPUs share. all_reduce_norm: also the LayerNorm
// or RMS norm of out's rows, which saves a launch and a pass over out.
//
// One shot: each rank writes its part to every other rank, waits for theirs, and sums all in the order of the ranks, so that all ranks
// get the same bits. Block b waits only for block b of the other ranks. A block exchanges data in a buffer of its own, one of two in
// turn: a rank that is at sum e + 2 has seen the others' flags of e + 1, which they set after they finished e. Each block counts sums in
// device memory, so that replays of a captured graph continue the count.
//
// A time-out of a rank, or the host, ends the waiting. `control.missing` then names the missing rank, outputs are undefined, and every
// later launch on this memory gives up at once.
//
// Shapes: x, residual (or null), out, norm_out T [rows, channels]; bias (or null), norm_weight, norm_bias (or null) T [channels]. All
//   row-major; out and norm_out may alias x or residual, but not each other.
// Alignment: any; vec128 access where channels and the addresses allow it.
// Accumulator: f32. The norm is computed from out as stored: first the mean, then the squares of the centred values. The bits of a row do
//   not depend on its place in the matrix.
// Geometry: at most `blocks` blocks, the same number on all ranks, all resident at once.
//   all_reduce: ALL_REDUCE_THREADS threads. A thread takes one vec128 of a row per round, in at most `rounds` rounds.
//   all_reduce_norm: ALL_REDUCE_NORM_THREADS threads. A block takes as many whole rows per round as fit, each by whole waves. A row
//   therefore has at most as many vec128s as the block has threads.
#include "all_reduce.h"
#include "system_scope.hpp"
#include "vec128.hpp"
#include "wave.hpp"

using namespace hipvit;

// The flags at the start of a rank's shared memory.
struct Header {
    // The number of the sum that a rank's block has reached, by the rank that wrote it here.
    u32 flags[ALL_REDUCE_BLOCKS][ALL_REDUCE_RANKS];
    // The number of sums that each block of this rank has taken part in.
    u32 epochs[ALL_REDUCE_BLOCKS];
    // Not 0: this rank has given up.
    u32 failed;
};
static_assert(sizeof(Header) <= ALL_REDUCE_HEADER, "the flags do not fit");

HIPVIT_DEVICE u32 raw(f32 x) { return bits_of(x); }
HIPVIT_DEVICE u32 raw(f16 x) { return x.bits; }
HIPVIT_DEVICE u32 raw(bf16 x) { return x.bits; }
template <class T> HIPVIT_DEVICE T of_raw(u32 bits) { return {u16(bits)}; }
template <> HIPVIT_DEVICE f32 of_raw<f32>(u32 bits) { return float_of(bits); }

// Elements of T in a word.
template <class T> constexpr u32 PER_WORD = 4 / sizeof(T);

// Loads a vec128 like load_vec, without conversion. A union of words and elements would take scratch memory.
template <class T> HIPVIT_DEVICE Vec128 load_raw(const T *from, u32 valid) {
    if (aligned(from, 16) && valid >= VEC<T>) return *reinterpret_cast<const Vec128 *>(from);
    Vec128 vec = {{0, 0, 0, 0}};
#pragma unroll
    for (u32 i = 0; i < VEC<T>; ++i)
        if (i < valid) vec.word[i / PER_WORD<T>] |= raw(from[i]) << (i % PER_WORD<T> * 16);
    return vec;
}

template <class T> HIPVIT_DEVICE void add_raw(const Vec128 &vec, float (&sum)[VEC<T>]) {
#pragma unroll
    for (u32 i = 0; i < VEC<T>; ++i)
        sum[i] += to_float(of_raw<T>(vec.word[i / PER_WORD<T>] >> (i % PER_WORD<T> * 16)));
}

// A thread's vec128 of the matrix in a round; none if `valid` is 0.
struct Place {
    u64 row;
    u32 column, valid;
};

// Takes the vec128s of the matrix one after the other.
template <class T> struct InOrder {
    static constexpr u32 THREADS = ALL_REDUCE_THREADS;
    u32 channels, vecs, first, stride;

    HIPVIT_DEVICE InOrder(const AllReduceArgs &a)
        : channels(a.channels), vecs(a.rows * ((a.channels + VEC<T> - 1) / VEC<T>)),
          first(block_index() * THREADS + thread_index()), stride(a.blocks * THREADS) {}
    HIPVIT_DEVICE u32 rounds() const {
        const u32 begin = block_index() * THREADS;
        return begin < vecs ? (vecs - begin + stride - 1) / stride : 0;
    }
    HIPVIT_DEVICE Place at(u32 round) const {
        const u32 index = first + round * stride;
        if (index >= vecs) return {0, 0, 0};
        const MatrixVec<T> vec(index, channels);
        return {vec.row, vec.column, vec.valid};
    }
};

// Takes whole rows, each by whole waves.
template <class T> struct InRows {
    static constexpr u32 THREADS = ALL_REDUCE_NORM_THREADS;
    u32 rows, waves, first_wave, of_block, row, stride, column, valid;

    HIPVIT_DEVICE InRows(const AllReduceArgs &a) : rows(a.rows) {
        waves = (a.channels + WAVE * VEC<T> - 1) / (WAVE * VEC<T>);
        of_block = THREADS / WAVE / waves;
        const u32 local = u32(wave_index()) / waves;
        first_wave = local * waves;
        row = block_index() * of_block + local;
        stride = a.blocks * of_block;
        column = (thread_index() - first_wave * WAVE) * VEC<T>;
        const u32 left = column < a.channels ? a.channels - column : 0;
        valid = local < of_block ? (left < VEC<T> ? left : VEC<T>) : 0;
    }
    HIPVIT_DEVICE u32 rounds() const {
        const u32 begin = block_index() * of_block;
        return begin < rows ? (rows - begin + stride - 1) / stride : 0;
    }
    HIPVIT_DEVICE Place at(u32 round) const {
        const u32 index = row + round * stride;
        return {index, column, index < rows ? valid : 0};
    }
    // The sum over the row's threads. All threads of the block call it, with other scratch memory than in the last call.
    HIPVIT_DEVICE float sum(float x, float *scratch) const {
        x = reduce_wave<Sum>(x);
        if (lane_index() == 0) scratch[wave_index()] = x;
        barrier();
        float total = 0.0f;
        // A wave without a row adds up values that nothing reads.
        for (u32 wave = first_wave; wave < first_wave + waves && wave < THREADS / WAVE; ++wave) total += scratch[wave];
        return total;
    }
};

// The address in a rank's memory of this thread's vec128 of round 0 from rank `sender`, for a sum of this parity. That of the next round
// follows at a distance of as many vec128s as the block has threads.
HIPVIT_DEVICE Vec128 *parts(const AllReduceArgs &a, void *memory, u32 parity, u32 sender) {
    const u32 place = (parity * a.blocks + block_index()) * a.ranks + sender;
    Vec128 *data = reinterpret_cast<Vec128 *>(static_cast<u8 *>(memory) + ALL_REDUCE_HEADER);
    return data + u64(place) * a.rounds * ALL_REDUCE_THREADS + thread_index();
}

// Waits until rank `peer` has reached sum `epoch`. Returns false if it gives up.
HIPVIT_DEVICE bool wait_for(const AllReduceArgs &a, u32 peer, u32 epoch) {
    Header *own = static_cast<Header *>(a.own);
    AllReduceControl *control = static_cast<AllReduceControl *>(a.control);
    if (load_flag(&own->failed)) return false;
    const u32 *flag = &own->flags[block_index()][peer];
    u64 begun = 0, asked = 0;
    for (u32 looks = 1;; ++looks) {
        // The peer may be one sum ahead.
        if (int(load_flag(flag) - epoch) >= 0) return true;
        spin_pause();
        if (looks % 256) continue;
        const u64 now = steady_clock();
        if (!begun) begun = asked = now;
        const bool late = now - begun > a.timeout * TICKS_PER_MS;
        bool ended = late || load_flag(&own->failed);
        // Polls host memory rarely: it takes 60 us when all blocks read it at once (H100). The other rank then waits in turn, so that every
        // second sum of a run was delayed.
        if (now - asked > TICKS_PER_MS) {
            asked = now;
            ended = ended || load_flag(&control->abort);
        }
        if (ended) {
            store_flag(&own->failed, 1);
            if (late) store_flag(&control->missing, 1 + peer);
            return false;
        }
    }
}

template <class T, class Places, bool NORM> HIPVIT_DEVICE void reduce(const AllReduceArgs &a) {
    HIPVIT_LDS static u32 failed;
    const u32 thread = thread_index(), block = block_index();
    Header *own = static_cast<Header *>(a.own);
    const u32 epoch = own->epochs[block] + 1, parity = epoch & 1;
    const Places places(a);
    const u32 rounds = places.rounds();

    // This rank's part of the first round, which mostly is the only one, stays in registers.
    Vec128 kept = {{0, 0, 0, 0}}, residual = {{0, 0, 0, 0}}, weight = {{0, 0, 0, 0}}, shift = {{0, 0, 0, 0}};
    for (u32 round = 0; round < rounds; ++round) {
        const Place place = places.at(round);
        if (!place.valid) continue;
        const u64 at = place.row * a.channels + place.column;
        const Vec128 mine = load_raw((const T *)a.x + at, place.valid);
#pragma unroll
        for (u32 peer = 0; peer < ALL_REDUCE_RANKS; ++peer)
            if (peer < a.ranks && peer != a.rank)
                parts(a, a.peers[peer], parity, a.rank)[u64(round) * Places::THREADS] = mine;
        if (round == 0) {
            kept = mine;
            if (a.residual) residual = load_raw((const T *)a.residual + at, place.valid);
            if constexpr (NORM) {
                // A thread's columns are the same in all rounds.
                weight = load_raw((const T *)a.norm_weight + place.column, place.valid);
                if (a.norm_bias) shift = load_raw((const T *)a.norm_bias + place.column, place.valid);
            }
        }
    }
    if (thread == 0) failed = 0;
    publish();
    barrier();
    if (thread < a.ranks && thread != a.rank) {
        void *peer = a.peers[0];
#pragma unroll
        for (u32 other = 1; other < ALL_REDUCE_RANKS; ++other)
            if (thread == other) peer = a.peers[other];
        store_flag(&static_cast<Header *>(peer)->flags[block][a.rank], epoch);
        if (!wait_for(a, thread, epoch)) failed = 1;
    }
    barrier();
    if (failed) return;
    observe();
    if (thread == 0) own->epochs[block] = epoch;

    for (u32 round = 0; round < rounds; ++round) {
        const Place place = places.at(round);
        const u64 at = place.row * a.channels + place.column;
        float sum[VEC<T>] = {};
        if (place.valid) {
            if (round > 0) {
                kept = load_raw((const T *)a.x + at, place.valid);
                if (a.residual) residual = load_raw((const T *)a.residual + at, place.valid);
            }
            Vec128 part[ALL_REDUCE_RANKS];
#pragma unroll
            for (u32 peer = 0; peer < ALL_REDUCE_RANKS; ++peer) {
                part[peer] = kept;
                if (peer < a.ranks && peer != a.rank)
                    part[peer] = parts(a, a.own, parity, peer)[u64(round) * Places::THREADS];
            }
#pragma unroll
            for (u32 peer = 0; peer < ALL_REDUCE_RANKS; ++peer)
                if (peer < a.ranks) add_raw<T>(part[peer], sum);
            if (a.bias) add_raw<T>(load_raw((const T *)a.bias + place.column, place.valid), sum);
            if (a.residual) add_raw<T>(residual, sum);
            T *to = (T *)a.out + at;
            store_vec(to, place.valid, aligned(to, 16), sum);
        }
        if constexpr (NORM) {
            HIPVIT_LDS static float scratch[2][Places::THREADS / WAVE];
            float scale[VEC<T>] = {}, add[VEC<T>] = {}, total = 0.0f, squares = 0.0f;
            add_raw<T>(weight, scale);
            add_raw<T>(shift, add);
#pragma unroll
            for (u32 i = 0; i < VEC<T>; ++i) {
                sum[i] = to_float(from_float<T>(sum[i]));
                total += sum[i];
            }
            const float mean = places.sum(total, scratch[0]) / float(a.channels);
            const float centre = a.norm_bias ? mean : 0.0f;
#pragma unroll
            for (u32 i = 0; i < VEC<T>; ++i) {
                const float centred = sum[i] - centre;
                if (i < place.valid) squares = multiply_add(centred, centred, squares);
            }
            const float variance = places.sum(squares, scratch[1]) / float(a.channels);
            const float inverse = 1.0f / square_root(variance + a.epsilon);
            if (place.valid) {
#pragma unroll
                for (u32 i = 0; i < VEC<T>; ++i) sum[i] = multiply_add((sum[i] - centre) * inverse, scale[i], add[i]);
                T *to = (T *)a.norm_out + at;
                store_vec(to, place.valid, aligned(to, 16), sum);
            }
        }
    }
}

template <class T> HIPVIT_DEVICE void all_reduce(const AllReduceArgs &a) { reduce<T, InOrder<T>, false>(a); }
template <class T> HIPVIT_DEVICE void all_reduce_norm(const AllReduceArgs &a) { reduce<T, InRows<T>, true>(a); }

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(ALL_REDUCE_THREADS) name##_##T(AllReduceArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, all_reduce)
#define NORM_ENTRY(name, T)                                                                                            \
    HIPVIT_KERNEL(ALL_REDUCE_NORM_THREADS) name##_##T(AllReduceArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(NORM_ENTRY, all_reduce_norm)
