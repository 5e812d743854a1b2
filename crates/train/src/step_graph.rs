//! The graph of a training step: forward pass, loss, backward pass and optimiser.

use hipvit::error::{Error, Result};
use hipvit::graph::grad::differentiate;
use hipvit::graph::{Graph, Node, OutputKind, Provenance, Role, Value, ValueId, rewrite};
use hipvit::ops::{Accumulate, Add, L2Norm, Loss, LossKind, MovingAverage, Mul, Op, ScaleImages};
use hipvit::tensor::{DType, Tensor};

use crate::optimizer::{OptimizerOptions, UpdateForm};
use crate::quantization::{Derivatives, is_rates};

/// Names of the inputs of a step beside the images.
pub(crate) mod inputs {
    /// f32 `[images, classes]`.
    pub(crate) const TARGETS: &str = "targets";
    /// f32 `[images, 1]`: the gradient of each image's loss.
    pub(crate) const IMAGE_WEIGHTS: &str = "image_weights";
    /// f32 `[images, branches]`: the factor of each residual branch.
    pub(crate) const BRANCH_FACTORS: &str = "branch_factors";
    /// f32: see [`OptimizerOptions::rates`](crate::OptimizerOptions::rates).
    pub(crate) const RATES: &str = "rates";
    /// f32 `[1]`: factor of all gradients. NaN in a run that updates no weights.
    pub(crate) const GRADIENT_SCALE: &str = "gradient_scale";
    /// f32 `[1]`: 0 in the run that starts the sums of gradients, 1 in the others.
    pub(crate) const KEEP_SUMS: &str = "keep_sums";
}

/// End of the names of the states with sums of gradients. A step starts them anew.
const GRADIENT_SUM: &str = ".gradient_sum";

/// Returns the name of the state with the moving average of a weight.
pub(crate) fn average_of(weight: &str) -> String {
    format!("{weight}.average")
}

/// Returns true if a state has no information between two steps.
pub(crate) fn is_transient(state: &str) -> bool {
    state.ends_with(GRADIENT_SUM) || is_rates(state)
}

/// A tensor of the checkpoint, for which a [`TensorRule`] is asked.
#[derive(Clone, Copy, Debug)]
pub struct TensorInfo<'a> {
    /// Name in the weight file.
    pub name: &'a str,
    /// Shape in the weight file.
    pub shape: &'a [usize],
    /// Layer that reads the tensor: 0 for the embedding, i + 1 for block i, and `layers` for what follows the blocks.
    pub layer: usize,
    /// Number of blocks plus 1.
    pub layers: usize,
}

/// How a tensor is trained.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TensorRule {
    /// False for a tensor that stays as it is.
    pub trained: bool,
    /// Weight decay.
    pub weight_decay: f32,
    /// Multiplied with the learning rate.
    pub rate_factor: f32,
}

impl Default for TensorRule {
    fn default() -> Self {
        Self {
            trained: true,
            weight_decay: 0.0,
            rate_factor: 1.0,
        }
    }
}

/// A constant of a model that a step updates.
#[derive(Clone, Debug)]
pub(crate) struct Trained {
    pub(crate) id: ValueId,
    pub(crate) rule: TensorRule,
    /// Factors of the gradient's elements: 0 for those that stay as they are. `None` if all are updated.
    pub(crate) mask: Option<Vec<f32>>,
}

/// Options of a [`StepGraph`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepOptions {
    pub(crate) loss: LossKind,
    pub(crate) optimizer: OptimizerOptions,
    /// Share of the moving averages of the weights that a step keeps. `None` if there are none.
    pub(crate) ema_decay: Option<f32>,
    pub(crate) clip_norm: Option<f32>,
    /// True if a step adds the gradients of several runs.
    pub(crate) accumulated: bool,
    /// True if the forward pass reads copies of the weights that are rounded to 16 bits.
    pub(crate) rounded: bool,
}

/// The graph of a training step.
///
/// Its outputs are the logits, the loss of each image, and the norm of the gradients. A run updates the parameters and the states of the
/// optimiser.
#[derive(Debug)]
pub(crate) struct StepGraph {
    pub(crate) graph: Graph,
    /// Name of the value that has the elements of each trained constant in f32. `None` if the loss does not depend on the constant.
    pub(crate) weights: Vec<Option<String>>,
}

/// Returns `graph` with a factor per image for each residual branch of its blocks, and the block of each branch. The factors are an input.
///
/// # Errors
///
/// [`Error::Argument`] if the graph has no residual branch.
pub(crate) fn with_branch_factors(graph: &Graph) -> Result<(Graph, Vec<usize>)> {
    let is_branch = |node: &&Node| node.op == Op::Add(Add) && node.name.ends_with(".residual");
    let branches = graph.nodes().iter().filter(is_branch);
    let branches: Vec<usize> = branches.filter_map(Node::block).collect();
    if branches.is_empty() {
        let reason = format!(
            "{} has no residual branches that an image could skip",
            graph.name()
        );
        return Err(Error::argument("drop path", reason));
    }
    let mut graph = graph.clone();
    let factors = graph.add_input(inputs::BRANCH_FACTORS, [1, branches.len()], DType::F32)?;
    let mut column = 0;
    let rewritten = rewrite(&graph, |rewriter, node| {
        if !is_branch(&node) || node.block().is_none() {
            return Ok(None);
        }
        let op = ScaleImages { column };
        column += 1;
        let (x, branch, factors) = (
            rewriter.map(node.inputs[0]),
            rewriter.map(node.inputs[1]),
            rewriter.map(factors),
        );
        let scaled = rewriter.emit(node.role, &format!("{}.kept", node.name), op, [branch, factors])?;
        rewriter.emit(node.role, &node.name, Add, [x, scaled]).map(Some)
    })?;
    Ok((rewritten.graph, branches))
}

impl StepGraph {
    /// Builds the step of a model, from a [prepared](hipvit::graph::prepare_training) graph. `trained` has the constants that it updates.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the model has no logits, or no constant that they depend on. [`Error::Op`] if an op has no derivative.
    pub(crate) fn new(mut graph: Graph, trained: &[Trained], options: StepOptions) -> Result<Self> {
        let logits = graph
            .outputs()
            .iter()
            .find(|(kind, _)| *kind == OutputKind::Logits);
        let Some(&(_, logits)) = logits else {
            let reason = format!(
                "{} has no classifier, so there are no logits to train",
                graph.name()
            );
            return Err(Error::argument("model", reason));
        };
        graph.retain_outputs(|kind| kind == OutputKind::Logits);
        let shape = graph.value(logits).shape.clone();
        let targets = graph.add_input(inputs::TARGETS, shape, DType::F32)?;
        let seed = graph.add_input(inputs::IMAGE_WEIGHTS, [1, 1], DType::F32)?;
        for constant in trained {
            graph.make_parameter(constant.id)?;
        }
        let loss = graph.push(Role::Other, "loss", Loss(options.loss), [logits, targets])?;
        graph.set_output(OutputKind::Loss, loss);
        let ids: Vec<ValueId> = trained.iter().map(|constant| constant.id).collect();
        let derivatives = Derivatives::of(&graph);
        let gradients = differentiate(&mut graph, [loss, seed], &ids, &|builder, node, gradients| {
            derivatives.vjp(builder, node, gradients)
        })?;
        let gradients = ids.iter().map(|id| gradients[id.index()]);
        let mut step = Self {
            graph,
            weights: Vec::with_capacity(trained.len()),
        };
        step.update(trained, gradients.collect(), options)?;
        Ok(step)
    }

    /// Appends the norm of the gradients and the updates.
    fn update(
        &mut self,
        trained: &[Trained],
        gradients: Vec<Option<ValueId>>,
        options: StepOptions,
    ) -> Result<()> {
        let scale = self
            .graph
            .add_fixed_input(inputs::GRADIENT_SCALE, [1], DType::F32)?;
        let rates = [options.optimizer.rate_count()];
        let rates = self.graph.add_fixed_input(inputs::RATES, rates, DType::F32)?;
        let keep = if options.accumulated {
            Some(self.graph.add_fixed_input(inputs::KEEP_SUMS, [1], DType::F32)?)
        } else {
            None
        };
        let mut operands = vec![scale];
        let mut known = Vec::with_capacity(trained.len());
        for (constant, gradient) in trained.iter().zip(gradients) {
            let gradient = match gradient {
                Some(gradient) => Some(self.summed(constant, gradient, keep)?),
                None => None,
            };
            operands.extend(gradient);
            known.push((constant, gradient));
        }
        if operands.len() == 1 {
            let reason = format!("the loss of {} depends on no trained tensor", self.graph.name());
            return Err(Error::argument("model", reason));
        }
        let op = L2Norm {
            maximum: options.clip_norm,
            f32_gradients: options.accumulated,
        };
        let norm = self
            .graph
            .push_node(Role::Other, "gradient_norm".into(), op.into(), operands)?;
        let [norm, factor] = [norm.outputs[0], norm.outputs[1]];
        self.graph.set_output(OutputKind::GradientNorm, norm);
        for (constant, gradient) in known {
            let name = match gradient {
                Some(gradient) => Some(self.updated(constant, [gradient, rates, factor], options)?),
                None => None,
            };
            self.weights.push(name);
        }
        Ok(())
    }

    /// Returns a gradient without the elements that stay as they are. With `keep`, returns the sum of this gradient over the runs of a step.
    fn summed(&mut self, constant: &Trained, gradient: ValueId, keep: Option<ValueId>) -> Result<ValueId> {
        let gradient = self.masked(constant, gradient)?;
        let Some(keep) = keep else {
            return Ok(gradient);
        };
        let Value { name, shape, .. } = self.graph.value(constant.id).clone();
        let zeros = Tensor::from_f32(shape.as_slice(), vec![0.0; shape.iter().product()]);
        let zeros = zeros.ok_or_else(|| Error::graph(&name, "has a shape without elements"))?;
        let sum = self.graph.state(format!("{name}{GRADIENT_SUM}"), zeros);
        let node = format!("{name}.accumulated");
        let added = self
            .graph
            .push(Role::Other, node, Accumulate, [sum, gradient, keep])?;
        self.graph.update(sum, added)?;
        Ok(added)
    }

    /// Returns a gradient without the elements that stay as they are.
    fn masked(&mut self, constant: &Trained, gradient: ValueId) -> Result<ValueId> {
        let Some(mask) = &constant.mask else {
            return Ok(gradient);
        };
        let Value { name, shape, .. } = self.graph.value(constant.id).clone();
        let mask = Tensor::from_f32(shape, mask.clone());
        let mask = mask.ok_or_else(|| Error::graph(&name, "has a mask of another size"))?;
        let provenance = Provenance::computed(format!("{name}.mask"), []);
        let mask = self.graph.constant(provenance, mask);
        Ok(self
            .graph
            .push(Role::Other, format!("{name}.masked"), Mul, [gradient, mask])?)
    }

    /// Appends the update of a weight and of its moving average. Returns the name of the value with the weight's f32 elements.
    fn updated(
        &mut self,
        constant: &Trained,
        [gradient, rates, factor]: [ValueId; 3],
        options: StepOptions,
    ) -> Result<String> {
        let Value { name, initial, .. } = self.graph.value(constant.id).clone();
        let initial = initial.ok_or_else(|| Error::graph(&name, "has no elements"))?;
        let weight = if options.rounded {
            self.state_like(&initial, format!("{name}.f32"), |elements| elements)?
        } else {
            constant.id
        };
        let mut targets = vec![weight];
        for state in options.optimizer.states() {
            let zeros = |elements: Vec<f32>| vec![0.0; elements.len()];
            targets.push(self.state_like(&initial, format!("{name}.{state}"), zeros)?);
        }
        let mut operands = targets.clone();
        operands.insert(1, gradient);
        operands.extend([rates, factor]);
        let form = UpdateForm {
            rounded: options.rounded,
            f32_gradient: options.accumulated,
        };
        let op = options.optimizer.op(&constant.rule, form);
        let node = self
            .graph
            .push_node(Role::Other, format!("{name}.update"), op, operands)?;
        let results = node.outputs.clone();
        targets.push(constant.id);
        for (&target, &result) in targets.iter().zip(&results) {
            self.graph.update(target, result)?;
        }
        let weight = self.graph.value(weight).name.clone();
        if let Some(decay) = options.ema_decay {
            let average = self.state_like(&initial, average_of(&weight), |elements| elements)?;
            let node = format!("{name}.averaged");
            let operands = [average, results[0], factor];
            let averaged = self
                .graph
                .push(Role::Other, node, MovingAverage { decay }, operands)?;
            self.graph.update(average, averaged)?;
        }
        Ok(weight)
    }

    /// Adds a state in f32 of the shape of `tensor`. `elements` returns its elements, from those of the tensor.
    fn state_like(
        &mut self,
        tensor: &Tensor,
        name: String,
        elements: impl Fn(Vec<f32>) -> Vec<f32>,
    ) -> Result<ValueId> {
        let elements = elements(tensor.to_f32().into_owned());
        let state = Tensor::from_f32(tensor.shape(), elements);
        let state = state.ok_or_else(|| Error::graph(&name, "has a shape without elements"))?;
        Ok(self.graph.state(name, state))
    }
}
