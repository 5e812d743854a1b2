//! `wire`: elements in bf16 on the way between ranks.

use super::bindings::WireArgs;
use super::{Access, KernelArguments, KernelError, Launch, Target, bytes};

// SAFETY: see hip/wire.hip. Threads access no element beyond the last one.
unsafe impl KernelArguments for WireArgs {
    const FILE: &'static str = "wire";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        target.update(self.elements)
    }

    fn accesses(&self, _element: usize, visit: &mut dyn FnMut(Access)) {
        let [single, half] = [4, 2].map(|size| bytes(size, &[self.elements]));
        let [x, out] = if self.back == 1 {
            [half, single]
        } else {
            [single, half]
        };
        visit(Access::read("x", self.x, x));
        visit(Access::write("out", self.out, out));
    }
}
