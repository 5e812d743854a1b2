//! Parameters and states by name, and graphs that need a single device.

use crate::error::{Error, Result};
use crate::graph::{Graph, ValueId};
use crate::tensor::Tensor;

/// Returns the parameter or state `name` of a graph.
///
/// # Errors
///
/// [`Error::Argument`] with the known names if there is none.
pub(super) fn state_named(graph: &Graph, name: &str) -> Result<ValueId> {
    let found = graph.states().find(|&id| graph.value(id).name == name);
    found.ok_or_else(|| {
        let known = graph.states().map(|id| format!("`{}`", graph.value(id).name));
        let known: Vec<String> = known.take(MAX_NAMES).collect();
        let reason = match known.as_slice() {
            [] => format!("the model has no parameters or states, and `{name}` was asked for"),
            known => format!(
                "`{name}` is neither a parameter nor a state of the model, which has {}",
                known.join(", ")
            ),
        };
        Error::argument("state", reason)
    })
}

/// Maximum number of names in an error.
const MAX_NAMES: usize = 8;

/// Checks that `tensor` has the shape of the parameter or state `id`.
///
/// # Errors
///
/// [`Error::Argument`], naming the parameter or state, if the shape differs.
pub(super) fn check_shape(graph: &Graph, id: ValueId, tensor: &Tensor) -> Result<()> {
    let value = graph.value(id);
    if tensor.shape() == value.shape {
        return Ok(());
    }
    let reason = format!(
        "`{}` has shape {:?}, and {:?} was given",
        value.name,
        value.shape,
        tensor.shape()
    );
    Err(Error::argument("state", reason))
}

/// Checks that the parameter or state `id` has `count` elements from element `first` on.
///
/// # Errors
///
/// [`Error::Argument`], naming the parameter or state, if it has fewer.
pub(super) fn check_part(graph: &Graph, id: ValueId, first: usize, count: usize) -> Result<()> {
    let value = graph.value(id);
    let elements: usize = value.shape.iter().product();
    if first.checked_add(count).is_some_and(|end| end <= elements) {
        return Ok(());
    }
    let reason = format!(
        "`{}` has {elements} elements, and {count} were given for it from element {first} on",
        value.name
    );
    Err(Error::argument("state", reason))
}

/// Checks that several devices can each run a graph.
///
/// # Errors
///
/// [`Error::Argument`] if the graph has parameters or states, which the devices would not share.
pub(super) fn check_replicable(graph: &Graph) -> Result<()> {
    let Some(id) = graph.states().next() else {
        return Ok(());
    };
    let (model, state) = (graph.name(), &graph.value(id).name);
    let reason = format!(
        "{model} has parameters or states, such as `{state}`, which devices do not share. Use one device"
    );
    Err(Error::argument("devices", reason))
}

/// Checks that several devices can run a graph together.
///
/// # Errors
///
/// [`Error::Argument`] if the graph has parameters or states, which the devices would not share, or several inputs.
pub(super) fn check_divisible(graph: &Graph) -> Result<()> {
    check_replicable(graph)?;
    let Some(input) = graph.inputs().nth(1) else {
        return Ok(());
    };
    let (model, input) = (graph.name(), &graph.value(input.value).name);
    let reason = format!(
        "{model} has several inputs, such as `{input}`, but devices only pass on the first one. Use one device"
    );
    Err(Error::argument("devices", reason))
}
