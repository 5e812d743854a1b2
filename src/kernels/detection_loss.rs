//! `detection_loss`: matches queries with targets, and computes the losses and their derivatives.

use hipvit_graph::op::DetectionLoss;

use super::bindings::{DETECTION_LOSS_QUERIES, DETECTION_LOSS_THREADS, DetectionLossArgs};
use super::lower::{Call, Lower, Lowering, one};
use super::{Access, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent};

// SAFETY: see hip/detection_loss.hip. A block takes a layer of an image, and exactly as many blocks are launched. Queries and targets have a
// place in LDS.
unsafe impl KernelArguments for DetectionLossArgs {
    const FILE: &'static str = "detection_loss";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        if self.queries > DETECTION_LOSS_QUERIES || self.targets_per_image > self.queries {
            let (targets, queries) = (self.targets_per_image, self.queries);
            let reason = format!(
                "has {queries} queries and {targets} targets of an image. A GPU matches at most {DETECTION_LOSS_QUERIES} queries, and as many targets"
            );
            return Err(reason.into());
        }
        let layers = u64::from(self.images).saturating_mul(self.layers.into());
        target.blocks(layers, DETECTION_LOSS_THREADS)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let of_queries = |element, extents: &[u32]| {
            let queries = [self.images, self.layers, self.queries];
            bytes(element, &[&queries, extents].concat())
        };
        let (logits, boxes) = (of_queries(element, &[self.classes]), of_queries(element, &[4]));
        let targets = bytes(size_of::<f32>(), &[self.images, self.targets_per_image, 5]);
        visit(Access::read("logits", self.logits, logits));
        visit(Access::read("boxes", self.boxes, boxes));
        visit(Access::read("targets", self.targets, targets));
        let losses = bytes(size_of::<f32>(), &[self.images, self.layers]);
        visit(Access::write("losses", self.losses, losses));
        visit(Access::write("dlogits", self.dlogits, logits));
        visit(Access::write("dboxes", self.dboxes, boxes));
        visit(Access::write(
            "overlaps",
            self.overlaps,
            of_queries(size_of::<f32>(), &[]),
        ));
    }
}

impl Lower for DetectionLoss {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("detection_loss"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let (&[images, rows, classes], &[_, targets, _]) = (step.shape_of(0)?, step.shape_of(2)?) else {
            return Err("takes logits and targets".into());
        };
        one(DetectionLossArgs {
            logits: step.address(0)?,
            boxes: step.address(1)?,
            targets: step.address(2)?,
            losses: step.out,
            dlogits: step.result(1)?,
            dboxes: step.result(2)?,
            overlaps: step.result(3)?,
            images: extent(images)?,
            layers: extent(self.layers)?,
            queries: extent(rows / self.layers)?,
            classes: extent(classes)?,
            targets_per_image: extent(targets)?,
            class_cost: self.costs.class,
            distance_cost: self.costs.distance,
            overlap_cost: self.costs.overlap,
            focal_alpha: self.costs.alpha,
            focal_gamma: self.costs.gamma,
            class_weight: self.weights.classes,
            distance_weight: self.weights.distance,
            overlap_weight: self.weights.overlap,
            alpha: self.alpha,
            gamma: self.gamma,
            reserved: 0,
        })
    }
}
