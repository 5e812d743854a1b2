//! The named inputs of a run.

use super::slabs::Images;
use super::staging::Staging;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::graph::plan::Plan;
use crate::hip::{ForeignMemory, Operand};
use crate::tensor::{DType, Input};

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

/// The named inputs of a run.
#[derive(Debug)]
pub struct Inputs<'a>(Vec<(&'a str, InputData<'a>)>);

impl<'a> Inputs<'a> {
    /// Creates inputs from pairs of name and data.
    pub fn new(named: impl IntoIterator<Item = (&'a str, InputData<'a>)>) -> Self {
        Self(named.into_iter().collect())
    }

    /// Creates the input of a plan that has only one.
    pub fn of_plan(plan: &Plan, input: InputData<'a>) -> Self {
        Self(vec![(input_name(plan.graph()), input)])
    }

    /// Takes the input of a plan that has only one.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the input is missing, or if an input of another name was given.
    pub(super) fn only(self, plan: &Plan) -> Result<InputData<'a>> {
        let expected = input_name(plan.graph());
        let mut found = None;
        for (name, input) in self.0 {
            if name != expected || found.is_some() {
                let reason = format!("the model has one input, `{expected}`, and `{name}` was given");
                return Err(Error::argument("inputs", reason));
            }
            found = Some(input);
        }
        found.ok_or_else(|| Error::argument("inputs", format!("`{expected}` is missing")))
    }
}

/// Returns the name of a graph's input.
pub(super) fn input_name(graph: &Graph) -> &'static str {
    if graph.takes_activations() {
        "activations"
    } else if graph.value(graph.input()).dtype == DType::U8 {
        "pixels"
    } else {
        "values"
    }
}
