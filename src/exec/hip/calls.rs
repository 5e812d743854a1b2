//! Times of the kernel and library calls of a plan, by events between them, and times of whole back-to-back runs.

use std::time::Duration;

use super::call_clock::{CallClock, TimedCall};
use super::elements::append;
use super::executor::HipExecutor;
use super::steps::Steps;
use crate::error::Result;
use crate::exec::executor::Download;
use crate::exec::input::{InputData, Inputs, PlanInputs};
use crate::graph::plan::{Plan, PlanInput};
use crate::hip::Work;
use crate::tensor::DType;

/// Maximum number of runs that are submitted without waiting.
const MAX_RUNS: f64 = 1000.0;

/// Elements of inputs beside the first. As the learning rate, it changes weights little.
const SMALL: f32 = 1.0 / 8192.0;

/// Returns the inputs at their offsets in `bytes`.
fn bytes_of_inputs<'a>(plan: &Plan, bytes: &'a [u8]) -> PlanInputs<'a> {
    let of_plan = |input: &PlanInput| InputData::Bytes(&bytes[input.offset..input.offset + input.bytes]);
    let mut inputs = plan.inputs().iter().map(of_plan);
    PlanInputs {
        first: inputs.next().unwrap_or(InputData::Bytes(&[])),
        rest: inputs.collect(),
    }
}

/// Returns inputs with which all values stay finite: noise, and small numbers for the inputs beside the first. The power draw, and therefore the
/// clock, depends on the values.
fn input_bytes(plan: &Plan) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (index, input) in plan.inputs().iter().enumerate() {
        bytes.resize(input.offset, 0);
        match (index, input.dtype) {
            (0, _) => bytes.extend((0..input.bytes).map(|i| (i * 7919 % 251) as u8)),
            (_, DType::F32 | DType::F16 | DType::BF16) => {
                let elements = input.bytes / input.dtype.size();
                append(&mut bytes, &vec![SMALL; elements], input.dtype);
            }
            _ => {}
        }
    }
    bytes.resize(plan.input_bytes(), 0);
    bytes
}

impl HipExecutor {
    /// Runs the steps of `plan` one by one on `inputs`, or on noise, with an event after each kernel and library call.
    ///
    /// The events keep kernels from following each other closely, so that the times are longer than within a replay.
    ///
    /// # Errors
    ///
    /// There is no memory for a run, an input does not fit the plan, or a step cannot be submitted.
    pub fn time_calls(&self, plan: &Plan, inputs: Option<Inputs<'_>>) -> Result<Vec<TimedCall>> {
        let noise = input_bytes(plan);
        let inputs = match inputs {
            Some(inputs) => inputs.in_order(plan)?,
            None => bytes_of_inputs(plan, &noise),
        };
        let mut context = self.reserve_context(plan, None)?;
        let mut turn = self.turn();
        let uploads = self.feed(&mut context, plan, inputs, &mut None)?;
        let stream = context.stream.clone();
        context.libraries.calls = Some(CallClock::start(&stream)?);
        Steps::new(self, plan, &mut context, &mut turn).enqueue(&stream)?;
        let calls = context.libraries.calls.take();
        stream.synchronize()?;
        let calls = calls.map_or_else(|| Ok(Vec::new()), CallClock::finish)?;
        self.keep_uploaded(uploads, Some(&mut context))?;
        self.contexts.keep(context);
        Ok(calls)
    }

    /// Returns the device's time of a run of `plan`, averaged over the back-to-back runs that take about `time`.
    ///
    /// A run that takes longer than `time` is measured once. From the third run of a plan on, runs are replayed if they are at all.
    ///
    /// # Errors
    ///
    /// There is no memory for a run, or a step cannot be submitted.
    pub fn time_runs(&self, plan: &Plan, time: Duration) -> Result<Duration> {
        let input = input_bytes(plan);
        let mut context = self.reserve_context(plan, None)?;
        let mut turn = self.turn();
        let uploads = self.feed(&mut context, plan, bytes_of_inputs(plan, &input), &mut None)?;
        let stream = context.stream.clone();
        let mut run = |count: u32| -> Result<Duration> {
            let before = stream.record()?;
            for _ in 0..count {
                self.compute(&mut context, plan, &mut turn, &mut None, Download::All)?;
            }
            Ok(stream.record()?.since(&before)? / count)
        };
        let mut each = run(1)?;
        if each < time {
            let count = time.as_secs_f64() / each.as_secs_f64().max(1e-6);
            each = run(count.ceil().min(MAX_RUNS) as u32)?;
        }
        self.keep_uploaded(uploads, Some(&mut context))?;
        self.contexts.keep(context);
        Ok(each)
    }
}
