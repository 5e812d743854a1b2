//! `window_pool`: maximum or mean of sliding windows over images.

use hipvit_graph::op::{AveragePool, MaxPool, Windows};

use super::Unit;
use super::bindings::{WindowGeometry, WindowPoolArgs, WindowPoolMode};
use super::lower::{Call, Lower, Lowering, one};
use super::{Access, KernelArguments, KernelError, Launch, Target, extent};

// SAFETY: see hip/window_pool.hip. Threads beyond the last pixel return.
unsafe impl KernelArguments for WindowPoolArgs {
    const FILE: &'static str = "window_pool";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        self.windows.check()?;
        target.elementwise(self.windows.pixels(), self.windows.channels)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let channels = self.windows.channels;
        visit(Access::read("x", self.x, self.windows.bytes_of_x(element)));
        visit(Access::write(
            "out",
            self.out,
            self.windows.bytes_of_result(element, channels),
        ));
    }
}

fn lower(step: &Lowering<'_>, windows: [Windows; 2], mode: WindowPoolMode) -> Result<Vec<Call>, KernelError> {
    let &[_, rows, columns, _] = step.shape else {
        return Err("makes no images".into());
    };
    let [below, right] = windows.map(|windows| extent(windows.padding[1]));
    one(WindowPoolArgs {
        x: step.address(0)?,
        out: step.out,
        windows: WindowGeometry::new(step.shape_of(0)?, [rows, columns], windows)?,
        after: [below?, right?],
        mode: mode as u32,
        reserved: 0,
    })
}

impl Lower for MaxPool {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("window_pool"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        lower(step, self.windows(), WindowPoolMode::Max)
    }
}

impl Lower for AveragePool {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("window_pool"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let mode = if self.count_padding {
            WindowPoolMode::MeanOfPadded
        } else {
            WindowPoolMode::Mean
        };
        lower(step, self.windows(), mode)
    }
}
