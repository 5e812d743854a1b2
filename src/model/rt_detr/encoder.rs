//! RT-DETR's hybrid encoder: attention inside of the smallest map, and convolutions that fuse the maps from the smallest to the largest and
//! back.

use super::config::{Backbone, Encoder};
use super::layers::{ConvNorm, Norms};
use super::positions::sinusoidal;
use crate::error::Result;
use crate::graph::{Role, ValueId};
use crate::model::layers::Layers;
use crate::ops::{Concat, Coordinates, Interpolate, InterpolationKernel, NearestRounding};

const TENSORS: &str = "model.encoder";
/// Number of blocks of a fusion.
const BLOCKS: usize = 3;
/// Epsilon of the norms of the projections to the encoder's channels, whatever the configuration says.
const PROJECTION_EPSILON: f64 = 1e-5;

/// Adds the encoder. Returns the maps, the largest first.
pub(super) fn encoder(
    layers: &mut Layers<'_>,
    spec: &Encoder,
    backbone: &Backbone,
    maps: Vec<ValueId>,
) -> Result<Vec<ValueId>> {
    let mut projected = Vec::with_capacity(maps.len());
    for (index, (map, channels)) in maps.into_iter().zip(backbone.channels()).enumerate() {
        let tensor = format!("model.encoder_input_proj.{index}");
        let conv = ConvNorm {
            conv: format!("{tensor}.0"),
            norm: format!("{tensor}.1"),
            channels: [channels, spec.dim],
            kernel: 1,
            stride: 1,
            epsilon: PROJECTION_EPSILON,
            norms: spec.norms,
        };
        projected.push(layers.conv_norm(&format!("encoder.input.{index}"), map, &conv, None)?);
    }
    let mut encoder = HybridEncoder { layers, spec };
    for (index, &map) in spec.attended.iter().enumerate() {
        projected[map] = encoder.attended(index, projected[map])?;
    }
    encoder.fused(&projected)
}

struct HybridEncoder<'a, 'b> {
    layers: &'a mut Layers<'b>,
    spec: &'a Encoder,
}

impl HybridEncoder<'_, '_> {
    /// Adds layers of attention among all pixels of a map.
    fn attended(&mut self, index: usize, map: ValueId) -> Result<ValueId> {
        if self.spec.depth == 0 {
            return Ok(map);
        }
        let [rows, columns, dim] = self.layers.extents(map);
        let step = format!("encoder.aifi.{index}");
        let shape = [1, rows * columns, dim];
        let mut x = self
            .layers
            .reshaped(Role::Other, &format!("{step}.tokens"), map, &shape)?;
        let positions = if self.spec.positions {
            let values = sinusoidal([rows, columns], dim, self.spec.temperature);
            Some(
                self.layers
                    .computed(&format!("{step}.positions"), &[], &shape, values)?,
            )
        } else {
            None
        };
        for layer in 0..self.spec.depth {
            let (step, tensors) = (
                format!("{step}.{layer}"),
                // The first `encoder` is this module.
                format!("{TENSORS}.encoder.{index}.layers.{layer}"),
            );
            x = self.layer(&step, x, positions, &tensors)?;
        }
        self.layers
            .reshaped(Role::Other, &format!("{step}.map"), x, &[1, rows, columns, dim])
    }

    fn layer(
        &mut self,
        step: &str,
        x: ValueId,
        positions: Option<ValueId>,
        tensors: &str,
    ) -> Result<ValueId> {
        let Encoder {
            dim,
            hidden,
            heads,
            norm_first,
            activation,
            norm_epsilon: epsilon,
            ..
        } = *self.spec;
        let layers = &mut *self.layers;
        let norm = |layers: &mut Layers<'_>, name: &str, x| {
            layers.norm(
                &format!("{step}.{name}"),
                x,
                &format!("{tensors}.{name}"),
                dim,
                epsilon,
            )
        };
        let values = if norm_first {
            norm(layers, "self_attn_layer_norm", x)?
        } else {
            x
        };
        let placed = match positions {
            Some(positions) => layers.add(Role::Qkv, &format!("{step}.placed"), values, positions)?,
            None => values,
        };
        let y = layers.attention(
            &format!("{step}.attn"),
            [placed, placed, values],
            &format!("{tensors}.self_attn"),
            [dim, dim, heads],
        )?;
        let mut x = layers.add(Role::Attention, &format!("{step}.attn.residual"), x, y)?;
        // Unlike in other models with the norm first, the sum after the network has the normed tokens.
        x = if norm_first {
            norm(layers, "final_layer_norm", x)?
        } else {
            norm(layers, "self_attn_layer_norm", x)?
        };
        let network = ["fc1", "fc2"].map(|part| format!("{tensors}.{part}"));
        let y = layers.network(&format!("{step}.mlp"), x, network, [dim, hidden], activation)?;
        let x = layers.add(Role::Ffn, &format!("{step}.mlp.residual"), x, y)?;
        if norm_first {
            Ok(x)
        } else {
            norm(layers, "final_layer_norm", x)
        }
    }

    /// Fuses the maps from the last to the first, and back.
    fn fused(&mut self, maps: &[ValueId]) -> Result<Vec<ValueId>> {
        let (dim, activation) = (self.spec.dim, Some(self.spec.conv_activation));
        let stages = maps.len() - 1;
        let mut down = vec![maps[stages]];
        for index in 0..stages {
            let conv = self.conv(&format!("lateral_convs.{index}"), [dim, dim], 1, 1);
            let step = format!("encoder.lateral.{index}");
            let top = self.layers.conv_norm(&step, down[index], &conv, activation)?;
            down[index] = top;
            let [rows, columns, _] = self.layers.extents(top);
            let twice = Interpolate {
                size: [2 * rows, 2 * columns],
                scale: None,
                kernel: InterpolationKernel::Nearest(NearestRounding::Floor),
                coordinates: Coordinates::Asymmetric,
                antialias: false,
                exclude_outside: false,
            };
            let top = self
                .layers
                .push(Role::Other, &format!("encoder.upsample.{index}"), twice, [top])?;
            let step = format!("encoder.fpn.{index}");
            down.push(self.block(
                &step,
                [top, maps[stages - 1 - index]],
                &format!("fpn_blocks.{index}"),
            )?);
        }
        down.reverse();
        let mut up = vec![down[0]];
        for index in 0..stages {
            let conv = self.conv(&format!("downsample_convs.{index}"), [dim, dim], 3, 2);
            let step = format!("encoder.downsample.{index}");
            let top = self.layers.conv_norm(&step, up[index], &conv, activation)?;
            let step = format!("encoder.pan.{index}");
            up.push(self.block(&step, [top, down[index + 1]], &format!("pan_blocks.{index}"))?);
        }
        Ok(up)
    }

    /// Adds a fusion of two maps: blocks of convolutions beside one convolution.
    fn block(&mut self, step: &str, maps: [ValueId; 2], tensors: &str) -> Result<ValueId> {
        let (dim, expanded) = (self.spec.dim, self.spec.expanded);
        let activation = Some(self.spec.conv_activation);
        let both = self
            .layers
            .push(Role::Other, &format!("{step}.concat"), Concat { axis: 3 }, maps)?;
        let mut branches = [both; 2];
        for (branch, name) in branches.iter_mut().zip(["conv1", "conv2"]) {
            let conv = self.conv(&format!("{tensors}.{name}"), [2 * dim, expanded], 1, 1);
            *branch = self
                .layers
                .conv_norm(&format!("{step}.{name}"), both, &conv, activation)?;
        }
        let [mut x, beside] = branches;
        for index in 0..BLOCKS {
            let block = format!("{tensors}.bottlenecks.{index}");
            let [three, one] = [("conv1", 3), ("conv2", 1)]
                .map(|(name, kernel)| self.conv(&format!("{block}.{name}"), [expanded, expanded], kernel, 1));
            let step = format!("{step}.blocks.{index}");
            if self.spec.norms == Norms::Folded {
                let mut folded = self.layers.folded(&three)?;
                folded.add_pointwise(self.layers.folded(&one)?);
                x = self.layers.conv_of(&step, x, folded, 1, activation)?;
                continue;
            }
            let three = self.layers.conv_norm(&format!("{step}.conv1"), x, &three, None)?;
            let one = self.layers.conv_norm(&format!("{step}.conv2"), x, &one, None)?;
            let sum = self.layers.add(Role::Other, &format!("{step}.sum"), three, one)?;
            x = self.layers.activated(&step, sum, activation)?;
        }
        let sum = self.layers.add(Role::Other, &format!("{step}.sum"), x, beside)?;
        if expanded == dim {
            return Ok(sum);
        }
        let conv = self.conv(&format!("{tensors}.conv3"), [expanded, dim], 1, 1);
        self.layers
            .conv_norm(&format!("{step}.conv3"), sum, &conv, activation)
    }

    fn conv(&self, name: &str, channels: [usize; 2], kernel: usize, stride: usize) -> ConvNorm {
        ConvNorm {
            conv: format!("{TENSORS}.{name}.conv"),
            norm: format!("{TENSORS}.{name}.norm"),
            channels,
            kernel,
            stride,
            epsilon: self.spec.batch_norm_epsilon,
            norms: self.spec.norms,
        }
    }
}
