//! `attention_<D>_float8`: fused attention of queries, keys and values in E4M3, for heads of up to D channels.

use std::borrow::Cow;

use super::attention::{check_not_empty, plan_blocks, visit_operands};
use super::bindings::{
    ATTENTION_FLOAT8_CHANNELS, ATTENTION_FLOAT8_HEAD_STEP, ATTENTION_FLOAT8_LARGEST_HEAD, AttentionFloat8Args,
};
use super::{Access, KernelArguments, Launch, Strided, Target, Unit, extent, float8};
use crate::ops::Attention;

/// The head size of the entry that takes heads of `head_dim` channels.
fn padded(head_dim: usize) -> Option<u32> {
    let head_dim = extent(head_dim).ok()?;
    let whole = head_dim > 0 && head_dim.is_multiple_of(ATTENTION_FLOAT8_CHANNELS);
    (whole && head_dim <= ATTENTION_FLOAT8_LARGEST_HEAD)
        .then(|| head_dim.next_multiple_of(ATTENTION_FLOAT8_HEAD_STEP))
}

/// What has to be compiled for heads of this size.
pub fn unit(head_dim: usize) -> Option<Unit> {
    padded(head_dim).map(|padded| Unit::of("attention_float8").with("HIPVIT_HEAD_DIM", padded))
}

impl AttentionFloat8Args {
    /// For `images` images, whose queries, keys and values are E4M3 numbers times `step`; `k` and `v` have as many tokens, `q` and
    /// `out` too.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub(crate) fn new(
        spec: &Attention,
        images: usize,
        [q, k, v, out]: [Strided; 4],
        step: f32,
    ) -> Result<Self, String> {
        Ok(Self {
            q: q.address,
            k: k.address,
            v: v.address,
            out: out.address,
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
            scale: spec.scale * step * step,
            value_scale: step,
            float8_factor: 0.0,
        })
    }

    /// Writes E4M3 of the result, rounded to the kernels' dtype, / `scale`, a byte an element.
    pub(crate) fn to_float8(self, scale: f32) -> Self {
        Self {
            float8_factor: float8::factor(scale),
            ..self
        }
    }

    fn padded(&self) -> Result<u32, String> {
        padded(self.head_dim as usize).ok_or_else(|| {
            format!(
                "has heads of {} channels; the kernel in FP8 takes multiples of {ATTENTION_FLOAT8_CHANNELS} up to {ATTENTION_FLOAT8_LARGEST_HEAD}",
                self.head_dim
            )
        })
    }

    /// Whether rows begin where the kernel's accesses of 16 bytes, or elements of the result, may.
    fn is_aligned(&self) -> bool {
        let unit = u64::from(ATTENTION_FLOAT8_CHANNELS);
        let strides = [
            (self.q_image, self.q_token),
            (self.k_image, self.k_token),
            (self.v_image, self.v_token),
            (self.out_image, self.out_token),
        ];
        let addresses = [self.q, self.k, self.v, self.out];
        addresses.iter().all(|address| address.is_multiple_of(unit))
            && (strides.iter())
                .all(|&(image, token)| image.is_multiple_of(unit) && u64::from(token).is_multiple_of(unit))
    }
}

// SAFETY: hip/attention_float8.hip, for aligned operands, which `plan` checks; blocks beyond the last query return.
unsafe impl KernelArguments for AttentionFloat8Args {
    const FILE: &'static str = "attention_float8";

    const TILE: Option<&'static str> = Some("block");

    fn unit(&self) -> Result<Unit, String> {
        self.padded()?;
        unit(self.head_dim as usize).ok_or_else(|| "has no fused kernel".into())
    }

    fn entry(&self) -> Result<Cow<'static, str>, String> {
        Ok(format!("attention_{}_float8", self.padded()?).into())
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, String> {
        check_not_empty([self.images, self.heads, self.queries, self.keys])?;
        float8::check(self.float8_factor)?;
        if target.dtype.size() != 2 {
            return Err(format!("writes f16, bf16 and FP8, not {}", target.dtype));
        }
        if [self.scale, self.value_scale]
            .iter()
            .any(|x| !x.is_normal() || *x < 0.0)
        {
            return Err("its operands have no step: that must be a normal positive number".into());
        }
        if !self.is_aligned() {
            return Err(format!(
                "takes rows that begin at multiples of {ATTENTION_FLOAT8_CHANNELS} elements"
            ));
        }
        plan_blocks(
            target,
            [self.images, self.heads, self.queries],
            |queries, waves| queries.is_multiple_of(16 * waves),
        )
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let (queries, keys) = (self.queries, self.keys);
        let operands = [
            (self.q, self.q_image, self.q_token, queries, 1),
            (self.k, self.k_image, self.k_token, keys, 1),
            (self.v, self.v_image, self.v_token, keys, 1),
            (
                self.out,
                self.out_image,
                self.out_token,
                queries,
                float8::element(element, self.float8_factor),
            ),
        ];
        visit_operands(operands, [self.images, self.heads, self.head_dim], visit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::AttentionOperands;

    #[test]
    fn heads_of_multiples_of_16_channels_are_padded() {
        for (head_dim, expected) in [
            (0, None),
            (8, None),
            (16, Some(32)),
            (32, Some(32)),
            (64, Some(64)),
            (72, None),
            (80, Some(96)),
            (128, Some(128)),
            (144, None),
        ] {
            assert_eq!(padded(head_dim), expected, "{head_dim}");
        }
        assert_eq!(unit(80).unwrap().to_string(), "attention_float8_96");
        let spec = |head_dim| Attention {
            heads: 1,
            head_dim,
            scale: 1.0,
            operands: AttentionOperands::PackedQkv,
            ..Attention::default()
        };
        for head_dim in 0..200 {
            let has_kernel = spec(head_dim).is_plain_of_whole_heads();
            assert_eq!(padded(head_dim).is_some(), has_kernel, "{head_dim}");
        }
    }
}
