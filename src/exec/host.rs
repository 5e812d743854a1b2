//! The CPU executor.

use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{iter, slice};

use parking_lot::Mutex;

use super::cpu::{Arena, CpuExecutor};
use super::executor::{Executor, ExecutorInfo, FinishOptions, Finished, PendingRun, Reservation, Submission};
use super::input::{InputData, Inputs, PlanInputs};
use super::options::ExecutorOptions;
use super::output::{RunOutput, RunOutputs};
use super::plans::Plans;
use super::replays::GraphSwitch;
use super::staging::Staging;
use super::states::{check_part, check_shape, state_named};
use super::step_args::step_args;
use super::threads::HostThreads;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::graph::plan::{Plan, PlanInput, Step};
use crate::tensor::{DType, Input, Tensor};
use crate::timeline::{self, Activity};
use crate::timing::{Phase, Timing};

/// Runs plans of one graph on the CPU. Submission blocks until the run has finished.
#[derive(Debug)]
pub struct HostExecutor {
    info: ExecutorInfo,
    plans: Plans,
    executor: CpuExecutor,
    /// Arenas that no run is using.
    arenas: Mutex<Vec<Arena>>,
}

impl HostExecutor {
    /// Packs the weights of `graph`; see [`CpuExecutor::with_dtype`].
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the CPU does not compute in the dtype. [`Error::Resource`] if the threads cannot be started.
    /// [`Error::Graph`] or [`Error::Op`], naming the node, if a weight was released or is a scalar.
    pub fn new(graph: &Graph, options: &ExecutorOptions) -> Result<Self> {
        let _span = timeline::named_span(Activity::Weights, || "weights: prepack".into());
        let executor = CpuExecutor::with_dtype(graph, options.dtype, options.threads)?;
        let executor = executor.with_collectives(options.collectives.clone());
        let plans = Plans::new(graph, DType::F32);
        Ok(Self {
            info: ExecutorInfo {
                devices: Vec::new(),
                graph: plans.graph().clone(),
                activations: DType::F32,
                in_flight: 2,
                resizes: false,
                weight_bytes: Vec::new(),
                host: HostThreads::computing(executor.pool().clone()),
                graphs: GraphSwitch::new(options.graphs),
            },
            plans,
            executor,
            arenas: Mutex::default(),
        })
    }

    /// Returns the inner executor, which has the kernels and the packed weights.
    pub(crate) fn cpu(&self) -> &CpuExecutor {
        &self.executor
    }

    /// Runs `plan` step by step, and calls `observe` with each step and its time.
    pub(super) fn run_steps(
        &self,
        plan: &Plan,
        input: Input<'_>,
        observe: &mut (dyn FnMut(&Step, Duration) + Send),
    ) -> Result<()> {
        self.compute(plan, &[input], observe)?;
        Ok(())
    }

    fn compute(
        &self,
        plan: &Plan,
        inputs: &[Input<'_>],
        observe: &mut (dyn FnMut(&Step, Duration) + Send),
    ) -> Result<RunOutputs> {
        let mut arena = self.arenas.lock().pop().unwrap_or_default();
        let mut observe = |step: &Step, time| observe(step, time);
        let outputs = self
            .executor
            .run_inputs(plan, inputs, &mut arena, Some(&mut observe))?;
        self.arenas.lock().push(arena);
        let output = |(kind, values)| RunOutput { kind, values };
        Ok(outputs.into_iter().map(output).collect())
    }

    /// Returns the elements of the parameter or state `name` after the last run that wrote it.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the graph has no parameter or state of this name.
    pub fn state(&self, name: &str) -> Result<Tensor> {
        let id = state_named(&self.info.graph, name)?;
        let shape = self.info.graph.value(id).shape.as_slice();
        let tensor = self
            .executor
            .state(id)
            .and_then(|values| Tensor::from_f32(shape, values));
        tensor.ok_or_else(|| Error::internal("states", format!("`{name}` has no elements of its shape")))
    }

    /// Sets the elements of the parameter or state `name` for later runs. Waits for a run that writes it.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the graph has no parameter or state of this name, or if its shape differs.
    pub fn set_state(&self, name: &str, tensor: &Tensor) -> Result<()> {
        let id = state_named(&self.info.graph, name)?;
        check_shape(&self.info.graph, id, tensor)?;
        if self.executor.set_state(id, &tensor.to_f32()) {
            return Ok(());
        }
        Err(Error::internal(
            "states",
            format!("`{name}` has no elements of its shape"),
        ))
    }

    /// Sets elements of the parameter or state `name`, from element `first` on, for later runs. Waits for a run that writes it.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the graph has no parameter or state of this name, or if it has fewer elements.
    pub fn write_state(&self, name: &str, first: usize, values: &[f32]) -> Result<()> {
        let id = state_named(&self.info.graph, name)?;
        check_part(&self.info.graph, id, first, values.len())?;
        if self.executor.write_state(id, first, values) {
            return Ok(());
        }
        Err(Error::internal("states", format!("`{name}` has no elements")))
    }

    fn submit(&self, plan: &Plan, inputs: PlanInputs<'_>) -> Result<HostRun> {
        let PlanInputs { first, rest } = inputs;
        let mut staged = None;
        let input = match first {
            InputData::Host(input) => input,
            InputData::Staged(staging) => Input::Pixels(staged.insert(staging)),
            InputData::Bytes(bytes) => Input::Pixels(bytes),
            InputData::Images(_) => {
                return Err(Error::argument("images", "the CPU executor takes resized pixels"));
            }
            InputData::Device(_) | InputData::Peer(_) => {
                let reason = "is in a GPU's memory; copy it to the host for a model on the CPU";
                return Err(Error::argument("input", reason));
            }
        };
        let others = plan.inputs().iter().skip(1).zip(&rest);
        let others = others.map(|(of_plan, data)| on_host(plan, of_plan, data));
        let others = others.collect::<Result<Vec<_>>>()?;
        let several: Vec<Input<'_>>;
        let inputs = if others.is_empty() {
            slice::from_ref(&input)
        } else {
            several = iter::once(input).chain(others).collect();
            &several
        };
        let mut timing = Timing::default();
        let start = Instant::now();
        let mut steps = Duration::ZERO;
        let span = timeline::named_span(Activity::Submit, || "run batch".into());
        let mut observe = |step: &Step, time| {
            let node = plan.node(step);
            timing.add(Phase::Step(node.role), time);
            steps += time;
            let name = || node.name.clone().into();
            timeline::add_ended(Activity::Step(node.role), name, time, || step_args(plan, step));
        };
        let outputs = self.compute(plan, inputs, &mut observe)?;
        drop(span);
        timing.add(Phase::CopyOut, start.elapsed().saturating_sub(steps));
        Ok(HostRun {
            outputs,
            timing,
            staging: staged,
        })
    }
}

/// Returns an input beside the first one.
fn on_host<'a>(plan: &Plan, of_plan: &PlanInput, data: &'a InputData<'_>) -> Result<Input<'a>> {
    let name = plan.graph().input_name(of_plan.input);
    let bytes: &[u8] = match data {
        InputData::Host(input) => return Ok(*input),
        InputData::Staged(staging) => staging,
        InputData::Bytes(bytes) => bytes,
        InputData::Images(_) | InputData::Device(_) | InputData::Peer(_) => {
            let reason = format!("`{name}` must be elements in host memory");
            return Err(Error::argument("inputs", reason));
        }
    };
    let misaligned = |error| {
        let reason = format!("`{name}` is not a slice of {}: {error}", of_plan.dtype);
        Error::argument("inputs", reason)
    };
    Ok(match of_plan.dtype {
        DType::U8 => Input::Pixels(bytes),
        DType::I32 => Input::Integers(bytemuck::try_cast_slice(bytes).map_err(misaligned)?),
        _ => Input::Values(bytemuck::try_cast_slice(bytes).map_err(misaligned)?),
    })
}

impl Executor for HostExecutor {
    fn info(&self) -> &ExecutorInfo {
        &self.info
    }

    fn plan(&self, batch: usize) -> Result<Arc<Plan>> {
        self.plans.get(batch)
    }

    fn stage(&self, bytes: usize, _capacity: usize) -> Result<Staging> {
        Ok(Staging::on_host(vec![0; bytes], &self.info.host))
    }

    fn reserve(self: Arc<Self>, plan: &Arc<Plan>, _near: Option<&Staging>) -> Result<Box<dyn Reservation>> {
        Ok(Box::new(HostReservation {
            executor: self,
            plan: plan.clone(),
        }))
    }
}

/// A reservation without memory: a run on the CPU takes its arena on submission.
struct HostReservation {
    executor: Arc<HostExecutor>,
    plan: Arc<Plan>,
}

impl Reservation for HostReservation {
    fn submit(self: Box<Self>, inputs: Inputs<'_>, _submission: Submission) -> Result<Box<dyn PendingRun>> {
        let inputs = inputs.in_order(&self.plan)?;
        Ok(Box::new(self.executor.submit(&self.plan, inputs)?))
    }
}

/// A finished run.
struct HostRun {
    outputs: RunOutputs,
    timing: Timing,
    staging: Option<Staging>,
}

impl PendingRun for HostRun {
    fn is_done(&self) -> Result<bool> {
        Ok(true)
    }

    fn finish(self: Box<Self>, options: FinishOptions<'_>) -> Result<Finished> {
        if let Some(timing) = options.timing {
            timing.merge(&self.timing);
        }
        Ok(Finished {
            outputs: self.outputs,
            staging: self.staging,
        })
    }
}
