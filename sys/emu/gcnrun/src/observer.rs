//! Observers of a launch: the counters of a profiled launch, or the tracer of marked bytes.

use crate::profile::{Access, Recorder};
use crate::taint::Tracer;
use crate::wave::Wave;

pub(crate) enum Observer {
    Recorder(Box<Recorder>),
    Tracer(Box<Tracer>),
}

impl Observer {
    /// The block at this position of the order begins.
    pub(crate) fn begin_block(&mut self, turn: u64, block: [u32; 3]) {
        match self {
            Self::Recorder(recorder) => recorder.begin_block(turn),
            Self::Tracer(tracer) => tracer.begin_block(turn, block),
        }
    }

    pub(crate) fn enter(&mut self, wave: u32) {
        if let Self::Recorder(recorder) = self {
            recorder.enter(wave);
        }
    }

    /// The wave is about to execute the instruction.
    pub(crate) fn before(&mut self, instruction: u32, wave: &Wave) {
        if let Self::Recorder(recorder) = self {
            recorder.count(instruction, wave.exec());
        }
    }

    /// Observes a wave after it executed an instruction.
    pub(crate) fn after(&mut self, instruction: u32, wave: &Wave) {
        if let Self::Tracer(tracer) = self {
            tracer.look(instruction, wave);
        }
    }

    /// Lanes access `bytes` bytes each of global memory, and others of scratch memory.
    pub(crate) fn global(
        &mut self,
        access: Access,
        addresses: &[u64; 64],
        [global, scratch]: [u64; 2],
        bytes: u32,
    ) {
        match self {
            Self::Recorder(recorder) => {
                recorder.global(access, addresses, global, bytes);
                recorder.scratch(scratch, bytes);
            }
            Self::Tracer(tracer) => tracer.access(addresses, global),
        }
    }

    /// Lanes access `bytes` bytes each of LDS.
    pub(crate) fn lds(&mut self, access: Access, offsets: &[u64; 64], exec: u64, bytes: u32) {
        match self {
            Self::Recorder(recorder) => recorder.lds(access, offsets, exec, bytes),
            Self::Tracer(tracer) => tracer.access(offsets, 0),
        }
    }

    /// Lanes exchange a dword through the LDS hardware.
    pub(crate) fn permutation(&mut self) {
        if let Self::Recorder(recorder) = self {
            recorder.permutation();
        }
    }
}
