//! `non_max_suppression`: the best boxes that do not overlap.

use hipvit_graph::op::NonMaxSuppression;

use super::bindings::{NMS_BOXES, NMS_THREADS, NonMaxSuppressionArgs};
use super::lower::{Call, Lower, Lowering};
use super::{Access, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent};

// SAFETY: see hip/non_max_suppression.hip. Blocks beyond the last class return, and `plan` limits the boxes to those that LDS has bits for. Rows
// of a class are written by its block only; the second launch has one block.
unsafe impl KernelArguments for NonMaxSuppressionArgs {
    const FILE: &'static str = "non_max_suppression";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        if [self.images, self.classes, self.length, self.most].contains(&0) || self.most > self.length {
            return Err("selects no boxes, or more than there are".into());
        }
        if self.length > NMS_BOXES {
            let reason = format!("has {} boxes, the kernel at most {NMS_BOXES}", self.length);
            return Err(KernelError::Unsupported(reason));
        }
        let pairs = u64::from(self.images).saturating_mul(self.classes.into());
        if pairs.saturating_mul(self.most.into()) > i32::MAX as u64 {
            return Err(KernelError::Unsupported("has more than 2³¹ results".into()));
        }
        match self.launch {
            0 => target.blocks(pairs, NMS_THREADS),
            _ => target.blocks(1, NMS_THREADS),
        }
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let rows = bytes(4, &[self.images, self.classes, self.most, 3]);
        if self.launch == 0 {
            let boxes = bytes(element, &[self.images, self.length, 4]);
            let scores = bytes(element, &[self.images, self.classes, self.length]);
            visit(Access::read("boxes", self.boxes, boxes));
            visit(Access::read("scores", self.scores, scores));
        } else {
            visit(Access::read("rows", self.rows, rows));
            visit(Access::write("count", self.count, bytes(4, &[1])));
        }
        visit(Access::write("rows", self.rows, rows));
    }
}

impl Lower for NonMaxSuppression {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("non_max_suppression"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let &[images, classes, length] = step.shape_of(1)? else {
            return Err("has no scores for each class".into());
        };
        let select = NonMaxSuppressionArgs {
            boxes: step.address(0)?,
            scores: step.address(1)?,
            rows: step.out,
            count: step.result(1)?,
            images: extent(images)?,
            classes: extent(classes)?,
            length: extent(length)?,
            most: extent(self.most)?,
            overlap: self.overlap,
            score: self.score.unwrap_or(0.0),
            limited: self.score.is_some().into(),
            centered: self.centered.into(),
            launch: 0,
            reserved: 0,
        };
        let move_to_front = NonMaxSuppressionArgs { launch: 1, ..select };
        Ok(vec![select.into(), move_to_front.into()])
    }
}
