//! `deformable_attention`: attention to a few sampled points of several maps.

use hipvit_graph::op::{DeformableAttention, PointSampling};

use super::bindings::{DEFORMABLE_LEVELS, DeformableAttentionArgs};
use super::lower::{Call, Lower, Lowering, one};
use super::{Access, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent};

const LEVELS: usize = DEFORMABLE_LEVELS as usize;
const _: () = assert!(LEVELS == DeformableAttention::MAX_LEVELS);

/// Returns an extent of each level.
pub(super) fn of_levels(op: &DeformableAttention, axis: usize) -> Result<[u32; LEVELS], KernelError> {
    let mut extents = [0; LEVELS];
    for (extent_of, level) in extents.iter_mut().zip(&op.levels) {
        *extent_of = extent(level[axis])?;
    }
    Ok(extents)
}

/// Checks that the levels have the pixels that the kernel reads.
pub(super) fn check_levels(
    tokens: u32,
    levels: u32,
    (heights, widths): (&[u32; LEVELS], &[u32; LEVELS]),
) -> Result<(), KernelError> {
    // Pixels are counted by i32.
    const MOST: u32 = 1 << 28;
    let levels = levels as usize;
    let mut extents = heights.iter().take(levels).chain(widths.iter().take(levels));
    if levels > LEVELS || extents.any(|extent| !(1..=MOST).contains(extent)) {
        return Err("samples levels without pixels, or too many".into());
    }
    let sizes = heights.iter().zip(widths).take(levels);
    let pixels: u64 = sizes
        .map(|(&height, &width)| u64::from(height) * u64::from(width))
        .sum();
    if pixels != u64::from(tokens) {
        return Err("samples levels that are not those of the tokens".into());
    }
    Ok(())
}

// SAFETY: see hip/deformable_attention.hip. Threads beyond the last head return. Pixels outside of a level are not read.
unsafe impl KernelArguments for DeformableAttentionArgs {
    const FILE: &'static str = "deformable_attention";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        check_levels(self.tokens, self.levels, (&self.heights, &self.widths))?;
        let rows = u64::from(self.images).saturating_mul(self.queries.into());
        target.elementwise(rows.saturating_mul(self.heads.into()), self.head_dim)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let queries = [self.images, self.queries];
        let of_query = |extents: &[u32]| bytes(element, &[&queries, extents].concat());
        let value = bytes(element, &[self.images, self.tokens, self.heads, self.head_dim]);
        let points = [self.heads, self.levels, self.points];
        visit(Access::read("value", self.value, value));
        visit(Access::read("boxes", self.boxes, of_query(&[4])));
        visit(Access::read(
            "offsets",
            self.offsets,
            of_query(&[&points[..], &[2]].concat()),
        ));
        visit(Access::read("scores", self.scores, of_query(&points)));
        visit(Access::write(
            "out",
            self.out,
            of_query(&[self.heads, self.head_dim]),
        ));
    }
}

impl Lower for DeformableAttention {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("deformable_attention"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let (&[images, tokens, channels], &[_, queries, _]) = (step.shape_of(0)?, step.shape_of(1)?) else {
            return Err("takes tokens and boxes".into());
        };
        one(DeformableAttentionArgs {
            value: step.address(0)?,
            boxes: step.address(1)?,
            offsets: step.address(2)?,
            scores: step.address(3)?,
            out: step.out,
            images: extent(images)?,
            tokens: extent(tokens)?,
            queries: extent(queries)?,
            heads: extent(self.heads)?,
            head_dim: extent(channels / self.heads)?,
            levels: extent(self.levels.len())?,
            points: extent(self.points)?,
            discrete: (self.sampling == PointSampling::Discrete).into(),
            scale: self.scale,
            heights: of_levels(self, 0)?,
            widths: of_levels(self, 1)?,
            reserved: 0,
        })
    }
}
