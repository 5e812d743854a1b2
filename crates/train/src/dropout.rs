//! Dropout and stochastic depth: which random numbers an image has in a step.
//!
//! The numbers depend on the seed, the step and the place of the image in the batch of all ranks. So micro-batches and ranks do not change them.

use std::ops::Range;

use hipvit::error::{Error, Result};
use hipvit::graph::{Graph, Node, Role, ValueId, rewrite};
use hipvit::ops::{Dropout, Op};
use hipvit::tensor::DType;
use hipvit_data::random::{Draw, Purpose, Stream};

use crate::inputs;

/// Probabilities of leaving out parts of the model in a step, each below 1. 0 leaves out nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DropOptions {
    /// Probability that an image skips a residual branch of the last block. It grows linearly from 0 at the first block.
    pub path: f32,
    /// Dropout of the input of the classifiers.
    pub head: f32,
    /// Dropout of the results of both layers of the feed-forward networks, the first after its activation, and of the layers after attention.
    pub projections: f32,
    /// Dropout of the tokens before the first block, with their positions.
    pub positions: f32,
}

impl DropOptions {
    /// Returns true if a step needs random numbers for elements.
    pub(crate) fn has_dropout(&self) -> bool {
        self.head > 0.0 || self.projections > 0.0 || self.positions > 0.0
    }

    /// Checks the ranges.
    pub(crate) fn check(&self) -> Result<()> {
        for (name, probability) in [
            ("drop path", self.path),
            ("dropout of the head", self.head),
            ("dropout of projections", self.projections),
            ("dropout of positions", self.positions),
        ] {
            if !(0.0..1.0).contains(&probability) {
                let reason = format!("{probability} is not a probability below 1");
                return Err(Error::argument(name, reason));
            }
        }
        Ok(())
    }

    /// Returns the probability of dropping elements of the operand and of the result of a node. `last_patch` is the last node before the blocks.
    fn of_node(&self, node: &Node, last_patch: Option<&Node>) -> [f32; 2] {
        let ends = [".attn.proj", ".mlp.act", ".mlp.gate", ".mlp.fc2"];
        let is_projection = node.block().is_some() && ends.iter().any(|end| node.name.ends_with(end));
        let is_head = matches!(node.op, Op::Linear(_))
            && ["head", "head.class", "head.distillation"].contains(&node.name.as_str());
        let of_result = if is_projection {
            self.projections
        } else if last_patch.is_some_and(|last| last.name == node.name) {
            self.positions
        } else {
            0.0
        };
        [if is_head { self.head } else { 0.0 }, of_result]
    }
}

/// Returns `graph` with dropout. The keys of the random numbers are an input.
///
/// # Errors
///
/// [`Error::Argument`] if the graph lacks a place for one of the probabilities.
pub(crate) fn with_dropout(graph: &Graph, options: &DropOptions) -> Result<Graph> {
    let mut before = graph.nodes().iter().take_while(|node| node.block().is_none());
    let last_patch = before.by_ref().filter(|node| node.role == Role::Patch).last();
    for (probability, key, one) in [
        (
            options.head,
            "drop_rate",
            DropOptions {
                head: 0.5,
                ..DropOptions::default()
            },
        ),
        (
            options.projections,
            "proj_drop_rate",
            DropOptions {
                projections: 0.5,
                ..DropOptions::default()
            },
        ),
        (
            options.positions,
            "pos_drop_rate",
            DropOptions {
                positions: 0.5,
                ..DropOptions::default()
            },
        ),
    ] {
        let has_place = |node: &Node| one.of_node(node, last_patch) != [0.0; 2];
        if probability > 0.0 && !graph.nodes().iter().any(has_place) {
            let reason = format!(
                "is {probability}, but {} has no layer that it applies to",
                graph.name()
            );
            return Err(Error::argument(key, reason));
        }
    }
    let mut graph = graph.clone();
    let last_patch = last_patch.cloned();
    let keys = graph.add_input(inputs::DROPOUT_KEYS, [1, 2], DType::F32)?;
    let mut site = 0;
    let rewritten = rewrite(&graph, |rewriter, node| {
        let [of_operand, of_result] = options.of_node(node, last_patch.as_ref());
        if of_operand == 0.0 && of_result == 0.0 {
            return Ok(None);
        }
        let mut push = |rewriter: &mut hipvit::graph::Rewriter<'_>, name: String, probability, x: ValueId| {
            let op = Dropout { probability, site };
            site += 1;
            let keys = rewriter.map(keys);
            rewriter.emit(node.role, &name, op, [x, keys])
        };
        let mut operands = rewriter.map_all(&node.inputs);
        if of_operand > 0.0 {
            operands[0] = push(
                rewriter,
                format!("{}.input.dropout", node.name),
                of_operand,
                operands[0],
            )?;
        }
        let result = rewriter.emit(node.role, &node.name, node.op.clone(), operands)?;
        if of_result == 0.0 {
            return Ok(Some(result));
        }
        push(rewriter, format!("{}.dropout", node.name), of_result, result).map(Some)
    })?;
    Ok(rewritten.graph)
}

/// Returns two keys for each of the images at `places` of the batch of all ranks, in a step.
pub(crate) fn keys(seed: u64, step: u64, places: Range<usize>) -> Vec<f32> {
    let of_image = |place: usize| {
        let mut stream = stream(Purpose::Dropout, seed, step, place as u64);
        // Integers that f32 represents, so that no key is NaN.
        [0; 2].map(|_| (stream.next_u32() >> 8) as f32)
    };
    places.flat_map(of_image).collect()
}

/// Returns the factor of each residual branch of each image: 0, or the reciprocal of the probability of 1. `blocks` are the blocks of the
/// branches, `places` those of the images in the batch of all ranks.
pub(crate) fn branch_factors(
    path: f32,
    blocks: &[usize],
    seed: u64,
    step: u64,
    places: Range<usize>,
) -> Vec<f32> {
    let last = blocks.iter().max().copied().unwrap_or(0).max(1);
    let factor = |index: usize| {
        let skipped = path * blocks[index % blocks.len()] as f32 / last as f32;
        let is_kept = uniform(seed, step, index as u64) >= skipped;
        if is_kept { 1.0 / (1.0 - skipped) } else { 0.0 }
    };
    (places.start * blocks.len()..places.end * blocks.len())
        .map(factor)
        .collect()
}

/// Returns a number from 0 to below 1 that depends on nothing but its arguments.
fn uniform(seed: u64, step: u64, index: u64) -> f32 {
    let number = stream(Purpose::DropPath, seed, step, index).next_u32();
    (number >> 8) as f32 / (1 << 24) as f32
}

fn stream(purpose: Purpose, seed: u64, step: u64, index: u64) -> Stream {
    let draw = Draw {
        purpose,
        epoch: step as u32,
        index,
        repeat: 0,
    };
    Stream::new(seed, draw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uniform_numbers_depend_on_all_arguments_and_cover_the_range() {
        let numbers: Vec<f32> = (0..4096).map(|index| uniform(1, 2, index)).collect();
        let mean = numbers.iter().sum::<f32>() / numbers.len() as f32;
        // Six deviations of the mean of 4096 numbers.
        assert!(
            (mean - 0.5).abs() < 6.0 * (1.0 / 12.0_f32).sqrt() / 64.0,
            "{mean}"
        );
        assert!(numbers.iter().all(|number| (0.0..1.0).contains(number)));
        assert_eq!(uniform(1, 2, 3), uniform(1, 2, 3));
        for other in [
            uniform(2, 2, 3),
            uniform(1, 3, 3),
            uniform(1, 2, 4),
            uniform(3, 2, 1),
        ] {
            assert_ne!(uniform(1, 2, 3), other);
        }
    }

    #[test]
    fn keys_belong_to_the_place_of_an_image() {
        let all = keys(1, 2, 0..8);
        assert_eq!(all.len(), 16);
        assert_eq!(all[6..], keys(1, 2, 3..8));
        let mut sorted = all.clone();
        sorted.sort_by(f32::total_cmp);
        sorted.dedup();
        assert_eq!(sorted.len(), 16);
        assert_ne!(all, keys(1, 3, 0..8));
        assert_ne!(all, keys(2, 2, 0..8));
    }
}
