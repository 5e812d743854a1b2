// add: factor · gamma · x + y: the residual, LayerScale, a scalar factor, or a table shared by all images.
//
// x T [rows, channels], gamma T [channels] or none, y T [y_rows, channels] or none, row r taking y's row r mod y_rows
// → T [rows, channels]; in place if wished.
// Alignment: any; packs of 16 bytes where channels and addresses allow it. Arithmetic: f32.
// Geometry: blocks of 256; a thread takes a pack of a row.
#include "add.h"
#include "pack.hpp"

using namespace hipvit;

template <class T> HIPVIT_DEVICE void add(const AddArgs &a) {
    const MatrixPack<T> pack(u64(block_index()) * ELEMENTWISE_THREADS + thread_index(), a.channels);
    if (pack.row >= a.rows) return;
    const u64 at = pack.row * a.channels + pack.column;
    const T *x = (const T *)a.x + at;
    float value[PACK<T>], other[PACK<T>];
    load_pack(x, pack.valid, aligned(x, 16), value);
#pragma unroll
    for (u32 i = 0; i < PACK<T>; ++i) value[i] *= a.factor;
    if (a.gamma) {
        const T *gamma = (const T *)a.gamma + pack.column;
        load_pack(gamma, pack.valid, aligned(gamma, 16), other);
#pragma unroll
        for (u32 i = 0; i < PACK<T>; ++i) value[i] *= other[i];
    }
    if (a.y) {
        const T *y = (const T *)a.y + pack.row % a.y_rows * a.channels + pack.column;
        load_pack(y, pack.valid, aligned(y, 16), other);
#pragma unroll
        for (u32 i = 0; i < PACK<T>; ++i) value[i] += other[i];
    }
    T *to = (T *)a.out + at;
    store_pack(to, pack.valid, aligned(to, 16), value);
}

HIPVIT_KERNEL(ELEMENTWISE_THREADS) add_f32(AddArgs a) { add<float>(a); }
HIPVIT_KERNEL(ELEMENTWISE_THREADS) add_f16(AddArgs a) { add<f16>(a); }
HIPVIT_KERNEL(ELEMENTWISE_THREADS) add_bf16(AddArgs a) { add<bf16>(a); }
