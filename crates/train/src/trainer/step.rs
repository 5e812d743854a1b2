//! The graph of a step, from a checkpoint.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use hipvit::DType;
use hipvit::error::Result;
use hipvit::graph::{
    Float8, Graph, PassReport, Passes, ValueId, optimize, overlap_exchanges, prepare_training,
};
use hipvit::image::Preprocess;
use hipvit::model::{Checkpoint, Copies, TensorValues, pair_inputs};

use super::{TrainOptions, check, learned_tensors, load_options};
use crate::dropout::with_dropout;
use crate::float8::{Float8Layers, update_statistics};
use crate::inputs;
use crate::lora::Lora;
use crate::quantization::{self, Quantization, RoundedLayers};
use crate::ranks::RankPlan;
use crate::scatter::Scatter;
use crate::step_graph::{StepGraph, StepOptions, with_branch_factors};
use crate::trained::{TensorInfo, TensorRule};

/// Passes over graphs with gradients.
pub(crate) fn passes() -> Passes {
    Passes {
        fold_normalize: false,
        // Gradients flow to all tokens.
        prune_tokens: false,
        ..Passes::default()
    }
}

/// A model as training computes it.
pub(crate) struct Prepared {
    pub(crate) graph: Graph,
    /// Block of each residual branch that images may skip.
    branches: Vec<usize>,
    rounded: RoundedLayers,
    /// Origin of the constants of the graph.
    pub(crate) copies: HashMap<ValueId, Copies>,
    pub(crate) preprocess: Preprocess,
    pub(crate) classes: usize,
}

impl Prepared {
    /// Loads the model of a checkpoint.
    ///
    /// `bf16_layers` are those that are no longer in FP8.
    pub(crate) fn new(
        checkpoint: &Checkpoint,
        options: &TrainOptions,
        bf16_layers: &BTreeSet<String>,
    ) -> Result<Self> {
        check(options)?;
        let load = load_options(options);
        let model = options.loss.model(checkpoint, &TensorValues::new(), &load)?;
        let (graph, branches, rounded) = {
            let graph = options.loss.graph(&model, checkpoint, &TensorValues::new())?;
            prepare(&graph, options, bf16_layers)?
        };
        let copies = checkpoint.copies(&graph, &|values| {
            let model = options.loss.model(checkpoint, values, &load)?;
            let graph = options.loss.graph(&model, checkpoint, values)?;
            Ok(prepare(&graph, options, bf16_layers)?.0)
        })?;
        Ok(Self {
            graph,
            branches,
            rounded,
            copies,
            preprocess: model.preprocess,
            classes: model.info.classes,
        })
    }
}

/// The optimised graph of a step, and what a trainer knows of it.
pub(crate) struct Step {
    pub(crate) graph: Graph,
    passes: Vec<PassReport>,
    pub(super) scatter: Scatter,
    pub(super) lora: Option<Lora>,
    pub(super) weights: Vec<String>,
    /// Whole shape of each parameter or state of which this rank has a part, by its name.
    pub(super) divided: BTreeMap<String, Vec<usize>>,
    pub(super) branches: Vec<usize>,
    /// Tensors of the checkpoint that are rounded to int8.
    pub(super) int8: BTreeSet<String>,
    pub(super) float8: Option<Float8Layers>,
    pub(super) preprocess: Preprocess,
    pub(super) classes: usize,
    /// Number of targets of an image.
    pub(super) width: usize,
}

/// What a step is built for, beside its options.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepTarget<'a> {
    /// Dtype of activations.
    pub(crate) dtype: DType,
    /// Computation of layers in FP8.
    pub(crate) float8: Float8,
    /// Layers that are no longer in FP8.
    pub(crate) bf16_layers: &'a BTreeSet<String>,
    /// Division among ranks. `None` if there is one.
    pub(crate) ranks: Option<RankPlan>,
}

impl StepTarget<'_> {
    /// A step that no device has run.
    pub(crate) fn of_dtype(dtype: DType) -> Self {
        const NONE: &BTreeSet<String> = &BTreeSet::new();
        Self {
            dtype,
            float8: if dtype.size() == 2 {
                Float8::Stored
            } else {
                Float8::Rounded
            },
            bf16_layers: NONE,
            ranks: None,
        }
    }
}

impl Step {
    /// Builds the step of a checkpoint's model.
    pub(crate) fn new(
        checkpoint: &Checkpoint,
        options: &TrainOptions,
        rule: &dyn Fn(&TensorInfo<'_>) -> TensorRule,
        target: StepTarget<'_>,
    ) -> Result<Self> {
        let StepTarget {
            dtype,
            float8,
            bf16_layers,
            ranks,
        } = target;
        let Prepared {
            graph,
            branches,
            rounded,
            copies,
            preprocess,
            classes,
        } = Prepared::new(checkpoint, options, bf16_layers)?;
        let (graph, copies, mut lora) = match &options.lora {
            Some(of_lora) => {
                let of_lora = of_lora.clone();
                let (with_lora, lora) = Lora::insert(&graph, checkpoint, &copies, of_lora, options.seed)?;
                let copies = copies_by_name(&graph, copies, &with_lora);
                (with_lora, copies, Some(lora))
            }
            None => (graph, copies, None),
        };
        let mut scatter = Scatter::new(checkpoint, &graph, &copies, rule)?;
        let step_options = StepOptions {
            loss: options.loss,
            optimizer: options.optimizer,
            ema_decay: options.ema_decay,
            clip_norm: options.clip_norm,
            accumulated: options.accumulate > 1,
            rounded: dtype.size() == 2,
            ranks,
        };
        let mut trained = scatter.trained.clone();
        trained.extend(lora.iter().flat_map(Lora::trained));
        let StepGraph {
            mut graph,
            mut weights,
            divided,
        } = StepGraph::new(graph, &trained, step_options)?;
        weights.truncate(trained.len());
        let of_lora = weights.split_off(scatter.trained.len());
        if let Some(lora) = &mut lora {
            lora.set_names(of_lora)?;
        }
        let weights = scatter.retain(weights);
        if options.loss.has_texts() {
            scatter
                .frozen
                .retain(|frozen| !learned_tensors::is_of_loss(&frozen.tensor));
        }
        let targets = graph.inputs().find(|input| {
            let name = graph.value(input.value).name.as_str();
            name == inputs::TARGETS || name == pair_inputs::TOKENS
        });
        let width = targets.map(|input| graph.value(input.value).shape.iter().skip(1).product::<usize>());
        let layers = match options.precision.quantization {
            Quantization::Float8(of_layers) => {
                let roundings = update_statistics(&mut graph, &rounded.float8)?;
                Some(Float8Layers::new(roundings, of_layers.max_rate))
            }
            _ => None,
        };
        let passes = Passes { float8, ..passes() };
        let (mut graph, passes) = optimize(graph, &passes)?;
        if ranks.is_some() {
            graph = overlap_exchanges(&graph);
        }
        Ok(Self {
            graph,
            passes,
            scatter,
            lora,
            weights,
            divided,
            branches,
            int8: rounded.int8,
            float8: layers,
            preprocess,
            classes,
            width: width.unwrap_or(1),
        })
    }
}

/// Returns the optimised graph of a training step, and the reports of the passes, for inspection. The device of the options is ignored.
///
/// # Errors
///
/// The errors of [`Trainer::new`](crate::Trainer::new), except for those of the device.
pub fn step_graph(
    checkpoint: &Checkpoint,
    options: &TrainOptions,
    rule: &dyn Fn(&TensorInfo<'_>) -> TensorRule,
) -> Result<(Graph, Vec<PassReport>)> {
    let Step { graph, passes, .. } =
        Step::new(checkpoint, options, rule, StepTarget::of_dtype(options.dtype))?;
    Ok((graph, passes))
}

/// Returns the graph of a model as steps compute it, the block of each residual branch that images may skip, and the rounded layers.
fn prepare(
    graph: &Graph,
    options: &TrainOptions,
    bf16_layers: &BTreeSet<String>,
) -> Result<(Graph, Vec<usize>, RoundedLayers)> {
    let graph = prepare_training(graph)?;
    let (graph, branches) = if options.drop.path == 0.0 {
        (graph, Vec::new())
    } else {
        with_branch_factors(&graph)?
    };
    let graph = if options.drop.has_dropout() {
        with_dropout(&graph, &options.drop)?
    } else {
        graph
    };
    let (graph, rounded) = quantization::insert(&graph, options.precision.quantization, bf16_layers)?;
    Ok((graph, branches, rounded))
}

/// Returns the origin of the constants of `new`, which have the names that they have in `old`.
fn copies_by_name(old: &Graph, copies: HashMap<ValueId, Copies>, new: &Graph) -> HashMap<ValueId, Copies> {
    let mut by_name: HashMap<&str, Copies> = HashMap::new();
    for (id, copied) in copies {
        by_name.insert(&old.value(id).name, copied);
    }
    let constants = new.ids().filter(|&id| new.value(id).is_constant());
    let known = constants.filter_map(|id| Some((id, by_name.remove(new.value(id).name.as_str())?)));
    known.collect()
}
