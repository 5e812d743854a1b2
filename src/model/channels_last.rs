//! Weights of convolutions with their channels last, as the graph's ops take them.

use super::weights::Weights;
use crate::error::{Error, Result};
use crate::graph::{Change, Layout, Provenance};
use crate::tensor::Tensor;

/// Takes the weight of a convolution, `[a, b, h, w]`, as `[K, h, w, C]`. `order` returns the indices of K and C for those of a and b.
pub(super) fn channels_last(
    weights: &mut Weights,
    name: &str,
    shape: [usize; 4],
    order: impl Fn([usize; 2]) -> [usize; 2],
) -> Result<(Provenance, Tensor)> {
    let [first, second, height, width] = shape;
    let stored = weights.take(name, &shape)?;
    let values = stored.to_f32();
    let [outputs, inputs] = order([first, second]);
    let area = height * width;
    let mut weight = vec![0.0; values.len()];
    // Without weights there are only zeros, of which no page is touched.
    let recorded = if weights.is_recording() { 0 } else { values.len() };
    for (pair, kernel) in values[..recorded].chunks_exact(area).enumerate() {
        let [output, input] = order([pair / second, pair % second]);
        for (place, &value) in kernel.iter().enumerate() {
            weight[(output * area + place) * inputs + input] = value;
        }
    }
    let weight = Tensor::from_f32([outputs, height, width, inputs], weight);
    let weight = weight.ok_or_else(|| Error::graph(name, "does not have the elements of its shape"))?;
    Ok((Provenance::from(name).then(Change::Layout(Layout::Hwc)), weight))
}
