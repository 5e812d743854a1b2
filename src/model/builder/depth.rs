//! Builds the neck and the head of models that estimate depth. Maps have their channels last.

use super::Builder;
use crate::error::{Error, Result};
use crate::graph::{Change, Layout, Provenance, Role, ValueId};
use crate::model::channels_last::channels_last;
use crate::model::depth::{DepthHead, Form, PREDICTED_DEPTH, Readout, Scale};
use crate::model::norm::{Norm, NormKind};
use crate::ops::{
    Activation, Add, Conv, ConvTranspose, Coordinates, Elementwise, Interpolate, InterpolationKernel,
    LayerNorm, Linear, MulScalar, Op, Slice,
};
use crate::tensor::Tensor;

/// Convolution of a map.
struct Layer {
    channels: [usize; 2],
    kernel: usize,
    stride: usize,
    bias: bool,
}

impl Layer {
    /// Returns a convolution from `inputs` to `outputs` channels that keeps the map's size.
    fn new(inputs: usize, outputs: usize) -> Self {
        Self {
            channels: [inputs, outputs],
            kernel: 3,
            stride: 1,
            bias: true,
        }
    }
}

impl Builder<'_> {
    /// Converts the tokens of several blocks to depths, `[1, h, w]`.
    pub(super) fn depth(&mut self, embedded: ValueId, head: &DepthHead) -> Result<()> {
        let norm = if head.norm {
            Some(self.norm_constants()?)
        } else {
            None
        };
        let mut maps = Vec::with_capacity(head.states.len());
        for (index, &state) in head.states.iter().enumerate() {
            let tokens = match state {
                0 => embedded,
                block => self.hidden_layers[block - 1],
            };
            let tokens = match norm {
                Some(constants) => self.normed(index, tokens, constants)?,
                None => tokens,
            };
            let tokens = self.readout(index, tokens, head.readout)?;
            let map = self.reassembled(index, tokens, head.maps[index])?;
            let name = format!("neck.convs.{index}");
            let layer = Layer {
                bias: false,
                ..Layer::new(head.maps[index].0, head.fusion)
            };
            maps.push(self.conv(&name, map, &layer)?);
        }
        let fused = self.fused(&maps, head)?;
        let depths = match head.form {
            Form::DepthAnything {
                hidden,
                is_metric,
                max_depth,
            } => self.depth_anything_head(fused, head.fusion, hidden, (is_metric, max_depth))?,
            Form::Dpt { projection } => self.dpt_head(fused, head.fusion, projection)?,
        };
        let [height, width, _] = self.extents(depths);
        let depths = self.reshaped(Role::Other, "head.depth", depths, &[1, height, width])?;
        self.graph.add_output(PREDICTED_DEPTH, depths)?;
        if self.weights.is_recording() {
            self.record_unused(head)?;
        }
        Ok(())
    }

    /// Requests the tensors of transformers' model that depths do not need. A new model has them too, so that transformers misses none.
    fn record_unused(&mut self, head: &DepthHead) -> Result<()> {
        let dim = self.vit.dim;
        if head.has_mask_token {
            self.weights
                .take(&self.trunk("embeddings.mask_token"), &[1, dim])?;
        }
        if !head.norm {
            self.norm_constants()?;
        }
        for part in 1..=2 {
            let name = format!("neck.fusion_stage.layers.0.residual_layer1.convolution{part}");
            let channels = head.fusion;
            self.weights
                .take(&format!("{name}.weight"), &[channels, channels, 3, 3])?;
            if head.fusion_bias {
                self.weights.take(&format!("{name}.bias"), &[channels])?;
            }
        }
        Ok(())
    }

    /// Takes the weight and the bias of the encoder's last norm.
    fn norm_constants(&mut self) -> Result<[ValueId; 2]> {
        let (name, dim) = (self.trunk(self.names.norm), self.vit.dim);
        Ok([
            self.constant(&format!("{name}.weight"), &[dim])?,
            self.constant(&format!("{name}.bias"), &[dim])?,
        ])
    }

    fn normed(&mut self, index: usize, tokens: ValueId, [weight, bias]: [ValueId; 2]) -> Result<ValueId> {
        let Norm { kind, epsilon } = self.vit.norms;
        let step = format!("neck.norm.{index}");
        if kind != NormKind::Layer {
            return Err(Error::graph(step, "is not a layer norm"));
        }
        let epsilon = epsilon as f32;
        Ok(self
            .graph
            .push(Role::Other, step, LayerNorm { epsilon }, [tokens, weight, bias])?)
    }

    /// Returns the tokens of the patches, `[1, N, D]`, combined with the class token.
    fn readout(&mut self, index: usize, tokens: ValueId, readout: Readout) -> Result<ValueId> {
        let (prefix, dim) = (self.vit.prefix(), self.vit.dim);
        let [rows, columns] = self.vit.grid();
        let name = format!("neck.reassemble_stage.readout_projects.{index}");
        let slice = Slice::new(1, prefix, rows * columns);
        let patches = self
            .graph
            .push(Role::Other, format!("{name}.patches"), slice, [tokens])?;
        if readout == Readout::Ignore {
            return Ok(patches);
        }
        let class = self.graph.push(
            Role::Other,
            format!("{name}.class"),
            Slice::new(1, 0, 1),
            [tokens],
        )?;
        let sum = |builder: &mut Self, x, y| {
            let op = Elementwise::binary(|x, y| x + y).map_err(|e| Error::graph(&name, e))?;
            Ok::<_, Error>(
                builder
                    .graph
                    .push(Role::Other, format!("{name}.sum"), op, [x, y])?,
            )
        };
        let Readout::Project(activation) = readout else {
            return sum(self, patches, class);
        };
        // The layer of both tokens together is the sum of a layer each. That of the class token is computed once.
        let layer = format!("{name}.0");
        let stored = self.weights.take(&format!("{layer}.weight"), &[dim, 2 * dim])?;
        let values = stored.to_f32();
        let mut parts = Vec::with_capacity(2);
        for part in 0..2 {
            let columns = part * dim..(part + 1) * dim;
            let half: Vec<f32> = if self.weights.is_recording() {
                vec![0.0; dim * dim]
            } else {
                let rows = values.chunks_exact(2 * dim);
                rows.flat_map(|row| row[columns.clone()].iter().copied())
                    .collect()
            };
            let half = Tensor::from_f32([dim, dim], half);
            let half = half.ok_or_else(|| Error::graph(&layer, "does not have the elements of its shape"))?;
            let provenance = Provenance::from(format!("{layer}.weight")).then(Change::Columns(columns));
            parts.push(self.graph.constant(provenance, half));
        }
        let bias = self.constant(&format!("{layer}.bias"), &[dim])?;
        let patches = self.graph.push(
            Role::Other,
            format!("{layer}.patches"),
            Linear::default(),
            [patches, parts[0]],
        )?;
        let op = Linear {
            bias: true,
            ..Linear::default()
        };
        let class = self
            .graph
            .push(Role::Other, format!("{layer}.class"), op, [class, parts[1], bias])?;
        let projected = sum(self, patches, class)?;
        let op = Op::Activation(activation);
        Ok(self
            .graph
            .push(Role::Other, format!("{name}.act"), op, [projected])?)
    }

    /// Converts tokens of patches to a map of its scale.
    fn reassembled(
        &mut self,
        index: usize,
        tokens: ValueId,
        (channels, scale): (usize, Scale),
    ) -> Result<ValueId> {
        let name = format!("neck.reassemble_stage.layers.{index}");
        let [rows, columns] = self.vit.grid();
        let x = self.pointwise(&format!("{name}.projection"), tokens, self.vit.dim, channels)?;
        let x = self.reshaped(
            Role::Other,
            &format!("{name}.map"),
            x,
            &[1, rows, columns, channels],
        )?;
        let name = format!("{name}.resize");
        match scale {
            Scale::Same => Ok(x),
            Scale::Down(stride) => {
                let layer = Layer {
                    stride,
                    ..Layer::new(channels, channels)
                };
                self.conv(&name, x, &layer)
            }
            Scale::Up(factor) => {
                // [C, K, h, w] to [K, h, w, C].
                let weight = self.channels_last(
                    &format!("{name}.weight"),
                    [channels, channels, factor, factor],
                    |[channel, feature]| [feature, channel],
                )?;
                let bias = self.constant(&format!("{name}.bias"), &[channels])?;
                let op = ConvTranspose {
                    stride: [factor; 2],
                    bias: true,
                    ..ConvTranspose::new([factor; 2])
                };
                Ok(self.graph.push(Role::Other, name, op, [x, weight, bias])?)
            }
        }
    }

    /// Fuses the maps from the last to the first. Returns the one that the head reads.
    fn fused(&mut self, maps: &[ValueId], head: &DepthHead) -> Result<ValueId> {
        let mut fused = Vec::with_capacity(maps.len());
        let mut maps = maps.iter().rev().copied().peekable();
        let mut index = 0;
        while let Some(map) = maps.next() {
            let name = format!("neck.fusion_stage.layers.{index}");
            let mut x = match fused.last() {
                None => map,
                Some(&before) => {
                    let [height, width, _] = self.extents(before);
                    let map = self.resized(
                        &format!("{name}.resize"),
                        map,
                        [height, width],
                        Coordinates::HalfPixel,
                    )?;
                    let unit = self.residual_unit(&format!("{name}.residual_layer1"), map, head)?;
                    let step = format!("{name}.sum");
                    self.graph.push(Role::Other, step, Op::Add(Add), [before, unit])?
                }
            };
            x = self.residual_unit(&format!("{name}.residual_layer2"), x, head)?;
            let [height, width, _] = self.extents(x);
            let size = match (maps.peek(), head.form) {
                (Some(&next), Form::DepthAnything { .. }) => {
                    let [height, width, _] = self.extents(next);
                    [height, width]
                }
                _ => [2 * height, 2 * width],
            };
            x = self.resized(&format!("{name}.upsample"), x, size, Coordinates::AlignCorners)?;
            x = self.pointwise(&format!("{name}.projection"), x, head.fusion, head.fusion)?;
            fused.push(x);
            index += 1;
        }
        let read = fused.get(head.index).copied();
        read.ok_or_else(|| Error::graph("neck", format_args!("has no fused map {}", head.index)))
    }

    /// Adds `x + conv2(relu(conv1(relu(x))))`.
    fn residual_unit(&mut self, name: &str, x: ValueId, head: &DepthHead) -> Result<ValueId> {
        let layer = Layer {
            bias: head.fusion_bias,
            ..Layer::new(head.fusion, head.fusion)
        };
        let mut y = x;
        for part in 1..=2 {
            y = self.relu(&format!("{name}.activation{part}"), y)?;
            y = self.conv(&format!("{name}.convolution{part}"), y, &layer)?;
        }
        let step = format!("{name}.sum");
        Ok(self.graph.push(Role::Other, step, Op::Add(Add), [y, x])?)
    }

    /// Adds the head of Depth Anything, whose depths have the image's size.
    fn depth_anything_head(
        &mut self,
        x: ValueId,
        channels: usize,
        hidden: usize,
        (is_metric, max_depth): (bool, f32),
    ) -> Result<ValueId> {
        let ([rows, columns], [height, width]) = (self.vit.grid(), self.vit.patch);
        let size = [rows * height, columns * width];
        let x = self.conv("head.conv1", x, &Layer::new(channels, channels / 2))?;
        let x = self.resized("head.upsample", x, size, Coordinates::AlignCorners)?;
        let x = self.conv("head.conv2", x, &Layer::new(channels / 2, hidden))?;
        let x = self.relu("head.activation1", x)?;
        let x = self.pointwise("head.conv3", x, hidden, 1)?;
        if is_metric {
            let op = Elementwise::unary(|x| x.sigmoid() * max_depth);
            let op = op.map_err(|error| Error::graph("head.activation2", error))?;
            return Ok(self.graph.push(Role::Other, "head.activation2", op, [x])?);
        }
        let x = self.relu("head.activation2", x)?;
        if max_depth == 1.0 {
            return Ok(x);
        }
        Ok(self
            .graph
            .push(Role::Other, "head.scale", MulScalar(max_depth), [x])?)
    }

    /// Adds the head of DPT, whose depths have twice the size of `x`.
    fn dpt_head(&mut self, mut x: ValueId, channels: usize, projection: bool) -> Result<ValueId> {
        const HIDDEN: usize = 32;
        if projection {
            x = self.conv("head.projection", x, &Layer::new(channels, channels))?;
            x = self.relu("head.projection.act", x)?;
        }
        let x = self.conv("head.head.0", x, &Layer::new(channels, channels / 2))?;
        let [height, width, _] = self.extents(x);
        let size = [2 * height, 2 * width];
        let x = self.resized("head.head.1", x, size, Coordinates::AlignCorners)?;
        let x = self.conv("head.head.2", x, &Layer::new(channels / 2, HIDDEN))?;
        let x = self.relu("head.head.3", x)?;
        let x = self.pointwise("head.head.4", x, HIDDEN, 1)?;
        self.relu("head.head.5", x)
    }

    /// Returns rows, columns and channels of a map.
    fn extents(&self, map: ValueId) -> [usize; 3] {
        match *self.graph.value(map).shape {
            [_, rows, columns, channels] => [rows, columns, channels],
            // `Graph::push` has checked the operands of convolutions, which make all maps.
            _ => [0; 3],
        }
    }

    fn relu(&mut self, step: &str, x: ValueId) -> Result<ValueId> {
        let op = Op::Activation(Activation::Relu);
        Ok(self.graph.push(Role::Other, step, op, [x])?)
    }

    /// Interpolates a map linearly to another size.
    fn resized(
        &mut self,
        step: &str,
        x: ValueId,
        size: [usize; 2],
        coordinates: Coordinates,
    ) -> Result<ValueId> {
        let [height, width, _] = self.extents(x);
        if [height, width] == size {
            return Ok(x);
        }
        let op = Interpolate {
            size,
            scale: None,
            kernel: InterpolationKernel::Linear,
            coordinates,
            antialias: false,
            exclude_outside: false,
        };
        Ok(self.graph.push(Role::Other, step, op, [x])?)
    }

    /// Adds a convolution of 1×1, which is a linear layer of the channels.
    fn pointwise(&mut self, name: &str, x: ValueId, inputs: usize, outputs: usize) -> Result<ValueId> {
        let tensor = format!("{name}.weight");
        let stored = self.weights.take(&tensor, &[outputs, inputs, 1, 1])?;
        let weight = self.derived(
            Provenance::from(tensor).then(Change::Layout(Layout::Flat)),
            &stored,
            &[outputs, inputs],
        )?;
        let bias = self.constant(&format!("{name}.bias"), &[outputs])?;
        let op = Linear {
            bias: true,
            ..Linear::default()
        };
        Ok(self.graph.push(Role::Other, name, op, [x, weight, bias])?)
    }

    /// Adds a convolution with zeros around the map.
    fn conv(&mut self, name: &str, x: ValueId, layer: &Layer) -> Result<ValueId> {
        let Layer {
            channels: [inputs, outputs],
            kernel,
            stride,
            bias,
        } = *layer;
        let shape = [outputs, inputs, kernel, kernel];
        let weight = self.channels_last(&format!("{name}.weight"), shape, |pair| pair)?;
        let mut operands = vec![x, weight];
        if bias {
            operands.push(self.constant(&format!("{name}.bias"), &[outputs])?);
        }
        let op = Conv {
            stride: [stride; 2],
            padding: [[kernel / 2; 2]; 2],
            bias,
            ..Conv::new([kernel; 2])
        };
        Ok(self.graph.push(Role::Other, name, op, operands)?)
    }

    /// Adds the weight of a convolution, `[a, b, h, w]`, as the constant `[K, h, w, C]`. `order` returns the indices of K and C for those
    /// of a and b.
    fn channels_last(
        &mut self,
        name: &str,
        shape: [usize; 4],
        order: impl Fn([usize; 2]) -> [usize; 2],
    ) -> Result<ValueId> {
        let (provenance, weight) = channels_last(self.weights, name, shape, order)?;
        Ok(self.graph.constant(provenance, weight))
    }
}
