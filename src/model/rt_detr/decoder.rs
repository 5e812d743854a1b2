//! RT-DETR's decoder: queries from the pixels with the best scores, whose boxes each layer refines.

use super::config::{Config, Decoder};
use super::layers::ConvNorm;
use super::outputs::{BOXES, LOGITS, SELECTED};
use super::positions::Anchors;
use crate::error::{Error, Result};
use crate::graph::{Role, ValueId};
use crate::model::layers::Layers;
use crate::ops::{
    Concat, DeformableAttention, Detach, Elementwise, Expand, Gather, GatherElements, Op, Reduce, ReduceKind,
    TopK,
};

const TENSORS: &str = "model.decoder";
/// Limit of a box and of its distance from 1, before their logarithm.
const LEAST: f32 = 1e-5;
const SCALES: &str = "the factors of offsets are not trained";

/// Adds the decoder and the outputs.
pub(super) fn decoder(layers: &mut Layers<'_>, config: &Config, maps: &[ValueId]) -> Result<()> {
    let levels = levels(layers, config, maps)?;
    let sizes: Vec<[usize; 2]> = levels
        .iter()
        .map(|&map| {
            let [rows, columns, _] = layers.extents(map);
            [rows, columns]
        })
        .collect();
    let spec = &config.decoder;
    let tokens: usize = sizes.iter().map(|[rows, columns]| rows * columns).sum();
    let mut flat = Vec::with_capacity(levels.len());
    for (index, (&map, [rows, columns])) in levels.iter().zip(&sizes).enumerate() {
        let step = format!("memory.{index}");
        flat.push(layers.reshaped(Role::Other, &step, map, &[1, rows * columns, spec.dim])?);
    }
    let memory = match flat.as_slice() {
        [only] => *only,
        _ => layers.push(Role::Other, "memory", Concat { axis: 1 }, flat)?,
    };
    let mut decoder = QueryDecoder {
        layers,
        spec,
        sizes,
        memory,
        of_layers: config.trains.then(Predictions::default),
    };
    let selected = decoder.selected(tokens)?;
    let (queries, mut boxes) = decoder.refined(selected.queries, selected.logits)?;
    let mut logits = decoder.classes(queries, spec.depth - 1)?;
    if let Some(mut all) = decoder.of_layers.take() {
        all.logits.push(logits);
        all.boxes.push(boxes);
        let mut joined = |name: &str, parts| layers.push(Role::Other, name, Concat { axis: 1 }, parts);
        (logits, boxes) = (
            joined("layers.logits", all.logits)?,
            joined("layers.boxes", all.boxes)?,
        );
    }
    let graph = &mut layers.graph;
    graph.add_output(LOGITS, logits)?;
    graph.add_output(BOXES, boxes)?;
    graph.add_output(SELECTED, selected.pixels)?;
    Ok(())
}

/// Projects the maps to the decoder's channels. Further levels are the smallest map with half as many rows and columns.
fn levels(layers: &mut Layers<'_>, config: &Config, maps: &[ValueId]) -> Result<Vec<ValueId>> {
    let mut levels = Vec::with_capacity(config.decoder.levels);
    let (from, to) = (config.encoder.dim, config.decoder.dim);
    for index in 0..config.decoder.levels {
        let tensor = format!("model.decoder_input_proj.{index}");
        let (map, kernel, stride) = match (maps.get(index), maps.last()) {
            (Some(&map), _) => (map, 1, 1),
            (None, Some(&last)) => (last, 3, 2),
            (None, None) => return Err(Error::graph(tensor, "has no map")),
        };
        if index > maps.len() && from != to {
            let reason = format!(
                "is for maps of {to} channels, but the encoder's have {from}: transformers cannot run it either"
            );
            return Err(Error::graph(tensor, reason));
        }
        let conv = ConvNorm {
            conv: format!("{tensor}.0"),
            norm: format!("{tensor}.1"),
            channels: [from, to],
            kernel,
            stride,
            epsilon: config.encoder.batch_norm_epsilon,
            norms: config.encoder.norms,
        };
        levels.push(layers.conv_norm(&format!("levels.{index}"), map, &conv, None)?);
    }
    Ok(levels)
}

struct QueryDecoder<'a, 'b> {
    layers: &'a mut Layers<'b>,
    spec: &'a Decoder,
    /// Rows and columns of each level.
    sizes: Vec<[usize; 2]>,
    /// Pixels of all levels.
    memory: ValueId,
    /// Classes and boxes of the layers so far. `None` unless they are trained.
    of_layers: Option<Predictions>,
}

/// What queries predict, of the selected pixels and of each layer.
#[derive(Default)]
struct Predictions {
    logits: Vec<ValueId>,
    boxes: Vec<ValueId>,
}

/// Pixels that become queries.
struct Selected {
    queries: ValueId,
    /// Logits of their boxes.
    logits: ValueId,
    /// Indices of the pixels.
    pixels: ValueId,
}

impl QueryDecoder<'_, '_> {
    /// Selects the pixels with the best scores.
    fn selected(&mut self, tokens: usize) -> Result<Selected> {
        let Decoder {
            dim,
            queries,
            classes,
            norm_epsilon,
            ..
        } = *self.spec;
        let role = Role::Other;
        let anchors = Anchors::new(&self.sizes);
        let mut x = self.memory;
        if anchors.valid.contains(&0.0) {
            let valid = self
                .layers
                .computed("select.valid", &[], &[1, tokens, 1], anchors.valid)?;
            let product = elementwise("select.valid", Elementwise::binary(|x, valid| x * valid))?;
            x = self.layers.push(role, "select.masked", product, [x, valid])?;
        }
        x = self
            .layers
            .linear(role, "select.output", x, "model.enc_output.0", [dim, dim])?;
        x = self
            .layers
            .norm("select.norm", x, "model.enc_output.1", dim, norm_epsilon)?;
        let scores = self
            .layers
            .linear(role, "select.scores", x, "model.enc_score_head", [classes, dim])?;
        let best = Reduce {
            kind: ReduceKind::Max,
            axes: vec![2],
            keep: false,
        };
        let best = self.layers.push(role, "select.best", best, [scores])?;
        let top = Op::TopK(TopK {
            k: queries,
            largest: true,
        });
        let node = self
            .layers
            .graph
            .push_node(role, "select.top".into(), top, vec![best])?;
        let selected = node.outputs[1];

        // The boxes of other pixels are not used, so that their layers run for these pixels only.
        let index = self
            .layers
            .reshaped(role, "select.index", selected, &[1, queries, 1])?;
        let mut x = self.gathered("select.indices", "select.queries", [x, index], dim)?;
        let offsets = self
            .layers
            .mlp("select.boxes", x, "model.enc_bbox_head", &[dim, dim, dim, 4])?;
        let anchors = self
            .layers
            .computed("select.anchors", &[], &[tokens, 4], anchors.logits)?;
        let anchors = self
            .layers
            .push(role, "select.anchor", Gather { axis: 0 }, [anchors, selected])?;
        let mut logits = self.layers.add(role, "select.boxes.sum", offsets, anchors)?;
        if self.of_layers.is_some() {
            let scores = self.gathered(
                "select.classes.indices",
                "select.classes",
                [scores, index],
                classes,
            )?;
            let boxes = self.boxes("select.boxes.trained", logits)?;
            self.predict(scores, boxes);
            x = self.layers.push(role, "select.queries.detached", Detach, [x])?;
            logits = self
                .layers
                .push(role, "select.boxes.detached", Detach, [logits])?;
        }
        Ok(Selected {
            queries: x,
            logits,
            pixels: selected,
        })
    }

    /// Adds the rows of `x`, `[1, N, width]`, with the indices `[1, Q, 1]`. `indices` and `step` name the nodes.
    fn gathered(
        &mut self,
        indices: &str,
        step: &str,
        [x, index]: [ValueId; 2],
        width: usize,
    ) -> Result<ValueId> {
        let repeat = Expand {
            extents: vec![1, self.spec.queries, width],
            batch: Some(0),
            like: None,
        };
        let index = self.layers.push(Role::Other, indices, repeat, [index])?;
        self.layers
            .push(Role::Other, step, GatherElements { axis: 1 }, [x, index])
    }

    /// Adds predictions to those of the layers so far.
    fn predict(&mut self, logits: ValueId, boxes: ValueId) {
        if let Some(all) = &mut self.of_layers {
            all.logits.push(logits);
            all.boxes.push(boxes);
        }
    }

    /// Adds all layers. Returns the queries and their boxes.
    fn refined(&mut self, mut x: ValueId, mut logits: ValueId) -> Result<(ValueId, ValueId)> {
        let dim = self.spec.dim;
        let mut boxes = self.boxes("select.boxes.sigmoid", logits)?;
        // All layers share it.
        let head = format!("{TENSORS}.query_pos_head");
        let head = self.layers.mlp_constants(&head, &[4, 2 * dim, dim])?;
        for index in 0..self.spec.depth {
            let step = format!("blocks.{index}");
            let positions = self.layers.mlp_of(&format!("{step}.positions"), boxes, &head)?;
            x = self.layer(&step, x, [positions, boxes], &format!("{TENSORS}.layers.{index}"))?;
            let tensors = format!("{TENSORS}.bbox_embed.{index}");
            let change = self
                .layers
                .mlp(&format!("{step}.boxes"), x, &tensors, &[dim, dim, dim, 4])?;
            // The logits of the last boxes, from boxes of limited distance from 0 and 1.
            let sum = Elementwise::binary(|change, logits| {
                let part = logits.sigmoid();
                let rest = (-logits).sigmoid();
                change + (part.max(LEAST) / rest.max(LEAST)).log()
            });
            let name = format!("{step}.boxes.sum");
            let sum = elementwise(&name, sum)?;
            logits = self.layers.push(Role::Other, &name, sum, [change, logits])?;
            boxes = self.boxes(&format!("{step}.boxes.sigmoid"), logits)?;
            if self.of_layers.is_none() || index + 1 == self.spec.depth {
                continue;
            }
            let classes = self.classes(x, index)?;
            self.predict(classes, boxes);
            // The next layer starts from these boxes as constants.
            for (name, value) in [("logits", &mut logits), ("boxes", &mut boxes)] {
                let step = format!("{step}.{name}.detached");
                *value = self.layers.push(Role::Other, &step, Detach, [*value])?;
            }
        }
        Ok((x, boxes))
    }

    /// Adds the sigmoid of boxes.
    fn boxes(&mut self, step: &str, logits: ValueId) -> Result<ValueId> {
        let sigmoid = elementwise(step, Elementwise::unary(|x| x.sigmoid()))?;
        self.layers.push(Role::Other, step, sigmoid, [logits])
    }

    /// Adds a layer: attention among the queries, of the queries to the maps, and a feed-forward network.
    fn layer(
        &mut self,
        step: &str,
        x: ValueId,
        [positions, boxes]: [ValueId; 2],
        tensors: &str,
    ) -> Result<ValueId> {
        let Decoder {
            dim,
            hidden,
            heads,
            activation,
            norm_epsilon: epsilon,
            ..
        } = *self.spec;
        let role = Role::Attention;
        let norm = |layers: &mut Layers<'_>, name: &str, x| {
            layers.norm(
                &format!("{step}.{name}"),
                x,
                &format!("{tensors}.{name}"),
                dim,
                epsilon,
            )
        };
        let own = format!("{step}.self");
        let placed = self
            .layers
            .add(Role::Qkv, &format!("{own}.placed"), x, positions)?;
        let tensor = format!("{tensors}.self_attn");
        let y = self
            .layers
            .attention(&own, [placed, placed, x], &tensor, [dim, dim, heads])?;
        let x = self.layers.add(role, &format!("{own}.residual"), x, y)?;
        let x = norm(self.layers, "self_attn_layer_norm", x)?;

        let cross = format!("{step}.cross");
        let placed = self
            .layers
            .add(Role::Qkv, &format!("{cross}.placed"), x, positions)?;
        let y = self.sampled(&cross, [placed, boxes], &format!("{tensors}.encoder_attn"))?;
        let x = self.layers.add(role, &format!("{cross}.residual"), x, y)?;
        let x = norm(self.layers, "encoder_attn_layer_norm", x)?;

        let network = ["fc1", "fc2"].map(|part| format!("{tensors}.{part}"));
        let y = self
            .layers
            .network(&format!("{step}.mlp"), x, network, [dim, hidden], activation)?;
        let x = self
            .layers
            .add(Role::Ffn, &format!("{step}.mlp.residual"), x, y)?;
        norm(self.layers, "final_layer_norm", x)
    }

    /// Adds attention of queries to points of the maps around their boxes.
    fn sampled(&mut self, step: &str, [queries, boxes]: [ValueId; 2], tensors: &str) -> Result<ValueId> {
        let Decoder {
            dim, heads, points, ..
        } = *self.spec;
        self.check_scale(&format!("{tensors}.n_points_scale"))?;
        let op = DeformableAttention {
            heads,
            levels: self.sizes.clone(),
            points,
            scale: (self.spec.offset_scale / points as f64) as f32,
            sampling: self.spec.sampling,
        };
        let count = op.points_of_query();
        let mut linear = |name: &str, x, outputs: usize, role| {
            let (step, tensor) = (format!("{step}.{name}"), format!("{tensors}.{name}"));
            self.layers.linear(role, &step, x, &tensor, [outputs, dim])
        };
        let value = linear("value_proj", self.memory, dim, Role::Qkv)?;
        let offsets = linear("sampling_offsets", queries, 2 * count, Role::Qkv)?;
        let scores = linear("attention_weights", queries, count, Role::Qkv)?;
        let y = self
            .layers
            .push(Role::Attention, step, op, [value, boxes, offsets, scores])?;
        let (step, tensor) = (format!("{step}.proj"), format!("{tensors}.output_proj"));
        self.layers.linear(Role::Attention, &step, y, &tensor, [dim, dim])
    }

    /// Checks the factors of the offsets in files of RT-DETRv2, which are the same for all points.
    fn check_scale(&mut self, name: &str) -> Result<()> {
        let weights = &mut *self.layers.weights;
        if self.of_layers.is_some() {
            // A trained graph is also built of other numbers.
            weights.ignore(name, SCALES);
            return Ok(());
        }
        let Some(file) = weights.file(name).map(ToOwned::to_owned) else {
            return Ok(());
        };
        let points = self.spec.points;
        let stored = weights.take(name, &[self.sizes.len() * points])?;
        let expected = (1.0 / points as f64) as f32;
        match stored
            .to_f32()
            .iter()
            .find(|&&factor| (factor - expected).abs() > 1e-3 * expected)
        {
            Some(factor) => {
                let reason = format!(
                    "has the factor {factor}, which is not supported: with {points} points of each level it is {expected}"
                );
                Err(Error::tensor(&file, name, reason))
            }
            None => Ok(()),
        }
    }

    /// Adds the classes of a layer's queries.
    fn classes(&mut self, queries: ValueId, layer: usize) -> Result<ValueId> {
        let Decoder {
            dim, depth, classes, ..
        } = *self.spec;
        let tensor = format!("{TENSORS}.class_embed.{layer}");
        let step = if layer + 1 == depth {
            "classes".to_owned()
        } else {
            format!("blocks.{layer}.classes")
        };
        self.layers
            .linear(Role::Other, &step, queries, &tensor, [classes, dim])
    }
}

fn elementwise(
    name: &str,
    op: Result<Elementwise, hipvit_graph::pattern::PatternError>,
) -> Result<Elementwise> {
    op.map_err(|error| Error::graph(name, error))
}
