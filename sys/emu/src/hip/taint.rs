//! Marked bytes, followed through the launches of a process and written to the file of `HIP_EMU_TAINT`. Each line is a JSON
//! object for a launch or a library call. The README describes them.

use std::fs::File;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use gcnrun::{Memory, Taint};
use hipvit_sys::hip::hipError_t;
use serde::Serialize;

use super::records::{self, RecordedLaunch};
use crate::faults::Failure;
use crate::settings::{Mark, Settings};

/// Follows the bytes that the settings mark.
#[derive(Debug)]
pub(crate) struct Follower {
    mark: Mark,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    file: File,
    records: u64,
}

/// A line of the file.
#[derive(Serialize)]
struct Record<'a, C> {
    /// Number of the record, from 0.
    record: u64,
    /// The address of the bytes that were marked before it ran, if any were.
    #[serde(skip_serializing_if = "Option::is_none")]
    marked: Option<u64>,
    #[serde(flatten)]
    call: &'a C,
}

#[derive(Serialize)]
struct LaunchCall<'a> {
    kernel: &'a str,
    device: u32,
    arch: &'static str,
    grid: [u32; 3],
    block: [u32; 3],
    /// Lanes of a wave.
    wave: u32,
    taint: Taint,
}

#[derive(Serialize)]
struct LibraryCall<'a> {
    library: &'a str,
    stored: &'a [[u64; 2]],
}

impl Follower {
    /// `None` if nothing is followed.
    pub(super) fn of(settings: &Settings) -> std::io::Result<Option<Self>> {
        let open = |(path, mark): (&Path, &Mark)| {
            Ok(Self {
                mark: mark.clone(),
                state: Mutex::new(State {
                    file: File::create(path)?,
                    records: 0,
                }),
            })
        };
        let taint = settings.taint.as_ref().map(|(path, mark)| (path.as_path(), mark));
        taint.map(open).transpose()
    }

    /// Runs a launch, and writes a line.
    pub(super) fn run(&self, launch: &RecordedLaunch<'_>, memory: &Memory) -> Result<(), Failure> {
        let call = launch.call;
        let marked = if call.kernel.starts_with(&self.mark.kernel) {
            Some(self.mark(memory, call.arguments)?)
        } else {
            None
        };
        let record = LaunchCall {
            kernel: call.kernel,
            device: launch.device,
            arch: launch.part.arch,
            grid: call.grid,
            block: call.block,
            wave: launch.part.wave,
            taint: launch.program.taint(call)?,
        };
        self.write(marked, &record)
    }

    /// Writes a line for a library's call, which has stored these ranges that carry marked bytes.
    pub(crate) fn library(&self, name: &str, stored: &[[u64; 2]]) -> Result<(), Failure> {
        let call = LibraryCall {
            library: name,
            stored,
        };
        self.write(None, &call)
    }

    /// Marks the bytes, and gives their address.
    fn mark(&self, memory: &Memory, arguments: &[u8]) -> Result<u64, Failure> {
        let pointers = arguments
            .as_chunks::<8>()
            .0
            .iter()
            .map(|word| u64::from_ne_bytes(*word));
        let buffer = pointers
            .filter(|address| memory.find(*address).is_some())
            .nth(self.mark.pointer)
            .ok_or_else(|| {
                let reason = format!(
                    "HIP_EMU_TAINT_MARK: the arguments of {} have no pointer {}",
                    self.mark.kernel, self.mark.pointer
                );
                Failure::new(hipError_t::hipErrorInvalidValue, reason)
            })?;
        let address = buffer + self.mark.offset;
        memory.taint(address, self.mark.bytes)?;
        Ok(address)
    }

    fn write(&self, marked: Option<u64>, call: &impl Serialize) -> Result<(), Failure> {
        // What runs on the devices runs one at a time, so the lock is not contended.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let record = Record {
            record: state.records,
            marked,
            call,
        };
        state.records += 1;
        records::append(&mut state.file, "HIP_EMU_TAINT", &record)
    }
}
