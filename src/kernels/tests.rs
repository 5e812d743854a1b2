//! Launch plans cover their work within a device's limits, and each entry exists in its source.

use proptest::prelude::*;

use super::bindings::{ATTENTION_WAVES_SHIFT, HEAD_DIMS};
use super::*;
use crate::ops::{
    Attention, AttentionOperands, Levels, PatchExtract, PixelLayout, Pool, Rope, RopePairs, Transpose,
};
use crate::tensor::DType;

const NULL: DeviceAddress = DeviceAddress::NULL;
/// An address of an operand that is there.
const SOME: DeviceAddress = DeviceAddress::from_raw(1);

const DTYPES: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

fn target(wave_size: u32, dtype: DType) -> Target {
    Target {
        dtype,
        wave_size,
        max_blocks: i32::MAX as u32,
        tile: 64,
    }
}

fn targets() -> impl Strategy<Value = Target> {
    let dtype = prop::sample::select(DTYPES.to_vec());
    (prop_oneof![Just(32), Just(64)], dtype).prop_map(|(wave_size, dtype)| target(wave_size, dtype))
}

/// Checks that the launch covers at least `units` with `per_block` per block, without a superfluous block.
fn covers(launch: Launch, units: u64, per_block: u64) {
    let blocks = u64::from(launch.grid[0]);
    assert!(blocks * per_block >= units, "{launch:?} for {units}");
    assert!(
        blocks == 1 || (blocks - 1) * per_block < units,
        "{launch:?} for {units}"
    );
    assert!(launch.block[0] <= 1024);
}

fn attention(images: usize, heads: usize, queries: usize, head_dim: usize) -> AttentionArgs {
    let spec = Attention {
        heads,
        head_dim,
        scale: 1.0,
        operands: AttentionOperands::Separate,
        ..Attention::default()
    };
    let operand = Strided {
        address: NULL,
        tokens: queries,
        image: queries * heads * head_dim,
        token: heads * head_dim,
    };
    AttentionArgs::new(&spec, images, [operand; 4], visibility(NULL, 0, None, None)).unwrap()
}

/// Returns the plan of a patch extraction, by the kernel that it calls.
fn patch_extract(target: &Target, spec: &PatchExtract, images: [usize; 3]) -> Result<Launch, KernelError> {
    match PatchExtractArgs::call(spec, [NULL; 2], images).unwrap() {
        KernelCall::PatchExtract(mut arguments) => arguments.plan(target),
        KernelCall::PatchExtractChw(mut arguments) => arguments.plan(target),
        other => panic!("{other:?}"),
    }
}

proptest! {
    #[test]
    fn vectors_cover_every_element(n in 0usize..5000, d in 1usize..3000, t in targets()) {
        let launch = AddArgs::new([NULL; 2], [n, d], 1.0, NULL, None).unwrap().plan(&t).unwrap();
        covers(launch, n as u64 * (d as u64).div_ceil(t.vec128()), 256);
        let pool = PoolArgs::new([NULL; 2], [n.max(1), 1, d], Pool::Token(0)).unwrap().plan(&t).unwrap();
        let tiled = TransposeArgs::new([NULL; 4], [3, n.max(1), d], Transpose::default()).unwrap().plan(&t).unwrap();
        let columns = 128 / t.dtype.size() as u64;
        covers(tiled, 3 * (n.max(1) as u64).div_ceil(224) * (d as u64).div_ceil(columns), 1);
        covers(pool, n.max(1) as u64 * (d as u64).div_ceil(32 * t.vec128()), 1);
    }

    #[test]
    fn a_row_fits_its_wave_or_takes_a_block(n in 1usize..5000, d in 1usize..9000, t in targets()) {
        let mut arguments = LayerNormArgs::new([SOME; 4], [n, d], 1e-6).unwrap();
        let launch = arguments.plan(&t).unwrap();
        let (suffix, threads, of_wave) = match d {
            ..=1024 if n <= 4096 => ("_few", 64, 1024),
            ..=1024 => ("", 256, 1024),
            _ => ("_wide", 128, 2048),
        };
        let rms = LayerNormArgs::rms([SOME; 3], [n, d], 1e-6).unwrap();
        prop_assert_eq!(rms.entry().unwrap(), format!("rms_norm{suffix}"));
        prop_assert_eq!(arguments.entry().unwrap(), format!("layer_norm{suffix}"));
        prop_assert_eq!(launch.block[0], threads);
        prop_assert_eq!(launch.block[0] % t.wave_size, 0);
        if arguments.whole_block == 1 {
            covers(launch, n as u64, 1);
            prop_assert!(d > of_wave);
        } else {
            covers(launch, n as u64, u64::from(launch.block[0] / t.wave_size));
            prop_assert!(d <= of_wave);
        }
    }

    #[test]
    fn attention_covers_every_query_once(
        (images, heads, queries) in (1usize..40, 1usize..20, 1usize..3000),
        head_dim in 1usize..=128, waves in 1u32..=8, groups in 1u32..=2, t in targets(),
    ) {
        let mut arguments = attention(images, heads, queries, head_dim);
        let of_block = waves * groups * 16;
        let tile = waves << ATTENTION_WAVES_SHIFT | of_block;
        let launch = arguments.plan(&Target { tile, ..t }).unwrap();
        covers(launch, (images * heads * queries.div_ceil(of_block as usize)) as u64, 1);
        prop_assert_eq!(launch.block[0], waves * t.wave_size);
        let entry = arguments.entry().unwrap();
        let padded: u32 = entry.trim_start_matches("attention_").parse().unwrap();
        prop_assert!(padded as usize >= head_dim && HEAD_DIMS.contains(&padded));
    }

    #[test]
    fn patches_are_covered(b in 1usize..9, h in 1usize..99, w in 1usize..99, ph in 1usize..33, pw in 1usize..33,
                           chw: bool, t in targets()) {
        let layout = if chw { PixelLayout::Chw } else { PixelLayout::Hwc };
        let spec = PatchExtract { patch: [ph, pw], layout, normalize: None };
        let plan = patch_extract(&t, &spec, [b, h, w]);
        if ph > h || pw > w {
            prop_assert!(plan.is_err());
        } else {
            let (runs, run) = if chw { (3 * ph, pw) } else { (ph, 3 * pw) };
            let vectors = (b * (h / ph) * (w / pw) * runs) as u64 * (run as u64).div_ceil(t.vec128());
            covers(plan.unwrap(), vectors, 256);
        }
    }
}

#[test]
fn few_queries_are_another_kernels() {
    const ELEMENT: usize = 2;
    // A block takes 16 queries, and two blocks fit on each compute unit.
    let of = |images| attention(images, 12, 197, 64);
    let mut split = of(1).split(ELEMENT, 78).unwrap();
    assert_eq!(split.entry().unwrap(), "attention_64_split");
    assert_eq!(split.unit(), of(1).unit());
    let tile = 8 << ATTENTION_WAVES_SHIFT | 16;
    let launch = split
        .plan(&Target {
            tile,
            ..target(32, DType::BF16)
        })
        .unwrap();
    assert_eq!((launch.grid[0], launch.block[0]), (12 * 13, 256));
    assert!(
        of(1)
            .plan(&Target {
                tile,
                ..target(32, DType::BF16)
            })
            .is_err()
    );
    assert_eq!(of(1).split(ELEMENT, 77), None);
    assert_eq!(of(2).split(ELEMENT, 78), None);
    // Unsupported arguments.
    let all = |change: &dyn Fn(&mut AttentionArgs)| {
        let mut arguments = of(1);
        change(&mut arguments);
        arguments.split(ELEMENT, u32::MAX)
    };
    assert!(all(&|_| ()).is_some());
    assert_eq!(of(1).split(4, u32::MAX), None);
    assert_eq!(attention(1, 12, 197, 63).split(ELEMENT, u32::MAX), None);
    assert_eq!(all(&|a| a.scale = 0.0), None);
    assert_eq!(all(&|a| a.visible.key_mask = DeviceAddress::from_raw(16)), None);
    assert_eq!(all(&|a| a.visible.right = 0), None);
    assert_eq!(all(&|a| a.k = DeviceAddress::from_raw(8)), None);
    assert_eq!(all(&|a| a.v_token += 4), None);
    assert_eq!(all(&|a| a.out_image += 4), None);
}

#[test]
fn attention_rotates_its_own_queries_and_keys() {
    let spec = Rope {
        heads: 12,
        head_dim: 64,
        rotated: 2,
        pairs: RopePairs::Halves,
    };
    let rope = RopeArgs::new(
        [16, 32].map(DeviceAddress::from_raw),
        [1, 197, 3 * 768],
        [196, 768],
        &spec,
    )
    .unwrap();
    let rotating = attention(1, 12, 197, 64).with_rope(rope);
    assert_eq!(rotating.entry().unwrap(), "attention_64_rope");
    let t = Target {
        tile: 8 << ATTENTION_WAVES_SHIFT | 128,
        ..target(32, DType::BF16)
    };
    let plan = |change: &dyn Fn(&mut RopeArgs)| {
        let mut arguments = rotating;
        change(&mut arguments.rope);
        arguments.plan(&t)
    };
    assert_eq!(plan(&|_| ()).unwrap().grid[0], 2 * 12);
    assert!(plan(&|rope| rope.heads = 12).is_ok());
    let others: [&dyn Fn(&mut RopeArgs); 7] = [
        &|rope| rope.heads = 36,
        &|rope| rope.images = 2,
        &|rope| rope.tokens = 198,
        &|rope| rope.head_dim = 62,
        &|rope| rope.first = 197,
        &|rope| rope.table_heads = 0,
        &|rope| (rope.heads, rope.head_dim) = (23, 64),
    ];
    for change in others {
        assert!(plan(change).unwrap_err().to_string().contains("rotates other"));
    }
    // The table's last row is read, and the memory that `rope` would write is not accessed.
    let mut accesses = Vec::new();
    rotating.accesses(2, &mut |access| accesses.push(access));
    let table = accesses.last().unwrap();
    assert_eq!(
        (table.field, table.address, table.bytes),
        ("table", DeviceAddress::from_raw(32), 196 * 768 * 2)
    );
    assert!(
        accesses
            .iter()
            .all(|access| access.address != DeviceAddress::from_raw(16))
    );
}

/// Returns the bytes of each access, by the name of the field.
fn accesses(call: impl Into<KernelCall>, element: usize) -> Vec<(&'static str, usize)> {
    let mut accesses = Vec::new();
    call.into()
        .accesses(element, &mut |access| accesses.push((access.field, access.bytes)));
    accesses
}

#[test]
fn float8_results_are_bytes() {
    let bytes = |call: KernelCall, field| {
        let found = accesses(call, 2).into_iter().find(|(name, _)| *name == field);
        found.map(|(_, bytes)| bytes)
    };
    let norm = LayerNormArgs::new([SOME; 4], [3, 5], 1e-6).unwrap();
    let gate = SwiGluArgs::new([SOME; 3], [3, 5]).unwrap();
    let gated_norm = SwiGluNormArgs::new([SOME; 4], [3, 5], 1e-6).unwrap();
    let biased = BiasActivationArgs::new([SOME; 4], [3, 5], None).unwrap();
    let plain = attention(1, 2, 3, 40);
    let calls: [[KernelCall; 2]; 5] = [
        [norm.into(), norm.to_float8(0.5).into()],
        [gate.into(), gate.to_float8(0.5).into()],
        [gated_norm.into(), gated_norm.to_float8(0.5).into()],
        [biased.into(), biased.to_float8(0.5).into()],
        [plain.into(), plain.to_float8(0.5).into()],
    ];
    for [in_dtype, in_float8] in calls {
        assert_eq!(
            bytes(in_dtype, "out"),
            bytes(in_float8, "out").map(|bytes| 2 * bytes)
        );
        for field in ["x", "q"] {
            assert_eq!(bytes(in_dtype, field), bytes(in_float8, field));
        }
        assert_eq!(in_dtype.entry(), in_float8.entry());
    }
    assert_eq!(norm.to_float8(0.5).float8_factor, 2.0);
    // Invalid scales, and scales without a reciprocal.
    let t = target(64, DType::F16);
    for scale in [0.0, -1.0, f32::NAN, f32::INFINITY, 1e-40, 3e38] {
        assert!(norm.to_float8(scale).plan(&t).is_err(), "{scale}");
        assert!(gate.to_float8(scale).plan(&t).is_err(), "{scale}");
        assert!(gated_norm.to_float8(scale).plan(&t).is_err(), "{scale}");
        assert!(biased.to_float8(scale).plan(&t).is_err(), "{scale}");
        let mut quantize = QuantizeArgs::float8([SOME; 2], [3, 5], scale).unwrap();
        assert!(
            quantize.plan(&t).unwrap_err().to_string().contains("scale"),
            "{scale}"
        );
        let tile = 4 << ATTENTION_WAVES_SHIFT | 64;
        assert!(
            plain.to_float8(scale).plan(&Target { tile, ..t }).is_err(),
            "{scale}"
        );
    }
}

#[test]
fn norms_that_round_rows_are_launched_as_norms() {
    let rows = 5000;
    for wave_size in [32, 64] {
        let t = target(wave_size, DType::BF16);
        for (channels, wide, whole_block) in [
            (768, "", 0),
            (1024, "", 0),
            (1025, "_wide", 0),
            (2049, "_wide", 1),
        ] {
            let extents = [rows, channels];
            let layer = LayerNormArgs::new([SOME, SOME, SOME, NULL], extents, 1e-6).unwrap();
            let rms = LayerNormArgs::rms([SOME, SOME, NULL], extents, 1e-6).unwrap();
            let float8 = QuantizeArgs::float8_rows([NULL, SOME, SOME], extents).unwrap();
            let int8 = QuantizeArgs::int8([NULL, SOME, SOME], extents, Levels::Range).unwrap();
            let entries = [
                (layer, float8, "layer_norm_float8_rows"),
                (layer, int8, "layer_norm_int8"),
                (rms, float8, "rms_norm_float8_rows"),
                (rms, int8, "rms_norm_int8"),
            ];
            for (norm, quantize, entry) in entries {
                let mut arguments = NormQuantizeArgs::new(norm, quantize);
                assert_eq!(arguments.entry().unwrap(), format!("{entry}{wide}"));
                let launch = arguments.plan(&t).unwrap();
                assert_eq!(arguments.norm.whole_block, whole_block);
                let waves = u64::from(launch.block[0] / wave_size);
                covers(launch, rows as u64, if whole_block == 1 { 1 } else { waves });
            }
            let all = rows * channels;
            let expected = [
                ("x", 2 * all),
                ("residual", 0),
                ("weight", 2 * channels),
                ("bias", 2 * channels),
                ("sum", 0),
                ("out", all),
                ("ranges", 8 * rows),
            ];
            assert_eq!(accesses(NormQuantizeArgs::new(layer, int8), 2), expected);
            // The kernel has no other forms.
            let one = QuantizeArgs::float8([NULL, SOME], extents, 0.5).unwrap();
            let shorter = QuantizeArgs::float8_rows([NULL, SOME, SOME], [rows - 1, channels]).unwrap();
            for (norm, quantize) in [
                (layer.of_sum(SOME, NULL), int8),
                (layer.to_float8(0.5), int8),
                (layer, one),
                (layer, shorter),
            ] {
                assert!(NormQuantizeArgs::new(norm, quantize).plan(&t).is_err());
            }
        }
    }
}

#[test]
fn matrices_are_quantised_by_vectors_or_rows() {
    let t = target(64, DType::BF16);
    let mut float8 = QuantizeArgs::float8([SOME; 2], [197, 65], 0.1).unwrap();
    assert_eq!(float8.entry().unwrap(), "quantize_float8");
    covers(float8.plan(&t).unwrap(), 197 * 9, 256);
    assert_eq!(accesses(float8, 2), [("x", 197 * 65 * 2), ("out", 197 * 65)]);
    for (channels, whole_block) in [(2048, 0), (2049, 1)] {
        let mut rows = QuantizeArgs::float8_rows([SOME; 3], [197, channels]).unwrap();
        assert_eq!(rows.entry().unwrap(), "quantize_float8_rows");
        covers(rows.plan(&t).unwrap(), 197, if whole_block == 1 { 1 } else { 4 });
        assert_eq!(rows.whole_block, whole_block);
        let all = 197 * channels;
        assert_eq!(
            accesses(rows, 2),
            [("x", 2 * all), ("out", all), ("ranges", 197 * 4)]
        );
        let mut int8 = QuantizeArgs::int8([SOME; 3], [197, channels], Levels::Range).unwrap();
        assert_eq!(int8.entry().unwrap(), "quantize_int8");
        covers(int8.plan(&t).unwrap(), 197, if whole_block == 1 { 1 } else { 4 });
        assert_eq!(int8.whole_block, whole_block);
        let all = 197 * channels;
        assert_eq!(
            accesses(int8, 2),
            [("x", 2 * all), ("out", all), ("ranges", 197 * 8)]
        );
    }
    let mut dequantize = DequantizeArgs::new([SOME; 4], [NULL, NULL, SOME], [197, 65], None).unwrap();
    assert_eq!(dequantize.entry().unwrap(), "dequantize");
    covers(dequantize.plan(&t).unwrap(), 197 * 9, 256);
    let all = 197 * 65;
    let expected = [
        ("sums", 4 * all),
        ("ranges", 197 * 8),
        ("scales", 4 * 65),
        ("column_sums", 4 * 65),
        ("bias", 0),
        ("residual", 0),
        ("out", 2 * all),
    ];
    assert_eq!(accesses(dequantize, 2), expected);
    let mut float8 = DequantizeArgs::float8([SOME; 3], [NULL, NULL, SOME], [197, 65], None).unwrap();
    assert_eq!(float8.entry().unwrap(), "dequantize_float8");
    covers(float8.plan(&t).unwrap(), 197 * 9, 256);
    let expected = expected.map(|(name, bytes)| match name {
        "ranges" => (name, 197 * 4),
        _ => (name, bytes),
    });
    let expected: Vec<_> = expected
        .into_iter()
        .filter(|(name, _)| *name != "column_sums")
        .collect();
    assert_eq!(accesses(float8, 2), expected);
}

#[test]
fn what_a_device_cannot_do_is_an_error() {
    for head_dim in [0, 129] {
        let error = attention(1, 1, 1, head_dim).entry().unwrap_err().to_string();
        assert!(error.contains("1 to 128"), "{error}");
    }
    let error = attention(1, 1, 0, 32).plan(&target(32, DType::F16));
    let error = error.unwrap_err().to_string();
    assert!(error.contains("has no"), "{error}");
    // 2³² threads are too many, even if 2³¹ blocks are not.
    let rows = |rows| AddArgs::new([NULL; 2], [rows, 8], 1.0, NULL, None).unwrap();
    assert!(rows(u32::MAX as usize).plan(&target(32, DType::F32)).is_err());
    assert!(rows(1 << 30).plan(&target(32, DType::F32)).is_ok());
    assert!(
        AddArgs::new([NULL; 2], [1 << 32, 8], 1.0, NULL, None)
            .unwrap_err()
            .to_string()
            .contains("32 bits")
    );
}

#[test]
fn every_entry_is_in_its_source() {
    for kernel in [
        "accumulate",
        "activation_backward",
        "adamw",
        "add",
        "bias_activation",
        "column_sum",
        "compact_adamw",
        "contrastive_loss",
        "contrastive_loss_backward",
        "cum_sum",
        "deformable_attention",
        "deformable_attention_backward",
        "detection_loss",
        "distillation_loss",
        "distillation_loss_backward",
        "dropout",
        "fake_quantize",
        "gather",
        "gather_backward",
        "gather_elements",
        "gemv",
        "grid_mask",
        "grid_positions",
        "grid_sample",
        "group_norm",
        "int8_gemm",
        "l2_norm",
        "lamb",
        "layer_norm",
        "lion",
        "loss",
        "loss_backward",
        "max_pool_backward",
        "moving_average",
        "mul",
        "norm_backward",
        "norm_quantize",
        "pad",
        "patch_extract",
        "patch_extract_backward",
        "pool",
        "pool_backward",
        "quantize",
        "reduce",
        "relative_bias",
        "relative_bias_backward",
        "rope",
        "round_float8",
        "sample",
        "scale_images",
        "sgd",
        "softmax",
        "sparse_gemm",
        "strided_copy",
        "swiglu",
        "swiglu_backward",
        "token_loss",
        "token_loss_backward",
        "token_scores",
        "tokens",
        "top_k",
        "transpose",
        "wire",
    ] {
        let source = device_code::source(kernel).unwrap();
        assert!(source.contains(kernel), "{kernel}");
    }
    for entry in ["adamw_bf16", "adamw_int8"] {
        assert!(
            device_code::source("compact_adamw").unwrap().contains(entry),
            "{entry}"
        );
    }
    for head_dim in [1, 32, 33, 80, 128] {
        let unit = super::attention::unit(head_dim, super::attention::Variant::Plain).unwrap();
        assert_eq!(attention(1, 1, 1, head_dim).unit(), Ok(unit));
    }
    use super::attention::Variant::{Bias, Plain, Rope};
    assert_eq!(super::attention::unit(129, Plain), None);
    let names = [Plain, Bias, Rope].map(|variant| super::attention::unit(64, variant).unwrap().to_string());
    assert_eq!(names, ["attention_64", "attention_64_bias", "attention_64_rope"]);
}

#[test]
fn blocks_share_the_keys_of_few_rows() {
    let of = |rows: u32| PagedAttentionArgs {
        q: SOME,
        cache: SOME,
        table: SOME,
        lengths: SOME,
        out: SOME,
        parts: SOME,
        arrivals: SOME,
        rows,
        heads: 16,
        kv_heads: 16,
        head_dim: 64,
        places: 1024,
        page: 16,
        pages: 64,
        lanes: 1,
        scale: 1.0,
        columns: 1024,
        splits: 8,
        few: u32::from(rows <= 16),
    };
    // A block per compute unit, and at most as many per head as there is memory for.
    for (rows, units, splits) in [
        (1, 132, 8),
        (2, 132, 4),
        (3, 132, 2),
        (8, 132, 1),
        (64, 132, 1),
        (1, 304, 8),
        (1, 8, 1),
    ] {
        let mut arguments = of(rows).split(units);
        assert_eq!(arguments.splits, splits, "{rows} rows on {units} units");
        let launch = arguments.plan(&target(32, DType::BF16)).unwrap();
        assert_eq!(launch.grid[0], 16 * rows * splits);
        let few = if rows < 64 {
            ("paged_attention_few", 512)
        } else {
            ("paged_attention", 128)
        };
        assert_eq!((&*arguments.entry().unwrap(), launch.block[0]), few);
    }
    // Rounding does not depend on the rows.
    let entries = [1, 64].map(|rows| of(rows).whole().entry().unwrap());
    assert_eq!(entries[0], entries[1]);
    let mut accesses = Vec::new();
    of(1).accesses(2, &mut |access| accesses.push((access.field, access.bytes)));
    assert!(accesses.contains(&("parts", 16 * 8 * 66 * 4)), "{accesses:?}");
    assert!(accesses.contains(&("arrivals", 16 * 4)), "{accesses:?}");
    accesses.clear();
    of(1)
        .whole()
        .accesses(2, &mut |access| accesses.push((access.field, access.bytes)));
    assert_eq!(accesses.len(), 5, "{accesses:?}");
}
