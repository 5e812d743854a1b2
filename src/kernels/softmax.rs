//! `softmax` of rows, such as the scores of unfused attention, and its logarithm.

use hipvit_graph::op::Softmax;

use super::attention::{check_not_empty, visibility, visit_key_mask};
use super::bindings::{ROW_THREADS, SoftmaxArgs, Visibility};
use super::lower::{Call, Lower, Lowering, one};
use super::{Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent};
use std::borrow::Cow;

impl SoftmaxArgs {
    /// Creates the arguments for scores `x` and weights `out` `[images, heads, queries, keys]`, which may alias. `scale` multiplies the
    /// scores.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub fn new(
        [x, out]: [DeviceAddress; 2],
        [images, heads, queries, keys]: [usize; 4],
        visible: Visibility,
        scale: f32,
    ) -> Result<Self, KernelError> {
        Ok(Self {
            x,
            out,
            visible,
            images: extent(images)?,
            heads: extent(heads)?,
            queries: extent(queries)?,
            keys: extent(keys)?,
            scale,
            whole_block: 0,
            log: 0,
            reserved: 0,
        })
    }
}

// SAFETY: see hip/softmax.hip. Waves and blocks beyond the last row return.
unsafe impl KernelArguments for SoftmaxArgs {
    const FILE: &'static str = "softmax";

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        Ok(if self.log == 0 { "softmax" } else { "log_softmax" }.into())
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        check_not_empty([self.images, self.heads, self.queries, self.keys])?;
        let rows = u64::from(self.images) * u64::from(self.heads);
        let rows = rows
            .checked_mul(self.queries.into())
            .ok_or_else(|| KernelError::unsupported("there are too many queries"))?;
        let (launch, whole_block) = target.rows(rows, self.keys, ROW_THREADS, target.row_of_wave())?;
        self.whole_block = whole_block;
        Ok(launch)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let all = bytes(element, &[self.images, self.heads, self.queries, self.keys]);
        visit(Access::read("x", self.x, all));
        visit(Access::write("out", self.out, all));
        visit_key_mask(&self.visible, self.images, self.keys, visit);
    }
}

impl Lower for Softmax {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("softmax"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let [rows, keys] = step.matrix()?;
        let every = visibility(DeviceAddress::NULL, 0, None, None);
        let addresses = [step.address(0)?, step.out];
        let softmax = SoftmaxArgs::new(addresses, [1, 1, rows, keys], every, 1.0)?;
        one(SoftmaxArgs {
            log: self.log.into(),
            ..softmax
        })
    }
}
