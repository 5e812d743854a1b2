//! Patch extraction: one kernel, by the order of the pixels.

use super::{Call, Lowering, one};
use crate::graph::plan::Operand;
use crate::kernels::PatchExtractArgs;
use crate::ops::{PatchExtract, PixelLayout};

impl Lowering<'_> {
    pub(super) fn patch_extract(&self, spec: &PatchExtract) -> Result<Vec<Call>, String> {
        if self.operand(0)? != Operand::Input {
            return Err("takes the image that is given, not one that is computed".into());
        }
        let (height, width) = match (spec.layout, self.shape_of(0)?) {
            (PixelLayout::Hwc, &[_, h, w, _]) | (PixelLayout::Chw, &[_, _, h, w]) => (h, w),
            (_, shape) => return Err(format!("takes images, not {shape:?}")),
        };
        one(PatchExtractArgs::call(
            spec,
            [self.addresses.input, self.out],
            [self.plan.batch(), height, width],
        )?)
    }
}
