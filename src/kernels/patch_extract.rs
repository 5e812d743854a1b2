//! `patch_extract` and `patch_extract_chw`: patches as rows of the patch GEMM, normalised during extraction.

pub(crate) mod call;
mod lower;

use std::borrow::Cow;

use super::bindings::{ELEMENTWISE_THREADS, PatchExtractArgs};
use super::{Access, KernelArguments, KernelError, Launch, Target, bytes};

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
