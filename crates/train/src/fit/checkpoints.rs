//! Checkpoints of a run: directories that appear when they are complete.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use hipvit::error::{Error, Result};
use hipvit_files::regular_file;
use hipvit_files::temporary::Listed;
use serde::{Deserialize, Serialize};

use crate::trainer::Trainer;

const STATES: &str = "states.safetensors";
const PROGRESS: &str = "progress.json";
const PREFIX: &str = "step-";

/// Position in a run, and the sums of the current epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Progress {
    /// Number of completed epochs.
    pub epoch: u64,
    /// Number of completed steps of the current epoch.
    pub step_in_epoch: u64,
    /// Number of completed steps.
    pub step: u64,
    /// Number of images of the current epoch.
    pub images: u64,
    /// Number of these images that were classified correctly.
    pub correct: u64,
    /// Sum of the losses of these images.
    pub loss_sum: f64,
    /// Number of broken images that were skipped, in all epochs.
    pub skipped: u64,
    /// Number of steps that have not updated the weights, in all epochs.
    #[serde(default)]
    pub skipped_steps: u64,
    /// Number of these steps since the last update.
    #[serde(default)]
    pub skipped_in_a_row: u64,
    /// Seconds of the steps of the current epoch, with loading.
    #[serde(default)]
    pub seconds: f64,
    /// Number of micro-batches per step, if the device ran out of memory with the recipe's number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accumulate: Option<usize>,
}

/// A complete checkpoint.
#[derive(Debug)]
pub(super) struct Saved {
    pub(super) progress: Progress,
    /// File for [`Trainer::restore`].
    pub(super) states: PathBuf,
}

/// The directory with the checkpoints of a run.
#[derive(Debug)]
pub(super) struct Checkpoints {
    directory: PathBuf,
    keep: usize,
}

impl Checkpoints {
    /// Opens the directory. Creates it if it does not exist.
    pub(super) fn open(directory: PathBuf, keep: usize) -> Result<Self> {
        fs::create_dir_all(&directory).map_err(|error| Error::io(&directory, error))?;
        Ok(Self { directory, keep })
    }

    /// Writes a checkpoint, and removes the oldest ones beyond the number to keep. Returns its path.
    ///
    /// If writing fails, the earlier checkpoints stay.
    pub(super) fn write(&self, trainer: &Trainer, progress: &Progress) -> Result<PathBuf> {
        self.write_with(progress, |file| trainer.save(file))
    }

    fn write_with(&self, progress: &Progress, save: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
        let name = format!("{PREFIX}{:09}", progress.step);
        let (complete, part) = (
            self.directory.join(&name),
            self.directory.join(format!(".{name}.part")),
        );
        let listed = Listed::new(&part);
        let written = fill(&part, progress, save).and_then(|()| replace(&part, &complete));
        if written.is_err() {
            let _ = fs::remove_dir_all(&part);
        }
        drop(listed);
        written?;
        sync(&self.directory)?;
        let all = self.all()?;
        for old in all.iter().rev().skip(self.keep) {
            fs::remove_dir_all(old).map_err(|error| Error::io(old, error))?;
        }
        Ok(complete)
    }

    /// Returns the newest checkpoint in a directory, if there is one.
    pub(super) fn newest_in(directory: PathBuf) -> Result<Option<PathBuf>> {
        if !directory.exists() {
            return Ok(None);
        }
        Ok(Self { directory, keep: 1 }.all()?.pop())
    }

    /// Returns the newest checkpoint, if there is one.
    pub(super) fn newest(&self) -> Result<Option<Saved>> {
        let Some(directory) = self.all()?.pop() else {
            return Ok(None);
        };
        let file = directory.join(PROGRESS);
        let bytes = regular_file::read(&file).map_err(|error| Error::io(&file, error))?;
        let progress = serde_json::from_slice(&bytes).map_err(|error| Error::config(&file, error))?;
        let states = directory.join(STATES);
        Ok(Some(Saved { progress, states }))
    }

    /// Returns the complete checkpoints, the oldest first.
    fn all(&self) -> Result<Vec<PathBuf>> {
        let failed = |error| Error::io(&self.directory, error);
        let mut all = Vec::new();
        for entry in fs::read_dir(&self.directory).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            if name.starts_with(PREFIX) {
                all.push(path);
            }
        }
        all.sort_unstable();
        Ok(all)
    }
}

/// Returns the newest checkpoint in a directory, if there is one.
pub(crate) fn newest_checkpoint(directory: PathBuf) -> Result<Option<PathBuf>> {
    Checkpoints::newest_in(directory)
}

/// Writes the files of a checkpoint to the new directory `part`.
fn fill(part: &Path, progress: &Progress, save: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if part.exists() {
        // A process that was killed has left it.
        fs::remove_dir_all(part).map_err(|error| Error::io(part, error))?;
    }
    fs::create_dir(part).map_err(|error| Error::io(part, error))?;
    save(&part.join(STATES))?;
    let file = part.join(PROGRESS);
    let text = serde_json::to_vec(progress).map_err(|error| Error::internal("progress", error))?;
    fs::write(&file, text).map_err(|error| Error::io(&file, error))?;
    sync(&file)?;
    sync(part)
}

/// Renames `part` to `complete`, which may exist.
fn replace(part: &Path, complete: &Path) -> Result<()> {
    if complete.exists() {
        fs::remove_dir_all(complete).map_err(|error| Error::io(complete, error))?;
    }
    fs::rename(part, complete).map_err(|error| Error::io(complete, error))
}

/// Waits until a file or a directory is on disk.
fn sync(path: &Path) -> Result<()> {
    let file = File::open(path).and_then(|file| file.sync_all());
    file.map_err(|error| Error::io(path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(step: u64) -> Progress {
        Progress {
            step,
            ..Progress::default()
        }
    }

    fn names(checkpoints: &Checkpoints) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(&checkpoints.directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn save(file: &Path) -> Result<()> {
        fs::write(file, "states").map_err(|error| Error::io(file, error))
    }

    #[test]
    fn the_newest_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::open(directory.path().join("checkpoints"), 2).unwrap();
        for step in [8, 9, 10, 10] {
            checkpoints.write_with(&progress(step), save).unwrap();
        }
        assert_eq!(names(&checkpoints), ["step-000000009", "step-000000010"]);
    }

    #[test]
    fn a_checkpoint_that_cannot_be_written_leaves_the_old_one() {
        let directory = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::open(directory.path().to_owned(), 1).unwrap();
        checkpoints.write_with(&progress(1), save).unwrap();
        let full = |file: &Path| Err(Error::io(file, std::io::ErrorKind::StorageFull.into()));
        checkpoints.write_with(&progress(2), full).unwrap_err();
        assert_eq!(names(&checkpoints), ["step-000000001"]);
        // A killed process leaves a part, which does not count.
        fs::create_dir(directory.path().join(".step-000000003.part")).unwrap();
        checkpoints.write_with(&progress(3), save).unwrap();
        assert_eq!(names(&checkpoints), ["step-000000003"]);
    }
}
