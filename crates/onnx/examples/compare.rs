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
        let (shape, values) = npy(&directory.join(format!("in.{}.npy", info.name)))?;
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
        let (shape, expected) = npy(&directory.join(format!("out.{}.npy", info.name)))?;
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
        if !(error < 1e-3) {
            return Err(format!("{text}: too large").into());
        }
    }
    Ok(text)
}

/// Reads a NumPy array. Returns its shape and its elements in row-major order.
fn npy(path: &Path) -> Result<(Vec<usize>, Vec<f32>), Box<dyn Error>> {
    let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let long = bytes.get(6) != Some(&1);
    let start = if long { 12 } else { 10 };
    let length = if long {
        u32::from_le_bytes(bytes[8..12].try_into()?) as usize
    } else {
        u16::from_le_bytes(bytes[8..10].try_into()?) as usize
    };
    let header = std::str::from_utf8(&bytes[start..start + length])?;
    let between = |from: &str, to: char| {
        header
            .split_once(from)
            .and_then(|(_, rest)| rest.split(to).next())
    };
    let dtype = between("'descr': '", '\'').ok_or("no dtype")?;
    let shape = between("'shape': (", ')').ok_or("no shape")?;
    let shape = shape
        .split(',')
        .map(str::trim)
        .filter(|extent| !extent.is_empty());
    let shape = shape.map(str::parse).collect::<Result<Vec<usize>, _>>()?;
    let data = &bytes[start + length..];
    let values = match dtype {
        "<f4" => data
            .as_chunks()
            .0
            .iter()
            .map(|&b| f32::from_le_bytes(b))
            .collect(),
        "<f8" => data
            .as_chunks()
            .0
            .iter()
            .map(|&b| f64::from_le_bytes(b) as f32)
            .collect(),
        "<f2" => data
            .as_chunks()
            .0
            .iter()
            .map(|&b| half::f16::from_le_bytes(b).to_f32())
            .collect(),
        "<i8" => data
            .as_chunks()
            .0
            .iter()
            .map(|&b| i64::from_le_bytes(b) as f32)
            .collect(),
        "<i4" => data
            .as_chunks()
            .0
            .iter()
            .map(|&b| i32::from_le_bytes(b) as f32)
            .collect(),
        "|u1" | "|b1" => data.iter().map(|&b| b.into()).collect(),
        other => return Err(format!("{}: dtype {other}", path.display()).into()),
    };
    Ok((shape, values))
}
