//! `attention_<D>`: fused attention for heads of up to D channels. Variants:
//!
//! - `attention_<D>_bias` adds a bias to the scores.
//! - `attention_<D>_rope` rotates queries and keys.
//! - `attention_<D>_stats` also writes statistics of the softmax.
//! - `attention_<D>_split` is for few queries.

pub(crate) mod call;
pub(crate) mod lower;

use std::borrow::Cow;

use super::bindings::{
    ATTENTION_SPLIT_BLOCKS, ATTENTION_WAVES_SHIFT, AttentionArgs, AttentionBiasArgs, AttentionRopeArgs,
    AttentionStatisticsArgs, HEAD_DIMS, RopeArgs, UNBOUNDED, VEC128_BYTES, Visibility,
};
use super::{
    Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent, float8,
    optional,
};
use crate::ops::Attention;

/// Queries, keys, values or the result. Each token has its heads side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strided {
    /// Address of the first token's first head.
    pub address: DeviceAddress,
    /// Tokens per image.
    pub tokens: usize,
    /// Stride of images in elements. 0 if all share one image.
    pub image: usize,
    /// Stride of tokens in elements.
    pub token: usize,
}

/// Bias of the scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScoreBias {
    /// Address of the bias of the first attended key, for the first query of the first head.
    pub address: DeviceAddress,
    /// Stride of heads in elements.
    pub head: usize,
    /// Stride of queries in elements.
    pub query: usize,
}

impl AttentionArgs {
    /// Creates the arguments for `images` images. `k` and `v` have the same number of tokens, as have `q` and `out`.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub fn new(
        spec: &Attention,
        images: usize,
        [q, k, v, out]: [Strided; 4],
        visible: Visibility,
    ) -> Result<Self, KernelError> {
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
            float8_factor: 0.0,
            reserved: 0,
        })
    }

    /// Writes the result as E4M3: rounded to the kernels' dtype, divided by `scale`, one byte per element. `out` must then alias no
    /// operand.
    pub(crate) fn to_float8(self, scale: f32) -> Self {
        Self {
            float8_factor: float8::factor(scale),
            ..self
        }
    }

    /// Returns the arguments of the kernel that adds `bias` to the scores.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub fn with_bias(self, bias: ScoreBias) -> Result<AttentionBiasArgs, KernelError> {
        Ok(AttentionBiasArgs {
            attention: self,
            bias: bias.address,
            head: bias.head as u64,
            query: extent(bias.query)?,
            reserved: 0,
        })
    }

    /// Returns the arguments of the kernel that also writes statistics of the softmax, f32 `[images, heads, queries, 3]`, to `statistics`.
    /// Without `out` it only writes these.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub fn with_statistics(
        self,
        bias: Option<ScoreBias>,
        statistics: DeviceAddress,
    ) -> Result<AttentionStatisticsArgs, KernelError> {
        let none = ScoreBias {
            address: DeviceAddress::NULL,
            head: 0,
            query: 0,
        };
        Ok(AttentionStatisticsArgs {
            scores: self.with_bias(bias.unwrap_or(none))?,
            statistics,
        })
    }

    /// Returns the arguments of the kernel that rotates queries and keys as `rope` would in place.
    pub fn with_rope(self, rope: RopeArgs) -> AttentionRopeArgs {
        AttentionRopeArgs {
            attention: self,
            rope,
        }
    }

    /// Returns the arguments of the kernel for few queries. `None` if it does not support them, or is not the faster one on a device of
    /// `compute_units` compute units. It is faster if the blocks of the other kernel would leave most units idle. Rounding depends on the
    /// choice, and so on the batch size.
    pub fn split(self, element: usize, compute_units: u32) -> Option<AttentionSplitArgs> {
        let tiles = u64::from(self.images) * u64::from(self.heads) * u64::from(self.queries.div_ceil(16));
        let few = tiles <= u64::from(ATTENTION_SPLIT_BLOCKS) * u64::from(compute_units);
        (few && self.is_splittable(element)).then_some(AttentionSplitArgs(self))
    }

    /// Returns true if the kernel for few queries supports these arguments: whole heads at aligned addresses, and no mask.
    fn is_splittable(&self, element: usize) -> bool {
        let rows = [
            (self.q, self.q_image, self.q_token),
            (self.k, self.k_image, self.k_token),
            (self.v, self.v_image, self.v_token),
            (self.out, self.out_image, self.out_token),
        ];
        let aligned = |elements: u64| {
            elements
                .wrapping_mul(element as u64)
                .is_multiple_of(VEC128_BYTES.into())
        };
        let Visibility {
            key_mask,
            left,
            right,
            ..
        } = self.visible;
        element == 2
            && HEAD_DIMS.contains(&self.head_dim)
            && self.scale > 0.0
            && key_mask.is_null()
            && (left, right) == (UNBOUNDED, UNBOUNDED)
            && rows.iter().all(|&(address, image, token)| {
                address.is_aligned_to(VEC128_BYTES as usize) && aligned(image) && aligned(token.into())
            })
    }

    fn plan_blocks(
        &self,
        target: &Target,
        accepts: fn(queries: u32, waves: u32) -> bool,
    ) -> Result<Launch, KernelError> {
        check_not_empty([self.images, self.heads, self.queries, self.keys])?;
        float8::check(self.float8_factor)?;
        plan_blocks(target, [self.images, self.heads, self.queries], accepts)
    }

    /// Returns the head size of the entry for these heads.
    fn padded(&self) -> Result<u32, KernelError> {
        padded(self.head_dim as usize).ok_or_else(|| no_fused_kernel(self.head_dim))
    }
}

/// [`AttentionArgs`] of `attention_<D>_split`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(transparent)]
pub struct AttentionSplitArgs(AttentionArgs);

/// Returns the error for heads of a size that no fused kernel takes.
pub(super) fn no_fused_kernel(head_dim: u32) -> KernelError {
    KernelError::HeadSize {
        head_dim: head_dim as usize,
        most: HEAD_DIMS[HEAD_DIMS.len() - 1] as usize,
    }
}

/// Returns the smallest head size with an entry for heads of `head_dim` channels.
pub(super) fn padded(head_dim: usize) -> Option<u32> {
    HEAD_DIMS
        .into_iter()
        .find(|&d| (1..=d as usize).contains(&head_dim))
}

/// Returns true if there is a fused kernel for heads of this size. Otherwise attention is two GEMMs and a softmax.
pub fn is_fused(spec: &Attention) -> bool {
    padded(spec.head_dim).is_some()
}

/// Additional work of a fused kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variant {
    Plain,
    Bias,
    Rope,
    Statistics,
}

/// Returns the unit to compile for heads of this size.
pub(crate) fn unit(head_dim: usize, variant: Variant) -> Option<Unit> {
    let define = match variant {
        Variant::Plain => "HIPVIT_HEAD_DIM",
        Variant::Bias => "HIPVIT_BIAS_HEAD_DIM",
        Variant::Rope => "HIPVIT_ROPE_HEAD_DIM",
        Variant::Statistics => "HIPVIT_STATS_HEAD_DIM",
    };
    padded(head_dim).map(|padded| Unit::of("attention").with(define, padded))
}

/// Describes visible keys: from `left` before a query's position to `right` after it, unbounded for `None`. `diagonal` is the position of
/// query 0 among the keys. `key_mask` u8 `[images, keys]` may be null.
pub fn visibility(
    key_mask: DeviceAddress,
    diagonal: i32,
    left: Option<i32>,
    right: Option<i32>,
) -> Visibility {
    Visibility {
        key_mask,
        diagonal,
        left: left.unwrap_or(UNBOUNDED),
        right: right.unwrap_or(UNBOUNDED),
        reserved: 0,
    }
}

/// Plans a block per group of queries of a head, with as many queries and waves as the code states in `tile`.
fn plan_blocks(
    target: &Target,
    [images, heads, queries]: [u32; 3],
    accepts: fn(queries: u32, waves: u32) -> bool,
) -> Result<Launch, KernelError> {
    let waves = target.tile >> ATTENTION_WAVES_SHIFT;
    let of_block = target.tile & ((1 << ATTENTION_WAVES_SHIFT) - 1);
    // Other values are not from this kernel's code.
    if of_block == 0 || !(1..=16).contains(&waves) || !accepts(of_block, waves) {
        return Err(KernelError::Internal(format!(
            "its code states blocks of {of_block} queries and {waves} waves"
        )));
    }
    let per_head = queries.div_ceil(of_block);
    let blocks = (u64::from(images) * u64::from(heads)).saturating_mul(per_head.into());
    target.blocks(blocks, waves * target.wave_size)
}

/// Returns the bytes from the first element of rows of `row` elements to the end of the last one, for two outer extents and their strides.
pub(super) fn span(strides: [u64; 2], extents: [u32; 2], row: u64, element: usize) -> usize {
    let last = strides
        .iter()
        .zip(extents)
        .map(|(stride, extent)| stride.saturating_mul(u64::from(extent.saturating_sub(1))));
    let elements = last.fold(row, u64::saturating_add);
    usize::try_from(elements)
        .unwrap_or(usize::MAX)
        .saturating_mul(element)
}

/// Visits queries, keys, values and the result. Each has its address, the strides of images and tokens, its number of tokens, and its bytes
/// per element.
fn visit_operands(
    operands: [(DeviceAddress, u64, u32, u32, usize); 4],
    [images, heads, head_dim]: [u32; 3],
    visit: &mut dyn FnMut(Access),
) {
    let heads = u64::from(heads).saturating_mul(head_dim.into());
    for (field, (address, image, token, tokens, element)) in ["q", "k", "v", "out"].into_iter().zip(operands)
    {
        let bytes = span([image, token.into()], [images, tokens], heads, element);
        visit(match field {
            "out" => Access::write(field, address, bytes),
            _ => Access::read(field, address, bytes),
        });
    }
}

pub(super) fn check_not_empty(extents: [u32; 4]) -> Result<(), KernelError> {
    if extents.contains(&0) {
        Err("has no image, head, query or key".into())
    } else {
        Ok(())
    }
}

pub(super) fn visit_key_mask(visible: &Visibility, images: u32, keys: u32, visit: &mut dyn FnMut(Access)) {
    visit(optional(Access::read(
        "key_mask",
        visible.key_mask,
        bytes(1, &[images, keys]),
    )));
}

// SAFETY: see hip/attention.hip. Blocks beyond the last query return.
unsafe impl KernelArguments for AttentionArgs {
    const FILE: &'static str = "attention";

    const TILE: Option<&'static str> = Some("block");

    fn unit(&self) -> Result<Unit, KernelError> {
        self.padded()?;
        unit(self.head_dim as usize, Variant::Plain).ok_or_else(|| no_fused_kernel(self.head_dim))
    }

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        Ok(format!("attention_{}", self.padded()?).into())
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        // 16 queries per wave, or a multiple of 16.
        self.plan_blocks(target, |queries, waves| queries.is_multiple_of(16 * waves))
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let (queries, keys) = (self.queries, self.keys);
        let result = float8::element(element, self.float8_factor);
        let operands = [
            (self.q, self.q_image, self.q_token, queries, element),
            (self.k, self.k_image, self.k_token, keys, element),
            (self.v, self.v_image, self.v_token, keys, element),
            (self.out, self.out_image, self.out_token, queries, result),
        ];
        visit_operands(operands, [self.images, self.heads, self.head_dim], visit);
        visit_key_mask(&self.visible, self.images, keys, visit);
    }
}

// SAFETY: see hip/attention.hip. Blocks beyond the last query return.
unsafe impl KernelArguments for AttentionBiasArgs {
    const FILE: &'static str = "attention";

    const TILE: Option<&'static str> = Some("block");

    fn unit(&self) -> Result<Unit, KernelError> {
        self.attention.padded()?;
        unit(self.attention.head_dim as usize, Variant::Bias)
            .ok_or_else(|| no_fused_kernel(self.attention.head_dim))
    }

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        Ok(format!("attention_{}_bias", self.attention.padded()?).into())
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        self.attention.plan(target)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        self.attention.accesses(element, visit);
        let AttentionArgs {
            heads, queries, keys, ..
        } = self.attention;
        let bytes = span(
            [self.head, self.query.into()],
            [heads, queries],
            keys.into(),
            element,
        );
        visit(Access::read("bias", self.bias, bytes));
    }
}

// SAFETY: see hip/attention.hip. Blocks beyond the last query return, and a null `out` or `bias` is not accessed.
unsafe impl KernelArguments for AttentionStatisticsArgs {
    const FILE: &'static str = "attention";

    const TILE: Option<&'static str> = Some("block");

    fn unit(&self) -> Result<Unit, KernelError> {
        self.scores.attention.padded()?;
        unit(self.scores.attention.head_dim as usize, Variant::Statistics)
            .ok_or_else(|| no_fused_kernel(self.scores.attention.head_dim))
    }

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        Ok(format!("attention_{}_stats", self.scores.attention.padded()?).into())
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        self.scores.plan(target)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let AttentionArgs {
            images,
            heads,
            queries,
            ..
        } = self.scores.attention;
        // `out` may be null. The kernel writes nothing else here.
        let visit_scores =
            &mut |access: Access| visit(if access.written { optional(access) } else { access });
        if self.scores.bias.is_null() {
            self.scores.attention.accesses(element, visit_scores);
        } else {
            self.scores.accesses(element, visit_scores);
        }
        let statistics = bytes(4, &[images, heads, queries, 3]);
        visit(Access::write("statistics", self.statistics, statistics));
    }
}

impl AttentionRopeArgs {
    /// Returns true if the rotation belongs to these queries and keys.
    fn is_consistent(&self) -> bool {
        let Self { attention: a, rope } = self;
        let rotates_queries = rope.heads == 2 * a.heads && a.queries == a.keys;
        (rope.heads == a.heads || rotates_queries)
            && (rope.images, rope.tokens, rope.head_dim) == (a.images, a.keys, a.head_dim)
            && rope.first < rope.tokens
            && rope.head_dim.is_multiple_of(2)
            && rope.table_heads > 0
    }
}

// SAFETY: see hip/attention.hip, for consistent extents, which `plan` checks. Blocks beyond the last query return.
unsafe impl KernelArguments for AttentionRopeArgs {
    const FILE: &'static str = "attention";

    const TILE: Option<&'static str> = Some("block");

    fn unit(&self) -> Result<Unit, KernelError> {
        self.attention.padded()?;
        unit(self.attention.head_dim as usize, Variant::Rope)
            .ok_or_else(|| no_fused_kernel(self.attention.head_dim))
    }

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        Ok(format!("attention_{}_rope", self.attention.padded()?).into())
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        if self.is_consistent() {
            self.attention.plan(target)
        } else {
            Err("rotates other queries and keys than it attends with".into())
        }
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        self.attention.accesses(element, visit);
        let places = self.rope.tokens.saturating_sub(self.rope.first);
        let table = [places, self.rope.table_heads, self.rope.head_dim];
        visit(Access::read("table", self.rope.table, bytes(element, &table)));
    }
}

// SAFETY: see hip/attention.hip, for arguments that `split` allows. Blocks beyond the last query return.
unsafe impl KernelArguments for AttentionSplitArgs {
    const FILE: &'static str = "attention";

    const TILE: Option<&'static str> = Some("block");

    fn unit(&self) -> Result<Unit, KernelError> {
        self.0.unit()
    }

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        Ok(format!("attention_{}_split", self.0.padded()?).into())
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        self.0
            .plan_blocks(target, |queries, _| queries.is_multiple_of(16))
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        self.0.accesses(element, visit);
    }
}
