//! Where a run's time went on the device: events between its stages, made only if someone wants to know.

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
    /// The input's way to the device.
    Upload,
    /// A step of the plan.
    Step(&'a Step),
    /// All steps at once, replayed as a captured graph.
    Replay,
    /// The results' way back.
    Download,
}

/// The points between a run's stages.
#[derive(Debug)]
pub(super) struct Clock {
    /// On the stream that copies: before the input's copy.
    upload: Event,
    /// On the stream that computes: before the first step, and after each; or before and after the replay.
    steps: Vec<Event>,
}

impl Clock {
    /// Starts before the input's copy on `copier`.
    pub(super) fn start(copier: &Stream) -> Result<Self> {
        Ok(Self {
            upload: copier.record()?,
            steps: Vec::new(),
        })
    }

    pub(super) fn tick(&mut self, stream: &Stream) -> Result<()> {
        self.steps.push(stream.record()?);
        Ok(())
    }

    /// Tells the time of each stage; `uploaded` and `downloaded` are the copies' ends.
    pub(super) fn tell(
        &self,
        plan: &Plan,
        uploaded: &Event,
        downloaded: &Event,
        observer: &mut StageObserver<'_>,
    ) -> Result<()> {
        observer(Stage::Upload, uploaded.since(&self.upload)?);
        let pairs = self.steps.windows(2);
        let replayed = pairs.len() == 1 && plan.steps().len() != 1;
        for (pair, step) in pairs.zip(plan.steps()) {
            let stage = if replayed {
                Stage::Replay
            } else {
                Stage::Step(step)
            };
            observer(stage, pair[1].since(&pair[0])?);
        }
        if let Some(computed) = self.steps.last() {
            observer(Stage::Download, downloaded.since(computed)?);
        }
        Ok(())
    }
}
