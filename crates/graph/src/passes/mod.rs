//! The passes, one per file. Each is a pure function from a graph to an equivalent one; `optimize.rs` lists their order.

pub(super) mod attention_statistics;
pub(super) mod float8;
pub(super) mod fold_constants;
pub(super) mod fold_scales;
pub(super) mod fuse_activations;
pub(super) mod fuse_gates;
pub(super) mod fuse_patches;
pub(super) mod fuse_residuals;
pub(super) mod fuse_tokens;
pub(super) mod infer_shapes;
pub(super) mod pack_qkv;
pub(super) mod pad_hidden;
pub(super) mod pad_tokens;
pub(super) mod prune_tokens;
pub(super) mod round_rows;

/// A number that differs, as a rule, where the code of the passes does: what they made of a graph once is not used any more.
pub const CODE: u64 = fnv_1a(&[
    include_bytes!("attention_statistics.rs") as &[u8],
    include_bytes!("float8.rs"),
    include_bytes!("fold_constants.rs"),
    include_bytes!("fold_scales.rs"),
    include_bytes!("fuse_activations.rs"),
    include_bytes!("fuse_gates.rs"),
    include_bytes!("fuse_patches.rs"),
    include_bytes!("fuse_residuals.rs"),
    include_bytes!("fuse_tokens.rs"),
    include_bytes!("infer_shapes.rs"),
    include_bytes!("pack_qkv.rs"),
    include_bytes!("pad_hidden.rs"),
    include_bytes!("pad_tokens.rs"),
    include_bytes!("prune_tokens.rs"),
    include_bytes!("round_rows.rs"),
    include_bytes!("../optimize.rs"),
    include_bytes!("../rewrite.rs"),
]);

/// FNV-1a over all bytes, <http://www.isthe.com/chongo/tech/comp/fnv/>, since the compiler is to compute it.
const fn fnv_1a(files: &[&[u8]]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325;
    let mut file = 0;
    while file < files.len() {
        let mut at = 0;
        while at < files[file].len() {
            hash = (hash ^ files[file][at] as u64).wrapping_mul(0x100_0000_01b3);
            at += 1;
        }
        file += 1;
    }
    hash
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_hash_is_fnv_1a() {
        assert_eq!(super::fnv_1a(&[b"foo", b"bar"]), 0x8594_4171_f739_67e8);
    }
}
