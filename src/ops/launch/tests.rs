//! Launch plans cover their work within a device's limits.

use proptest::prelude::*;

use super::{Launch, Properties, attention, device_code, elementwise, image, rows};
use crate::DType;

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
        // There is such an entry.
        let (_, header) = device_code::headers().iter().find(|(name, _)| *name == "attention.h").unwrap();
        let instance = format!("X({padded})");
        prop_assert!(header.contains(&instance));
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
    assert!(elementwise::rows(1 << 30, 32, DType::F16, &device(32)).is_err());
    assert!(elementwise::rows(1 << 30, 16, DType::F16, &device(32)).is_ok());
    assert_eq!(image::resize_vertical(0, 7, &device(32)).unwrap().grid, 1);
    assert_eq!(image::resize_horizontal(3, 100, &device(32)).unwrap().grid, 2);
}

#[test]
fn every_op_has_an_entry_for_every_dtype() {
    let (_, language) = device_code::headers()
        .iter()
        .find(|(name, _)| *name == "device.hpp")
        .unwrap();
    for dtype in DTYPES {
        assert!(language.contains(&format!("ENTRY(name, {dtype})")), "{dtype}");
    }
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
        assert!(
            source.contains(&format!("HIPVIT_FOR_DTYPES(ENTRY, {op})")),
            "{op}"
        );
    }
}
