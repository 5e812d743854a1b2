//! `patch_extract` and `patch_extract_chw`: patches as rows of the patch GEMM, normalised during extraction.

use hipvit_graph::op::{Linear, Op};

use super::Unit;
use super::lower::{Call, LinearCall, Lower, Lowering, one};
use crate::graph::plan::{Operand, Plan, Step};
use crate::tensor::DType;
use std::borrow::Cow;

use super::bindings::{ELEMENTWISE_THREADS, PatchExtractArgs};
use super::{Access, DeviceAddress, KernelArguments, KernelCall, KernelError, Launch, Target, bytes, extent};
use crate::ops::{PatchExtract, PixelLayout};

/// [`PatchExtractArgs`] whose pixels are f32 `[images, 3, height, width]`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(transparent)]
pub struct PatchExtractChwArgs(pub(crate) PatchExtractArgs);

impl PatchExtractArgs {
    /// Returns arguments that write the normalised pixels in image order, `[images, rows, columns, 3]`, as one patch of all whole patches.
    pub(crate) fn as_image(self) -> Self {
        let covered = |extent: u32, patch: u32| extent / patch.max(1) * patch;
        Self {
            patch_height: covered(self.height, self.patch_height),
            patch_width: covered(self.width, self.patch_width),
            ..self
        }
    }

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

    /// Plans `runs` runs of `run` contiguous elements for each patch.
    fn plan_runs(&self, target: &Target, runs: u64, run: u64) -> Result<Launch, KernelError> {
        let Self {
            height,
            width,
            patch_height,
            patch_width,
            ..
        } = *self;
        if patch_height == 0 || patch_width == 0 || height < patch_height || width < patch_width {
            return Err(format!(
                "a patch of {patch_height}×{patch_width} does not fit an image of {height}×{width}"
            )
            .into());
        }
        let patches =
            u64::from(self.images) * u64::from(height / patch_height) * u64::from(width / patch_width);
        target.threads(
            patches.saturating_mul(runs * run.div_ceil(target.vec128())),
            ELEMENTWISE_THREADS,
        )
    }

    fn accesses_of(&self, pixel: usize, element: usize, visit: &mut dyn FnMut(Access)) {
        let pixels = bytes(pixel, &[self.images, self.height, self.width, 3]);
        let down = self.height.checked_div(self.patch_height).unwrap_or(0);
        let across = self.width.checked_div(self.patch_width).unwrap_or(0);
        let out = [self.images, down, across, 3, self.patch_height, self.patch_width];
        visit(Access::read("pixels", self.pixels, pixels));
        visit(Access::write("out", self.out, bytes(element, &out)));
    }
}

// SAFETY: see hip/patch_extract.hip. Threads beyond the last patch return.
unsafe impl KernelArguments for PatchExtractArgs {
    const FILE: &'static str = "patch_extract";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        self.plan_runs(target, self.patch_height.into(), 3 * u64::from(self.patch_width))
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        self.accesses_of(1, element, visit);
    }
}

// SAFETY: as above.
unsafe impl KernelArguments for PatchExtractChwArgs {
    const FILE: &'static str = "patch_extract";

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        Ok("patch_extract_chw".into())
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        let Self(a) = self;
        a.plan_runs(target, 3 * u64::from(a.patch_height), a.patch_width.into())
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        self.0.accesses_of(size_of::<f32>(), element, visit);
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

/// Both steps of a patch embedding of u8 pixels. One candidate is selected for them together: the buffer between them fits pixels or
/// patches, and both use the same order of weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PatchEmbeddingCall {
    pub(crate) extract: PatchExtractArgs,
    pub(crate) linear: LinearCall,
}

/// Returns both steps of the patch embedding that contains `step`. Requires that only the linear layer reads the patches, and that only a
/// bias follows.
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
    /// Returns the patch embedding of the step, if the candidates support it.
    pub(super) fn patch_embedding(&self) -> Result<Option<PatchEmbeddingCall>, KernelError> {
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
            return Err(KernelError::unsupported(format!(
                "takes {takes} images, not {dtype}"
            )));
        }
        PatchExtractArgs::call(spec, [image, self.out], extents)
    }
}
