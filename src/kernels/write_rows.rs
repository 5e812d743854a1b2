//! `write_rows`: rows that are replaced.

use hipvit_graph::op::WriteRows;
use hipvit_graph::op::write_rows::extents;

use super::bindings::{WRITE_ROWS_THREADS, WriteRowsArgs};
use super::lower::{Call, Lower, Lowering, one};
use super::{Access, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent};

impl Lower for WriteRows {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("write_rows"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let (x, out) = (step.address(0)?, step.out);
        let images: usize = step.shape_of(2)?.iter().product();
        let (stride, each) = extents(step.shape_of(1)?, step.shape_of(0)?[1]);
        let all: usize = step.shape.iter().product();
        one(WriteRowsArgs {
            x,
            rows: step.address(1)?,
            slots: step.integers(2)?,
            out,
            each: extent(each)?,
            stride: extent(stride)?,
            images: extent(images)?,
            places: extent(all / each.max(1))?,
            copies: u32::from(x != out),
            reserved: 0,
        })
    }
}

// SAFETY: see hip/write_rows.hip. Threads beyond the last image or place return, and slots beyond an end write nothing.
unsafe impl KernelArguments for WriteRowsArgs {
    const FILE: &'static str = "write_rows";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        if [self.each, self.images, self.places].contains(&0) || self.stride < self.each {
            return Err("writes no rows".into());
        }
        let rows = if self.copies == 0 {
            self.images
        } else {
            self.places
        };
        let per_row = u64::from(self.each).div_ceil(target.vec128());
        target.threads(per_row.saturating_mul(rows.into()), WRITE_ROWS_THREADS)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let all = bytes(element, &[self.places, self.each]);
        if self.copies != 0 {
            visit(Access::read("x", self.x, all));
        }
        let rows = bytes(element, &[self.images, self.stride]);
        visit(Access::read("rows", self.rows, rows));
        visit(Access::read("slots", self.slots, bytes(4, &[self.images])));
        visit(Access::write("out", self.out, all));
    }
}
