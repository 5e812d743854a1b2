//! `deformable_attention_backward`: gradients of values, boxes, offsets and scores.

use hipvit_graph::op::{DeformableAttentionBackward, PointSampling};

use super::bindings::{DEFORMABLE_BACKWARD_POINTS, DeformableAttentionBackwardArgs};
use super::deformable_attention::{check_levels, of_levels};
use super::lower::{Call, Lower, Lowering, one};
use super::{Access, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent};

// SAFETY: see hip/deformable_attention_backward.hip. A block takes a query, threads beyond the last pixel return. Pixels outside of a level
// are not read.
unsafe impl KernelArguments for DeformableAttentionBackwardArgs {
    const FILE: &'static str = "deformable_attention_backward";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        check_levels(self.tokens, self.levels, (&self.heights, &self.widths))?;
        if u64::from(self.levels) * u64::from(self.points) > DEFORMABLE_BACKWARD_POINTS.into() {
            let most = DEFORMABLE_BACKWARD_POINTS;
            return Err(format!("has a derivative for at most {most} points of a head").into());
        }
        let queries = u64::from(self.images) * u64::from(self.queries);
        let rows = u64::from(self.images).saturating_mul(self.tokens.into());
        let of_pixels = target.elementwise(rows.saturating_mul(self.heads.into()), self.head_dim)?;
        let pixels = u64::from(of_pixels.grid[0]);
        target.blocks(queries + pixels, of_pixels.block[0])
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let of_query = |extents: &[u32]| bytes(element, &[&[self.images, self.queries], extents].concat());
        let value = bytes(element, &[self.images, self.tokens, self.heads, self.head_dim]);
        let boxes = of_query(&[4]);
        let offsets = of_query(&[self.heads, self.levels, self.points, 2]);
        let scores = of_query(&[self.heads, self.levels, self.points]);
        visit(Access::read("value", self.value, value));
        visit(Access::read("boxes", self.boxes, boxes));
        visit(Access::read("offsets", self.offsets, offsets));
        visit(Access::read("scores", self.scores, scores));
        visit(Access::read(
            "dy",
            self.dy,
            of_query(&[self.heads, self.head_dim]),
        ));
        visit(Access::write("dvalue", self.dvalue, value));
        visit(Access::write("dboxes", self.dboxes, boxes));
        visit(Access::write("doffsets", self.doffsets, offsets));
        visit(Access::write("dscores", self.dscores, scores));
    }
}

impl Lower for DeformableAttentionBackward {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("deformable_attention_backward"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let Self(op) = self;
        let (&[images, tokens, channels], &[_, queries, _]) = (step.shape_of(0)?, step.shape_of(1)?) else {
            return Err("takes tokens and boxes".into());
        };
        one(DeformableAttentionBackwardArgs {
            value: step.address(0)?,
            boxes: step.address(1)?,
            offsets: step.address(2)?,
            scores: step.address(3)?,
            dy: step.address(4)?,
            dvalue: step.out,
            dboxes: step.result(1)?,
            doffsets: step.result(2)?,
            dscores: step.result(3)?,
            images: extent(images)?,
            tokens: extent(tokens)?,
            queries: extent(queries)?,
            heads: extent(op.heads)?,
            head_dim: extent(channels / op.heads)?,
            levels: extent(op.levels.len())?,
            points: extent(op.points)?,
            discrete: (op.sampling == PointSampling::Discrete).into(),
            scale: op.scale,
            heights: of_levels(op, 0)?,
            widths: of_levels(op, 1)?,
            reserved: 0,
        })
    }
}
