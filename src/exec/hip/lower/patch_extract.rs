//! The patch embedding: patch extraction, one kernel by the order of the pixels, and a linear layer; or, as
//! [selected](crate::exec::select), the pixels as they lie and a convolution.

use super::{Call, LinearCall, Lowering, one};
use crate::exec::select::PatchEmbeddingShape;
use crate::graph::plan::{Operand, Plan, Step};
use crate::kernels::{KernelCall, PatchExtractArgs};
use crate::ops::{Linear, Op, PatchExtract, PixelLayout};

/// The two steps of a patch embedding of u8 pixels, which together are selected for: the buffer between them is as large for
/// pixels as for patches, and the weight's order is that of both.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::exec) struct PatchEmbeddingCall {
    pub(in crate::exec) extract: PatchExtractArgs,
    pub(in crate::exec) linear: LinearCall,
}

impl PatchEmbeddingCall {
    pub(in crate::exec) fn shape(&self) -> PatchEmbeddingShape {
        let Self { extract, linear } = self;
        PatchEmbeddingShape {
            images: extract.images as usize,
            height: extract.height as usize,
            width: extract.width as usize,
            patch: [extract.patch_height as usize, extract.patch_width as usize],
            n: linear.gemm.n,
            dtype: linear.gemm.inputs,
            bias: linear.bias != 0,
        }
    }
}

/// The steps of the patch embedding that `step` is one of: nothing else has the patches, and nothing but a bias follows.
fn embedding<'a>(plan: &'a Plan, step: &'a Step) -> Option<[&'a Step; 2]> {
    let extract = match (&plan.node(step).op, step.inputs.first()) {
        (Op::PatchExtract(_), _) => step,
        (Op::Linear(_), Some(&Operand::Buffer(patches))) => {
            plan.steps().get(plan.buffer(patches).first_step)?
        }
        _ => return None,
    };
    let Op::PatchExtract(PatchExtract {
        layout: PixelLayout::Hwc,
        ..
    }) = plan.node(extract).op
    else {
        return None;
    };
    let patches = Operand::Buffer(extract.output());
    let mut readers = plan.steps().iter().filter(|step| step.inputs.contains(&patches));
    let (linear, None) = (readers.next()?, readers.next()) else {
        return None;
    };
    let plain = matches!(
        plan.node(linear).op,
        Op::Linear(Linear {
            activation: None,
            residual: false,
            ..
        })
    );
    let is_output = plan.outputs().iter().any(|&(_, _, id)| id == extract.output());
    (plain && linear.inputs.first() == Some(&patches) && !is_output).then_some([extract, linear])
}

impl Lowering<'_> {
    pub(super) fn patch_extract(&self, spec: &PatchExtract) -> Result<Vec<Call>, String> {
        match self.patch_embedding()? {
            Some(call) => one(Call::Patches(call)),
            None => one(self.extraction(spec)?),
        }
    }

    /// The patch embedding that the step is of, if the candidates for such compute it.
    pub(super) fn patch_embedding(&self) -> Result<Option<PatchEmbeddingCall>, String> {
        let Some(steps) = embedding(self.plan, self.step) else {
            return Ok(None);
        };
        let [extract, linear] = steps.map(|step| Lowering::new(self.plan, step, self.addresses));
        let (Op::PatchExtract(patches), Op::Linear(projection)) =
            (&self.plan.node(extract.step).op, &self.plan.node(linear.step).op)
        else {
            return Ok(None);
        };
        Ok(match extract.extraction(patches)? {
            KernelCall::PatchExtract(extract) => Some(PatchEmbeddingCall {
                extract,
                linear: linear.linear_call(projection)?,
            }),
            _ => None,
        })
    }

    fn extraction(&self, spec: &PatchExtract) -> Result<KernelCall, String> {
        if self.operand(0)? != Operand::Input {
            return Err("takes the image that is given, not one that is computed".into());
        }
        let (height, width) = match (spec.layout, self.shape_of(0)?) {
            (PixelLayout::Hwc, &[_, h, w, _]) | (PixelLayout::Chw, &[_, _, h, w]) => (h, w),
            (_, shape) => return Err(format!("takes images, not {shape:?}")),
        };
        PatchExtractArgs::call(
            spec,
            [self.addresses.input, self.out],
            [self.plan.batch(), height, width],
        )
    }
}
