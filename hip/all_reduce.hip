// all_reduce: out = sum of all ranks' x + bias + residual, directly over memory that 2 to 4 GPUs share.
//
// One shot: each rank writes its part to every other rank, waits for theirs, and sums all in the order of the ranks, so that all
// ranks get the same bits. Block b waits for block b of the other ranks alone. What a block gives and takes lies in a place of its
// own, and in one of two in turn: a rank that is at sum e + 2 has seen the others' flags of e + 1, which they set after they had
// done with e. The number of the sum is counted in device memory, by block, so that replays of a captured graph go on counting.
//
// A rank that does not come within the time-out, or the host, ends the waiting: `control.missing` then says which rank is missing,
// outputs are undefined, and every later launch on this memory gives up at once.
//
// Shapes: x, residual (or null), out T [rows, channels]; bias T [channels] or null. All row-major; out may alias x or residual.
// Alignment: any; vec128 access where channels and the addresses allow it.
// Accumulator: f32.
// Geometry: `blocks` blocks of ALL_REDUCE_THREADS, the same on all ranks, all resident at once; a vec128 of a row per thread and
//   round, at most `rounds`.
#include "all_reduce.h"
#include "system_scope.hpp"
#include "vec128.hpp"

using namespace hipvit;

// The flags at the start of a rank's shared memory.
struct Header {
    // Which of its sums a rank's block has come to, by the rank that wrote it here.
    u32 flags[ALL_REDUCE_BLOCKS][ALL_REDUCE_RANKS];
    // How many sums each block has taken part in: the rank's own.
    u32 epochs[ALL_REDUCE_BLOCKS];
    // Not 0: the rank has given up. Its own.
    u32 failed;
};
static_assert(sizeof(Header) <= ALL_REDUCE_HEADER, "the flags have no space");

HIPVIT_DEVICE u32 raw(f32 x) { return bits_of(x); }
HIPVIT_DEVICE u32 raw(f16 x) { return x.bits; }
HIPVIT_DEVICE u32 raw(bf16 x) { return x.bits; }
template <class T> HIPVIT_DEVICE T of_raw(u32 bits) { return {u16(bits)}; }
template <> HIPVIT_DEVICE f32 of_raw<f32>(u32 bits) { return float_of(bits); }

// Elements of T in a word.
template <class T> constexpr u32 PER_WORD = 4 / sizeof(T);

// As load_vec, without conversion. A union of both would take scratch memory.
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

// Where rank `sender` puts this thread's vec128 of round 0 in a rank's memory, for a sum of this parity; the next round's is
// ALL_REDUCE_THREADS further.
HIPVIT_DEVICE Vec128 *parts(const AllReduceArgs &a, void *memory, u32 parity, u32 sender) {
    const u32 place = (parity * a.blocks + block_index()) * a.ranks + sender;
    Vec128 *data = reinterpret_cast<Vec128 *>(static_cast<u8 *>(memory) + ALL_REDUCE_HEADER);
    return data + u64(place) * a.rounds * ALL_REDUCE_THREADS + thread_index();
}

// Waits until rank `peer` has come to sum `epoch`; whether it has.
HIPVIT_DEVICE bool wait_for(const AllReduceArgs &a, u32 peer, u32 epoch) {
    Header *own = static_cast<Header *>(a.own);
    AllReduceControl *control = static_cast<AllReduceControl *>(a.control);
    if (load_flag(&own->failed)) return false;
    const u32 *flag = &own->flags[block_index()][peer];
    u64 begun = 0;
    for (u32 looks = 1;; ++looks) {
        // The peer may be one sum ahead.
        if (int(load_flag(flag) - epoch) >= 0) return true;
        spin_pause();
        if (looks % 256) continue;
        const u64 now = steady_clock();
        if (!begun) begun = now;
        const bool late = now - begun > a.timeout * TICKS_PER_MS;
        if (late || load_flag(&control->abort) || load_flag(&own->failed)) {
            store_flag(&own->failed, 1);
            if (late) store_flag(&control->missing, 1 + peer);
            return false;
        }
    }
}

template <class T> HIPVIT_DEVICE void all_reduce(const AllReduceArgs &a) {
    HIPVIT_LDS static u32 failed;
    const u32 thread = thread_index(), block = block_index();
    const u32 first = block * ALL_REDUCE_THREADS + thread, stride = a.blocks * ALL_REDUCE_THREADS;
    const u32 vecs = a.rows * ((a.channels + VEC<T> - 1) / VEC<T>);
    Header *own = static_cast<Header *>(a.own);
    const u32 epoch = own->epochs[block] + 1, parity = epoch & 1;

    // What this rank adds is kept for the first round, which mostly is the only one.
    Vec128 kept = {{0, 0, 0, 0}}, residual = {{0, 0, 0, 0}};
    for (u32 i = first, round = 0; i < vecs; i += stride, ++round) {
        const MatrixVec<T> vec(i, a.channels);
        const u64 at = vec.row * a.channels + vec.column;
        const Vec128 mine = load_raw((const T *)a.x + at, vec.valid);
#pragma unroll
        for (u32 peer = 0; peer < ALL_REDUCE_RANKS; ++peer)
            if (peer < a.ranks && peer != a.rank)
                parts(a, a.peers[peer], parity, a.rank)[u64(round) * ALL_REDUCE_THREADS] = mine;
        if (round == 0) {
            kept = mine;
            if (a.residual) residual = load_raw((const T *)a.residual + at, vec.valid);
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

    for (u32 i = first, round = 0; i < vecs; i += stride, ++round) {
        const MatrixVec<T> vec(i, a.channels);
        const u64 at = vec.row * a.channels + vec.column;
        if (round > 0) {
            kept = load_raw((const T *)a.x + at, vec.valid);
            if (a.residual) residual = load_raw((const T *)a.residual + at, vec.valid);
        }
        Vec128 part[ALL_REDUCE_RANKS];
#pragma unroll
        for (u32 peer = 0; peer < ALL_REDUCE_RANKS; ++peer) {
            part[peer] = kept;
            if (peer < a.ranks && peer != a.rank)
                part[peer] = parts(a, a.own, parity, peer)[u64(round) * ALL_REDUCE_THREADS];
        }
        float sum[VEC<T>] = {};
#pragma unroll
        for (u32 peer = 0; peer < ALL_REDUCE_RANKS; ++peer)
            if (peer < a.ranks) add_raw<T>(part[peer], sum);
        if (a.bias) add_raw<T>(load_raw((const T *)a.bias + vec.column, vec.valid), sum);
        if (a.residual) add_raw<T>(residual, sum);
        T *to = (T *)a.out + at;
        store_vec(to, vec.valid, aligned(to, 16), sum);
    }
}

#define ENTRY(name, T)                                                                                                 \
    HIPVIT_KERNEL(ALL_REDUCE_THREADS) name##_##T(AllReduceArgs a) { name<T>(a); }
HIPVIT_FOR_DTYPES(ENTRY, all_reduce)
