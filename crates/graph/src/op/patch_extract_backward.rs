//! Derivative of patch extraction.

use std::fmt;

use super::operands::{count, exactly, expect, one};
use super::{Definition, Locality, Normalize, OpError, PatchExtract, PixelLayout, Shape};
use crate::array::{Array, Real};
use crate::cases::{AWKWARD, Cases, Scale, activation, image_size};
use crate::dtype::DType;
use crate::tolerance::{narrow, tolerance};

/// `(dy [B,N,3·h·w]) → dx` of a [`PatchExtract`], in the layout of its pixels. Pixels beyond the last whole patch get 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PatchExtractBackward {
    /// The extraction.
    pub extract: PatchExtract,
    /// Height and width of the image.
    pub image: [usize; 2],
}

impl PatchExtractBackward {
    fn image_shape(&self, batch: usize) -> Shape {
        let [height, width] = self.image;
        match self.extract.layout {
            PixelLayout::Hwc => vec![batch, height, width, 3],
            PixelLayout::Chw => vec![batch, 3, height, width],
        }
    }
}

impl Definition for PatchExtractBackward {
    const NAME: &'static str = "patch_extract_backward";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.extract.fmt_attributes(f)?;
        write!(f, " of {}×{}", self.image[0], self.image[1])
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [dy] = exactly(operands)?;
        let image = self.image_shape(dy.first().copied().unwrap_or(0));
        expect("dy", dy, &self.extract.shapes(&[&image])?[0])?;
        one(image)
    }

    fn flops(&self, operands: &[&[usize]], _results: &[Shape]) -> u64 {
        if self.extract.normalize.is_some() {
            count(operands[0])
        } else {
            0
        }
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Images
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let scale = self
            .extract
            .normalize
            .map_or([1.0; 3], |normalize| normalize.scale);
        let scale = scale.map(T::from_f32);
        let [_, patches, length] = operands[0].extents();
        let dx = results[0].values_mut();
        for (i, &dy) in operands[0].values().iter().enumerate() {
            let (b, patch, element) = (i / length / patches, i / length % patches, i % length);
            let (channel, pixel) = self.extract.pixel(self.image, [b, patch, element]);
            dx[pixel] = scale[channel] * dy;
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
        match self.extract.normalize {
            Some(_) => narrow(dtype) + tolerance(DType::F32, 1),
            None => 0.0,
        }
    }
}

fn add(cases: &mut Cases<PatchExtractBackward>, batch: usize, tokens: usize, patch: [usize; 2], rest: usize) {
    let normalize = Normalize {
        scale: [0.5, 0.25, 2.0],
        shift: [0.0; 3],
    };
    for (layout, normalize) in [(PixelLayout::Hwc, Some(normalize)), (PixelLayout::Chw, None)] {
        let extract = PatchExtract {
            patch,
            layout,
            normalize,
        };
        let op = PatchExtractBackward {
            extract,
            image: image_size(tokens, patch, rest),
        };
        cases.push(op, vec![activation(&[batch, tokens, 3 * patch[0] * patch[1]])]);
    }
}
