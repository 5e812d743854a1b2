//! `pool`: one vector per image from its tokens.

use super::Unit;
use super::bindings::{POOL_SLICES, POOL_VECS, PoolArgs, PoolMode};
use super::launch::check_channels;
use super::lower::{Call, Lower, Lowering, one};
use super::{Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, bytes, extent};
use crate::ops::Pool;

impl PoolArgs {
    /// Creates the arguments for `x` `[images, tokens, channels]` and `out` `[images, channels]`.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub(crate) fn new(
        [x, out]: [DeviceAddress; 2],
        [images, tokens, channels]: [usize; 3],
        pool: Pool,
    ) -> Result<Self, KernelError> {
        let (mode, first) = mode(pool);
        Ok(Self {
            x,
            out,
            images: extent(images)?,
            tokens: extent(tokens)?,
            channels: extent(channels)?,
            mode: mode as u32,
            first: extent(first)?,
            reserved: 0,
        })
    }
}

/// Returns the kernel's code of the pooling, and the first pooled token.
pub(super) fn mode(pool: Pool) -> (PoolMode, usize) {
    match pool {
        Pool::Token(index) => (PoolMode::Token, index),
        Pool::Mean { skip } => (PoolMode::Mean, skip),
        Pool::Max { skip } => (PoolMode::Max, skip),
    }
}

// SAFETY: see hip/pool.hip. A block takes a group of channels of an image, and exactly as many blocks are launched.
unsafe impl KernelArguments for PoolArgs {
    const FILE: &'static str = "pool";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        if self.first >= self.tokens || self.images == 0 {
            return Err(format!("token {} is not among the {}", self.first, self.tokens).into());
        }
        check_channels(self.channels)?;
        let vectors = u64::from(self.channels).div_ceil(target.vec128());
        let blocks = u64::from(self.images).saturating_mul(vectors.div_ceil(POOL_VECS.into()));
        target.blocks(blocks, POOL_VECS * POOL_SLICES)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let bytes = |extents: &[u32]| bytes(element, extents);
        visit(Access::read(
            "x",
            self.x,
            bytes(&[self.images, self.tokens, self.channels]),
        ));
        visit(Access::write(
            "out",
            self.out,
            bytes(&[self.images, self.channels]),
        ));
    }
}

impl Lower for Pool {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("pool"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let &[images, tokens, channels] = step.shape_of(0)? else {
            return Err("takes tokens".into());
        };
        let addresses = [step.address(0)?, step.out];
        one(PoolArgs::new(addresses, [images, tokens, channels], *self)?)
    }
}
