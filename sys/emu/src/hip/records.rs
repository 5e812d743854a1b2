//! Files of records: one JSON object per line.

use std::fs::File;
use std::io::Write;

use gcnrun::{KernelInfo, Program};
use hipvit_sys::hip::hipError_t;
use serde::Serialize;

use crate::faults::Failure;
use crate::parts::Part;

/// A launch to record: its configuration, its code and its device.
pub(super) struct RecordedLaunch<'a> {
    pub(super) call: &'a gcnrun::Launch<'a>,
    pub(super) program: &'a Program,
    pub(super) info: &'a KernelInfo,
    pub(super) device: u32,
    pub(super) part: &'static Part,
}

/// Appends a record to the file that `setting` names.
pub(super) fn append(file: &mut File, setting: &str, record: &impl Serialize) -> Result<(), Failure> {
    let written = serde_json::to_string(record)
        .map_err(std::io::Error::from)
        .and_then(|line| writeln!(file, "{line}"));
    written.map_err(|error| Failure::new(hipError_t::hipErrorUnknown, format!("{setting}: {error}")))
}
