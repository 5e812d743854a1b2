//! Patch extraction: patches become rows of the patch GEMM's left-hand matrix.

mod attributes;

use std::fmt;

pub use self::attributes::PatchExtract;
use super::normalize::NORMALIZE;
use super::operands::{count, exactly, one};
use super::{
    Definition, Gradients, GraphBuilder, Locality, NodeValues, OpError, PatchExtractBackward, PixelLayout,
    Shape, only_gradient,
};
use crate::array::{Array, Real};
use crate::cases::{AWKWARD, Cases, Scale, image, image_size};
use crate::dtype::DType;
use crate::tolerance::{narrow, tolerance};
use crate::value::ValueId;

/// Returns the number of patches of an image with `h` rows and `w` columns.
pub(super) fn patches(h: usize, w: usize, [ph, pw]: [usize; 2]) -> Result<usize, OpError> {
    if ph == 0 || pw == 0 || h < ph || w < pw {
        return Err(format!("a patch of {ph}×{pw} does not fit an image of {h}×{w}").into());
    }
    Ok((h / ph) * (w / pw))
}

impl Definition for PatchExtract {
    const NAME: &'static str = "patch_extract";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [h, w] = self.patch;
        let normalize = if self.normalize.is_some() {
            " +normalize"
        } else {
            ""
        };
        write!(f, " {h}×{w}{normalize}")
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x] = exactly(operands)?;
        let (b, h, w) = match (self.layout, x) {
            (PixelLayout::Hwc, &[b, h, w, 3]) | (PixelLayout::Chw, &[b, 3, h, w]) => (b, h, w),
            (PixelLayout::Hwc, _) => {
                return Err(format!("pixels have shape {x:?}, expected [B, H, W, 3]").into());
            }
            (PixelLayout::Chw, _) => return Err(OpError::layout("x", x, "[B, 3, H, W]")),
        };
        one([b, patches(h, w, self.patch)?, 3 * self.patch[0] * self.patch[1]])
    }

    fn flops(&self, _operands: &[&[usize]], results: &[Shape]) -> u64 {
        if self.normalize.is_some() {
            2 * count(&results[0])
        } else {
            0
        }
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Patches {
            patch: self.patch,
            layout: self.layout,
        }
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let x = operands[0];
        let [batch, patches, length] = results[0].extents();
        let image = match (self.layout, x.extents()) {
            (PixelLayout::Hwc, [_, height, width, _]) | (PixelLayout::Chw, [_, _, height, width]) => {
                [height, width]
            }
        };
        for b in 0..batch {
            for p in 0..patches {
                for e in 0..length {
                    let (c, from) = self.pixel(image, [b, p, e]);
                    let pixel = x.values()[from];
                    results[0].values_mut()[(b * patches + p) * length + e] = match &self.normalize {
                        Some(normalize) => normalize.apply(c, pixel),
                        None => pixel,
                    };
                }
            }
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        match cases.scale() {
            Scale::Model { sizes, .. } => {
                add(cases, sizes.batch, sizes.tokens, [16, 16], 0);
                if cases.is_micro() {
                    // Patches of an odd width, and pixels beyond the last patch in both directions.
                    add(cases, 1, 12, [14, 7], 3);
                }
            }
            Scale::Awkward => {
                for a in &AWKWARD {
                    add(cases, a.batch, a.tokens, a.patch, 1);
                }
            }
            Scale::Heads => {}
        }
    }

    fn tolerance(&self, _index: usize, _operands: &[&Array], dtype: DType) -> f64 {
        narrow(dtype) + tolerance(DType::F32, 1)
    }

    fn vjp(
        &self,
        builder: &mut dyn GraphBuilder,
        node: NodeValues<'_>,
        gradients: &[Option<ValueId>],
    ) -> Result<Gradients, OpError> {
        let gradient = only_gradient(gradients)?;
        let shape = builder.shape(node.inputs[0]);
        let image = match self.layout {
            PixelLayout::Hwc => [shape[1], shape[2]],
            PixelLayout::Chw => [shape[2], shape[3]],
        };
        let backward = PatchExtractBackward {
            extract: *self,
            image,
        };
        Ok(vec![Some(builder.push(backward, [gradient])?)])
    }
}

fn add(cases: &mut Cases<PatchExtract>, batch: usize, tokens: usize, patch: [usize; 2], rest: usize) {
    let [h, w] = image_size(tokens, patch, rest);
    let pixels = || image(&[batch, h, w, 3], DType::U8);
    let values = || image(&[batch, 3, h, w], DType::F32);
    for normalize in [Some(NORMALIZE), None] {
        for (layout, x) in [(PixelLayout::Hwc, pixels()), (PixelLayout::Chw, values())] {
            let spec = PatchExtract {
                patch,
                layout,
                normalize,
            };
            cases.push(spec, vec![x]);
        }
    }
}
