//! Launch plans cover their work within a device's limits, and the argument structures are those of args.h.

use proptest::prelude::*;

use super::arguments::LAYOUTS;
use super::{Launch, Properties, attention, device_code, elementwise, image, rows};
use crate::DType;
use crate::ops::Activation;

const DTYPES: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

fn device(wave_size: u32) -> Properties {
    Properties {
        wave_size,
        compute_units: 64,
        lds_bytes: 48 << 10,
        max_blocks: i32::MAX as u32,
    }
}

fn devices() -> impl Strategy<Value = Properties> {
    prop_oneof![Just(device(32)), Just(device(64))]
}

fn dtypes() -> impl Strategy<Value = DType> {
    prop::sample::select(DTYPES.to_vec())
}

/// The launch has at least `units` of which a block does `per_block`, and no block too many.
fn covers(launch: Launch, units: u64, per_block: u64) {
    let blocks = u64::from(launch.grid);
    assert!(blocks * per_block >= units, "{launch:?} for {units}");
    assert!(
        blocks == 1 || (blocks - 1) * per_block < units,
        "{launch:?} for {units}"
    );
    assert!(launch.block <= 1024);
}

proptest! {
    #[test]
    fn packs_cover_every_element(n in 0u64..5000, d in 1u64..3000, dtype in dtypes(), p in devices()) {
        let packs = n * d.div_ceil(16 / dtype.size() as u64);
        covers(elementwise::rows(n, d, dtype, &p).unwrap(), packs, 256);
        covers(elementwise::convert(n * d, &p).unwrap(), n * d, 2048);
        let pool = elementwise::pool(n, d, dtype, &p).unwrap();
        covers(pool, n * d.div_ceil(512 / dtype.size() as u64), 1);
    }

    #[test]
    fn a_row_fits_its_threads_registers_or_takes_a_block(n in 1u64..5000, d in 1u64..9000, p in devices()) {
        let (launch, whole_block) = rows::plan(n, d, &p).unwrap();
        prop_assert_eq!(launch.block % p.wave_size, 0);
        if whole_block == 1 {
            covers(launch, n, 1);
        } else {
            covers(launch, n, u64::from(launch.block / p.wave_size));
            prop_assert!(d <= u64::from(32 * p.wave_size));
        }
    }

    #[test]
    fn attention_covers_every_query(
        (images, heads, queries) in (1u64..40, 1u64..20, 1u64..3000),
        head_dim in 1u32..=128, dtype in dtypes(), p in devices(),
    ) {
        let shape = attention::Shape { images, heads, queries, head_dim };
        let (op, launch) = attention::plan(shape, dtype, &p).unwrap();
        covers(launch, images * heads * queries.div_ceil(64), 1);
        prop_assert_eq!(launch.block, 4 * p.wave_size);
        prop_assert!(launch.lds_bytes <= p.lds_bytes);
        let padded: u32 = op.trim_start_matches("attention_").parse().unwrap();
        prop_assert!(padded >= head_dim && attention::HEAD_DIMS.contains(&padded));
        // The entry is in the source.
        let source = device_code::source("attention").unwrap();
        let instance = format!("ATTENTION({padded})");
        prop_assert!(source.contains(&instance));
    }

    #[test]
    fn patches_are_covered(b in 1u64..9, h in 1u64..99, w in 1u64..99, ph in 1u64..33, pw in 1u64..33,
                           chw: bool, dtype in dtypes(), p in devices()) {
        let plan = image::patch_extract(b, [h, w], [ph, pw], chw, dtype, &p);
        if ph > h || pw > w {
            prop_assert!(plan.is_err());
        } else {
            let (runs, run) = if chw { (3 * ph, pw) } else { (ph, 3 * pw) };
            let packs = b * (h / ph) * (w / pw) * runs * run.div_ceil(16 / dtype.size() as u64);
            covers(plan.unwrap(), packs, 256);
        }
    }
}

#[test]
fn what_a_device_cannot_do_is_an_error() {
    let shape = attention::Shape {
        images: 1,
        heads: 1,
        queries: 1,
        head_dim: 128,
    };
    let small = Properties {
        lds_bytes: 16 << 10,
        ..device(32)
    };
    assert!(
        attention::plan(shape, DType::F16, &small)
            .unwrap_err()
            .contains("LDS")
    );
    for head_dim in [0, 129] {
        let shape = attention::Shape { head_dim, ..shape };
        assert!(
            attention::plan(shape, DType::F16, &device(32))
                .unwrap_err()
                .contains("1 to 128")
        );
    }
    // 2³² threads are too many even where 2³¹ blocks are not.
    assert!(elementwise::convert(1 << 35, &device(32)).is_err());
    assert!(elementwise::convert(1 << 34, &device(32)).is_ok());
    assert_eq!(image::resize_vertical(0, 7, &device(32)).unwrap().grid, 1);
    assert_eq!(image::resize_horizontal(3, 100, &device(32)).unwrap().grid, 2);
}

/// The compiler of the device code checks the assertions in args.h; that they say what Rust has is checked here.
#[test]
fn argument_structures_are_as_in_c() {
    let headers = device_code::headers();
    let (_, text) = headers.iter().find(|(name, _)| *name == "args.h").unwrap();
    let stated: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with("HIPVIT_SIZE") || line.starts_with("HIPVIT_FIELD"))
        .collect();
    let mut expected = Vec::new();
    for layout in LAYOUTS {
        expected.push(format!("HIPVIT_SIZE({}, {});", layout.name, layout.bytes));
        let mut end = 0;
        for (field, offset, bytes) in layout.fields {
            assert_eq!(*offset, end, "padding before {}.{field}", layout.name);
            end = offset + bytes;
            expected.push(format!("HIPVIT_FIELD({}, {field}, {offset});", layout.name));
        }
        assert_eq!(end, layout.bytes, "padding at the end of {}", layout.name);
    }
    assert_eq!(stated, expected);
}

#[test]
fn activations_have_the_numbers_of_the_device_code() {
    let headers = device_code::headers();
    let (_, text) = headers
        .iter()
        .find(|(name, _)| *name == "activation.hpp")
        .unwrap();
    let names = [
        "NONE",
        "GELU_ERF",
        "GELU_TANH",
        "QUICK_GELU",
        "SILU",
        "RELU",
        "TANH",
    ];
    assert!(text.contains(&format!("enum Activation : u32 {{ {} }};", names.join(", "))));
    let all = [
        None,
        Some(Activation::GeluErf),
        Some(Activation::GeluTanh),
        Some(Activation::QuickGelu),
        Some(Activation::Silu),
        Some(Activation::Relu),
        Some(Activation::Tanh),
    ];
    assert_eq!(all.map(elementwise::activation_code), [0, 1, 2, 3, 4, 5, 6]);
}

#[test]
fn every_op_has_an_entry_for_every_dtype() {
    for op in [
        "patch_extract",
        "patch_extract_chw",
        "tokens",
        "layer_norm",
        "softmax",
        "bias_activation",
        "swiglu",
        "add",
        "pool",
    ] {
        let source = device_code::source(op.trim_end_matches("_chw")).unwrap();
        for dtype in DTYPES {
            assert!(
                source.contains(&format!(" {}(", super::entry(op, dtype))),
                "{op} {dtype}"
            );
        }
    }
}
