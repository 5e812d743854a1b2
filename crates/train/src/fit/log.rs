//! The log of a run: a file with one JSON object per line.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use hipvit::error::{Error, Result};
use hipvit_files::temporary;
use serde::{Deserialize, Serialize};

use super::recall::Recall;
use super::tensorboard::EventFile;
use crate::{LayerEvent, MemoryReport};

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// The start of the run, or smaller micro-batches after the device ran out of memory.
    Memory(MemoryEvent),
    /// A step.
    Step(StepEvent),
    /// The end of an epoch.
    Epoch(EpochEvent),
    /// A layer that is no longer computed in FP8.
    Layer(LayerEvent),
}

/// Planned memory of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MemoryEvent {
    /// Number of steps before.
    #[serde(default)]
    pub step: u64,
    /// Bytes of device memory.
    pub bytes: usize,
    /// Share of additional floating-point operations by recomputation.
    pub additional_flops: f64,
    /// The parts of the memory, and what is recomputed.
    pub parts: MemoryReport,
}

impl MemoryEvent {
    /// Creates the event of a plan after `step` steps.
    pub(super) fn of(step: u64, report: &MemoryReport) -> Self {
        Self {
            step,
            bytes: report.bytes(),
            additional_flops: report.additional_flops(),
            parts: report.clone(),
        }
    }
}

/// Figures of a step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StepEvent {
    /// Number of the epoch, counted from 1.
    pub epoch: u64,
    /// Number of the step, counted from 1.
    pub step: u64,
    /// Mean loss of the batch, before the update.
    pub loss: f32,
    /// Learning rate.
    pub lr: f64,
    /// Norm of all gradients together, before clipping.
    pub grad_norm: f32,
    /// Speed since the previous line, without evaluation.
    pub images_per_second: f64,
}

/// Figures of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EpochEvent {
    /// Number of the epoch, counted from 1.
    pub epoch: u64,
    /// Number of steps so far.
    pub step: u64,
    /// Mean loss of the training images.
    pub loss: f64,
    /// Share of the training images that were classified correctly, as augmented.
    pub train_accuracy: f64,
    /// Mean loss of the validation images, without label smoothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub val_loss: Option<f64>,
    /// Share of the validation images that were classified correctly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub val_accuracy: Option<f64>,
    /// Mean loss of the validation images with the weights of the last step, if `val_loss` is that of their moving averages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unaveraged_val_loss: Option<f64>,
    /// Share that was classified correctly with the weights of the last step, if `val_accuracy` is that of their moving averages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unaveraged_val_accuracy: Option<f64>,
    /// Retrieval among the validation pairs. Only for pairs of images and captions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recall: Option<Recall>,
    /// Retrieval with the weights of the last step, if `recall` is that of their moving averages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unaveraged_recall: Option<Recall>,
    /// Seconds of the epoch's steps, with loading and without evaluation and checkpoints.
    #[serde(default)]
    pub train_seconds: f64,
    /// Seconds of the evaluation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub val_seconds: Option<f64>,
    /// Number of broken images that were skipped so far.
    pub skipped: u64,
    /// Number of steps so far that have not updated the weights, because a figure was NaN or infinite.
    #[serde(default)]
    pub skipped_steps: u64,
}

/// Writer of a log, and of TensorBoard's events beside it.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    file: File,
    events: EventFile,
}

impl Log {
    /// Opens the log `path`. Keeps only the lines of the first `steps` steps, which a resumed run continues.
    pub(super) fn open(path: &Path, steps: u64) -> Result<Self> {
        let failed = |error| Error::io(path, error);
        let kept = match File::open(path) {
            Ok(file) if steps > 0 => kept_lines(file, steps).map_err(failed)?,
            _ => String::new(),
        };
        let folder = path.parent().unwrap_or(Path::new("."));
        let (mut file, _listed) = temporary::file_in(folder, ".jsonl").map_err(failed)?;
        file.write_all(kept.as_bytes()).map_err(failed)?;
        file.persist(path).map_err(|error| failed(error.error))?;
        let file = OpenOptions::new().append(true).open(path).map_err(failed)?;
        Ok(Self {
            path: path.to_owned(),
            file,
            events: EventFile::create(folder, steps)?,
        })
    }

    /// Returns the events so far.
    pub(super) fn events(&self) -> Result<Vec<Event>> {
        let lines = File::open(&self.path).and_then(|file| BufReader::new(file).lines().collect());
        let lines: Vec<String> = lines.map_err(|error| Error::io(&self.path, error))?;
        let events = lines.iter().map(|line| serde_json::from_str(line));
        events
            .collect::<std::result::Result<_, _>>()
            .map_err(|error| Error::config(&self.path, error))
    }

    /// Appends an event.
    pub(super) fn write(&mut self, event: &Event) -> Result<()> {
        let text = serde_json::to_string(event).map_err(|error| Error::internal("log", error))?;
        self.file
            .write_all((text + "\n").as_bytes())
            .map_err(|error| Error::io(&self.path, error))?;
        self.events.write(event)
    }
}

impl Event {
    /// Returns the figures of a step.
    pub(super) fn as_step(&self) -> Option<&StepEvent> {
        match self {
            Self::Step(event) => Some(event),
            _ => None,
        }
    }

    /// Returns the figures of an epoch.
    pub(super) fn as_epoch(&self) -> Option<&EpochEvent> {
        match self {
            Self::Epoch(event) => Some(event),
            _ => None,
        }
    }

    fn step(&self) -> u64 {
        match self {
            Self::Memory(event) => event.step,
            Self::Step(event) => event.step,
            Self::Epoch(event) => event.step,
            Self::Layer(event) => event.step,
        }
    }
}

/// Returns the lines of the first `steps` steps. A line that was not completed is left out.
fn kept_lines(file: File, steps: u64) -> std::io::Result<String> {
    let mut kept = String::new();
    for line in BufReader::new(file).lines() {
        let line = line?;
        let event: Option<Event> = serde_json::from_str(&line).ok();
        if event.is_some_and(|event| event.step() <= steps) {
            kept += &line;
            kept.push('\n');
        }
    }
    Ok(kept)
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;

    use super::*;

    /// Returns the event of a step.
    pub(in crate::fit) fn event(step: u64) -> Event {
        Event::Step(StepEvent {
            epoch: 1,
            step,
            loss: 0.5,
            lr: 1e-3,
            grad_norm: 1.0,
            images_per_second: 10.0,
        })
    }

    #[test]
    fn a_resumed_log_has_every_step_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log.jsonl");
        let mut log = Log::open(&path, 0).unwrap();
        (1..=3).for_each(|step| log.write(&event(step)).unwrap());
        fs::write(&path, fs::read_to_string(&path).unwrap() + "{\"event\":\"st").unwrap();
        let mut log = Log::open(&path, 2).unwrap();
        log.write(&event(3)).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let steps: Vec<u64> = text
            .lines()
            .map(|line| serde_json::from_str::<Event>(line).unwrap().step())
            .collect();
        assert_eq!(steps, [1, 2, 3]);
        assert_eq!(log.events().unwrap(), [1, 2, 3].map(event));
    }
}
