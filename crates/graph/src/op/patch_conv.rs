//! Patch convolution, before fusion turns it into patch extraction and a GEMM.

use std::fmt;

use super::operands::{Rest, expect, matmul_flops, one};
use super::patch_extract::patches;
use super::{
    Definition, Gradients, GraphBuilder, Locality, MatMul, NodeValues, OpError, PatchExtract,
    PatchExtractBackward, PixelLayout, Shape, SumToSize, only_gradient,
};
use crate::array::{Array, Real};
use crate::cases::{AWKWARD, Cases, Scale, image, image_size, parameter};
use crate::dtype::DType;
use crate::matmul::{gemm, rows, rows_mut};
use crate::tolerance::tolerance;
use crate::value::ValueId;

/// Convolution whose stride equals its kernel: `(x [B,3,H,W], weight [D,3,h,w], bias [D]?) → [B,N,D]` with `N = ⌊H/h⌋·⌊W/w⌋` patches in
/// row-major order. Pixels beyond the last whole patch are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatchConv {
    /// Height and width of a patch, in pixels.
    pub patch: [usize; 2],
    /// True if the third operand, the bias, exists.
    pub bias: bool,
}

impl PatchConv {
    /// Returns the extraction that turns the convolution into a matrix product.
    pub(crate) fn extract(self) -> PatchExtract {
        PatchExtract {
            patch: self.patch,
            layout: PixelLayout::Chw,
            normalize: None,
        }
    }
}

impl Definition for PatchConv {
    const NAME: &'static str = "patch_conv";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [h, w] = self.patch;
        write!(f, " {h}×{w}")
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let mut rest = Rest::new(operands);
        let x = rest.required("x")?;
        let weight = rest.required("weight")?;
        let bias = rest.optional(self.bias, "bias")?;
        rest.finish()?;
        let [b, 3, h, w] = *x else {
            return Err(OpError::layout("x", x, "[B, 3, H, W]"));
        };
        let [d, ..] = *weight else {
            return Err("weight is a scalar".into());
        };
        expect("weight", weight, &[d, 3, self.patch[0], self.patch[1]])?;
        if let Some(bias) = bias {
            expect("bias", bias, &[d])?;
        }
        one([b, patches(h, w, self.patch)?, d])
    }

    fn flops(&self, operands: &[&[usize]], results: &[Shape]) -> u64 {
        matmul_flops(&results[0], operands[1][1..].iter().product(), self.bias)
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Patches {
            patch: self.patch,
            layout: PixelLayout::Chw,
        }
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let weight = operands[1];
        let length = weight.shape()[1..].iter().product();
        let [batch, patches, channels] = results[0].extents();
        let mut rows_of_pixels = [Array::zeros(vec![batch, patches, length])];
        self.extract().compute(&operands[..1], &mut rows_of_pixels);
        if self.bias {
            let rows = results[0].values_mut().chunks_exact_mut(channels);
            rows.for_each(|row| row.copy_from_slice(operands[2].values()));
        }
        gemm(
            rows(rows_of_pixels[0].values(), length),
            rows(weight.values(), length).reversed_axes(),
            rows_mut(results[0].values_mut(), channels),
        );
    }

    fn cases(cases: &mut Cases<Self>) {
        match cases.scale() {
            Scale::Model { sizes, .. } => {
                add(cases, sizes.batch, sizes.tokens, [16, 16], 0, sizes.channels());
            }
            Scale::Awkward => {
                for a in &AWKWARD {
                    add(cases, a.batch, a.tokens, a.patch, 1, a.channels);
                }
            }
            Scale::Heads => {}
        }
    }

    fn tolerance(&self, _index: usize, operands: &[&Array], dtype: DType) -> f64 {
        tolerance(dtype, operands[1].shape().iter().skip(1).product())
    }

    fn vjp(
        &self,
        builder: &mut dyn GraphBuilder,
        node: NodeValues<'_>,
        gradients: &[Option<ValueId>],
    ) -> Result<Gradients, OpError> {
        let gradient = only_gradient(gradients)?;
        let (x, weight) = (node.inputs[0], node.inputs[1]);
        let (image, shape) = (builder.shape(x), builder.shape(weight).to_vec());
        let image = [image[2], image[3]];
        let extract = self.extract();
        let matrix = SumToSize {
            shape: vec![shape[0], shape[1..].iter().product()],
        };
        let matrix = builder.push(matrix, [weight])?;
        let d_patches = builder.push(MatMul::default(), [gradient, matrix])?;
        let d_x = builder.push(PatchExtractBackward { extract, image }, [d_patches])?;
        let patches = builder.push(extract, [x])?;
        let d_weight = builder.push(MatMul::TRANSPOSED, [gradient, patches])?;
        let d_weight = builder.push(SumToSize { shape }, [d_weight])?;
        let mut gradients = vec![Some(d_x), Some(d_weight)];
        if self.bias {
            gradients.push(Some(builder.sum_to_size(gradient, node.inputs[2])?));
        }
        Ok(gradients)
    }
}

fn add(
    cases: &mut Cases<PatchConv>,
    batch: usize,
    tokens: usize,
    patch: [usize; 2],
    rest: usize,
    channels: usize,
) {
    let [h, w] = image_size(tokens, patch, rest);
    let x = image(&[batch, 3, h, w], DType::F32);
    let weight = parameter(&[channels, 3, patch[0], patch[1]]);
    let conv = PatchConv { patch, bias: true };
    cases.push(conv, vec![x, weight, parameter(&[channels])]);
}
