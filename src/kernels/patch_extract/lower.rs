//! Lowering of patch extraction, alone or with the linear layer after it.

use hipvit_graph::op::{Linear, Op, PatchExtract, PixelLayout};

use super::PatchExtractChwArgs;
use super::call::PatchEmbeddingCall;
use crate::graph::plan::{Operand, Plan, Step};
use crate::hip::DeviceAddress;
use crate::kernels::bindings::PatchExtractArgs;
use crate::kernels::lower::{Call, Lower, Lowering, one};
use crate::kernels::{KernelCall, KernelError, Unit, extent};
use crate::tensor::DType;

impl PatchExtractArgs {
    /// Creates the call for `spec`: from `images` images of `height × width` pixels at `pixels` (u8 HWC or f32 CHW) to `out`
    /// `[images·patches, 3·patch_height·patch_width]`.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub(crate) fn call(
        spec: &PatchExtract,
        [pixels, out]: [DeviceAddress; 2],
        [images, height, width]: [usize; 3],
    ) -> Result<KernelCall, KernelError> {
        let (scale, shift) = spec
            .normalize
            .map_or(([1.0; 3], [0.0; 3]), |n| (n.scale, n.shift));
        let arguments = Self {
            pixels,
            out,
            scale,
            shift,
            images: extent(images)?,
            height: extent(height)?,
            width: extent(width)?,
            patch_height: extent(spec.patch[0])?,
            patch_width: extent(spec.patch[1])?,
            reserved: 0,
        };
        Ok(match spec.layout {
            PixelLayout::Hwc => arguments.into(),
            PixelLayout::Chw => PatchExtractChwArgs(arguments).into(),
        })
    }
}

impl Lower for PatchExtract {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("patch_extract"))
    }

    /// Selects the kernel by the layout of the pixels. If MIOpen is [selected](crate::exec::select), the pixels are passed to a
    /// convolution.
    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        match step.patch_embedding()? {
            Some(call) => one(Call::Patches(call)),
            None => one(step.extraction(self)?),
        }
    }
}

/// Returns both steps of the patch embedding that contains `step`. Requires that only the linear layer reads the patches, and that only a
/// bias follows. A training step has none, since its backward pass reads the patches, or extracts them again.
fn embedding<'a>(plan: &'a Plan, step: &'a Step) -> Option<[&'a Step; 2]> {
    if !plan.updates().is_empty() {
        return None;
    }
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
    /// Returns the patch embedding of the step, if the candidates support it.
    pub(in crate::kernels) fn patch_embedding(&self) -> Result<Option<PatchEmbeddingCall>, KernelError> {
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

    fn extraction(&self, spec: &PatchExtract) -> Result<KernelCall, KernelError> {
        let Operand::Input(image) = self.operand(0)? else {
            return Err("takes the image that is given, not one that is computed".into());
        };
        let (height, width) = match (spec.layout, self.shape_of(0)?) {
            (PixelLayout::Hwc, &[_, h, w, _]) | (PixelLayout::Chw, &[_, _, h, w]) => (h, w),
            (_, shape) => return Err(format!("takes images, not {shape:?}").into()),
        };
        let extents = [self.plan.batch(), height, width];
        let (image, dtype) = self.input(image)?;
        let takes = match spec.layout {
            PixelLayout::Hwc => DType::U8,
            PixelLayout::Chw => DType::F32,
        };
        if dtype != takes {
            let reason = format!("takes {takes} images, not {dtype}");
            return Err(KernelError::unsupported(reason));
        }
        PatchExtractArgs::call(spec, [image, self.out], extents)
    }
}
