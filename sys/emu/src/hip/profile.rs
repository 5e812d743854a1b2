//! Counts of what launches execute, written to the file of `HIP_EMU_PROFILE`: one JSON object per line and launch. The README
//! describes them.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use gcnrun::{Memory, Profile};
use serde::Serialize;

use super::records::{self, RecordedLaunch};
use super::residency::blocks_per_multiprocessor;
use crate::faults::Failure;
use crate::settings::Settings;

/// The launches of a process that are counted.
#[derive(Debug)]
pub(super) struct Profiler {
    /// Blocks of a grid that run, and only of the first of several equal launches; `None`: everything runs.
    sample: Option<u64>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    file: File,
    launches: u64,
    /// The first launch of each kind.
    first: HashMap<Key, u64>,
}

/// Properties that equal launches share: all but the addresses of their buffers.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    device: u32,
    kernel: String,
    grid: [u32; 3],
    block: [u32; 3],
    lds: u32,
    arguments: Vec<u8>,
}

/// A line of the file.
#[derive(Serialize)]
struct Record<'a> {
    /// Number of the launch in the process, from 0.
    launch: u64,
    device: u32,
    arch: &'static str,
    kernel: &'a str,
    grid: [u32; 3],
    block: [u32; 3],
    /// Lanes of a wave.
    wave: u32,
    #[serde(flatten)]
    registers: Registers,
    /// Bytes of LDS of a block, static and dynamic.
    lds: u32,
    /// Bytes of scratch memory of a lane.
    scratch: u32,
    /// Number of blocks that a multiprocessor (on RDNA, a pair of compute units) holds at once.
    resident_blocks: u32,
    /// The earlier launch whose counts are this one's, which did not run; otherwise the counts follow.
    #[serde(skip_serializing_if = "Option::is_none")]
    same_as: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<Profile>,
}

/// Registers of a kernel.
#[derive(Serialize)]
struct Registers {
    vgprs: u32,
    agprs: u32,
    sgprs: u32,
    spilled_vgprs: u32,
    spilled_sgprs: u32,
}

impl Profiler {
    /// `None` if launches are not counted.
    pub(super) fn of(settings: &Settings) -> std::io::Result<Option<Self>> {
        let open = |path: &Path| {
            Ok(Self {
                sample: settings.sample,
                state: Mutex::new(State {
                    file: File::create(path)?,
                    launches: 0,
                    first: HashMap::new(),
                }),
            })
        };
        settings.profile.as_deref().map(open).transpose()
    }

    /// Runs a launch, or a sample of its blocks, and writes a line.
    pub(super) fn run(&self, launch: &RecordedLaunch<'_>, memory: &Memory) -> Result<(), Failure> {
        let RecordedLaunch { call, info, part, .. } = *launch;
        // Launches run one at a time, so the lock is not contended.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let number = state.launches;
        state.launches += 1;
        let key = Key {
            device: launch.device,
            kernel: call.kernel.to_owned(),
            grid: call.grid,
            block: call.block,
            lds: call.dynamic_lds,
            arguments: without_addresses(memory, call.arguments),
        };
        let same_as = match self.sample {
            Some(_) => state.first.get(&key).copied(),
            None => None,
        };
        let profile = match same_as {
            Some(_) => None,
            None => {
                let blocks = self.sample.unwrap_or(u64::MAX);
                Some(launch.program.profile(call, blocks)?)
            }
        };
        let record = Record {
            launch: number,
            device: launch.device,
            arch: part.arch,
            kernel: call.kernel,
            grid: call.grid,
            block: call.block,
            wave: part.wave,
            registers: Registers {
                vgprs: info.vgprs,
                agprs: info.agprs,
                sgprs: info.sgprs,
                spilled_vgprs: info.spilled_vgprs,
                spilled_sgprs: info.spilled_sgprs,
            },
            lds: info.lds + call.dynamic_lds,
            scratch: info.scratch,
            resident_blocks: blocks_per_multiprocessor(
                part,
                info,
                call.block.iter().product(),
                call.dynamic_lds,
            ),
            same_as,
            profile,
        };
        state.first.entry(key).or_insert(number);
        records::append(&mut state.file, "HIP_EMU_PROFILE", &record)
    }
}

/// Arguments with every address of an allocation replaced by one and the same.
fn without_addresses(memory: &Memory, arguments: &[u8]) -> Vec<u8> {
    let mut arguments = arguments.to_vec();
    for word in arguments.as_chunks_mut::<8>().0 {
        if memory.find(u64::from_ne_bytes(*word)).is_some() {
            *word = [0xff; 8];
        }
    }
    arguments
}
