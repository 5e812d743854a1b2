//! `softmax` over the scores of unfused attention.

use super::attention::{check_not_empty, visit_key_mask};
use super::bindings::{ROW_THREADS, SoftmaxArgs, Visibility};
use super::{Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, bytes, extent};

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
        })
    }
}

// SAFETY: see hip/softmax.hip. Waves and blocks beyond the last row return.
unsafe impl KernelArguments for SoftmaxArgs {
    const FILE: &'static str = "softmax";

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
