//! Layers of RT-DETR's backbone and encoder. Maps have their channels last.
//!
//! Batch norm of constants is folded into the convolution before it.

use crate::error::{Error, Result};
use crate::graph::{Role, ValueId};
use crate::model::channels_last::channels_last;
use crate::model::layers::Layers;
use crate::ops::{Activation, Conv};

/// A convolution and the norm after it, by the names of their tensors.
pub(super) struct ConvNorm {
    /// Name of the convolution.
    pub(super) conv: String,
    /// Name of the norm.
    pub(super) norm: String,
    /// Channels of the input and the result.
    pub(super) channels: [usize; 2],
    /// Rows, or columns, of the kernel, which is odd.
    pub(super) kernel: usize,
    pub(super) stride: usize,
    pub(super) epsilon: f64,
}

/// The weight of a convolution, `[K, h, w, C]`, and its bias.
pub(super) struct Folded {
    weight: Vec<f32>,
    bias: Vec<f32>,
    kernel: usize,
    /// Names of the tensors.
    of: Vec<String>,
}

impl Folded {
    /// Adds a convolution of 1×1, at the centre of the kernel.
    pub(super) fn add_pointwise(&mut self, other: Self) {
        let channels = other.weight.len() / other.bias.len();
        let area = self.kernel * self.kernel;
        let kernels = self.weight.chunks_exact_mut(area * channels);
        for (kernel, row) in kernels.zip(other.weight.chunks_exact(channels)) {
            let centre = &mut kernel[area / 2 * channels..][..channels];
            centre.iter_mut().zip(row).for_each(|(x, y)| *x += y);
        }
        self.bias.iter_mut().zip(&other.bias).for_each(|(x, y)| *x += y);
        self.of.extend(other.of);
    }
}

impl Layers<'_> {
    /// Takes the tensors of a convolution and its norm, and folds the norm into the convolution.
    pub(super) fn folded(&mut self, spec: &ConvNorm) -> Result<Folded> {
        let ConvNorm {
            channels: [inputs, outputs],
            kernel,
            ..
        } = *spec;
        let name = format!("{}.weight", spec.conv);
        let (_, stored) = channels_last(self.weights, &name, [outputs, inputs, kernel, kernel], |pair| {
            pair
        })?;
        let mut of = vec![name];
        let mut take = |part: &str| {
            let name = format!("{}.{part}", spec.norm);
            let tensor = self.weights.take(&name, &[outputs])?;
            of.push(name);
            Ok::<_, Error>(tensor.to_f32().into_owned())
        };
        let (scale, shift) = (take("weight")?, take("bias")?);
        let (mean, variance) = (take("running_mean")?, take("running_var")?);
        let factor =
            |index: usize| f64::from(scale[index]) / (f64::from(variance[index]) + spec.epsilon).sqrt();
        let bias = (0..outputs).map(|k| (f64::from(shift[k]) - f64::from(mean[k]) * factor(k)) as f32);
        let bias = bias.collect();
        let mut weight = stored.to_f32().into_owned();
        for (k, row) in weight.chunks_exact_mut(kernel * kernel * inputs).enumerate() {
            let factor = factor(k);
            row.iter_mut().for_each(|x| *x = (f64::from(*x) * factor) as f32);
        }
        Ok(Folded {
            weight,
            bias,
            kernel,
            of,
        })
    }

    /// Adds a convolution with its norm and its activation.
    pub(super) fn conv_norm(
        &mut self,
        step: &str,
        x: ValueId,
        spec: &ConvNorm,
        activation: Option<Activation>,
    ) -> Result<ValueId> {
        let folded = self.folded(spec)?;
        self.conv_of(step, x, folded, spec.stride, activation)
    }

    /// Adds a convolution of these weights, with zeros around the map.
    pub(super) fn conv_of(
        &mut self,
        step: &str,
        x: ValueId,
        folded: Folded,
        stride: usize,
        activation: Option<Activation>,
    ) -> Result<ValueId> {
        let Folded {
            weight,
            bias,
            kernel,
            of,
        } = folded;
        let outputs = bias.len();
        let inputs = weight.len() / (outputs * kernel * kernel);
        let is_linear = kernel == 1 && stride == 1;
        let shape = if is_linear {
            vec![outputs, inputs]
        } else {
            vec![outputs, kernel, kernel, inputs]
        };
        let of: Vec<&str> = of.iter().map(String::as_str).collect();
        let weight = self.computed(&format!("{step}.weight"), &of, &shape, weight)?;
        let bias = self.computed(&format!("{step}.bias"), &of, &[outputs], bias)?;
        let operands = vec![x, weight, bias];
        let y = if is_linear {
            self.linear_of(Role::Other, step, operands)?
        } else {
            let op = Conv {
                stride: [stride; 2],
                padding: [[kernel / 2; 2]; 2],
                bias: true,
                ..Conv::new([kernel; 2])
            };
            self.push(Role::Other, step, op, operands)?
        };
        match activation {
            Some(activation) => self.activation(Role::Other, &format!("{step}.act"), y, activation),
            None => Ok(y),
        }
    }

    /// Returns rows, columns and channels of a map.
    pub(super) fn extents(&self, map: ValueId) -> [usize; 3] {
        match *self.graph.value(map).shape {
            [_, rows, columns, channels] => [rows, columns, channels],
            // `Graph::push` has checked the operands of convolutions, which make all maps.
            _ => [0; 3],
        }
    }

    /// Adds linear layers with ReLU between them. `widths` are the channels of the input and of each result.
    pub(super) fn mlp(&mut self, step: &str, x: ValueId, tensors: &str, widths: &[usize]) -> Result<ValueId> {
        let constants = self.mlp_constants(tensors, widths)?;
        self.mlp_of(step, x, &constants)
    }

    /// Takes the weight and the bias of each layer of an MLP.
    pub(super) fn mlp_constants(&mut self, tensors: &str, widths: &[usize]) -> Result<Vec<[ValueId; 2]>> {
        let pairs = widths.windows(2).enumerate();
        let constants = pairs.map(|(layer, pair)| {
            let tensor = format!("{tensors}.layers.{layer}");
            Ok([
                self.constant(&format!("{tensor}.weight"), &[pair[1], pair[0]])?,
                self.constant(&format!("{tensor}.bias"), &[pair[1]])?,
            ])
        });
        constants.collect()
    }

    /// Adds linear layers of these constants with ReLU between them.
    pub(super) fn mlp_of(
        &mut self,
        step: &str,
        mut x: ValueId,
        constants: &[[ValueId; 2]],
    ) -> Result<ValueId> {
        for (layer, &[weight, bias]) in constants.iter().enumerate() {
            let name = format!("{step}.layers.{layer}");
            x = self.linear_of(Role::Other, &name, vec![x, weight, bias])?;
            if layer + 1 < constants.len() {
                x = self.activation(Role::Other, &format!("{name}.act"), x, Activation::Relu)?;
            }
        }
        Ok(x)
    }
}
