//! Traces a pixel through a forward pass and a backward pass.

use ndarray::s;

use super::{
    ChannelPart, Contribution, Embedding, Ffn, Head, InputPixel, Layer, PatchPlace, Read, Resized,
    SourcePixel, Token, Trace, Unit, Weighted,
};
use crate::attribution::{Attribution, Method, from_gradients};
use crate::backward::Rules;
use crate::explainer::{Explainer, Target};
use crate::maps::{AttentionMap, attention_maps, readout};
use crate::program::Run;
use hipvit::error::{Error, Result};
use hipvit::graph::{Node, Role, ValueId};
use hipvit::image::{Axis, PRECISION_BITS, Pass, RgbImage};
use hipvit::ops::{Add, Op, PatchConv, Pool, SwiGlu};

/// Maximum number of entries of a list.
const LISTED: usize = 5;

fn norm(values: &[f64]) -> f64 {
    values.iter().map(|v| v * v).sum::<f64>().sqrt()
}

/// Returns the `LISTED` largest values with their positions.
fn largest(values: impl Iterator<Item = f64>, by: impl Fn(f64) -> f64) -> Vec<(usize, f64)> {
    let mut all: Vec<(usize, f64)> = values.enumerate().collect();
    all.sort_by(|a, b| by(b.1).total_cmp(&by(a.1)));
    all.truncate(LISTED);
    all
}

impl Explainer {
    /// Traces the pixel in column `x` and row `y` of `image` to the logit of `class`, by default of the most likely one.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for a model without attention, a pixel outside the image, or a class that does not exist. Also for an image that
    /// preprocessing cannot bring to the model's size.
    pub fn trace(&self, image: &RgbImage, [x, y]: [usize; 2], class: Option<usize>) -> Result<Trace> {
        if !self.info().has_attention() {
            let reason = format!(
                "{} has no attention, by which a token is followed; `explain` attributes its result to pixels",
                self.name()
            );
            return Err(Error::argument("model", reason));
        }
        if x >= image.width || y >= image.height {
            let reason = format!(
                "{x},{y} is outside of the image, whose columns are 0 to {} and rows 0 to {}",
                image.width - 1,
                image.height - 1
            );
            return Err(Error::argument("pixel", reason));
        }
        let (resized, values) = self.pixel_values(image)?;
        let mut outputs = self.outputs_of([image.width, image.height], [x, y])?;
        outputs.sort_by(|a, b| b.weight.abs().total_cmp(&a.weight.abs()));
        let run = self.run(&values)?;
        let (target, direction) = self.target(&run, class)?;
        let rules = Rules::Conservative;
        let backward = run.program().backward(rules, direction.output, true)?;
        let gradients = backward.run(&run, direction.seed(), |_| true)?;
        let attribution = from_gradients(&run, Method::Conservative, &direction, &gradients)?;
        let relevance = |id: ValueId| -> Option<Vec<f64>> {
            let products = gradients.of(id)?.iter().zip(run.value(id));
            Some(products.map(|(g, x)| g * x).collect())
        };

        let at = |image: &RgbImage, x: usize, y: usize| {
            let at = (y * image.width + x) * 3;
            [image.data[at], image.data[at + 1], image.data[at + 2]]
        };
        let rule = self.preprocess();
        let plane = resized.width * resized.height;
        let input = outputs.first().map(|&Weighted { x, y, .. }| InputPixel {
            x,
            y,
            rgb: at(&resized, x, y),
            values: [0, 1, 2].map(|c| values[c * plane + y * resized.width + x]),
            rescale: rule.rescale(),
            mean: rule.mean(),
            std: rule.std(),
        });
        let patch = input.and_then(|input| self.place(&input));
        let prefix = self.info().prefix_tokens;
        let attention = attention_maps(&run);
        let readout = readout(run.graph(), self.info().tokens);
        let mut trace = Trace {
            model: self.name().to_owned(),
            pixel: SourcePixel {
                x,
                y,
                rgb: at(image, x, y),
                image: [image.width, image.height],
            },
            embedding: input
                .zip(patch)
                .and_then(|(input, place)| embedding(&run, &input, &place)),
            token: patch.and_then(|place| token(&run, &place, prefix)),
            layers: Vec::new(),
            pooling: pooling(&run),
            contribution: self.contribution(target, &attribution, &outputs, [x, y], image, patch.as_ref()),
            top: self.top(&run),
            grid: self.grid(),
            patch_size: self.info().patch,
            prefix_tokens: prefix,
            resize: Resized {
                rule: rule.to_string(),
                outputs,
            },
            input,
            patch,
            attention,
            attribution,
            resized,
        };
        if let Some(Token { index, .. }) = trace.token {
            let layer = |block| layer(&run, block, index, &trace.attention, &readout, &relevance);
            trace.layers = (0..self.info().depth).filter_map(layer).collect();
        }
        Ok(trace)
    }

    /// Returns the pixels of the model's input that a source pixel contributes to.
    fn outputs_of(&self, image: [usize; 2], pixel: [usize; 2]) -> Result<Vec<Weighted>> {
        let placement = self.preprocess().placement(image)?;
        let mut parts = vec![Weighted {
            x: pixel[0],
            y: pixel[1],
            weight: 1.0,
        }];
        for pass in placement.resampling.passes() {
            parts = parts.iter().flat_map(|part| through(pass, part)).collect();
        }
        if let Some(padding) = placement.padding {
            for part in &mut parts {
                part.x += padding.left;
                part.y += padding.top;
            }
        }
        Ok(parts)
    }

    fn place(&self, input: &InputPixel) -> Option<PatchPlace> {
        let ([h, w], [rows, columns]) = (self.info().patch, self.grid());
        let (row, column) = (input.y / h, input.x / w);
        let (inner_row, inner_column) = (input.y % h, input.x % w);
        (row < rows && column < columns).then_some(PatchPlace {
            index: row * columns + column,
            row,
            column,
            inner_row,
            inner_column,
            library: [0, 1, 2].map(|c| (c * h + inner_row) * w + inner_column),
            permuted: [0, 1, 2].map(|c| (inner_row * w + inner_column) * 3 + c),
        })
    }

    fn contribution(
        &self,
        target: Target,
        attribution: &Attribution,
        outputs: &[Weighted],
        [x, y]: [usize; 2],
        image: &RgbImage,
        patch: Option<&PatchPlace>,
    ) -> Contribution {
        // With gradient g, an input pixel contributes g · (p − mean) / std. The source pixel s adds weight · s to p. Since the weights sum
        // to 1, its part is weight · g · (s − mean) / std.
        let rule = self.preprocess();
        let (mean, std) = (rule.mean(), rule.std());
        let source = |c: usize| {
            let byte = f64::from(image.data[(y * image.width + x) * 3 + c]);
            (byte * rule.rescale() - f64::from(mean[c])) / f64::from(std[c])
        };
        let mut source_pixel = 0.0;
        for output in outputs {
            for c in 0..3 {
                source_pixel += output.weight * attribution.gradient(c, output.y, output.x) * source(c);
            }
        }
        let by_patch = attribution.by_patch(self.info().patch);
        let of_patch = patch.map(|place| by_patch[[place.row, place.column]]);
        let rank = |of: f64| 1 + by_patch.iter().filter(|other| other.abs() > of.abs()).count();
        let mut constants = attribution.constants.clone();
        constants.sort_by(|a, b| b.contribution.abs().total_cmp(&a.contribution.abs()));
        constants.truncate(2 * LISTED);
        Contribution {
            target,
            output: attribution.output,
            method: Method::Conservative.source().to_owned(),
            source_pixel,
            input_pixel: outputs.first().map(|at| {
                let values = attribution.values.slice(s![.., at.y, at.x]);
                [values[0], values[1], values[2]]
            }),
            patch: of_patch,
            patch_rank: of_patch.map(rank),
            pixels: attribution.sum(),
            constant: attribution.constant.unwrap_or(0.0),
            gap: attribution.gap().unwrap_or(0.0),
            constants,
        }
    }
}

/// Returns the outputs of a resampling pass that a pixel contributes to.
fn through(pass: &Pass, part: &Weighted) -> Vec<Weighted> {
    let moved = |x, y, weight: f64| Weighted {
        x,
        y,
        weight: part.weight * weight,
    };
    let along = |axis: &Axis, from: usize| -> Vec<(usize, f64)> {
        let outputs = axis.starts.iter().zip(&axis.counts).enumerate();
        outputs
            .filter(|(_, (start, count))| (**start..**start + **count).contains(&from))
            .map(|(to, (start, _))| {
                let weight = axis.weights[to * axis.taps + from - start];
                (to, f64::from(weight) / f64::from(1 << PRECISION_BITS))
            })
            .filter(|(_, weight)| *weight != 0.0)
            .collect()
    };
    match pass {
        Pass::Pick { columns, rows } => {
            let places = |all: &[usize], from| -> Vec<usize> {
                (0..all.len()).filter(|&to| all[to] == from).collect()
            };
            let (columns, rows) = (places(columns, part.x), places(rows, part.y));
            let all = rows.iter().flat_map(|&y| columns.iter().map(move |&x| (x, y)));
            all.map(|(x, y)| moved(x, y, 1.0)).collect()
        }
        Pass::Rotate { input: [_, height] } => vec![moved(height - 1 - part.y, part.x, 1.0)],
        Pass::Horizontal { rows, axis } if rows.contains(&part.y) => {
            let y = part.y - rows.start;
            along(axis, part.x)
                .into_iter()
                .map(|(x, w)| moved(x, y, w))
                .collect()
        }
        Pass::Vertical { columns, axis } if columns.contains(&part.x) => {
            let x = part.x - columns.start;
            along(axis, part.y)
                .into_iter()
                .map(|(y, w)| moved(x, y, w))
                .collect()
        }
        Pass::Horizontal { .. } | Pass::Vertical { .. } => Vec::new(),
    }
}

fn find<'r>(run: &'r Run<'_, f64>, name: &str) -> Option<&'r Node> {
    run.graph().nodes().iter().find(|node| node.name == name)
}

/// Returns the nodes of a block, in order.
fn nodes_of_block<'r>(run: &'r Run<'_, f64>, block: usize) -> impl Iterator<Item = &'r Node> {
    let nodes = run.graph().nodes().iter();
    nodes.filter(move |node| node.block() == Some(block))
}

fn channels<'r>(run: &'r Run<'_, f64>, id: ValueId, token: usize) -> Option<&'r [f64]> {
    let channels = *run.shape(id).last()?;
    run.value(id).get(token * channels..(token + 1) * channels)
}

fn embedding(run: &Run<'_, f64>, input: &InputPixel, place: &PatchPlace) -> Option<Embedding> {
    let node = find(run, "patch_embed")?;
    let Op::PatchConv(PatchConv { bias, .. }) = node.op else {
        return None;
    };
    let weight = run.value(node.inputs[1]);
    let length = weight.len() / run.shape(node.inputs[1]).first()?;
    let mut total = channels(run, node.output(), place.index)?.to_vec();
    if bias {
        let bias = run.value(node.inputs[2]);
        total.iter_mut().zip(bias).for_each(|(total, b)| *total -= b);
    }
    let part = |row: &[f64]| -> f64 {
        let products = place.library.iter().zip(input.values);
        products.map(|(&at, value)| row[at] * f64::from(value)).sum()
    };
    let pixel: Vec<f64> = weight.chunks_exact(length).map(part).collect();
    let dot: f64 = pixel.iter().zip(&total).map(|(p, t)| p * t).sum();
    let square: f64 = total.iter().map(|t| t * t).sum();
    Some(Embedding {
        pixel_norm: norm(&pixel),
        patch_norm: square.sqrt(),
        share: dot / square.max(f64::MIN_POSITIVE),
        channels: largest(pixel.iter().copied(), f64::abs)
            .into_iter()
            .map(|(channel, pixel)| ChannelPart {
                channel,
                pixel,
                total: total[channel],
            })
            .collect(),
    })
}

fn token(run: &Run<'_, f64>, place: &PatchPlace, prefix: usize) -> Option<Token> {
    let index = prefix + place.index;
    // In every block form, the first node reads the residual stream.
    let first = nodes_of_block(run, 0).next()?;
    Some(Token {
        index,
        embedding_norm: norm(channels(run, find(run, "patch_embed")?.output(), place.index)?),
        norm: norm(channels(run, first.inputs[0], index)?),
    })
}

fn layer(
    run: &Run<'_, f64>,
    block: usize,
    token: usize,
    attention: &[AttentionMap],
    readout: &[f64],
    relevance: &dyn Fn(ValueId) -> Option<Vec<f64>>,
) -> Option<Layer> {
    let last = nodes_of_block(run, block).last()?;
    // The update of the stream comes after LayerScale, if there is one. A block may have several updates.
    let update = |role: Role| {
        let residuals = nodes_of_block(run, block)
            .filter(|node| node.role == role && node.op == Op::Add(Add) && node.name.ends_with(".residual"));
        let mut sum: Vec<f64> = Vec::new();
        for added in residuals.filter_map(|node| channels(run, node.inputs[1], token)) {
            sum.resize(added.len(), 0.0);
            sum.iter_mut().zip(added).for_each(|(sum, a)| *sum += a);
        }
        norm(&sum)
    };
    let activated = nodes_of_block(run, block)
        .filter(|node| node.role == Role::Ffn && matches!(node.op, Op::Activation(_) | Op::SwiGlu(SwiGlu)));
    let hidden: Vec<f64> = activated
        .filter_map(|node| channels(run, node.output(), token))
        .flatten()
        .copied()
        .collect();
    let heads = attention.iter().filter(|map| map.block == Some(block));
    let heads = heads
        .flat_map(|map| self::heads(run, token, map, readout))
        .collect();
    let width = *run.shape(last.output()).last()?;
    let norms: Vec<f64> = run.value(last.output()).chunks_exact(width).map(norm).collect();
    let relevance = relevance(last.output());
    let sums: Vec<f64> = match &relevance {
        Some(all) => all.chunks_exact(width).map(|of| of.iter().sum()).collect(),
        None => vec![0.0; norms.len()],
    };
    let largest_units = largest(hidden.iter().copied(), |value| value);
    Some(Layer {
        block,
        heads,
        attention_update: update(Role::Attention),
        ffn: Ffn {
            hidden: hidden.len(),
            positive: hidden.iter().filter(|v| **v > 0.0).count(),
            largest: largest_units
                .into_iter()
                .map(|(unit, value)| Unit { unit, value })
                .collect(),
        },
        ffn_update: update(Role::Ffn),
        norm: norms[token],
        share: norms[token] / norms.iter().sum::<f64>(),
        relevance: sums[token],
        relevance_of_all: sums.iter().sum(),
    })
}

fn heads(run: &Run<'_, f64>, token: usize, map: &AttentionMap, readout: &[f64]) -> Vec<Head> {
    let Some(node) = find(run, &map.name) else {
        return Vec::new();
    };
    let Op::Attention(spec) = &node.op else {
        return Vec::new();
    };
    let by_readout = map.by_head(readout);
    let of_head = |head: usize| {
        let [query, key, value] = spec.places().map(|(operand, offset)| {
            let first = offset + head * spec.head_dim;
            let channels = channels(run, node.inputs[operand], token).unwrap_or_default();
            norm(channels.get(first..first + spec.head_dim).unwrap_or_default())
        });
        let column = map.weights.slice(s![head, .., token]);
        let row = map.weights.slice(s![head, token, ..]);
        let given = largest(row.iter().map(|&w| w.into()), |w| w);
        Head {
            attention: map.name.clone(),
            head,
            query,
            key,
            value,
            received: column.iter().map(|&w| f64::from(w)).sum::<f64>() / column.len() as f64,
            received_by_readout: by_readout[[head, token]].into(),
            given: given
                .into_iter()
                .map(|(token, weight)| Read { token, weight })
                .collect(),
        }
    };
    (0..spec.heads).map(of_head).collect()
}

/// Describes the graph's pooling in words.
fn pooling(run: &Run<'_, f64>) -> Vec<String> {
    let mut steps = Vec::new();
    for node in run.graph().nodes() {
        let tokens = node.inputs.first().and_then(|&id| run.shape(id).get(1)).copied();
        match (&node.op, tokens) {
            (Op::Attention(_), _) if !node.name.starts_with("blocks.") => {
                steps.push("one learned query attends to all tokens".to_owned());
            }
            (Op::Pool(_), Some(1)) => {}
            (Op::Pool(Pool::Token(index)), _) => steps.push(format!("token {index} is taken")),
            (Op::Pool(Pool::Mean { skip }), Some(n)) => {
                steps.push(format!("the mean of tokens {skip} to {} is taken", n - 1));
            }
            (Op::Pool(Pool::Max { skip }), Some(n)) => {
                steps.push(format!(
                    "each channel's maximum over tokens {skip} to {} is taken",
                    n - 1
                ));
            }
            _ => {}
        }
    }
    steps
}
