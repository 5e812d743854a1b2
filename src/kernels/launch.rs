//! Shared parts of the launch plans. Plans are pure functions of the arguments and a [`Target`].

use super::KernelError;
use super::bindings::{
    ELEMENTWISE_THREADS, OPTIMIZER_ELEMENTS, OPTIMIZER_THREADS, ROW_REGISTERS, VEC128_BYTES,
};
use crate::hip::Launch;
use crate::tensor::DType;

/// Facts about the device and the code that a launch plan may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// Dtype of the elements.
    pub(crate) dtype: DType,
    /// Lanes of a wave, 32 or 64.
    pub(crate) wave_size: u32,
    /// Maximum blocks of a one-dimensional grid.
    pub(crate) max_blocks: u32,
    /// Value of the module global that the kernel names ([`KernelArguments::TILE`](super::KernelArguments::TILE)). 0 for other kernels.
    pub(crate) tile: u32,
}

impl Target {
    /// Returns the elements of a 128-bit vector.
    pub(super) fn vec128(&self) -> u64 {
        u64::from(VEC128_BYTES) / self.dtype.size() as u64
    }

    /// Plans `blocks` blocks of `threads` threads, at least one block.
    ///
    /// # Errors
    ///
    /// The device does not support this number of blocks.
    pub(super) fn blocks(&self, blocks: u64, threads: u32) -> Result<Launch, KernelError> {
        // Some drivers count threads in 32 bits.
        let most = u64::from(self.max_blocks).min(u64::from(u32::MAX) / u64::from(threads));
        match u32::try_from(blocks.max(1)) {
            Ok(grid) if u64::from(grid) <= most => Ok(Launch::new(grid, threads)),
            _ => Err(KernelError::Blocks { blocks, most }),
        }
    }

    /// Plans blocks of `per_block` threads, for `threads` threads in total.
    ///
    /// # Errors
    ///
    /// The device does not support this number of blocks.
    pub(super) fn threads(&self, threads: u64, per_block: u32) -> Result<Launch, KernelError> {
        self.blocks(threads.div_ceil(per_block.into()), per_block)
    }

    /// Plans a thread per vector of a matrix `[rows, channels]`. The last vector of a row may be partial.
    ///
    /// # Errors
    ///
    /// The device does not support this number of blocks.
    pub(super) fn elementwise(&self, rows: u64, channels: u32) -> Result<Launch, KernelError> {
        check_channels(channels)?;
        self.threads(
            rows.saturating_mul(u64::from(channels).div_ceil(self.vec128())),
            ELEMENTWISE_THREADS,
        )
    }

    /// Plans the threads that update `elements` elements of a weight or state.
    ///
    /// # Errors
    ///
    /// There are no elements, or the device does not support this number of blocks.
    pub(super) fn update(&self, elements: u32) -> Result<Launch, KernelError> {
        if elements == 0 {
            return Err("a weight has no elements".into());
        }
        let threads = elements.div_ceil(OPTIMIZER_ELEMENTS);
        self.threads(threads.into(), OPTIMIZER_THREADS)
    }

    /// Returns the maximum length of a row that a wave keeps in [`ROW_REGISTERS`] registers per lane.
    pub(super) fn row_of_wave(&self) -> u32 {
        ROW_REGISTERS * self.wave_size
    }

    /// Plans a reduction over each of `rows` rows of `length` elements, in blocks of `threads` threads. Also returns the argument
    /// `whole_block`: true if a block takes a row, which is then longer than `of_wave`. Otherwise a wave does.
    ///
    /// # Errors
    ///
    /// The device does not support this number of blocks.
    pub(super) fn rows(
        &self,
        rows: u64,
        length: u32,
        threads: u32,
        of_wave: u32,
    ) -> Result<(Launch, u32), KernelError> {
        check_channels(length)?;
        let whole_block = length > of_wave;
        let blocks = if whole_block {
            rows
        } else {
            rows.div_ceil(u64::from(threads / self.wave_size))
        };
        Ok((self.blocks(blocks, threads)?, whole_block.into()))
    }
}

/// Checks the length of a row, by which the kernels divide.
pub(super) fn check_channels(channels: u32) -> Result<(), KernelError> {
    match channels {
        0 => Err("has rows without elements".into()),
        _ => Ok(()),
    }
}
