//! RT-DETR's backbone: ResNet-vd, <https://arxiv.org/abs/1812.01187>.

use super::config::{Backbone, Stage};
use super::layers::ConvNorm;
use crate::error::Result;
use crate::graph::{Role, ValueId};
use crate::model::layers::Layers;
use crate::ops::{Activation, Add, AveragePool, MaxPool};

const TENSORS: &str = "model.backbone.model";
const UNREAD: &str = "the encoder reads no map of this stage or a later one";
/// Factor by which a bottleneck has fewer channels.
const REDUCTION: usize = 4;
/// Epsilon of the norms, frozen or not.
const EPSILON: f64 = 1e-5;
/// Activation inside of residual layers, whatever the configuration says.
const INNER: Activation = Activation::Relu;

/// Adds the backbone. Returns the maps that the encoder reads.
pub(super) fn backbone(layers: &mut Layers<'_>, spec: &Backbone, pixels: ValueId) -> Result<Vec<ValueId>> {
    let half = spec.embedding / 2;
    let mut x = pixels;
    for (index, (channels, stride)) in [([3, half], 2), ([half, half], 1), ([half, spec.embedding], 1)]
        .into_iter()
        .enumerate()
    {
        let tensor = format!("{TENSORS}.embedder.embedder.{index}");
        let conv = conv(spec, &tensor, channels, 3, stride);
        x = layers.conv_norm(&format!("backbone.stem.{index}"), x, &conv, Some(spec.activation))?;
    }
    let pool = MaxPool {
        kernel: [3; 2],
        stride: [2; 2],
        dilation: [1; 2],
        padding: [[1; 2]; 2],
        ceil: false,
    };
    x = layers.push(Role::Other, "backbone.stem.pool", pool, [x])?;
    let mut maps = vec![x];
    let mut inputs = spec.embedding;
    // The library computes the stages after the last map that is read, too.
    let last = spec.outputs.iter().fold(0, |most, &index| most.max(index));
    for stage in last..spec.stages.len() {
        layers
            .weights
            .ignore(&format!("{TENSORS}.encoder.stages.{stage}.*"), UNREAD);
    }
    for (
        index,
        &Stage {
            channels,
            depth,
            stride,
        },
    ) in spec.stages.iter().take(last).enumerate()
    {
        for layer in 0..depth {
            let residual = Residual {
                step: format!("backbone.stages.{index}.{layer}"),
                tensors: format!("{TENSORS}.encoder.stages.{index}.layers.{layer}"),
                channels: [inputs, channels],
                stride: if layer == 0 { stride } else { 1 },
                is_first: layer == 0,
            };
            x = residual.push(layers, spec, x)?;
            inputs = channels;
        }
        maps.push(x);
    }
    Ok(spec.outputs.iter().map(|&index| maps[index]).collect())
}

fn conv(spec: &Backbone, tensor: &str, channels: [usize; 2], kernel: usize, stride: usize) -> ConvNorm {
    ConvNorm {
        conv: format!("{tensor}.convolution"),
        norm: format!("{tensor}.normalization"),
        channels,
        kernel,
        stride,
        epsilon: EPSILON,
        norms: spec.norms,
    }
}

/// A residual layer.
struct Residual {
    step: String,
    tensors: String,
    channels: [usize; 2],
    stride: usize,
    is_first: bool,
}

impl Residual {
    fn push(&self, layers: &mut Layers<'_>, spec: &Backbone, x: ValueId) -> Result<ValueId> {
        let [inputs, outputs] = self.channels;
        let narrow = outputs / REDUCTION;
        let convs = if spec.is_bottleneck {
            let strides = if spec.strides_first {
                [self.stride, 1]
            } else {
                [1, self.stride]
            };
            vec![
                ([inputs, narrow], 1, strides[0]),
                ([narrow, narrow], 3, strides[1]),
                ([narrow, outputs], 1, 1),
            ]
        } else {
            vec![([inputs, outputs], 3, self.stride), ([outputs, outputs], 3, 1)]
        };
        let mut y = x;
        let last = convs.len() - 1;
        for (index, (channels, kernel, stride)) in convs.into_iter().enumerate() {
            let conv = conv(
                spec,
                &format!("{}.layer.{index}", self.tensors),
                channels,
                kernel,
                stride,
            );
            let activation = (index < last).then_some(INNER);
            y = layers.conv_norm(&format!("{}.conv{index}", self.step), y, &conv, activation)?;
        }
        let shortcut = self.shortcut(layers, spec, x)?;
        let sum = layers.push(Role::Other, &format!("{}.sum", self.step), Add, [y, shortcut])?;
        layers.activation(Role::Other, &format!("{}.act", self.step), sum, spec.activation)
    }

    /// Adds what the input passes besides the convolutions. A stride is that of a mean of 2×2 pixels, if the library pools.
    fn shortcut(&self, layers: &mut Layers<'_>, spec: &Backbone, mut x: ValueId) -> Result<ValueId> {
        let changes = self.channels[0] != self.channels[1];
        let (projects, pools) = if spec.is_bottleneck {
            (changes || self.stride != 1, self.stride == 2)
        } else {
            (self.is_first, self.is_first && changes)
        };
        if !projects {
            return Ok(x);
        }
        let step = format!("{}.shortcut", self.step);
        let mut tensor = format!("{}.shortcut", self.tensors);
        let mut stride = self.stride;
        if pools {
            let pool = AveragePool {
                kernel: [2; 2],
                stride: [2; 2],
                dilation: [1; 2],
                padding: [[0; 2]; 2],
                ceil: true,
                count_padding: false,
            };
            x = layers.push(Role::Other, &format!("{step}.pool"), pool, [x])?;
            (tensor, stride) = (format!("{tensor}.1"), 1);
        }
        layers.conv_norm(&step, x, &conv(spec, &tensor, self.channels, 1, stride), None)
    }
}
