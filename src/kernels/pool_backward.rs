//! `pool_backward`: the gradient of an image's tokens.

use hipvit_graph::op::{Pool, PoolBackward};

use super::Unit;
use super::bindings::{POOL_SLICES, POOL_VECS, PoolBackwardArgs, PoolMode};
use super::launch::check_channels;
use super::lower::{Call, Lower, Lowering, one};
use super::{Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, bytes, extent, optional};

impl PoolBackwardArgs {
    /// Creates the arguments for `x` and `dx` `[images, tokens, channels]`, and `dy` `[images, channels]`. `x` is null unless the pool is a
    /// maximum.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub(crate) fn new(
        [x, dy, dx]: [DeviceAddress; 3],
        [images, tokens, channels]: [usize; 3],
        pool: Pool,
    ) -> Result<Self, KernelError> {
        let (mode, first) = super::pool::mode(pool);
        Ok(Self {
            x,
            dy,
            dx,
            images: extent(images)?,
            tokens: extent(tokens)?,
            channels: extent(channels)?,
            mode: mode as u32,
            first: extent(first)?,
            reserved: 0,
        })
    }
}

// SAFETY: see hip/pool_backward.hip. A block takes a group of channels of an image, and exactly as many blocks are launched.
unsafe impl KernelArguments for PoolBackwardArgs {
    const FILE: &'static str = "pool_backward";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        if self.first >= self.tokens || self.images == 0 {
            return Err(format!("token {} is not among the {}", self.first, self.tokens).into());
        }
        if self.mode == PoolMode::Max as u32 && self.x.is_null() {
            return Err(KernelError::internal("its maxima are unknown without the tokens"));
        }
        check_channels(self.channels)?;
        let vectors = u64::from(self.channels).div_ceil(target.vec128());
        let blocks = u64::from(self.images).saturating_mul(vectors.div_ceil(POOL_VECS.into()));
        target.blocks(blocks, POOL_VECS * POOL_SLICES)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let all = bytes(element, &[self.images, self.tokens, self.channels]);
        let dy = bytes(element, &[self.images, self.channels]);
        visit(optional(Access::read("x", self.x, all)));
        visit(Access::read("dy", self.dy, dy));
        visit(Access::write("dx", self.dx, all));
    }
}

impl Lower for PoolBackward {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("pool_backward"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let &[images, tokens, channels] = step.shape else {
            return Err("takes tokens".into());
        };
        let x = match self.0 {
            Pool::Max { .. } => step.address(0)?,
            Pool::Token(_) | Pool::Mean { .. } => DeviceAddress::NULL,
        };
        let addresses = [x, step.address(1)?, step.out];
        one(PoolBackwardArgs::new(
            addresses,
            [images, tokens, channels],
            self.0,
        )?)
    }
}
