//! Device times of a run's stages, from events that are recorded only for a timed run.

use std::time::Duration;

use crate::error::Result;
use crate::graph::plan::{Plan, Step};
use crate::hip::{Event, Stream};

/// Called with each stage of a run and the time that it took on the device, when the run is over.
pub type StageObserver<'a> = dyn FnMut(Stage<'_>, Duration) + Send + 'a;

/// A part of a run on a device.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Stage<'a> {
    /// The copy of the input to the device. From pageable memory it includes the copies to pinned memory, behind which it
    /// is pipelined.
    Upload,
    /// The copies of decoded images to the device, and their resizing there.
    Resize,
    /// A step of the plan.
    Step(&'a Step),
    /// All steps at once, replayed as a captured graph.
    Replay,
    /// The copy of the results to the host.
    Download,
}

/// Events between a run's stages.
#[derive(Debug, Default)]
pub(super) struct Clock {
    /// On the stream that copies the input: before and after.
    input: Vec<Event>,
    /// On the stream that computes: before the first step, and after each; or before and after the replay; then after the
    /// results' copy.
    steps: Vec<Event>,
}

impl Clock {
    /// Records the begin or end of the input's copy.
    pub(super) fn tick_input(&mut self, stream: &Stream) -> Result<()> {
        self.input.push(stream.record()?);
        Ok(())
    }

    pub(super) fn tick(&mut self, stream: &Stream) -> Result<()> {
        self.steps.push(stream.record()?);
        Ok(())
    }

    /// Reports the time of each stage; `input` is the stage that provided the input.
    pub(super) fn tell(&self, plan: &Plan, input: Stage<'_>, observer: &mut StageObserver<'_>) -> Result<()> {
        if let [begin, end] = &self.input[..] {
            observer(input, end.since(begin)?);
        }
        let Some((downloaded, steps)) = self.steps.split_last() else {
            return Ok(());
        };
        let pairs = steps.windows(2);
        let replayed = pairs.len() == 1 && plan.steps().len() != 1;
        for (pair, step) in pairs.zip(plan.steps()) {
            let stage = if replayed {
                Stage::Replay
            } else {
                Stage::Step(step)
            };
            observer(stage, pair[1].since(&pair[0])?);
        }
        if let Some(computed) = steps.last() {
            observer(Stage::Download, downloaded.since(computed)?);
        }
        Ok(())
    }
}
