//! One side of a comparison: a device, and the configuration of a model on it.

use std::sync::Arc;

use crate::peaks::cpu_name;
use crate::validate::digest::{CodeDigest, Loaded};
use hipvit::error::Result;
use hipvit::exec::select::SelectOptions;
use hipvit::exec::{ExecutorOptions, GraphMode, Placement, RunOutput};
use hipvit::graph::plan::Plan;
use hipvit::graph::{Graph, Optimizations, OutputKind, ValueId, optimize};
use hipvit::hip::Device;
use hipvit::session::Session;
use hipvit::tensor::{DType, Input};

use super::report::SideInfo;

pub(super) struct Side {
    /// GPU; `None` is the CPU.
    gpu: Option<Device>,
    dtype: DType,
    optimizations: Optimizations,
    threads: Option<usize>,
    replayed_runs: u64,
    /// Reason if a graph was not replayed.
    fallback: Option<String>,
    loaded: Loaded,
}

impl Side {
    pub(super) fn new(
        gpu: Option<Device>,
        dtype: DType,
        optimizations: Optimizations,
        threads: Option<usize>,
    ) -> Self {
        Self {
            gpu,
            dtype,
            optimizations,
            threads,
            replayed_runs: 0,
            fallback: None,
            loaded: Loaded::default(),
        }
    }

    /// Runs `graph` `runs` times on pixels of the model's size. Returns the results of the last run. If there
    /// are several, the last ones replay a captured graph where the device can.
    pub(super) fn run(
        &mut self,
        graph: &Graph,
        pixels: &[u8],
        images: usize,
        runs: usize,
    ) -> Result<Results> {
        let session = Session::builder()
            .dtype(self.dtype)
            .optimizations(self.optimizations);
        // Check the options as for a session.
        let session = match &self.gpu {
            Some(gpu) => session.gpu(gpu.clone()),
            None => session.device(hipvit::session::Device::Cpu),
        };
        session.open_device()?;
        let (graph, _) = optimize(graph.clone(), &session.passes())?;
        let options = ExecutorOptions {
            threads: self.threads,
            graphs: if runs == 1 { GraphMode::Off } else { GraphMode::On },
            select: SelectOptions {
                epilogues: self.optimizations.epilogues,
                measured: self.optimizations.selection,
                ..SelectOptions::default()
            },
            ..ExecutorOptions::new(self.dtype)
        };
        let placement = self.gpu.as_ref().map_or(Placement::Host, Placement::gpu);
        let executor = placement.executor(&graph, &options)?;
        let graph = Arc::new(graph);
        let dtype = executor.info().activations;
        let plan = Arc::new(Plan::new(graph.clone(), images, dtype)?);
        let mut outputs = executor.run(&plan, Input::Pixels(pixels), None)?;
        for _ in 1..runs {
            outputs = executor.run(&plan, Input::Pixels(pixels), None)?;
        }
        if let Some(executor) = executor.hip() {
            let replays = executor.replays();
            self.replayed_runs += replays.replayed_runs;
            self.fallback = self.fallback.take().or(replays.fallback);
            self.loaded.add(executor.code())?;
        }
        let results = outputs.into_iter().map(|RunOutput { kind, values: matrix }| {
            let output = graph.outputs().iter().find(|(known, _)| *known == kind);
            LayerValues {
                kind,
                nodes: output.map_or(0, |&(_, value)| ancestors(&graph, value)),
                shape: output.map_or_else(Vec::new, |&(_, value)| {
                    let mut shape = graph.value(value).shape.clone();
                    shape[0] = images;
                    shape
                }),
                values: matrix.into_iter().collect(),
            }
        });
        Ok(Results {
            dtype: self.dtype,
            layers: results.collect(),
        })
    }

    /// Returns a description of this side.
    pub(super) fn info(&self, auto: bool, no_gpu: Option<String>) -> SideInfo {
        let (device, name) = match &self.gpu {
            None => ("cpu".to_owned(), cpu_name()),
            Some(gpu) => {
                let properties = gpu.properties();
                (
                    format!("hip:{}", gpu.ordinal()),
                    format!("{}, {}", properties.name, properties.target),
                )
            }
        };
        SideInfo {
            device,
            name,
            dtype: self.dtype,
            optimizations: self.optimizations,
            replayed_runs: self.replayed_runs,
            fallback: self.fallback.clone(),
            no_gpu: no_gpu.filter(|_| auto),
        }
    }

    /// Returns the code objects that the runs loaded.
    pub(super) fn code(&self) -> Result<Vec<CodeDigest>> {
        Ok(self.loaded.list())
    }
}

/// Outputs of a run.
pub(super) struct Results {
    pub(super) dtype: DType,
    layers: Vec<LayerValues>,
}

/// Values of one output.
pub(super) struct LayerValues {
    pub(super) kind: OutputKind,
    /// Number of nodes that the output depends on, including its own.
    pub(super) nodes: usize,
    pub(super) shape: Vec<usize>,
    pub(super) values: Vec<f32>,
}

impl Results {
    pub(super) fn get(&self, kind: OutputKind) -> Option<&LayerValues> {
        self.layers.iter().find(|layer| layer.kind == kind)
    }

    /// Returns the outputs from the pixels to the logits.
    pub(super) fn in_order(&self) -> Vec<&LayerValues> {
        let mut layers: Vec<&LayerValues> = self.layers.iter().collect();
        layers.sort_by_key(|layer| match layer.kind {
            OutputKind::EmbeddedTokens => (0, 0),
            OutputKind::HiddenLayer(block) => (1, block),
            OutputKind::Tokens => (2, 0),
            OutputKind::Embedding => (3, 0),
            OutputKind::Logits => (4, 0),
            // The output of a pipeline stage; a whole model has none.
            OutputKind::Boundary => (5, 0),
            OutputKind::AttentionStatistics(layer) => (6, layer),
            OutputKind::Loss => (7, 0),
            OutputKind::GradientNorm => (8, 0),
            OutputKind::Gradient(index) => (9, index),
            OutputKind::Named(index) => (10, index),
        });
        layers
    }
}

impl LayerValues {
    pub(super) fn name(&self, served: bool) -> String {
        let name = match self.kind {
            OutputKind::EmbeddedTokens => "patch embedding".to_owned(),
            OutputKind::HiddenLayer(block) => format!("block {block}"),
            OutputKind::Tokens => "final tokens".to_owned(),
            OutputKind::Embedding => "embedding".to_owned(),
            OutputKind::Logits => "logits".to_owned(),
            OutputKind::Boundary => "boundary".to_owned(),
            OutputKind::AttentionStatistics(layer) => format!("statistics of attention {layer}"),
            OutputKind::Loss => "loss".to_owned(),
            OutputKind::GradientNorm => "norm of the gradients".to_owned(),
            OutputKind::Gradient(index) => format!("gradient {index}"),
            OutputKind::Named(index) => format!("output {index}"),
        };
        if served {
            format!("{name}, as served")
        } else {
            name
        }
    }
}

/// Returns the number of nodes that `value` depends on.
fn ancestors(graph: &Graph, value: ValueId) -> usize {
    let mut needed = vec![false; graph.values().len()];
    needed[value.index()] = true;
    let mut count = 0;
    for node in graph.nodes().iter().rev() {
        if needed[node.output().index()] {
            count += 1;
            for input in &node.inputs {
                needed[input.index()] = true;
            }
        }
    }
    count
}
