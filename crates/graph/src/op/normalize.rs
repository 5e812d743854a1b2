//! Normalisation of pixels.

mod attributes;

pub use self::attributes::Normalize;
use super::operands::{count, exactly, one};
use super::{
    Definition, Gradients, GraphBuilder, Locality, NodeValues, OpError, PatchExtract, PatchExtractBackward,
    PixelLayout, Shape, only_gradient,
};
use crate::array::{Array, Real};
use crate::cases::{AWKWARD, Cases, Scale, image, image_size};
use crate::dtype::DType;
use crate::tolerance::{narrow, tolerance};
use crate::value::ValueId;

impl Definition for Normalize {
    const NAME: &'static str = "normalize";

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x] = exactly(operands)?;
        match *x {
            [b, h, w, 3] => one([b, 3, h, w]),
            _ => Err(format!("pixels have shape {x:?}, expected [B, H, W, 3]").into()),
        }
    }

    fn flops(&self, _operands: &[&[usize]], results: &[Shape]) -> u64 {
        2 * count(&results[0])
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Images
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let x = operands[0];
        let [batch, height, width, _] = x.extents();
        for b in 0..batch {
            for c in 0..3 {
                for row in 0..height {
                    for column in 0..width {
                        let from = ((b * height + row) * width + column) * 3 + c;
                        let to = ((b * 3 + c) * height + row) * width + column;
                        results[0].values_mut()[to] = self.apply(c, x.values()[from]);
                    }
                }
            }
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        match cases.scale() {
            Scale::Model { sizes, .. } => add(cases, sizes.batch, image_size(sizes.tokens, [16, 16], 0)),
            Scale::Awkward => {
                for a in &AWKWARD {
                    add(cases, a.batch, image_size(a.tokens, a.patch, 1));
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
        let image = [shape[1], shape[2]];
        let pixels = |layout, normalize| PatchExtract {
            patch: [1, 1],
            layout,
            normalize,
        };
        let backward = PatchExtractBackward {
            extract: pixels(PixelLayout::Hwc, Some(*self)),
            image,
        };
        // Patches of one pixel turn planes into pixels.
        let d_y = builder.push(pixels(PixelLayout::Chw, None), [gradient])?;
        Ok(vec![Some(builder.push(backward, [d_y])?)])
    }
}

/// A normalisation with different values per channel.
pub(super) const NORMALIZE: Normalize = Normalize {
    scale: [1.0 / 58.0, 1.0 / 57.0, 1.0 / 59.0],
    shift: [-2.1, -2.0, -1.8],
};

fn add(cases: &mut Cases<Normalize>, batch: usize, [h, w]: [usize; 2]) {
    cases.push(NORMALIZE, vec![image(&[batch, h, w, 3], DType::U8)]);
}
