//! Bounds of the steps of a plan.

use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;

use super::hardware::Hardware;
use crate::peaks::Kind;
use hipvit::error::Result;
use hipvit::graph::plan::{Operand, Plan, Step};
use hipvit::graph::{Graph, Optimizations, Passes, Role, optimize};
use hipvit::ops::{Linear, Op};
use hipvit::session::Session;
use hipvit::tensor::DType;

/// Configuration of a model for a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Configuration {
    /// Compute precision.
    pub dtype: DType,
    /// Enabled optimisations.
    pub optimizations: Optimizations,
    /// True if a GPU replays captured graphs.
    pub hip_graphs: bool,
}

impl Default for Configuration {
    fn default() -> Self {
        Self {
            dtype: DType::F32,
            optimizations: Optimizations::default(),
            hip_graphs: true,
        }
    }
}

/// Resource that bounds a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// Memory bandwidth.
    Memory,
    /// Floating-point operations.
    Compute,
    /// Launches cost more than bandwidth or operations.
    Launch,
}

impl Bound {
    /// Returns the bound of a step with these times in seconds.
    fn of(compute: f64, memory: f64, launch: f64) -> Self {
        if launch > compute.max(memory) {
            Self::Launch
        } else if compute > memory {
            Self::Compute
        } else {
            Self::Memory
        }
    }
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Memory => "memory",
            Self::Compute => "compute",
            Self::Launch => "launch",
        })
    }
}

/// Predicted times of one step and its bound.
#[derive(Clone, Debug, Serialize)]
pub struct StepBound {
    /// Name of the node.
    pub name: String,
    /// Op and what is fused into it.
    pub op: String,
    /// Part of the model.
    pub role: Role,
    /// Shape of the result.
    pub shape: Vec<usize>,
    /// Floating-point operations.
    pub flops: u64,
    /// Bytes read and written.
    pub bytes: u64,
    /// Operations per byte.
    pub intensity: f64,
    /// Number of kernels and library calls.
    pub launches: usize,
    /// Time of the operations at the peak rate.
    pub compute_seconds: f64,
    /// Time of the bytes at the memory bandwidth.
    pub memory_seconds: f64,
    /// Longer of `compute_seconds` and `memory_seconds`: the roofline.
    pub roofline_seconds: f64,
    /// Time of the launches.
    pub launch_seconds: f64,
    /// Sum of roofline and launches.
    pub seconds: f64,
    /// Resource with the largest of the three times.
    pub bound: Bound,
    /// Measured time of the step alone, if measured.
    pub measured_seconds: Option<f64>,
}

/// Memory of a run in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryNeeds {
    /// Parameters that steps read, in the plan's dtype.
    pub weights_bytes: u64,
    /// Arena of the activations.
    pub activations_bytes: u64,
    /// Input of a run.
    pub input_bytes: u64,
    /// Memory outside of the arena: the scores of unfused attention, and a GPU library's workspace.
    pub workspace_bytes: u64,
    /// Sum of the above for one run.
    pub peak_bytes: u64,
    /// Memory for two runs in flight, as in a pipeline.
    pub two_in_flight_bytes: u64,
}

/// Bounds of a plan.
#[derive(Clone, Debug, Serialize)]
pub struct Prediction {
    /// Floating-point operations of a run.
    pub flops: u64,
    /// Bytes that all steps read and write.
    pub bytes: u64,
    /// Operations per byte.
    pub intensity: f64,
    /// Sum of the steps' times.
    pub seconds: f64,
    /// Images per second of consecutive runs.
    pub images_per_second: f64,
    /// Memory of a run.
    pub memory: MemoryNeeds,
    /// Bounds of each step.
    pub steps: Vec<StepBound>,
}

/// Workspace per run in flight of a GPU's hipBLASLt handle.
const LIBRARY_WORKSPACE: u64 = 32 << 20;

/// Plans one model in several configurations.
pub(super) struct Planner {
    before: Graph,
    after: Mutex<Vec<(Passes, Arc<Graph>)>>,
}

impl Planner {
    pub(super) fn new(before: Graph) -> Self {
        Self {
            before,
            after: Mutex::default(),
        }
    }

    pub(super) fn plan(&self, configuration: Configuration, batch: usize) -> Result<Plan> {
        let Configuration {
            dtype, optimizations, ..
        } = configuration;
        let passes = Session::builder()
            .dtype(dtype)
            .optimizations(optimizations)
            .passes();
        let mut after = self.after.lock();
        let known = after.iter().find(|(known, _)| *known == passes);
        let graph = match known {
            Some((_, graph)) => graph.clone(),
            None => {
                let (graph, _) = optimize(self.before.clone(), &passes)?;
                let graph = Arc::new(graph);
                after.push((passes, graph.clone()));
                graph
            }
        };
        Ok(Plan::new(graph, batch, dtype)?)
    }

    pub(super) fn predict(
        &self,
        hardware: &Hardware,
        configuration: Configuration,
        batch: usize,
    ) -> Result<Prediction> {
        predict(&self.plan(configuration, batch)?, hardware, configuration)
    }
}

/// Computes the bounds of `plan` on `hardware`.
fn predict(plan: &Plan, hardware: &Hardware, configuration: Configuration) -> Result<Prediction> {
    let flops_per_second = hardware.flops_per_second(configuration.dtype)?;
    let [eager, replayed] = hardware.launch_seconds;
    let launch = if configuration.hip_graphs { replayed } else { eager };
    let bound = |step: &Step| {
        let node = plan.node(step);
        let extra = match hardware.kind {
            Kind::Gpu => Extra::of(plan, step, configuration.optimizations),
            Kind::Cpu => Extra::default(),
        };
        let bytes = step.bytes_read + step.bytes_written + extra.bytes;
        let launches = 1 + extra.launches;
        let compute_seconds = step.flops as f64 / flops_per_second;
        let memory_seconds = bytes as f64 / hardware.bytes_per_second;
        let roofline_seconds = compute_seconds.max(memory_seconds);
        let launch_seconds = launches as f64 * launch;
        StepBound {
            name: node.name.clone(),
            op: node.op.to_string(),
            role: node.role,
            shape: plan.buffer(step.output()).shape.clone(),
            flops: step.flops,
            bytes,
            intensity: step.flops as f64 / bytes.max(1) as f64,
            launches,
            compute_seconds,
            memory_seconds,
            roofline_seconds,
            launch_seconds,
            seconds: roofline_seconds + launch_seconds,
            bound: Bound::of(compute_seconds, memory_seconds, launch_seconds),
            measured_seconds: None,
        }
    };
    let steps: Vec<StepBound> = plan.steps().iter().map(bound).collect();
    let (flops, bytes) = (plan.flops(), steps.iter().map(|step| step.bytes).sum::<u64>());
    let seconds: f64 = steps.iter().map(|step| step.seconds).sum();
    Ok(Prediction {
        flops,
        bytes,
        intensity: flops as f64 / bytes.max(1) as f64,
        seconds,
        images_per_second: plan.batch() as f64 / seconds,
        memory: memory(plan, hardware.kind, configuration.optimizations),
        steps,
    })
}

/// Additional work of a GPU for a step if an optimisation is disabled.
#[derive(Default)]
struct Extra {
    bytes: u64,
    launches: usize,
    workspace: u64,
}

impl Extra {
    fn of(plan: &Plan, step: &Step, optimizations: Optimizations) -> Self {
        let result = step.bytes_written;
        match &plan.node(step).op {
            // Q·Kᵀ writes the scores, softmax reads and writes them, P·V reads them: two GEMMs per head and a
            // softmax.
            Op::Attention(spec) if !optimizations.fused_attention => {
                let tokens = |operand: usize| match step.inputs.get(operand) {
                    Some(&Operand::Buffer(id)) => plan.buffer(id).shape.get(1).copied().unwrap_or(1),
                    _ => 1,
                };
                let keys = tokens(spec.operands.keys()).saturating_sub(spec.first_key);
                let scores = plan.batch() * spec.heads * tokens(0) * keys * plan.dtype().size();
                Self {
                    bytes: 4 * scores as u64,
                    launches: 2 * spec.heads,
                    workspace: scores as u64,
                }
            }
            // A separate kernel reads and writes the result once more.
            Op::Linear(Linear {
                bias,
                residual,
                activation,
                ..
            }) if !optimizations.epilogues && (*bias || *residual || activation.is_some()) => Self {
                bytes: 2 * result,
                launches: 1,
                workspace: 0,
            },
            _ => Self::default(),
        }
    }
}

fn memory(plan: &Plan, kind: Kind, optimizations: Optimizations) -> MemoryNeeds {
    let graph = plan.graph();
    let constants = plan.steps().iter().flat_map(|step| &step.inputs);
    let mut read: Vec<_> = constants
        .filter_map(|operand| match operand {
            Operand::Constant(id) => Some(*id),
            _ => None,
        })
        .collect();
    read.sort_unstable();
    read.dedup();
    let weight = |id| {
        let value = graph.value(id);
        let size = match value.dtype {
            DType::I8 | DType::F8E4M3 => 1,
            _ => plan.dtype().size(),
        };
        (value.shape.iter().product::<usize>() * size) as u64
    };
    let weights_bytes = read.into_iter().map(weight).sum();
    let workspace_bytes = match kind {
        Kind::Cpu => 0,
        Kind::Gpu => {
            let scratch = |step| Extra::of(plan, step, optimizations).workspace;
            let scratch = plan.steps().iter().map(scratch).max().unwrap_or(0);
            scratch + LIBRARY_WORKSPACE
        }
    };
    let activations_bytes = plan.arena_bytes() as u64;
    let input_bytes = plan.input_bytes() as u64;
    let run = activations_bytes + input_bytes + workspace_bytes;
    MemoryNeeds {
        weights_bytes,
        activations_bytes,
        input_bytes,
        workspace_bytes,
        peak_bytes: weights_bytes + run,
        two_in_flight_bytes: weights_bytes + 2 * run,
    }
}
