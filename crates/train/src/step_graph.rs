//! The graph of a training step: forward pass, loss, backward pass and optimiser.

use std::collections::BTreeMap;

use hipvit::error::{Error, Result};
use hipvit::graph::grad::differentiate;
use hipvit::graph::{Graph, Node, OutputKind, Provenance, Role, Value, ValueId, rewrite};
use hipvit::ops::exchange::part_len;
use hipvit::ops::{Accumulate, Add, L2Norm, MovingAverage, Mul, Op, RankPart, ScaleImages};
use hipvit::tensor::{DType, Tensor};

use crate::float8::Derivatives;
use crate::inputs;
use crate::objective::{Objective, PushedLoss};
use crate::optimizer::{OptimizerOptions, UpdateForm};
use crate::ranks::{Exchanges, Gathers, RankPlan};
use crate::recipe::Shard;
use crate::trained::Trained;

/// End of the names of the states with sums of gradients. A step starts them anew.
const GRADIENT_SUM: &str = ".gradient_sum";

/// Returns the name of the state with the moving average of a weight.
pub(crate) fn average_of(weight: &str) -> String {
    format!("{weight}.average")
}

/// Returns true if a state has no information between two steps.
pub(crate) fn is_transient(state: &str) -> bool {
    state.ends_with(GRADIENT_SUM)
}

/// Options of a [`StepGraph`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepOptions {
    pub(crate) loss: Objective,
    pub(crate) optimizer: OptimizerOptions,
    /// Share of the moving averages of the weights that a step keeps. `None` if there are none.
    pub(crate) ema_decay: Option<f32>,
    pub(crate) clip_norm: Option<f32>,
    /// True if a step adds the gradients of several runs.
    pub(crate) accumulated: bool,
    /// True if the forward pass reads copies of the weights that are rounded to 16 bits.
    pub(crate) rounded: bool,
    /// Division of the step among ranks. `None` if there is one.
    pub(crate) ranks: Option<RankPlan>,
}

impl StepOptions {
    /// Returns true if the optimiser reads gradients in f32 in plans of any dtype: sums over runs.
    fn has_f32_gradients(&self) -> bool {
        self.accumulated
    }

    /// Returns true if a rank has a part of each weight.
    fn divides_parameters(&self) -> bool {
        self.ranks.is_some_and(|plan| plan.shard == Shard::Parameters)
    }

    /// Returns true if a rank updates a part of each weight.
    fn divides_states(&self) -> bool {
        self.ranks.is_some_and(|plan| plan.divides_states())
    }
}

/// Returns the part of a tensor that a rank updates, padded with zeros.
fn part_of(tensor: &Tensor, plan: &RankPlan) -> Result<Tensor> {
    let values = tensor.to_f32();
    let len = part_len(values.len(), plan.group);
    let start = (plan.number() * len).min(values.len());
    let mut part = values[start..(start + len).min(values.len())].to_vec();
    part.resize(len, 0.0);
    let part = Tensor::from_f32([len], part);
    part.ok_or_else(|| Error::internal("ranks", "a part of a weight has no elements"))
}

/// The graph of a training step.
///
/// Its outputs are the logits, the loss of each image, and the norm of the gradients. A run updates the parameters and the states of the
/// optimiser.
#[derive(Debug)]
pub(crate) struct StepGraph {
    pub(crate) graph: Graph,
    /// Name of the value that has the elements of each trained constant in f32, then of what the loss itself learns. `None` if the loss does
    /// not depend on the constant.
    pub(crate) weights: Vec<Option<String>>,
    /// Whole shape of each parameter or state of which a rank has a part, by its name.
    pub(crate) divided: BTreeMap<String, Vec<usize>>,
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
    /// [`Error::Argument`] if the model has no output that the loss compares, or no constant that it depends on. [`Error::Op`] if an op has no derivative.
    pub(crate) fn new(mut graph: Graph, trained: &[Trained], options: StepOptions) -> Result<Self> {
        let PushedLoss { loss, learned } = options.loss.push(&mut graph)?;
        let shape = graph.value(loss).shape.clone();
        let seed = graph.add_input(inputs::IMAGE_WEIGHTS, shape, DType::F32)?;
        for constant in trained {
            graph.make_parameter(constant.id)?;
        }
        graph.set_output(OutputKind::Loss, loss);
        let trained = [trained, &learned].concat();
        let ids: Vec<ValueId> = trained.iter().map(|constant| constant.id).collect();
        let derivatives = Derivatives::of(&graph);
        let gradients = differentiate(&mut graph, [loss, seed], &ids, &|builder, node, gradients| {
            derivatives.vjp(builder, node, gradients)
        })?;
        let gradients: Vec<Option<ValueId>> = ids.iter().map(|id| gradients[id.index()]).collect();
        let mut step = Self {
            graph,
            weights: Vec::with_capacity(trained.len()),
            divided: BTreeMap::new(),
        };
        let elements = ids
            .iter()
            .map(|id| step.graph.value(*id).shape.iter().product::<usize>());
        let mut exchanges = options.ranks.map(|plan| Exchanges::new(plan, elements.sum()));
        if let Some(exchanges) = exchanges.as_mut().filter(|_| options.divides_parameters()) {
            let ids = ids.iter().zip(&gradients);
            let ids: Vec<ValueId> = ids.filter_map(|(id, gradient)| gradient.map(|_| *id)).collect();
            step.divided = exchanges.divide_parameters(&mut step.graph, &ids, !options.rounded)?;
        }
        step.update(&trained, gradients, exchanges, options)?;
        Ok(step)
    }

    /// Appends the norm of the gradients and the updates.
    fn update(
        &mut self,
        trained: &[Trained],
        gradients: Vec<Option<ValueId>>,
        mut exchanges: Option<Exchanges>,
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
        let mut masked = Vec::with_capacity(trained.len());
        for (constant, gradient) in trained.iter().zip(gradients) {
            masked.push(match gradient {
                Some(gradient) => Some(self.masked(constant, gradient)?),
                None => None,
            });
        }
        if masked.iter().all(Option::is_none) {
            let reason = format!("the loss of {} depends on no trained tensor", self.graph.name());
            return Err(Error::argument("model", reason));
        }
        let summed = self.summed(trained, masked, [Some(scale), keep], exchanges.as_mut(), options)?;
        let [norm, factor] = self.norm(&summed, scale, exchanges.as_mut(), options)?;
        self.graph.set_output(OutputKind::GradientNorm, norm);
        if let Some(exchanges) = &mut exchanges {
            let divided = exchanges.update_states(&mut self.graph, factor)?;
            self.divided.extend(divided);
        }
        let mut gathers = exchanges.map(|exchanges| Gathers::new(exchanges, !options.rounded));
        for (constant, gradient) in trained.iter().zip(summed) {
            let name = match gradient {
                Some(gradient) => {
                    Some(self.updated(constant, [gradient, rates, factor], gathers.as_mut(), options)?)
                }
                None => None,
            };
            self.weights.push(name);
        }
        match gathers {
            Some(gathers) => gathers.finish(&mut self.graph),
            None => Ok(()),
        }
    }

    /// Returns the sums of the gradients over the runs of a step and over the ranks.
    ///
    /// A rank that has a part of the sums exchanges the gradients of each run. The others exchange in the last run of a step, in which the
    /// scale is a number.
    fn summed(
        &mut self,
        trained: &[Trained],
        gradients: Vec<Option<ValueId>>,
        [scale, keep]: [Option<ValueId>; 2],
        exchanges: Option<&mut Exchanges>,
        options: StepOptions,
    ) -> Result<Vec<Option<ValueId>>> {
        let Some(exchanges) = exchanges else {
            return self.accumulated(trained, gradients, keep);
        };
        if options.ranks.is_some_and(|plan| plan.divides_gradients()) {
            let parts = exchanges.sums(&mut self.graph, &gradients, None, false)?;
            return self.accumulated(trained, parts, keep);
        }
        let sums = self.accumulated(trained, gradients, keep)?;
        let condition = scale.filter(|_| options.accumulated);
        let names = trained
            .iter()
            .map(|constant| self.graph.value(constant.id).name.clone());
        let names: Vec<String> = names.collect();
        exchanges.compressed_sums(&mut self.graph, (&names, &sums), condition, options.accumulated)
    }

    /// Returns the norm of all gradients, and the factor by which they are multiplied.
    fn norm(
        &mut self,
        gradients: &[Option<ValueId>],
        scale: ValueId,
        exchanges: Option<&mut Exchanges>,
        options: StepOptions,
    ) -> Result<[ValueId; 2]> {
        let mut operands: Vec<ValueId> = gradients.iter().copied().flatten().collect();
        let mut op = L2Norm {
            maximum: options.clip_norm,
            f32_gradients: options.has_f32_gradients(),
        };
        if let Some(exchanges) = exchanges.filter(|_| options.divides_states()) {
            let one = Tensor::from_f32([1], vec![1.0]);
            let one = one.ok_or_else(|| Error::graph("one", "has no element"))?;
            operands.insert(0, self.graph.constant(Provenance::computed("one", []), one));
            let of_part = L2Norm { maximum: None, ..op };
            let norm = self
                .graph
                .push(Role::Other, "gradient_norm.part", of_part, operands)?;
            operands = vec![exchanges.of_each_rank(&mut self.graph, norm)?];
            op.f32_gradients = true;
        }
        operands.insert(0, scale);
        let norm = self
            .graph
            .push_node(Role::Other, "gradient_norm".into(), op.into(), operands)?;
        Ok([norm.outputs[0], norm.outputs[1]])
    }

    /// Returns the sums of the gradients over the runs of a step. Without `keep`, a step has one run.
    fn accumulated(
        &mut self,
        trained: &[Trained],
        gradients: Vec<Option<ValueId>>,
        keep: Option<ValueId>,
    ) -> Result<Vec<Option<ValueId>>> {
        let Some(keep) = keep else {
            return Ok(gradients);
        };
        let sum = |(constant, gradient): (&Trained, Option<ValueId>)| match gradient {
            Some(gradient) => self.accumulate(constant, gradient, keep).map(Some),
            None => Ok(None),
        };
        trained.iter().zip(gradients).map(sum).collect()
    }

    /// Returns the sum of a gradient over the runs of a step.
    fn accumulate(&mut self, constant: &Trained, gradient: ValueId, keep: ValueId) -> Result<ValueId> {
        let name = self.graph.value(constant.id).name.clone();
        let shape = self.graph.value(gradient).shape.clone();
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
        let name = self.graph.value(constant.id).name.clone();
        let shape = self.graph.value(gradient).shape.clone();
        let mask = Tensor::from_f32(shape, mask.clone());
        let mask = mask.ok_or_else(|| Error::graph(&name, "has a mask of another size"))?;
        let provenance = Provenance::computed(format!("{name}.mask"), []);
        let mask = self.graph.constant(provenance, mask);
        Ok(self
            .graph
            .push(Role::Other, format!("{name}.masked"), Mul, [gradient, mask])?)
    }

    /// Appends the update of a weight and of its moving average. Returns the name of the value with the weight's f32 elements. If this rank
    /// updates a part, `gathers` gets the part.
    fn updated(
        &mut self,
        constant: &Trained,
        [gradient, rates, factor]: [ValueId; 3],
        gathers: Option<&mut Gathers>,
        options: StepOptions,
    ) -> Result<String> {
        let Value {
            name, initial, shape, ..
        } = self.graph.value(constant.id).clone();
        let initial = initial.ok_or_else(|| Error::graph(&name, "has no elements"))?;
        let gathers = gathers.filter(|_| options.divides_states() && !options.divides_parameters());
        let (initial, whole) = match options.ranks.filter(RankPlan::divides_states) {
            Some(_) if options.divides_parameters() => (initial, self.divided.get(&name).cloned()),
            Some(plan) => (part_of(&initial, &plan)?, Some(shape)),
            None => (initial, None),
        };
        let first_state = self.graph.values().len();
        let rounded = options.rounded && !constant.is_f32;
        let weight = if rounded {
            self.state_like(&initial, format!("{name}.f32"), |elements| elements)?
        } else if let Some(plan) = options.ranks.filter(|_| gathers.is_some()) {
            let op = RankPart { ranks: plan.group };
            self.graph
                .push(Role::Other, format!("{name}.part"), op, [constant.id])?
        } else {
            constant.id
        };
        let mut targets = vec![weight];
        for state in options.optimizer.states() {
            let shape = options.optimizer.state_shape(initial.shape());
            let zeros = Tensor::from_f32(shape.as_slice(), vec![0.0; shape.iter().product()]);
            let zeros = zeros.ok_or_else(|| Error::graph(&name, "has a shape without elements"))?;
            targets.push(self.graph.state(format!("{name}.{state}"), zeros));
        }
        let mut operands = targets.clone();
        operands.insert(1, gradient);
        operands.extend([rates, factor]);
        let form = UpdateForm {
            rounded,
            f32_gradient: options.has_f32_gradients(),
        };
        let op = options.optimizer.op(&constant.rule, form);
        let node = self
            .graph
            .push_node(Role::Other, format!("{name}.update"), op, operands)?;
        let results = node.outputs.clone();
        targets.push(constant.id);
        for (&target, &result) in targets.iter().zip(&results) {
            if self.graph.value(target).is_stateful() && (gathers.is_none() || target != constant.id) {
                self.graph.update(target, result)?;
            }
        }
        if let Some(gathers) = gathers {
            let updated = if options.rounded {
                results.last()
            } else {
                results.first()
            };
            let updated = updated.ok_or_else(|| Error::graph(&name, "has no update"))?;
            gathers.add(&mut self.graph, constant.id, *updated)?;
        }
        let weight = if options.rounded {
            self.graph.value(weight).name.clone()
        } else {
            name.clone()
        };
        if let Some(decay) = options.ema_decay {
            let average = self.state_like(&initial, average_of(&weight), |elements| elements)?;
            let node = format!("{name}.averaged");
            let operands = [average, results[0], factor];
            let averaged = self
                .graph
                .push(Role::Other, node, MovingAverage { decay }, operands)?;
            self.graph.update(average, averaged)?;
        }
        if let Some(whole) = whole {
            let states = self.graph.values()[first_state..]
                .iter()
                .filter(|value| value.is_stateful());
            let divided = states.map(|state| (state.name.clone(), whole.clone()));
            self.divided.extend(divided.collect::<Vec<_>>());
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
