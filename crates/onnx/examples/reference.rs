//! Computes a model by the graph's reference implementation: `reference run MODEL.onnx --input NAME=FILE.npy … -o DIRECTORY`.
//!
//! It takes the arguments of `hipvit run`, so that scripts can test the importer without the engine. `--optimized` applies the passes.

use std::collections::HashMap;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use hipvit_graph::reference::Array;
use hipvit_graph::{Passes, ValueId, evaluate, optimize};
use hipvit_onnx::{Options, load};

mod npy;

fn main() {
    if let Err(error) = run() {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (mut path, mut directory, mut optimized) = (PathBuf::new(), PathBuf::from("."), false);
    let mut files = HashMap::new();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "run" => {}
            "--device" => _ = arguments.next(),
            "--optimized" => optimized = true,
            "-o" => directory = arguments.next().ok_or("-o needs a directory")?.into(),
            "--input" => {
                let text = arguments.next().ok_or("--input needs NAME=FILE.npy")?;
                let (name, file) = text.rsplit_once('=').ok_or("--input needs NAME=FILE.npy")?;
                files.insert(name.to_owned(), file.to_owned());
            }
            _ => path = argument.into(),
        }
    }
    let model = load(&path, &Options::default())?;
    let mut graph = model.graph;
    if optimized {
        (graph, _) = optimize(graph, &Passes::default())?;
    }
    let mut inputs: HashMap<ValueId, Array<f32>> = HashMap::new();
    for (info, input) in model.inputs.iter().zip(graph.inputs()) {
        let file = files
            .get(&info.name)
            .ok_or_else(|| format!("`{}` is not given", info.name))?;
        let (shape, values) = npy::read(Path::new(file))?;
        let array = Array::new(shape, values).ok_or("the file does not fit its shape")?;
        inputs.insert(input.value, array);
    }
    let wanted: Vec<ValueId> = graph.outputs().iter().map(|&(_, id)| id).collect();
    let results = evaluate(&graph, |id| inputs.get(&id), &wanted)?;
    fs::create_dir_all(&directory)?;
    for (info, id) in model.outputs.iter().zip(&wanted) {
        let result = results[id.index()]
            .as_ref()
            .or_else(|| inputs.get(id))
            .ok_or("is not computed")?;
        npy::write(
            &directory.join(format!("{}.npy", info.name)),
            result.shape(),
            &result.to_f32(),
        )?;
    }
    Ok(())
}
