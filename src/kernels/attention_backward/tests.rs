use super::*;
use crate::kernels::KernelCall;
use crate::kernels::attention::visibility;
use crate::kernels::bindings::{AttentionBackwardRowsArgs, AttentionBackwardSumArgs};
use crate::tensor::DType;

const SOME: DeviceAddress = DeviceAddress::from_raw(256);
const NULL: DeviceAddress = DeviceAddress::NULL;

/// Returns operands of two images of three heads, with 70 queries and 197 keys.
fn operands(head_dim: usize) -> AttentionBackwardOperands {
    let spec = Attention {
        heads: 3,
        head_dim,
        ..Attention::default()
    };
    let strided = |tokens| Strided {
        address: SOME,
        tokens,
        image: tokens * 3 * head_dim,
        token: 3 * head_dim,
    };
    let rows = [strided(70), strided(197), strided(197), strided(70)];
    AttentionBackwardOperands::new(&spec, 2, rows, SOME, visibility(NULL, 0, None, None)).unwrap()
}

fn biased(head_dim: usize) -> AttentionBackwardOperands {
    AttentionBackwardOperands {
        bias: SOME,
        bias_head: 70 * 197,
        bias_query: 197,
        ..operands(head_dim)
    }
}

fn of_bias(operands: AttentionBackwardOperands, chunk: u32) -> AttentionBackwardBiasArgs {
    AttentionBackwardBiasArgs {
        operands,
        dbias: SOME,
        partial: if chunk < 2 { SOME } else { NULL },
        chunk,
        reserved: 0,
    }
}

fn calls(operands: AttentionBackwardOperands) -> [KernelCall; 3] {
    [
        AttentionBackwardKvArgs {
            operands,
            dk: SOME,
            dv: SOME,
        }
        .into(),
        AttentionBackwardQArgs {
            operands,
            dq: SOME,
            partial: NULL,
        }
        .into(),
        of_bias(operands, 2).into(),
    ]
}

/// Returns a target whose code states blocks of `rows` rows, tiles of `tile` rows and four waves.
fn target(rows: u32, tile: u32) -> Target {
    Target {
        dtype: DType::F16,
        wave_size: 64,
        max_blocks: 1 << 31,
        tile: rows | tile << ATTENTION_BACKWARD_TILE_SHIFT | 4 << ATTENTION_BACKWARD_WAVES_SHIFT,
    }
}

#[test]
fn entries_have_the_padded_head_size_and_the_bias() {
    let names = |operands| calls(operands).map(|call| call.entry().map(String::from));
    let [kv, q, bias] = names(biased(72));
    assert_eq!(kv.unwrap(), "attention_backward_80_kv_bias");
    assert_eq!(q.unwrap(), "attention_backward_80_q_bias");
    assert_eq!(bias.unwrap(), "attention_backward_80_bias");
    let [kv, q, bias] = names(operands(128));
    assert_eq!(kv.unwrap(), "attention_backward_128_kv");
    assert_eq!(q.unwrap(), "attention_backward_128_q");
    assert!(bias.unwrap_err().to_string().contains("has no bias"));
    let [kv, ..] = names(operands(129));
    assert!(kv.unwrap_err().to_string().contains("1 to 128"));
    let units = [operands(72), biased(72)].map(|operands| operands.unit().unwrap().to_string());
    assert_eq!(units, ["attention_backward_80", "attention_backward_80_bias"]);
}

#[test]
fn blocks_cover_the_rows() {
    let target = target(64, 32);
    let operands = biased(64);
    let mut kv = AttentionBackwardKvArgs {
        operands,
        dk: SOME,
        dv: SOME,
    };
    assert_eq!(kv.plan(&target).unwrap(), Launch::new(2 * 3 * 4, 256));
    let mut q = AttentionBackwardQArgs {
        operands,
        dq: SOME,
        partial: NULL,
    };
    assert_eq!(q.plan(&target).unwrap(), Launch::new(2 * 3 * 2, 256));
    let mut bias = of_bias(operands, 2);
    assert_eq!(bias.plan(&target).unwrap(), Launch::new(3 * 2 * 7, 256));
    let mut chunks = of_bias(operands, 1);
    assert_eq!(chunks.plan(&target).unwrap(), Launch::new(2 * 3 * 2 * 7, 256));
    chunks.partial = NULL;
    assert!(
        chunks
            .plan(&target)
            .unwrap_err()
            .to_string()
            .contains("several chunks")
    );
    // Images that share their queries need memory for a gradient each.
    q.operands.q_image = 0;
    assert!(q.plan(&target).unwrap_err().to_string().contains("same memory"));
    q.partial = SOME;
    assert!(q.plan(&target).is_ok());
    kv.operands.keys = 0;
    assert!(kv.plan(&target).unwrap_err().to_string().contains("has no"));
    for tile in [0, 64, 63 | 32 << ATTENTION_BACKWARD_TILE_SHIFT] {
        assert!(bias.plan(&Target { tile, ..target }).is_err(), "{tile}");
    }
    let mut rows = AttentionBackwardRowsArgs::new([SOME; 4], [2, 70, 3, 64], 3).unwrap();
    assert_eq!(rows.plan(&target).unwrap(), Launch::new(14, 256));
    rows.images = u32::MAX;
    assert!(rows.plan(&target).is_err());
    let mut sum = AttentionBackwardSumArgs::new([SOME; 2], [2, 257]).unwrap();
    assert_eq!(sum.plan(&target).unwrap(), Launch::new(2, 256));
}

#[test]
fn accesses_end_with_the_last_row() {
    let bytes = |call: KernelCall| {
        let mut found = Vec::new();
        call.accesses(2, &mut |access| found.push((access.field, access.bytes)));
        found
    };
    let [kv, q, bias] = calls(biased(64));
    let (queries, keys) = (2 * 2 * 70 * 3 * 64, 2 * 2 * 197 * 3 * 64);
    let expected = [
        ("q", queries),
        ("k", keys),
        ("v", keys),
        ("dy", queries),
        ("bias", 2 * 3 * 70 * 197),
        ("rows", 4 * 2 * 3 * 70 * 2),
        ("key_mask", 0),
    ];
    let and = |more: &[(&'static str, usize)]| [&expected, more].concat();
    assert_eq!(bytes(kv), and(&[("dk", keys), ("dv", keys)]));
    assert_eq!(bytes(q), and(&[("dq", queries)]));
    assert_eq!(bytes(bias), and(&[("dbias", 2 * 3 * 70 * 197)]));
    let shared = AttentionBackwardOperands {
        q_image: 0,
        ..biased(64)
    };
    let partial = AttentionBackwardQArgs {
        operands: shared,
        dq: SOME,
        partial: SOME,
    };
    let found = bytes(partial.into());
    assert_eq!(found[0], ("q", queries / 2));
    assert_eq!(found.last(), Some(&("partial", 2 * queries)));
    let chunks = bytes(of_bias(biased(64), 1).into());
    assert_eq!(chunks.last(), Some(&("partial", 4 * 2 * 3 * 70 * 197)));
}

#[test]
fn chunks_of_images_are_a_few_thousand_blocks_at_most() {
    let chunk = AttentionBackwardBiasArgs::chunk;
    assert_eq!(chunk([1, 12, 197, 197]), 1);
    assert_eq!(chunk([8, 12, 197, 197]), 8);
    assert_eq!(chunk([256, 12, 197, 197]), 43);
    // The tiles of one image occupy a GPU.
    assert_eq!(chunk([256, 16, 1024, 1024]), 256);
    assert_eq!(chunk([20, 1, 5, 5]), 7);
}
