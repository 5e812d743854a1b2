//! Metrics of one engine of a model.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{ByDevice, ByModel, ByPriority, ByStage, Metrics};
use crate::priority::Priority;
use crate::stage::Stage;
use crate::statistics::{Parts, RunTimes, Statistics};

/// Kind of work of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runs {
    Images,
    Texts,
    Explanations,
    /// Texts that are made of images.
    Generation,
}

/// The metrics of one engine of a model.
#[derive(Clone, Debug)]
pub(crate) struct EngineMetrics {
    metrics: Arc<Metrics>,
    model: Arc<str>,
    runs: Runs,
    statistics: Arc<Statistics>,
    /// Moving average of the time of a batch per image.
    image_nanoseconds: Arc<AtomicU64>,
}

impl Metrics {
    /// Returns the metrics of a model's engine, which also counts its batches in `statistics`.
    pub(crate) fn engine(
        self: &Arc<Self>,
        model: &str,
        runs: Runs,
        statistics: Arc<Statistics>,
    ) -> EngineMetrics {
        EngineMetrics {
            metrics: self.clone(),
            model: model.into(),
            runs,
            statistics,
            image_nanoseconds: Arc::default(),
        }
    }
}

impl EngineMetrics {
    fn by_model(&self) -> ByModel {
        ByModel {
            model: self.model.clone(),
        }
    }

    pub(crate) fn stage(&self, stage: Stage, time: Duration) {
        let labels = ByStage {
            model: self.model.clone(),
            stage,
        };
        let histogram = self.metrics.stages.get_or_create(&labels);
        histogram.observe(time.as_secs_f64());
    }

    /// Counts a batch that took `time`, with a longest preparation of `prepared`.
    pub(crate) fn batch(&self, images: usize, prepared: Duration, time: Duration, times: Option<RunTimes>) {
        let labels = self.by_model();
        match self.runs {
            Runs::Explanations => self.stage(Stage::Explain, time),
            Runs::Images | Runs::Generation => {
                let counter = self.metrics.images.get_or_create(&labels);
                counter.inc_by(images as u64);
            }
            Runs::Texts => drop(self.metrics.texts.get_or_create(&labels).inc_by(images as u64)),
        }
        if self.runs != Runs::Explanations {
            let sizes = self.metrics.batch_sizes.get_or_create(&labels);
            sizes.observe(images as f64);
            let output = times.map_or(Duration::ZERO, |times| times.copy_out);
            let parts = Parts {
                queue: Duration::ZERO,
                input: prepared,
                infer: time.saturating_sub(output),
                output,
            };
            self.statistics.batch(images, parts);
        }
        if let Some(RunTimes { copy, compute, .. }) = times {
            self.stage(Stage::Copy, copy);
            self.stage(Stage::Compute, compute);
        }
        // An image takes until the end of its text.
        if self.runs != Runs::Generation {
            self.average(time / u32::try_from(images.max(1)).unwrap_or(u32::MAX));
        }
    }

    /// Counts a text that took `time` beside others, with which there were `running`.
    pub(crate) fn generated(&self, tokens: usize, time: Duration, running: usize) {
        let counter = self.metrics.generated_tokens.get_or_create(&self.by_model());
        counter.inc_by(tokens as u64);
        self.stage(Stage::Generate, time);
        self.average(time / u32::try_from(running.max(1)).unwrap_or(u32::MAX));
    }

    /// Adds the time of an image to the average.
    fn average(&self, time: Duration) {
        let each = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let before = self.image_nanoseconds.load(Ordering::Relaxed);
        let average = match before {
            0 => each,
            _ => before - before / 8 + each / 8,
        };
        self.image_nanoseconds.store(average, Ordering::Relaxed);
    }

    /// Returns the kind of work for messages.
    pub(crate) fn what(&self) -> &'static str {
        match self.runs {
            Runs::Texts => "texts",
            Runs::Images | Runs::Explanations | Runs::Generation => "images",
        }
    }

    /// Returns the recent time per image; 0 before the first batch.
    pub(crate) fn seconds_per_image(&self) -> f64 {
        self.image_nanoseconds.load(Ordering::Relaxed) as f64 / 1e9
    }

    pub(crate) fn shed(&self, priority: Priority, images: usize) {
        let labels = ByPriority {
            model: self.model.clone(),
            priority: priority.label(),
        };
        self.metrics.shed.get_or_create(&labels).inc_by(images as u64);
    }

    pub(crate) fn dropped(&self, images: usize) {
        if images > 0 {
            let dropped = self.metrics.dropped.get_or_create(&self.by_model());
            dropped.inc_by(images as u64);
        }
    }

    pub(crate) fn retried(&self, images: usize) {
        if images > 0 {
            let retried = self.metrics.retried.get_or_create(&self.by_model());
            retried.inc_by(images as u64);
        }
    }

    pub(crate) fn lost(&self, device: &str) {
        let labels = ByDevice {
            model: self.model.clone(),
            device: device.to_owned(),
        };
        self.metrics.lost.get_or_create(&labels).inc();
    }

    pub(crate) fn restarted(&self, device: &str) {
        let labels = ByDevice {
            model: self.model.clone(),
            device: device.to_owned(),
        };
        self.metrics.restarted.get_or_create(&labels).inc();
    }
}
