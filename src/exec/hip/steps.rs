//! Submission of a plan's steps: one by one, or as the replay of a captured graph.

use super::clock::Clock;
use super::context::{ExecutionContext, Memory};
use super::executor::HipExecutor;
use super::graphs::{Captured, Submitted, UNWRITTEN};
use super::libraries::Libraries;
use super::lower::{Addresses, Call, lower};
use super::regions::Regions;
use super::results::is_overwritten;
use super::states::{States, Turn};
use super::unified::HostResults;
use crate::error::{Error, Result};
use crate::exec::executor::Download;
use crate::graph::plan::{Plan, Step};
use crate::graph::{Node, OutputKind};
use crate::hip::{self, DeviceBuffer, Operand, Replay, Stream, Work};
use crate::kernels::KernelCall;
use crate::ops::Op;
use crate::timeline::{self, Activity};

impl HipExecutor {
    /// Submits all steps, one by one or as the replay of a captured graph. `download` are the results that are read later.
    pub(super) fn compute(
        &self,
        context: &mut ExecutionContext,
        plan: &Plan,
        turn: &mut Turn<'_>,
        clock: &mut Option<Clock>,
        download: Download,
    ) -> Result<Submitted> {
        let stream = context.stream.clone();
        // Capturing does not pay for a plan that runs only once.
        let again = context.has_seen(plan);
        if let Some(clock) = clock {
            clock.tick(&stream)?;
        }
        if again && self.graphs.is_wanted(clock.is_some()) {
            let submitted = match self.replay(context, plan, download)? {
                Some(run) => Submitted::Replay(run),
                None => {
                    self.capture(context, plan, turn)?;
                    Submitted::Steps
                }
            };
            if let Some(clock) = clock {
                clock.tick(&stream)?;
            }
            return Ok(submitted);
        }
        self.graphs.count_eager();
        let mut steps = Steps::new(self, plan, context, turn);
        steps.clock = clock.as_mut();
        steps.enqueue(&stream)?;
        Ok(Submitted::Steps)
    }

    /// Submits a replay if the steps were captured. Returns its number.
    fn replay(&self, context: &mut ExecutionContext, plan: &Plan, download: Download) -> Result<Option<u64>> {
        if context.captured(plan).is_none() {
            return Ok(None);
        }
        for &(kind, value, id) in plan.outputs() {
            // Logits that are not read need not reveal a failed replay.
            let is_read =
                kind != OutputKind::Logits || !matches!(download, Download::NoLogits | Download::KeptLogits);
            if is_read && is_overwritten(plan, kind, value) {
                let target = context.memory.buffers_mut().part(plan, id)?;
                context.stream.fill(target, UNWRITTEN)?;
            }
        }
        let run = context.captured(plan).map(Captured::run).transpose()?;
        self.graphs.count_replayed();
        Ok(run)
    }

    /// Runs the steps, and keeps a captured graph of them if capture succeeds.
    ///
    /// If steps write states in place, the device needs memory for a copy of the states meanwhile. Without it, graphs are not replayed.
    fn capture(&self, context: &mut ExecutionContext, plan: &Plan, turn: &mut Turn<'_>) -> Result<()> {
        let _span = timeline::span(Activity::Capture);
        let stream = context.stream.clone();
        let backup = self.backup(turn)?;
        // All ranks capture, or none does.
        let can_repeat = self.can_repeat(backup.as_ref());
        let mut steps = Steps::new(self, plan, context, turn);
        if !can_repeat {
            self.graphs.count_eager();
            self.graphs
                .fall_back(|| "no memory for a copy of the states, to check a replay".into());
            return steps.enqueue(&stream);
        }
        steps.backup = backup;
        let replay = Replay::agreed(&stream, &mut steps, &mut |done| self.agree(done))?;
        match replay {
            Ok(replay) => {
                context.keep_replay(plan, replay);
                self.graphs.count_replayed();
            }
            Err(reason) => {
                self.graphs.count_eager();
                // One wrong replay disables replay for the whole executor.
                self.graphs.fall_back(|| reason);
            }
        }
        Ok(())
    }

    fn regions<'a>(&'a self, memory: &'a mut Memory, turn: &'a mut Turn<'_>) -> Regions<'a> {
        let inputs = match &memory.host_input {
            Some(input) => input.reading(),
            None => memory.input.reading(),
        };
        Regions {
            arena: memory.arena.writing(),
            results: memory.host_results.as_mut().map(HostResults::writing),
            constants: self.constants.reading(),
            states: turn.writing(),
            inputs,
            scratch: memory.scratch.writing(),
            counters: memory.counters.writing(),
        }
    }

    /// Returns the calls that compute a step.
    pub(super) fn calls(&self, plan: &Plan, step: &Step, regions: &Regions<'_>) -> Result<Vec<Call>> {
        let addresses = Addresses {
            inputs: regions.inputs.address(),
            states: self.states.as_ref().map(States::addresses),
            constants: self.constants.addresses(),
            steps: self.constants.steps(),
            float8: self.device.properties().float8(),
            sparse: self.constants.sparse(),
            arena: regions.arena.address(),
            elsewhere: regions.elsewhere(),
            in_place: &self.in_place,
            results: None,
            scratch: regions.scratch.address(),
            counters: regions.counters.address(),
        };
        lower(plan, step, addresses)
            .map_err(|reason| Error::op(plan.node(step), Some(self.device.name()), reason))
    }

    /// Tries to fuse an all-reduce with the following norm into one launch. Returns true if it did.
    fn submit_sum_and_norm(
        &self,
        plan: &Plan,
        [sum, norm]: [&Step; 2],
        regions: &Regions<'_>,
        libraries: &mut Libraries,
    ) -> Result<bool> {
        if !matches!(plan.node(sum).op, Op::AllReduce(_)) {
            return Ok(false);
        }
        let [sum_calls, norm_calls] = [self.calls(plan, sum, regions)?, self.calls(plan, norm, regions)?];
        let ([Call::AllReduce(call)], [Call::Kernel(KernelCall::LayerNorm(arguments))]) =
            (&sum_calls[..], &norm_calls[..])
        else {
            return Ok(false);
        };
        if let Some(clock) = &mut libraries.calls {
            clock.set_node(sum.node);
        }
        libraries
            .submit_sum_and_norm(call, arguments, &self.selection, regions)
            .map_err(|error| self.at_node(plan.node(sum), error))
    }

    /// Adds the node's name to the error of one of its calls, and the device's name unless the error has it.
    pub(super) fn at_node(&self, node: &Node, error: Error) -> Error {
        let device = match error {
            // The error names the rank. The failed all-reduce is irrelevant.
            Error::Hip(hip::Error::Communicator { .. }) => return error,
            Error::Device { .. }
            | Error::Hip(
                hip::Error::Device { .. } | hip::Error::OutOfMemory { .. } | hip::Error::NoCode { .. },
            ) => None,
            _ => Some(self.device.name().to_owned()),
        };
        Error::Step {
            node: node.name.clone(),
            op: node.op.to_string(),
            device,
            source: Box::new(error),
        }
    }
}

/// The steps of a plan on a context's memory.
pub(super) struct Steps<'a, 'b> {
    executor: &'a HipExecutor,
    plan: &'a Plan,
    memory: &'a mut Memory,
    turn: &'a mut Turn<'b>,
    libraries: &'a mut Libraries,
    clock: Option<&'a mut Clock>,
    /// The states before the steps, if they write in place and will be repeated.
    pub(super) backup: Option<DeviceBuffer<u8>>,
}

impl<'a, 'b> Steps<'a, 'b> {
    pub(super) fn new(
        executor: &'a HipExecutor,
        plan: &'a Plan,
        context: &'a mut ExecutionContext,
        turn: &'a mut Turn<'b>,
    ) -> Self {
        Self {
            executor,
            plan,
            turn,
            memory: &mut context.memory,
            libraries: &mut context.libraries,
            clock: None,
            backup: None,
        }
    }
}

/// A step reads inputs, constants, parameters, states, and the results of earlier steps. Some steps write states.
impl Work for Steps<'_, '_> {
    type Error = Error;

    fn enqueue(&mut self, stream: &Stream) -> Result<()> {
        let Self { executor, plan, .. } = *self;
        self.libraries.forget_exchanges();
        let regions = executor.regions(self.memory, self.turn);
        let mut tick = || self.clock.as_mut().map_or(Ok(()), |clock| clock.tick(stream));
        let mut steps = plan.steps().iter().peekable();
        while let Some(step) = steps.next() {
            let both = match steps.peek() {
                Some(next) => executor.submit_sum_and_norm(plan, [step, next], &regions, self.libraries)?,
                None => false,
            };
            if both {
                // The fused norm takes no time.
                steps.next();
                tick()?;
            } else {
                let mut calls = executor.calls(plan, step, &regions)?;
                let mut merged = 0;
                while let Some(next) = steps.peek()
                    && executor.may_merge(&calls, plan, next)
                {
                    let of_next = executor.calls(plan, next, &regions)?;
                    if !executor.merge(&mut calls, plan, next, &of_next, self.libraries) {
                        break;
                    }
                    steps.next();
                    merged += 1;
                }
                if let Some(clock) = &mut self.libraries.calls {
                    clock.set_node(step.node);
                }
                let (selection, kernels) = (&executor.selection, &executor.kernels);
                self.libraries
                    .submit(calls, plan.batch(), selection, kernels, &regions)
                    .map_err(|error| executor.at_node(plan.node(step), error))?;
                // The merged steps take no time.
                for _ in 0..merged {
                    tick()?;
                }
            }
            tick()?;
        }
        self.libraries.finish_exchanges()
    }

    fn outputs(&mut self) -> Vec<Operand<'_>> {
        let buffers = self.memory.buffers_mut();
        self.executor.kept_parts(self.plan, buffers, self.turn.writing())
    }

    fn restore(&mut self, _stream: &Stream) -> Result<()> {
        match &self.backup {
            Some(backup) => self.turn.restore(backup),
            None => Ok(()),
        }
    }

    /// For graphs with parameters or states, checksums: these may be all weights of a model, which take longer to copy to the host than to
    /// compute.
    fn results(&mut self, stream: &Stream) -> Result<Vec<Vec<u8>>> {
        let executor = self.executor;
        if executor.states.is_none() {
            return Ok(hip::read_outputs(stream, self)?);
        }
        let sums = executor.checksums(stream, &self.outputs())?;
        Ok(sums.into_iter().map(|sum| sum.to_ne_bytes().to_vec()).collect())
    }

    fn intermediates(&mut self) -> Vec<Operand<'_>> {
        vec![self.memory.arena.writing(), self.memory.scratch.writing()]
    }
}
