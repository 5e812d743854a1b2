//! `attention_backward_<D>_kv`, `_q` and `_bias`: the derivative of fused attention, for heads of up to D channels.

pub(crate) mod lower;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use super::attention::{Strided, check_not_empty, no_fused_kernel, padded, span, visit_key_mask};
use super::bindings::{
    ATTENTION_BACKWARD_TILE_SHIFT, ATTENTION_BACKWARD_WAVES_SHIFT, AttentionBackwardBiasArgs,
    AttentionBackwardKvArgs, AttentionBackwardOperands, AttentionBackwardQArgs, Visibility,
};
use super::{
    Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent, optional,
};
use crate::ops::Attention;

const FILE: &str = "attention_backward";

/// Returns the unit to compile for heads of this size.
fn unit(head_dim: usize, has_bias: bool) -> Option<Unit> {
    let define = if has_bias {
        "HIPVIT_BIAS_HEAD_DIM"
    } else {
        "HIPVIT_HEAD_DIM"
    };
    padded(head_dim).map(|padded| Unit::of(FILE).with(define, padded))
}

impl AttentionBackwardOperands {
    /// Creates the operands for `images` images, without a bias. `k` and `v` have the same number of tokens, as have `q` and `dy`. `k` and
    /// `v` include keys before the first attended one.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub fn new(
        spec: &Attention,
        images: usize,
        [q, k, v, dy]: [Strided; 4],
        rows: DeviceAddress,
        visible: Visibility,
    ) -> Result<Self, KernelError> {
        Ok(Self {
            q: q.address,
            k: k.address,
            v: v.address,
            dy: dy.address,
            bias: DeviceAddress::NULL,
            rows,
            visible,
            q_image: q.image as u64,
            k_image: k.image as u64,
            v_image: v.image as u64,
            dy_image: dy.image as u64,
            bias_head: 0,
            bias_query: 0,
            q_token: extent(q.token)?,
            k_token: extent(k.token)?,
            v_token: extent(v.token)?,
            dy_token: extent(dy.token)?,
            images: extent(images)?,
            heads: extent(spec.heads)?,
            queries: extent(q.tokens)?,
            keys: extent(k.tokens)?,
            head_dim: extent(spec.head_dim)?,
            first_key: extent(spec.first_key)?,
            scale: spec.scale,
        })
    }

    fn unit(&self) -> Result<Unit, KernelError> {
        unit(self.head_dim as usize, !self.bias.is_null()).ok_or_else(|| no_fused_kernel(self.head_dim))
    }

    /// Returns the name of the entry that computes `gradients`.
    fn entry(&self, gradients: &str) -> Result<Cow<'static, str>, KernelError> {
        let padded = padded(self.head_dim as usize).ok_or_else(|| no_fused_kernel(self.head_dim))?;
        let bias = if self.bias.is_null() { "" } else { "_bias" };
        Ok(format!("{FILE}_{padded}{gradients}{bias}").into())
    }

    /// Plans as many blocks per head as `blocks` returns for the rows that a block holds, and those of a tile.
    fn plan(
        &self,
        target: &Target,
        images: u32,
        blocks: impl FnOnce(u32, u32) -> u64,
    ) -> Result<Launch, KernelError> {
        check_not_empty([self.images, self.heads, self.queries, self.keys])?;
        let mask = (1 << ATTENTION_BACKWARD_TILE_SHIFT) - 1;
        let rows = target.tile & mask;
        let tile = target.tile >> ATTENTION_BACKWARD_TILE_SHIFT & mask;
        let waves = target.tile >> ATTENTION_BACKWARD_WAVES_SHIFT;
        // Other values are not from this kernel's code.
        let is_valid = |rows: u32| rows > 0 && rows.is_multiple_of(16);
        if !is_valid(rows) || !is_valid(tile) || !(1..=16).contains(&waves) {
            return Err(KernelError::Internal(format!(
                "its code states blocks of {rows} rows, tiles of {tile} and {waves} waves"
            )));
        }
        let heads = u64::from(images) * u64::from(self.heads);
        target.blocks(heads.saturating_mul(blocks(rows, tile)), waves * target.wave_size)
    }

    /// Returns the bytes from the first element of a tensor with these strides to the end of its last token's heads.
    fn span(&self, image: u64, token: u32, tokens: u32, element: usize) -> usize {
        span(
            [image, token.into()],
            [self.images, tokens],
            u64::from(self.heads).saturating_mul(self.head_dim.into()),
            element,
        )
    }

    fn bias_span(&self, element: usize) -> usize {
        let strides = [self.bias_head, self.bias_query.into()];
        span(strides, [self.heads, self.queries], self.keys.into(), element)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let (queries, keys) = (self.queries, self.keys);
        for (field, address, image, token, tokens) in [
            ("q", self.q, self.q_image, self.q_token, queries),
            ("k", self.k, self.k_image, self.k_token, keys),
            ("v", self.v, self.v_image, self.v_token, keys),
            ("dy", self.dy, self.dy_image, self.dy_token, queries),
        ] {
            visit(Access::read(
                field,
                address,
                self.span(image, token, tokens, element),
            ));
        }
        visit(optional(Access::read("bias", self.bias, self.bias_span(element))));
        let rows = bytes(size_of::<f32>(), &[self.images, self.heads, queries, 2]);
        visit(Access::read("rows", self.rows, rows));
        visit_key_mask(&self.visible, self.images, keys, visit);
    }
}

// SAFETY: see hip/attention_backward.hip. Blocks beyond the last key return.
unsafe impl KernelArguments for AttentionBackwardKvArgs {
    const FILE: &'static str = FILE;

    const TILE: Option<&'static str> = Some("block");

    fn unit(&self) -> Result<Unit, KernelError> {
        self.operands.unit()
    }

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        self.operands.entry("_kv")
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        let AttentionBackwardOperands { images, keys, .. } = self.operands;
        self.operands
            .plan(target, images, |rows, _| keys.div_ceil(rows).into())
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let a = &self.operands;
        a.accesses(element, visit);
        let dk = a.span(a.k_image, a.k_token, a.keys, element);
        let dv = a.span(a.v_image, a.v_token, a.keys, element);
        visit(Access::write("dk", self.dk, dk));
        visit(Access::write("dv", self.dv, dv));
    }
}

// SAFETY: see hip/attention_backward.hip. Blocks beyond the last query return, and `dq` is not accessed if there is `partial`.
unsafe impl KernelArguments for AttentionBackwardQArgs {
    const FILE: &'static str = FILE;

    const TILE: Option<&'static str> = Some("block");

    fn unit(&self) -> Result<Unit, KernelError> {
        self.operands.unit()
    }

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        self.operands.entry("_q")
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        let AttentionBackwardOperands { images, queries, .. } = self.operands;
        if self.partial.is_null() && self.operands.q_image == 0 && images > 1 {
            return Err("writes the gradients of the images to the same memory".into());
        }
        self.operands
            .plan(target, images, |rows, _| queries.div_ceil(rows).into())
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let a = &self.operands;
        a.accesses(element, visit);
        if self.partial.is_null() {
            let dq = a.span(a.q_image, a.q_token, a.queries, element);
            visit(Access::write("dq", self.dq, dq));
        } else {
            let partial = bytes(size_of::<f32>(), &[a.images, a.queries, a.heads, a.head_dim]);
            visit(Access::write("partial", self.partial, partial));
        }
    }
}

impl AttentionBackwardBiasArgs {
    /// Returns the number of images that a block adds up. It depends on the shapes alone, as does the order of the sum.
    pub(crate) fn chunk([images, heads, queries, keys]: [usize; 4]) -> usize {
        // Enough for a large GPU.
        const BLOCKS: usize = 2048;
        const FEWEST_IMAGES: usize = 8;
        let tiles = heads * queries.div_ceil(64) * keys.div_ceil(32);
        let most = images.div_ceil(FEWEST_IMAGES).max(1);
        let chunks = (BLOCKS / tiles.max(1)).clamp(1, most);
        images.div_ceil(chunks).max(1)
    }

    fn chunks(&self) -> u32 {
        self.operands.images.div_ceil(self.chunk.max(1))
    }
}

// SAFETY: see hip/attention_backward.hip. Blocks beyond the last tile return, and `dbias` is not accessed if there is `partial`.
unsafe impl KernelArguments for AttentionBackwardBiasArgs {
    const FILE: &'static str = FILE;

    const TILE: Option<&'static str> = Some("block");

    fn unit(&self) -> Result<Unit, KernelError> {
        self.operands.unit()
    }

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        if self.operands.bias.is_null() {
            return Err("has no bias".into());
        }
        self.operands.entry("")
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        let AttentionBackwardOperands { queries, keys, .. } = self.operands;
        let chunks = self.chunks();
        if self.partial.is_null() && chunks > 1 {
            return Err("writes the sums of several chunks to the same memory".into());
        }
        self.operands.plan(target, chunks, |rows, tile| {
            u64::from(queries.div_ceil(rows)) * u64::from(keys.div_ceil(tile))
        })
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let a = &self.operands;
        a.accesses(element, visit);
        if self.partial.is_null() {
            visit(Access::write("dbias", self.dbias, a.bias_span(element)));
        } else {
            let partial = bytes(size_of::<f32>(), &[self.chunks(), a.heads, a.queries, a.keys]);
            visit(Access::write("partial", self.partial, partial));
        }
    }
}
