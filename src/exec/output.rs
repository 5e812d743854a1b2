//! The named outputs of a run.

use std::borrow::Cow;

use ndarray::Array2;

use crate::graph::OutputKind;

/// An output of a run: `[images, channels]`, or `[images · tokens, channels]`.
#[derive(Clone, Debug, PartialEq)]
pub struct RunOutput {
    /// Kind of the output.
    pub kind: OutputKind,
    /// The values.
    pub values: Array2<f32>,
}

impl RunOutput {
    /// Returns the [name of the kind](OutputKind::name), such as `logits` or `hidden_layer.3`.
    /// [`Graph::output_name`](crate::graph::Graph::output_name) returns the name of a named output.
    pub fn name(&self) -> Cow<'static, str> {
        self.kind.name()
    }
}

/// The outputs of a run, in the order of the plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunOutputs(Vec<RunOutput>);

impl RunOutputs {
    /// Returns the output of this name.
    pub fn get(&self, name: &str) -> Option<&RunOutput> {
        self.0.iter().find(|output| output.name() == name)
    }

    /// Returns the outputs in order.
    pub fn iter(&self) -> std::slice::Iter<'_, RunOutput> {
        self.0.iter()
    }

    /// Returns the number of outputs.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if there is no output.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<RunOutput> for RunOutputs {
    fn from_iter<I: IntoIterator<Item = RunOutput>>(outputs: I) -> Self {
        Self(outputs.into_iter().collect())
    }
}

impl IntoIterator for RunOutputs {
    type Item = RunOutput;
    type IntoIter = std::vec::IntoIter<RunOutput>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a RunOutputs {
    type Item = &'a RunOutput;
    type IntoIter = std::slice::Iter<'a, RunOutput>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
