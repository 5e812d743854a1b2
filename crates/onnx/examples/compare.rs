//! Compares models with the outputs that another program gave: `compare [--optimized] DIRECTORY …`.
//!
//! A directory has `model.onnx`, and `in.NAME.npy` and `out.NAME.npy` for each input and output. The graph is computed by the reference
//! implementation. Prints the largest error of each output, relative to its largest magnitude.

use std::collections::HashMap;
use std::error::Error;
use std::path::Path;
use std::time::Instant;

use hipvit_graph::reference::Array;
use hipvit_graph::{Passes, ValueId, evaluate, optimize};
use hipvit_onnx::{Dim, Options, load};

#[allow(dead_code, reason = "another example writes arrays")]
mod npy;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let optimized = arguments.iter().any(|argument| argument == "--optimized");
    let only_load = arguments.iter().any(|argument| argument == "--load");
    let lists = arguments.iter().any(|argument| argument == "--nodes");
    arguments.retain(|argument| !argument.starts_with("--"));
    let mut failures = 0;
    for directory in &arguments {
        let start = Instant::now();
        match compare(Path::new(directory), [optimized, only_load, lists]) {
            Ok(text) => println!("{directory}: {text} ({:.1} s)", start.elapsed().as_secs_f64()),
            Err(error) => {
                failures += 1;
                println!("{directory}: FAILED: {error}");
            }
        }
    }
    if failures > 0 {
        return Err(format!("{failures} of {} failed", arguments.len()).into());
    }
    Ok(())
}

fn compare(directory: &Path, [optimized, only_load, lists]: [bool; 3]) -> Result<String, Box<dyn Error>> {
    let model = load(&directory.join("model.onnx"), &Options::default())?;
    let mut graph = model.graph;
    if optimized {
        (graph, _) = optimize(graph, &Passes::default())?;
    }
    if lists {
        for node in graph.nodes() {
            let shape = |id: &ValueId| format!("{:?}", graph.value(*id).shape);
            let inputs: Vec<String> = node.inputs.iter().map(shape).collect();
            println!(
                "  {} {} {} → {}",
                node.name,
                node.op,
                inputs.join(" "),
                shape(&node.output())
            );
        }
    }
    if only_load {
        return Ok(format!("{} nodes", graph.nodes().len()));
    }
    let mut inputs: HashMap<ValueId, Array<f32>> = HashMap::new();
    for (info, of_graph) in model.inputs.iter().zip(graph.inputs()) {
        let (shape, values) = npy::read(&directory.join(format!("in.{}.npy", info.name)))?;
        let batch = info.dims.first().is_some_and(|dim| matches!(dim, Dim::Batch(_)));
        let fits = info
            .dims
            .iter()
            .zip(&shape)
            .skip(usize::from(batch))
            .all(|(dim, &extent)| dim.extent(1) == Some(extent));
        if !fits {
            return Err(format!("`{}` has shape {shape:?}, expected {:?}", info.name, info.dims).into());
        }
        let array = Array::new(shape, values).ok_or("the file does not fit its shape")?;
        inputs.insert(of_graph.value, array);
    }
    let wanted: Vec<ValueId> = graph.outputs().iter().map(|&(_, id)| id).collect();
    let results = evaluate(&graph, |id| inputs.get(&id), &wanted)?;
    let mut text = format!("{} nodes", graph.nodes().len());
    for (info, id) in model.outputs.iter().zip(&wanted) {
        let result = results[id.index()]
            .as_ref()
            .or_else(|| inputs.get(id))
            .ok_or("is not computed")?;
        let (shape, expected) = npy::read(&directory.join(format!("out.{}.npy", info.name)))?;
        if result.shape() != shape {
            return Err(format!(
                "`{}` has shape {:?}, expected {shape:?}",
                info.name,
                result.shape()
            )
            .into());
        }
        let largest = expected.iter().fold(0f32, |largest, x| largest.max(x.abs()));
        let pairs = result.values().iter().zip(&expected);
        // NaN counts as infinite.
        let error = pairs
            .map(|(x, y)| (x - y).abs())
            .fold(0f32, |worst, e| if e <= worst { worst } else { e });
        let error = error / largest.max(f32::MIN_POSITIVE);
        text += &format!(", {} {error:.1e}", info.name);
        let is_close = error < 1e-3;
        if !is_close {
            return Err(format!("{text}: too large").into());
        }
    }
    Ok(text)
}
