//! The log of a run: a file with one JSON object per line.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use hipvit::error::{Error, Result};
use hipvit_files::temporary;

use super::events::Event;
use super::tensorboard::EventFile;

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
    use crate::fit::events::StepEvent;

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
