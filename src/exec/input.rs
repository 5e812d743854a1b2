//! The named inputs of a run.

use super::slabs::Images;
use super::staging::Staging;
use crate::error::{Error, Result};
use crate::graph::plan::Plan;
use crate::hip::{ForeignMemory, Operand};
use crate::tensor::Input;

/// An input of a run, on the host or on a GPU.
#[derive(Debug)]
pub enum InputData<'a> {
    /// Elements in host memory.
    Host(Input<'a>),
    /// Bytes in memory from [`Executor::stage`](super::Executor::stage).
    Staged(Staging),
    /// Bytes of the elements, in host memory.
    Bytes(&'a [u8]),
    /// Decoded images, which the GPU resizes.
    Images(Images<'a>),
    /// The caller's memory on the executor's GPU.
    Device(ForeignMemory),
    /// Activations on the GPU of the previous pipeline stage.
    Peer(Operand<'a>),
}

impl<'a> From<Input<'a>> for InputData<'a> {
    fn from(input: Input<'a>) -> Self {
        Self::Host(input)
    }
}

impl InputData<'_> {
    /// Returns the memory that the input was staged in.
    pub fn staging(&self) -> Option<&Staging> {
        match self {
            Self::Staged(staging) => Some(staging),
            _ => None,
        }
    }
}

/// The named inputs of a run. The first input of a graph is `pixels` (u8), `values` (f32) or `activations`, or has its own name. Other inputs have the names that
/// they were [added](crate::graph::Graph::add_input) with.
#[derive(Debug)]
pub struct Inputs<'a>(Vec<(&'a str, InputData<'a>)>);

impl<'a> Inputs<'a> {
    /// Creates inputs from pairs of name and data.
    pub fn new(named: impl IntoIterator<Item = (&'a str, InputData<'a>)>) -> Self {
        Self(named.into_iter().collect())
    }

    /// Creates the input of a plan that has only one.
    pub fn of_plan(plan: &'a Plan, input: InputData<'a>) -> Self {
        Self(vec![(plan.graph().first_input_name(), input)])
    }

    /// Takes the input of a plan that has only one.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the input is missing, or if an input of another name was given.
    pub(super) fn only(self, plan: &Plan) -> Result<InputData<'a>> {
        Ok(self.in_order(plan)?.first)
    }

    /// Takes the inputs of a plan.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`], naming the input, if one is missing, unknown, or given twice.
    pub(super) fn in_order(mut self, plan: &Plan) -> Result<PlanInputs<'a>> {
        let graph = plan.graph();
        let first = self.take(graph.first_input_name());
        if let (Err(_), [(name, _), ..], [_]) = (&first, self.0.as_slice(), plan.inputs()) {
            return Err(unexpected(plan, name));
        }
        let first = first?;
        let others = plan.inputs().iter().skip(1);
        let others = others.map(|of_plan| self.take(graph.input_name(of_plan.input)));
        let rest = others.collect::<Result<_>>()?;
        match self.0.first() {
            Some((name, _)) => Err(unexpected(plan, name)),
            None => Ok(PlanInputs { first, rest }),
        }
    }

    /// Removes the input `name`.
    fn take(&mut self, name: &str) -> Result<InputData<'a>> {
        match self.0.iter().position(|(given, _)| *given == name) {
            Some(index) => Ok(self.0.swap_remove(index).1),
            None => Err(Error::argument("inputs", format!("`{name}` is missing"))),
        }
    }
}

/// Returns the error for an input that the plan does not have, or has only once.
fn unexpected(plan: &Plan, name: &str) -> Error {
    let graph = plan.graph();
    let known: Vec<&str> = graph.inputs().map(|input| graph.input_name(input)).collect();
    let reason = match known.as_slice() {
        [only] => format!("the model has one input, `{only}`, and `{name}` was given"),
        known => format!(
            "`{name}` is unknown or was given twice. The model has `{}`",
            known.join("`, `")
        ),
    };
    Error::argument("inputs", reason)
}

/// The inputs of a run, in the order of the plan.
#[derive(Debug)]
pub(super) struct PlanInputs<'a> {
    pub(super) first: InputData<'a>,
    /// Empty for most models, so that a run allocates nothing for it.
    pub(super) rest: Vec<InputData<'a>>,
}

impl<'a> From<InputData<'a>> for PlanInputs<'a> {
    fn from(first: InputData<'a>) -> Self {
        Self {
            first,
            rest: Vec::new(),
        }
    }
}
