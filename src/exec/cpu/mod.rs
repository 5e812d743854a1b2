//! The CPU executor: activations in f32, all cores, weights prepacked once.
//!
//! Results are bitwise independent of the number of threads and of the rest of the batch: each element is summed in a
//! fixed order by one thread.

mod arena;
#[cfg(test)]
mod tests;

pub use self::arena::Arena;
pub use crate::cpu::constant_bytes;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ndarray::Array2;
use parking_lot::RwLock;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::cpu::{self, Constants, States};
use crate::error::{Error, Result};
use crate::exec::Collectives;
use crate::graph::plan::{BufferId, Plan, Step};
use crate::graph::{Graph, Node, OutputKind, ValueId, matrix};
use crate::ops::OpError;
use crate::tensor::{DType, Input};

/// Callback after each step, with the step's time.
pub type Observer<'a> = dyn FnMut(&Step, Duration) + Send + 'a;

/// Dtypes that the CPU computes in.
pub const DTYPES: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

/// Runs plans of one graph on the CPU. Any number of threads may run it at once, each with its own [`Arena`].
pub struct CpuExecutor {
    pool: Arc<ThreadPool>,
    constants: Constants,
    /// Parameters and states. Runs that write them exclude other runs; later runs see the values written last.
    states: RwLock<States>,
    /// Connections to the other ranks of a training step.
    collectives: Option<Arc<Collectives>>,
}

impl CpuExecutor {
    /// Creates an executor for `graph`, optimised or not. Uses `threads` threads, by default one per physical core.
    ///
    /// # Errors
    ///
    /// [`Error::Resource`] if the threads cannot be started. [`Error::Graph`] or [`Error::Op`], naming the node, if a weight was released
    /// or is a scalar, or if a [custom op](crate::custom) has no CPU kernel.
    pub fn new(graph: &Graph, threads: Option<usize>) -> Result<Self> {
        Self::with_dtype(graph, DType::F32, threads)
    }

    /// Creates an executor with a dtype for linear layers, the patch convolution and attention:
    ///
    /// - f32: everything is in f32.
    /// - bf16: operands are rounded to bf16 and products summed in f32, if the processor has AMX or AVX-512 BF16. Otherwise only the
    ///   weights are in bf16, and products are in f32.
    /// - f16: weights are stored in f16, products are in f32.
    ///
    /// For each dtype, activations in memory are f32, and plans must be too. Linear layers that round their operands to int8 or bf16 still
    /// do.
    ///
    /// # Errors
    ///
    /// The errors of [`new`](Self::new), and [`Error::Argument`] for another dtype.
    pub fn with_dtype(graph: &Graph, dtype: DType, threads: Option<usize>) -> Result<Self> {
        if !DTYPES.contains(&dtype) {
            return Err(Error::argument(
                "dtype",
                format!("the CPU computes in f32, f16 or bf16, not in {dtype}"),
            ));
        }
        for node in graph.nodes() {
            let checked = cpu::check(&node.op);
            checked.map_err(|source| hipvit_graph::Error::op(&node.name, &node.op, source))?;
        }
        let pool = Arc::new(thread_pool(threads, || ())?);
        let constants = pool.install(|| Constants::new(graph, dtype))?;
        let states = RwLock::new(cpu::initial_states(graph));
        Ok(Self {
            pool,
            constants,
            states,
            collectives: None,
        })
    }

    /// Sets the connections to the other ranks, for graphs with exchanges between ranks.
    #[must_use]
    pub fn with_collectives(mut self, collectives: Option<Arc<Collectives>>) -> Self {
        self.constants
            .set_collectives(collectives.clone().map(|to| to as Arc<dyn cpu::Collectives>));
        self.collectives = collectives;
        self
    }

    /// Returns the number of threads.
    pub fn threads(&self) -> usize {
        self.pool.current_num_threads()
    }

    /// Returns the thread pool.
    pub(super) fn pool(&self) -> &Arc<ThreadPool> {
        &self.pool
    }

    /// Returns the weights that were free of NaN and infinity when they were prepacked.
    pub(crate) fn finite_weights(&self) -> impl Iterator<Item = ValueId> {
        self.constants.finite_weights()
    }

    /// Returns the elements of the parameter or state `id`, as of the last run that wrote it.
    pub fn state(&self, id: ValueId) -> Option<Vec<f32>> {
        self.states.read().get(&id).cloned()
    }

    /// Sets the elements of the parameter or state `id` for later runs. Waits for a run that writes it. Returns false for another value,
    /// or if the number of elements differs.
    pub fn set_state(&self, id: ValueId, values: &[f32]) -> bool {
        let has_length = self
            .states
            .read()
            .get(&id)
            .is_some_and(|state| state.len() == values.len());
        has_length && self.write_state(id, 0, values)
    }

    /// Sets elements of the parameter or state `id`, from element `first` on, for later runs. Waits for a run that writes it. Returns false
    /// for another value, or if it has fewer elements.
    pub fn write_state(&self, id: ValueId, first: usize, values: &[f32]) -> bool {
        let mut states = self.states.write();
        let part = states
            .get_mut(&id)
            .and_then(|state| state.get_mut(first..)?.get_mut(..values.len()));
        match part {
            Some(part) => {
                part.copy_from_slice(values);
                true
            }
            None => false,
        }
    }

    /// Runs `work` in this executor's thread pool.
    pub fn install<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        self.pool.install(work)
    }

    /// Runs `plan`, which must belong to this executor's graph and have one input. See [`run_inputs`](Self::run_inputs).
    ///
    /// # Errors
    ///
    /// The errors of [`run_inputs`](Self::run_inputs).
    pub fn run(
        &self,
        plan: &Plan,
        input: Input<'_>,
        arena: &mut Arena,
        observer: Option<&mut Observer<'_>>,
    ) -> Result<Vec<(OutputKind, Array2<f32>)>> {
        self.run_inputs(plan, &[input], arena, observer)
    }

    /// Runs `plan`, which must belong to this executor's graph. `inputs` are in the order of [`Graph::inputs`]. Returns each output as
    /// `[B, channels]` or `[B·tokens, channels]`.
    ///
    /// A run that writes parameters or states excludes all other runs.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if an input is missing or does not fit the plan, or if the plan is not in f32. [`Error::Resource`] if the
    /// allocation fails. [`Error::Op`], naming the node, if a step does not fit its op or the plan belongs to another graph.
    pub fn run_inputs(
        &self,
        plan: &Plan,
        inputs: &[Input<'_>],
        arena: &mut Arena,
        observer: Option<&mut Observer<'_>>,
    ) -> Result<Vec<(OutputKind, Array2<f32>)>> {
        plan.graph().check_inputs(inputs, plan.batch())?;
        let floats = integers_as_floats(inputs);
        let converted: Vec<Input<'_>>;
        let inputs = if floats.iter().all(Option::is_none) {
            inputs
        } else {
            let pairs = inputs.iter().zip(&floats);
            converted = pairs
                .map(|(&input, floats)| floats.as_deref().map_or(input, Input::Values))
                .collect();
            &converted
        };
        if plan.dtype() != DType::F32 {
            let reason = format!("requires {}; the CPU's activations are in f32", plan.dtype());
            return Err(Error::argument("dtype", reason));
        }
        let arena = arena.elements(plan)?;
        if plan.updates().is_empty() {
            let states = self.states.read();
            self.pool
                .install(|| self.steps(plan, inputs, HeldStates::Shared(&states), arena, observer))?;
        } else {
            let mut states = self.states.write();
            // The lock itself stays on this thread.
            let held = HeldStates::Own(&mut states);
            self.pool
                .install(|| self.steps(plan, inputs, held, arena, observer))?;
            let in_arena = |&&(_, id): &&(ValueId, BufferId)| plan.buffer(id).state.is_none();
            for &(to, id) in plan.updates().iter().filter(in_arena) {
                let values = cpu::range(plan.buffer(id)).and_then(|range| arena.get(range));
                let name = &plan.graph().value(to).name;
                let values = values.ok_or_else(|| Error::graph(name, "is outside the arena"))?;
                states.insert(to, values.to_vec());
            }
        }
        plan.outputs()
            .iter()
            .map(|&(kind, value, id)| {
                let name = &plan.graph().value(value).name;
                let buffer = plan.buffer(id);
                let values = cpu::range(buffer)
                    .and_then(|range| arena.get(range))
                    .ok_or_else(|| Error::graph(name, "lies outside the arena"))?;
                matrix(&buffer.shape, values.to_vec())
                    .map(|matrix| (kind, matrix))
                    .map_err(|e| Error::graph(name, e))
            })
            .collect()
    }

    fn steps(
        &self,
        plan: &Plan,
        inputs: &[Input<'_>],
        mut states: HeldStates<'_>,
        arena: &mut [f32],
        mut observer: Option<&mut Observer<'_>>,
    ) -> Result<()> {
        for step in plan.steps() {
            let start = Instant::now();
            let node = plan.node(step);
            states
                .run(plan.buffer(step.output()).state, |states, written| {
                    cpu::run(plan, step, inputs, &self.constants, states, written, arena)
                })
                .map_err(|source| self.step_error(node, source))?;
            if let Some(observer) = &mut observer {
                observer(step, start.elapsed());
            }
        }
        Ok(())
    }
}

impl CpuExecutor {
    /// Returns the error of a step: that of the other rank, if an exchange has failed.
    fn step_error(&self, node: &Node, source: OpError) -> Error {
        let collectives = self.collectives.as_ref();
        let failure = collectives.and_then(|collectives| collectives.failure());
        failure.unwrap_or_else(|| hipvit_graph::Error::op(&node.name, &node.op, source).into())
    }
}

/// The parameters and states during a run.
enum HeldStates<'a> {
    /// Other runs read them too.
    Shared(&'a States),
    Own(&'a mut States),
}

impl HeldStates<'_> {
    /// Calls `compute` with the states. If a step writes to the state `written`, its elements are apart.
    fn run(
        &mut self,
        written: Option<ValueId>,
        compute: impl FnOnce(&States, Option<&mut [f32]>) -> Result<(), OpError>,
    ) -> Result<(), OpError> {
        match (self, written) {
            (Self::Shared(states), _) => compute(states, None),
            (Self::Own(states), None) => compute(states, None),
            (Self::Own(states), Some(id)) => {
                let missing = "the plan is of another graph than the executor";
                let mut elements = states.remove(&id).ok_or(missing)?;
                let result = compute(states, Some(&mut elements));
                states.insert(id, elements);
                result
            }
        }
    }
}

/// Returns the elements of inputs of integers as ops read them, in f32. `None` for the others.
fn integers_as_floats(inputs: &[Input<'_>]) -> Vec<Option<Vec<f32>>> {
    let as_floats = |input: &Input<'_>| match input {
        Input::Integers(values) => Some(values.iter().map(|&value| value as f32).collect()),
        _ => None,
    };
    inputs.iter().map(as_floats).collect()
}

/// Creates a pool of `threads` threads, by default one per physical core. Each thread calls `start` first.
pub(super) fn thread_pool(
    threads: Option<usize>,
    start: impl Fn() + Send + Sync + 'static,
) -> Result<ThreadPool> {
    ThreadPoolBuilder::new()
        .num_threads(threads.unwrap_or_else(cores).max(1))
        .thread_name(|i| format!("hipvit-cpu-{i}"))
        .start_handler(move |_| start())
        .build()
        .map_err(|e| Error::resource("threads", e))
}

/// Returns the number of physical cores that this thread may use. Two threads on one core would share its vector units.
pub(super) fn cores() -> usize {
    num_cpus::get_physical().min(num_cpus::get())
}

impl std::fmt::Debug for CpuExecutor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CpuExecutor")
            .field("threads", &self.threads())
            .field("weights", &self.constants.weights())
            .finish_non_exhaustive()
    }
}
