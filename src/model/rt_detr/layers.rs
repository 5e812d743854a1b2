//! Layers of RT-DETR's backbone and encoder. Maps have their channels last.
//!
//! Batch norm of constants is folded into the convolution before it, unless the convolution is trained.

use crate::error::{Error, Result};
use crate::graph::{Role, ValueId};
use crate::model::channels_last::channels_last;
use crate::model::layers::Layers;
use crate::ops::{Activation, Affine, Conv};

/// How the norms after convolutions are computed. Their means and variances are those of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Norms {
    /// Folded into the convolutions.
    Folded,
    /// Beside the convolutions, as constants.
    Frozen,
    /// Beside the convolutions. Factors and shifts are trained.
    Trained,
}

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
    pub(super) norms: Norms,
}

impl ConvNorm {
    /// Returns true if the convolution is a linear layer of each pixel.
    fn is_linear(&self) -> bool {
        self.kernel == 1 && self.stride == 1
    }
}

/// The weight of a convolution, `[K, h, w, C]`, and its bias.
pub(super) struct Folded {
    weight: Vec<f32>,
    bias: Vec<f32>,
    kernel: usize,
    /// Names of the tensors.
    of: Vec<String>,
}

/// What a norm multiplies by and adds, with the names of its tensors.
struct NormConstants {
    factor: Vec<f64>,
    shift: Vec<f64>,
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
        let (mut weight, name) = self.conv_weight(spec)?;
        let norm = self.norm_of(spec)?;
        for (row, factor) in weight
            .chunks_exact_mut(spec.kernel * spec.kernel * spec.channels[0])
            .zip(&norm.factor)
        {
            row.iter_mut().for_each(|x| *x = (f64::from(*x) * factor) as f32);
        }
        let mut of = vec![name];
        of.extend(norm.of);
        Ok(Folded {
            weight,
            bias: norm.shift.into_iter().map(|x| x as f32).collect(),
            kernel: spec.kernel,
            of,
        })
    }

    /// Takes the weight of a convolution, `[K, h, w, C]`. Returns it with its name.
    fn conv_weight(&mut self, spec: &ConvNorm) -> Result<(Vec<f32>, String)> {
        let ([inputs, outputs], kernel) = (spec.channels, spec.kernel);
        let name = format!("{}.weight", spec.conv);
        let shape = [outputs, inputs, kernel, kernel];
        let (_, stored) = channels_last(self.weights, &name, shape, |pair| pair)?;
        Ok((stored.to_f32().into_owned(), name))
    }

    /// Takes the tensors of a norm. Returns what it multiplies by and what it adds.
    fn norm_of(&mut self, spec: &ConvNorm) -> Result<NormConstants> {
        let mut of = Vec::new();
        let mut take = |part: &str| {
            let name = format!("{}.{part}", spec.norm);
            let tensor = self.weights.take(&name, &spec.channels[1..])?;
            of.push(name);
            Ok::<_, Error>(tensor.to_f32().into_owned())
        };
        let trains = spec.norms == Norms::Trained;
        let (scale, shift) = if trains {
            (vec![1.0; spec.channels[1]], vec![0.0; spec.channels[1]])
        } else {
            (take("weight")?, take("bias")?)
        };
        let (mean, variance) = (take("running_mean")?, take("running_var")?);
        let factor =
            |index: usize| f64::from(scale[index]) / (f64::from(variance[index]) + spec.epsilon).sqrt();
        let channels = 0..spec.channels[1];
        let of_shift = |k: usize| f64::from(shift[k]) - f64::from(mean[k]) * factor(k);
        Ok(NormConstants {
            factor: channels.clone().map(factor).collect(),
            shift: channels.map(of_shift).collect(),
            of,
        })
    }

    /// Adds a convolution whose weight is trained, and the norm after it.
    fn trained_conv(&mut self, step: &str, x: ValueId, spec: &ConvNorm) -> Result<ValueId> {
        let ([inputs, outputs], kernel) = (spec.channels, spec.kernel);
        let (weight, name) = self.conv_weight(spec)?;
        let shape = [outputs, kernel, kernel, inputs];
        let shape = if spec.is_linear() {
            &[outputs, inputs][..]
        } else {
            &shape
        };
        let weight = self.computed(&format!("{step}.weight"), &[&name], shape, weight)?;
        let y = self.conv_op(step, spec.stride, kernel, vec![x, weight])?;
        let norm = self.norm_of(spec)?;
        let of: Vec<&str> = norm.of.iter().map(String::as_str).collect();
        let mut affine = vec![y];
        for (part, values) in [("factor", norm.factor), ("shift", norm.shift)] {
            let values = values.into_iter().map(|x| x as f32).collect();
            affine.push(self.computed(&format!("{step}.norm.{part}"), &of, &[outputs], values)?);
        }
        let y = self.push(Role::Other, &format!("{step}.norm"), Affine, affine)?;
        if spec.norms == Norms::Frozen {
            return Ok(y);
        }
        let [weight, bias] =
            ["weight", "bias"].map(|part| self.constant(&format!("{}.{part}", spec.norm), &[outputs]));
        self.push(
            Role::Other,
            &format!("{step}.affine"),
            Affine,
            [y, weight?, bias?],
        )
    }

    /// Adds a convolution with its norm and its activation.
    pub(super) fn conv_norm(
        &mut self,
        step: &str,
        x: ValueId,
        spec: &ConvNorm,
        activation: Option<Activation>,
    ) -> Result<ValueId> {
        if spec.norms == Norms::Folded {
            let folded = self.folded(spec)?;
            return self.conv_of(step, x, folded, spec.stride, activation);
        }
        let y = self.trained_conv(step, x, spec)?;
        self.activated(step, y, activation)
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
        let y = self.conv_op(step, stride, kernel, vec![x, weight, bias])?;
        self.activated(step, y, activation)
    }

    /// Adds a convolution of these operands: the map, the weight, and the bias if there is one.
    fn conv_op(
        &mut self,
        step: &str,
        stride: usize,
        kernel: usize,
        operands: Vec<ValueId>,
    ) -> Result<ValueId> {
        if kernel == 1 && stride == 1 {
            return self.linear_of(Role::Other, step, operands);
        }
        let op = Conv {
            stride: [stride; 2],
            padding: [[kernel / 2; 2]; 2],
            bias: operands.len() > 2,
            ..Conv::new([kernel; 2])
        };
        self.push(Role::Other, step, op, operands)
    }

    /// Adds an activation, if there is one.
    pub(super) fn activated(
        &mut self,
        step: &str,
        y: ValueId,
        activation: Option<Activation>,
    ) -> Result<ValueId> {
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
