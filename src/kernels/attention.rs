//! `attention_<D>`: fused attention for heads of up to D channels.

use std::borrow::Cow;

use super::bindings::{ATTENTION_WAVES_SHIFT, AttentionArgs, HEAD_DIMS, UNBOUNDED, Visibility};
use super::{Access, KernelArguments, Launch, Target, Unit, bytes, extent, optional};
use crate::ops::Attention;

/// Queries, keys, values or the result: heads side by side in each token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Strided {
    /// Where the first token's first head begins.
    pub(crate) address: u64,
    /// Tokens of an image.
    pub(crate) tokens: usize,
    /// Elements from one image to the next; 0 if all share one.
    pub(crate) image: usize,
    /// Elements from one token to the next.
    pub(crate) token: usize,
}

impl AttentionArgs {
    /// For `images` images; `k` and `v` have as many tokens, `q` and `out` too.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub(crate) fn new(
        spec: &Attention,
        images: usize,
        [q, k, v, out]: [Strided; 4],
        visible: Visibility,
    ) -> Result<Self, String> {
        Ok(Self {
            q: q.address,
            k: k.address,
            v: v.address,
            out: out.address,
            visible,
            q_image: q.image as u64,
            k_image: k.image as u64,
            v_image: v.image as u64,
            out_image: out.image as u64,
            q_token: extent(q.token)?,
            k_token: extent(k.token)?,
            v_token: extent(v.token)?,
            out_token: extent(out.token)?,
            images: extent(images)?,
            heads: extent(spec.heads)?,
            queries: extent(q.tokens)?,
            keys: extent(k.tokens)?,
            head_dim: extent(spec.head_dim)?,
            scale: spec.scale,
        })
    }

    /// The head size of the entry that takes these heads.
    fn padded(&self) -> Result<u32, String> {
        padded(self.head_dim as usize).ok_or_else(|| {
            format!(
                "has heads of {} channels; the fused kernel takes 1 to {}",
                self.head_dim,
                HEAD_DIMS[HEAD_DIMS.len() - 1]
            )
        })
    }
}

/// The smallest head size with an entry that takes heads of `head_dim` channels.
fn padded(head_dim: usize) -> Option<u32> {
    HEAD_DIMS
        .into_iter()
        .find(|&d| (1..=d as usize).contains(&head_dim))
}

/// Whether there is a fused kernel for heads of this size. Where there is none, attention is two GEMMs and a softmax.
pub(crate) fn is_fused(spec: &Attention) -> bool {
    padded(spec.head_dim).is_some()
}

/// What has to be compiled for heads of `head_dim` channels.
pub(crate) fn unit(head_dim: usize) -> Option<Unit> {
    padded(head_dim).map(|padded| Unit::of("attention").with("HIPVIT_HEAD_DIM", padded))
}

/// Keys from `left` before a query's position to `right` after it, without bound where `None`; `diagonal` is the position
/// of query 0 among the keys. `key_mask` u8 `[images, keys]` may be 0.
pub(crate) fn visibility(key_mask: u64, diagonal: i32, left: Option<i32>, right: Option<i32>) -> Visibility {
    Visibility {
        key_mask,
        diagonal,
        left: left.unwrap_or(UNBOUNDED),
        right: right.unwrap_or(UNBOUNDED),
        reserved: 0,
    }
}

pub(super) fn check_not_empty(extents: [u32; 4]) -> Result<(), String> {
    match extents.contains(&0) {
        true => Err("has no image, head, query or key".into()),
        false => Ok(()),
    }
}

pub(super) fn visit_key_mask(visible: &Visibility, images: u32, keys: u32, visit: &mut dyn FnMut(Access)) {
    visit(optional(Access::read(
        "key_mask",
        visible.key_mask,
        bytes(1, &[images, keys]),
    )));
}

// SAFETY: hip/attention.hip; blocks beyond the last query return.
unsafe impl KernelArguments for AttentionArgs {
    const FILE: &'static str = "attention";

    const TILE: Option<&'static str> = Some("block");

    fn unit(&self) -> Result<Unit, String> {
        self.padded()?;
        unit(self.head_dim as usize).ok_or_else(|| "has no fused kernel".into())
    }

    fn entry(&self) -> Result<Cow<'static, str>, String> {
        Ok(format!("attention_{}", self.padded()?).into())
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, String> {
        check_not_empty([self.images, self.heads, self.queries, self.keys])?;
        let waves = target.tile >> ATTENTION_WAVES_SHIFT;
        let queries = target.tile & ((1 << ATTENTION_WAVES_SHIFT) - 1);
        // 16 queries per wave, or a multiple of it; anything else is not this kernel's code.
        if queries == 0 || !(1..=16).contains(&waves) || !queries.is_multiple_of(16 * waves) {
            return Err(format!(
                "its code states blocks of {queries} queries and {waves} waves"
            ));
        }
        let per_head = self.queries.div_ceil(queries);
        let blocks = (u64::from(self.images) * u64::from(self.heads)).saturating_mul(per_head.into());
        target.blocks(blocks, waves * target.wave_size)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let heads = u64::from(self.heads).saturating_mul(self.head_dim.into());
        // From the first element to the end of the last token's heads.
        let bytes = |image: u64, token: u32, tokens: u32| {
            let images = image.saturating_mul(u64::from(self.images.saturating_sub(1)));
            let tokens = u64::from(token) * u64::from(tokens.saturating_sub(1));
            let elements = images.saturating_add(tokens).saturating_add(heads);
            usize::try_from(elements)
                .unwrap_or(usize::MAX)
                .saturating_mul(element)
        };
        let (queries, keys) = (self.queries, self.keys);
        visit(Access::read(
            "q",
            self.q,
            bytes(self.q_image, self.q_token, queries),
        ));
        visit(Access::read("k", self.k, bytes(self.k_image, self.k_token, keys)));
        visit(Access::read("v", self.v, bytes(self.v_image, self.v_token, keys)));
        visit(Access::write(
            "out",
            self.out,
            bytes(self.out_image, self.out_token, queries),
        ));
        visit_key_mask(&self.visible, self.images, keys, visit);
    }
}
