//! Inverse DCT, bit-exact with libjpeg-turbo's default ("islow").
//!
//! The algorithm is the factorisation of Loeffler, Ligtenberg and Moschytz in fixed point, columns first. As in
//! libjpeg-turbo's SIMD code, sums of two coefficients wrap at 16 bits, and the results of the columns saturate at 16
//! bits. If only the first row has non-zero coefficients, the results of the columns wrap too. No encoder's
//! coefficients are that large.

/// The 64 coefficients or samples of a block, row by row.
pub(super) type Block = [i16; 64];

/// Number of fractional bits of the constants.
const CONST_BITS: u32 = 13;
/// Number of fractional bits that the results of the columns keep.
const PASS1_BITS: u32 = 2;
/// Shift of the column pass. The shift of the row pass includes the factor 8 of the two-dimensional transform.
const COLUMNS: u32 = CONST_BITS - PASS1_BITS;
const ROWS: u32 = CONST_BITS + PASS1_BITS + 3;

// Constants in multiples of 2^-13.
const F_0_298: i16 = 2446;
const F_0_390: i16 = 3196;
const F_0_541: i16 = 4433;
const F_0_765: i16 = 6270;
const F_0_899: i16 = 7373;
const F_1_175: i16 = 9633;
const F_1_501: i16 = 12299;
const F_1_847: i16 = 15137;
const F_1_961: i16 = 16069;
const F_2_053: i16 = 16819;
const F_2_562: i16 = 20995;
const F_3_072: i16 = 25172;

/// Factors of the sums of two products: for the pair's first output, then for its second.
const EVEN: [[i16; 2]; 2] = [[F_0_541 + F_0_765, F_0_541], [F_0_541, F_0_541 - F_1_847]];
const SHARED: [[i16; 2]; 2] = [[F_1_175 - F_1_961, F_1_175], [F_1_175, F_1_175 - F_0_390]];
const OUTER: [[i16; 2]; 2] = [[F_0_298 - F_0_899, -F_0_899], [-F_0_899, F_1_501 - F_0_899]];
const INNER: [[i16; 2]; 2] = [
    [(F_2_053 as i32 - F_2_562 as i32) as i16, -F_2_562],
    [-F_2_562, F_3_072 - F_2_562],
];

/// Transforms dequantised coefficients and writes the samples to eight rows of `out`, which are `stride` apart.
#[inline(always)]
pub(super) fn inverse(block: &Block, out: &mut [u8], stride: usize) {
    #[cfg(target_arch = "x86_64")]
    let rows = sse2::inverse(block);
    #[cfg(not(target_arch = "x86_64"))]
    let rows = portable::inverse(block);
    for (out, row) in out.chunks_mut(stride).zip(&rows) {
        if let Some(out) = out.first_chunk_mut() {
            *out = *row;
        }
    }
}

/// Returns true if all coefficients below the first row are 0.
#[inline(always)]
fn has_only_first_row(block: &Block) -> bool {
    block[8..].iter().fold(0, |any, coefficient| any | coefficient) == 0
}

/// Transforms a block like [`inverse`], if only its first coefficient is not 0.
#[inline(always)]
pub(super) fn inverse_dc(dc: i16, out: &mut [u8], stride: usize) {
    let column = i32::from(dc << PASS1_BITS);
    let sample = ((column + 16) >> 5).clamp(-128, 127) + 128;
    for out in out.chunks_mut(stride).take(8) {
        if let Some(out) = out.first_chunk_mut() {
            *out = [sample as u8; 8];
        }
    }
}

/// Implementation with SSE2, which every x86-64 processor supports.
#[cfg(target_arch = "x86_64")]
mod sse2 {
    use safe_arch::{
        add_i16_m128i, add_i32_m128i, bitxor_m128i, m128i, mul_i16_horizontal_add_m128i,
        pack_i16_to_i8_m128i, pack_i32_to_i16_m128i, set_splat_i8_m128i, set_splat_i32_m128i,
        shl_imm_u16_m128i, shr_imm_i32_m128i, sub_i16_m128i, sub_i32_m128i, unpack_high_i8_m128i,
        unpack_high_i16_m128i, unpack_high_i32_m128i, unpack_low_i8_m128i, unpack_low_i16_m128i,
        unpack_low_i32_m128i, zeroed_m128i,
    };

    use super::{
        Block, COLUMNS, CONST_BITS, EVEN, INNER, OUTER, PASS1_BITS, ROWS, SHARED, has_only_first_row,
    };

    /// Eight lanes of 16 bits.
    type Lanes = m128i;
    /// Eight lanes of 32 bits: the lower four, the upper four.
    type Wide = [m128i; 2];

    #[inline(always)]
    pub(super) fn inverse(block: &Block) -> [[u8; 8]; 8] {
        let rows: &[[i16; 8]; 8] = bytemuck::cast_ref(block);
        if has_only_first_row(block) {
            let column = shl_imm_u16_m128i::<{ PASS1_BITS as i32 }>(bytemuck::cast(rows[0]));
            return bytes(pass::<{ ROWS as i32 }>(transpose([column; 8])));
        }
        // Spelled out, here and below, because closures passed to `array::map` are not always inlined.
        let [a, b, c, d, e, f, g, h] = *rows;
        let columns = pass::<{ COLUMNS as i32 }>([
            bytemuck::cast(a),
            bytemuck::cast(b),
            bytemuck::cast(c),
            bytemuck::cast(d),
            bytemuck::cast(e),
            bytemuck::cast(f),
            bytemuck::cast(g),
            bytemuck::cast(h),
        ]);
        bytes(pass::<{ ROWS as i32 }>(transpose(columns)))
    }

    #[inline(always)]
    fn zip(a: Lanes, b: Lanes) -> Wide {
        [unpack_low_i16_m128i(a, b), unpack_high_i16_m128i(a, b)]
    }

    /// Returns `pair[0] × factors[0] + pair[1] × factors[1]` for each pair in the lanes.
    #[inline(always)]
    fn products([low, high]: Wide, factors: [i16; 2]) -> Wide {
        let factors = set_splat_i32_m128i(bytemuck::cast(factors));
        [
            mul_i16_horizontal_add_m128i(low, factors),
            mul_i16_horizontal_add_m128i(high, factors),
        ]
    }

    #[inline(always)]
    fn add(a: Wide, b: Wide) -> Wide {
        [add_i32_m128i(a[0], b[0]), add_i32_m128i(a[1], b[1])]
    }

    #[inline(always)]
    fn subtract(a: Wide, b: Wide) -> Wide {
        [sub_i32_m128i(a[0], b[0]), sub_i32_m128i(a[1], b[1])]
    }

    /// Widens to 32 bits and multiplies by 2^13.
    #[inline(always)]
    fn widen(a: Lanes) -> Wide {
        let [low, high] = zip(zeroed_m128i(), a);
        const DOWN: i32 = 16 - CONST_BITS as i32;
        [shr_imm_i32_m128i::<DOWN>(low), shr_imm_i32_m128i::<DOWN>(high)]
    }

    #[inline(always)]
    fn round<const SHIFT: i32>([low, high]: Wide) -> Lanes {
        let half = set_splat_i32_m128i(1 << (SHIFT - 1));
        pack_i32_to_i16_m128i(
            shr_imm_i32_m128i::<SHIFT>(add_i32_m128i(low, half)),
            shr_imm_i32_m128i::<SHIFT>(add_i32_m128i(high, half)),
        )
    }

    #[inline(always)]
    fn pass<const SHIFT: i32>(x: [Lanes; 8]) -> [Lanes; 8] {
        let sum = widen(add_i16_m128i(x[0], x[4]));
        let difference = widen(sub_i16_m128i(x[0], x[4]));
        let middle = zip(x[2], x[6]);
        let (a, b) = (products(middle, EVEN[0]), products(middle, EVEN[1]));
        let even = [
            add(sum, a),
            add(difference, b),
            subtract(difference, b),
            subtract(sum, a),
        ];

        let ends = zip(add_i16_m128i(x[7], x[3]), add_i16_m128i(x[5], x[1]));
        let (outer, inner) = (zip(x[7], x[1]), zip(x[5], x[3]));
        let (z3, z4) = (products(ends, SHARED[0]), products(ends, SHARED[1]));
        let (o7, o1) = (products(outer, OUTER[0]), products(outer, OUTER[1]));
        let (o5, o3) = (products(inner, INNER[0]), products(inner, INNER[1]));
        let odd = [add(o1, z4), add(o3, z3), add(o5, z4), add(o7, z3)];

        [
            round::<SHIFT>(add(even[0], odd[0])),
            round::<SHIFT>(add(even[1], odd[1])),
            round::<SHIFT>(add(even[2], odd[2])),
            round::<SHIFT>(add(even[3], odd[3])),
            round::<SHIFT>(subtract(even[3], odd[3])),
            round::<SHIFT>(subtract(even[2], odd[2])),
            round::<SHIFT>(subtract(even[1], odd[1])),
            round::<SHIFT>(subtract(even[0], odd[0])),
        ]
    }

    #[inline(always)]
    fn transpose(x: [Lanes; 8]) -> [Lanes; 8] {
        interleave(interleave(interleave(x)))
    }

    /// Interleaves vectors whose indices differ by four.
    #[inline(always)]
    fn interleave(x: [Lanes; 8]) -> [Lanes; 8] {
        let ([a, b], [c, d]) = (zip(x[0], x[4]), zip(x[1], x[5]));
        let ([e, f], [g, h]) = (zip(x[2], x[6]), zip(x[3], x[7]));
        [a, b, c, d, e, f, g, h]
    }

    /// Saturates and transposes: `x` has the columns of the samples, the result their eight rows.
    #[inline(always)]
    fn bytes(x: [Lanes; 8]) -> [[u8; 8]; 8] {
        let middle = set_splat_i8_m128i(-128);
        let a = bitxor_m128i(pack_i16_to_i8_m128i(x[0], x[4]), middle);
        let b = bitxor_m128i(pack_i16_to_i8_m128i(x[1], x[5]), middle);
        let c = bitxor_m128i(pack_i16_to_i8_m128i(x[2], x[6]), middle);
        let d = bitxor_m128i(pack_i16_to_i8_m128i(x[3], x[7]), middle);
        // Even and odd columns; first the lower four, then the upper four.
        let (even, odd) = (
            [unpack_low_i8_m128i(a, c), unpack_high_i8_m128i(a, c)],
            [unpack_low_i8_m128i(b, d), unpack_high_i8_m128i(b, d)],
        );
        let left = [
            unpack_low_i8_m128i(even[0], odd[0]),
            unpack_high_i8_m128i(even[0], odd[0]),
        ];
        let right = [
            unpack_low_i8_m128i(even[1], odd[1]),
            unpack_high_i8_m128i(even[1], odd[1]),
        ];
        bytemuck::cast([
            unpack_low_i32_m128i(left[0], right[0]),
            unpack_high_i32_m128i(left[0], right[0]),
            unpack_low_i32_m128i(left[1], right[1]),
            unpack_high_i32_m128i(left[1], right[1]),
        ])
    }
}

#[cfg(any(test, not(target_arch = "x86_64")))]
mod portable {
    use super::{
        Block, COLUMNS, CONST_BITS, EVEN, INNER, OUTER, PASS1_BITS, ROWS, SHARED, has_only_first_row,
    };

    type Lanes = [i16; 8];
    type Wide = [i32; 8];

    pub(super) fn inverse(block: &Block) -> [[u8; 8]; 8] {
        let rows: &[Lanes; 8] = bytemuck::cast_ref(block);
        let columns = if has_only_first_row(block) {
            [rows[0].map(|value| value << PASS1_BITS); 8]
        } else {
            pass::<COLUMNS>(rows)
        };
        let rows = transpose(&pass::<ROWS>(&transpose(&columns)));
        rows.map(|row| row.map(|sample| (sample.clamp(-128, 127) + 128) as u8))
    }

    fn transpose(rows: &[Lanes; 8]) -> [Lanes; 8] {
        std::array::from_fn(|x| std::array::from_fn(|y| rows[y][x]))
    }

    #[inline(always)]
    fn each(f: impl Fn(usize) -> i32) -> Wide {
        std::array::from_fn(f)
    }

    #[inline(always)]
    fn sum(a: Lanes, b: Lanes) -> Lanes {
        std::array::from_fn(|i| a[i].wrapping_add(b[i]))
    }

    #[inline(always)]
    fn products(a: Lanes, b: Lanes, [f, g]: [i16; 2]) -> Wide {
        each(|i| (i32::from(a[i]) * i32::from(f)).wrapping_add(i32::from(b[i]) * i32::from(g)))
    }

    #[inline(always)]
    fn add(a: Wide, b: Wide) -> Wide {
        each(|i| a[i].wrapping_add(b[i]))
    }

    #[inline(always)]
    fn subtract(a: Wide, b: Wide) -> Wide {
        each(|i| a[i].wrapping_sub(b[i]))
    }

    #[inline(always)]
    fn round<const SHIFT: u32>(a: Wide) -> Lanes {
        a.map(|a| {
            let shifted = a.wrapping_add(1 << (SHIFT - 1)) >> SHIFT;
            shifted.clamp(i16::MIN.into(), i16::MAX.into()) as i16
        })
    }

    fn pass<const SHIFT: u32>(x: &[Lanes; 8]) -> [Lanes; 8] {
        let scaled = |lanes: Lanes| lanes.map(|lane| i32::from(lane) << CONST_BITS);
        let total = scaled(sum(x[0], x[4]));
        let difference = scaled(std::array::from_fn(|i| x[0][i].wrapping_sub(x[4][i])));
        let [a, b] = EVEN.map(|factors| products(x[2], x[6], factors));
        let even = [
            add(total, a),
            add(difference, b),
            subtract(difference, b),
            subtract(total, a),
        ];

        let (first, second) = (sum(x[7], x[3]), sum(x[5], x[1]));
        let [z3, z4] = SHARED.map(|factors| products(first, second, factors));
        let [o7, o1] = OUTER.map(|factors| products(x[7], x[1], factors));
        let [o5, o3] = INNER.map(|factors| products(x[5], x[3], factors));
        let odd = [add(o1, z4), add(o3, z3), add(o5, z4), add(o7, z3)];

        std::array::from_fn(|i| match i {
            0..4 => round::<SHIFT>(add(even[i], odd[i])),
            _ => round::<SHIFT>(subtract(even[7 - i], odd[7 - i])),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn samples(block: &Block) -> [[u8; 8]; 8] {
        let mut out = [[0; 8]; 8];
        inverse(block, out.as_flattened_mut(), 8);
        out
    }

    /// Computes the transform in f64.
    fn exact(block: &Block) -> [[f64; 8]; 8] {
        let basis = |k: usize, x: usize| {
            let scale = if k == 0 { 0.5_f64.sqrt() } else { 1.0 };
            scale / 2.0 * (std::f64::consts::PI * ((2 * x + 1) * k) as f64 / 16.0).cos()
        };
        std::array::from_fn(|y| {
            std::array::from_fn(|x| {
                let terms = (0..64).map(|i| f64::from(block[i]) * basis(i / 8, y) * basis(i % 8, x));
                128.0 + terms.sum::<f64>()
            })
        })
    }

    proptest! {
        #[test]
        fn each_path_gives_the_same_for_any_coefficients(
            block in prop::collection::vec(prop_oneof![4 => Just(0), 3 => -300..300_i16, 1 => any::<i16>()], 64),
            first_row in any::<bool>(),
        ) {
            let mut block: Block = block.try_into().unwrap();
            if first_row {
                block[8..].fill(0);
            }
            prop_assert_eq!(samples(&block), portable::inverse(&block));
        }

        /// Tolerance: an error of at most 2^-3 (PASS1_BITS) in the column results of each of eight terms, and the final
        /// rounding.
        #[test]
        fn it_is_the_inverse_transform(block in prop::collection::vec(-60..60_i16, 64)) {
            let block: Block = block.try_into().unwrap();
            for (row, exact) in samples(&block).iter().zip(exact(&block)) {
                for (&sample, exact) in row.iter().zip(exact) {
                    prop_assert!((f64::from(sample) - exact.clamp(0.0, 255.0)).abs() < 1.0);
                }
            }
        }

        #[test]
        fn a_lone_first_coefficient_needs_no_transform(dc in any::<i16>()) {
            let mut block = [0; 64];
            block[0] = dc;
            let mut out = [[0; 8]; 8];
            inverse_dc(dc, out.as_flattened_mut(), 8);
            prop_assert_eq!(samples(&block), out);
        }
    }
}
