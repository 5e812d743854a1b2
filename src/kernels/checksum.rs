//! `checksum`: a number of 64 bits by which results of replayed graphs are compared with those of their steps.

use super::bindings::{CHECKSUM_PART, CHECKSUM_THREADS, ChecksumArgs};
use super::{Access, KernelArguments, KernelError, Launch, Target};

// SAFETY: see hip/checksum.hip. A block reads a part, and exactly as many blocks are launched.
unsafe impl KernelArguments for ChecksumArgs {
    const FILE: &'static str = "checksum";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        let parts = (self.bytes / 4).div_ceil(CHECKSUM_PART.into()).max(1);
        target.blocks(parts, CHECKSUM_THREADS)
    }

    fn accesses(&self, _element: usize, visit: &mut dyn FnMut(Access)) {
        visit(Access::read("from", self.from, self.bytes as usize));
        visit(Access::write("out", self.out, size_of::<u64>()));
    }
}
