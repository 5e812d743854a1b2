//! Layers of SAM's encoder and decoder. Maps have their channels last.

use crate::error::{Error, Result};
use crate::graph::{Change, Layout, Provenance, Role, ValueId};
use crate::model::channels_last::channels_last;
use crate::model::layers::Layers;
use crate::ops::{Conv, ConvTranspose};

/// Returns the names of the linear layers of a block's feed-forward network.
pub(super) fn mlp_tensors(block: &str) -> [String; 2] {
    ["lin1", "lin2"].map(|part| format!("{block}.mlp.{part}"))
}

impl Layers<'_> {
    /// Adds a convolution of 1×1 without a bias, which is a linear layer of the channels.
    pub(super) fn pointwise(
        &mut self,
        step: &str,
        x: ValueId,
        tensor: &str,
        [outputs, inputs]: [usize; 2],
    ) -> Result<ValueId> {
        let name = format!("{tensor}.weight");
        let stored = self.weights.take(&name, &[outputs, inputs, 1, 1])?;
        let flat = stored.reshaped([outputs, inputs]);
        let flat = flat.ok_or_else(|| Error::graph(&name, "does not have the elements of its shape"))?;
        let provenance = Provenance::from(name).then(Change::Layout(Layout::Flat));
        let weight = self.graph.constant(provenance, flat);
        self.linear_of(Role::Other, step, vec![x, weight])
    }

    /// Adds a convolution of 3×3 without a bias that keeps the map's size and channels.
    pub(super) fn conv(&mut self, step: &str, x: ValueId, tensor: &str, channels: usize) -> Result<ValueId> {
        let shape = [channels, channels, 3, 3];
        let (provenance, weight) =
            channels_last(self.weights, &format!("{tensor}.weight"), shape, |pair| pair)?;
        let weight = self.graph.constant(provenance, weight);
        let op = Conv {
            padding: [[1; 2]; 2],
            ..Conv::new([3; 2])
        };
        self.push(Role::Other, step, op, [x, weight])
    }

    /// Adds a transposed convolution that doubles the map's size.
    pub(super) fn doubled(
        &mut self,
        step: &str,
        x: ValueId,
        tensor: &str,
        [outputs, inputs]: [usize; 2],
    ) -> Result<ValueId> {
        let name = format!("{tensor}.weight");
        let order = |[input, output]: [usize; 2]| [output, input];
        let (provenance, weight) = channels_last(self.weights, &name, [inputs, outputs, 2, 2], order)?;
        let weight = self.graph.constant(provenance, weight);
        let bias = self.constant(&format!("{tensor}.bias"), &[outputs])?;
        let op = ConvTranspose {
            stride: [2; 2],
            bias: true,
            ..ConvTranspose::new([2; 2])
        };
        self.push(Role::Other, step, op, [x, weight, bias])
    }
}
