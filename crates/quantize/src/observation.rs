//! Intermediate values that a model computes for the calibration images.

use std::sync::Arc;

use ndarray::Array2;

use hipvit::error::Result;
use hipvit::exec::{Arena, CpuExecutor};
use hipvit::graph::plan::Plan;
use hipvit::graph::{OutputKind, Passes, ValueId, optimize};
use hipvit::model::Model;
use hipvit::tensor::{DType, Input};

/// Calls `visit` for each image with the index of each value and the value as a matrix `[rows, channels]`.
pub(super) fn observe(
    model: &Model,
    values: &[ValueId],
    images: &[Vec<u8>],
    mut visit: impl FnMut(usize, &Array2<f32>),
) -> Result<()> {
    if values.is_empty() || images.is_empty() {
        return Ok(());
    }
    let mut graph = model.graph.clone();
    for (index, &value) in values.iter().enumerate() {
        graph.set_output(OutputKind::HiddenLayer(index), value);
    }
    let before = model.graph.outputs().len();
    let (graph, _) = optimize(graph, &Passes::default())?;
    let executor = CpuExecutor::new(&graph, None)?;
    let plan = Plan::new(Arc::new(graph), 1, DType::F32)?;
    let mut arena = Arena::new();
    for pixels in images {
        let outputs = executor.run(&plan, Input::Pixels(pixels), &mut arena, None)?;
        for (index, (_, activations)) in outputs.iter().skip(before).enumerate() {
            visit(index, activations);
        }
    }
    Ok(())
}
