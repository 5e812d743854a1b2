//! Resources of a kernel, and the number of its blocks that fit on a compute unit.

use hipvit_sys::hip::hipFunction_attribute;

use crate::error::{Error, Result};
use crate::kernel::function::Function;
use crate::status::call;

/// Resources of a kernel, as the driver reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Attributes {
    /// 32-bit vector registers per thread.
    pub registers: u32,
    /// Bytes of LDS (shared memory) that the kernel declares per block, without dynamic LDS.
    pub lds_bytes: usize,
    /// Bytes of scratch (local memory) per thread: arrays that are not in registers, and spilled registers.
    pub scratch_bytes: usize,
    /// Bytes of constant memory that the kernel declares.
    pub constant_bytes: usize,
    /// Maximum threads per block.
    pub max_threads_per_block: u32,
}

/// A geometry that fills the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuggestedBlock {
    /// Threads per block.
    pub block: u32,
    /// Minimum number of blocks of this size that fills every compute unit.
    pub grid: u32,
}

impl Function {
    /// Returns the kernel's resources.
    ///
    /// # Errors
    ///
    /// The driver does not report it.
    pub fn attributes(&self) -> Result<Attributes> {
        Ok(Attributes {
            registers: self.attribute(hipFunction_attribute::HIP_FUNC_ATTRIBUTE_NUM_REGS)?,
            lds_bytes: self.attribute(hipFunction_attribute::HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)? as usize,
            scratch_bytes: self.attribute(hipFunction_attribute::HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?
                as usize,
            constant_bytes: self.attribute(hipFunction_attribute::HIP_FUNC_ATTRIBUTE_CONST_SIZE_BYTES)?
                as usize,
            max_threads_per_block: self
                .attribute(hipFunction_attribute::HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
        })
    }

    fn attribute(&self, attribute: hipFunction_attribute) -> Result<u32> {
        let device = self.module().device();
        let hip = device.enter()?;
        let mut value = 0;
        // SAFETY: the call writes one int; the function belongs to a loaded module.
        unsafe { call!(device, hip.hipFuncGetAttribute(&mut value, attribute, self.raw())) }?;
        Ok(u32::try_from(value).unwrap_or(0))
    }

    /// Returns the maximum number of resident blocks per compute unit, for blocks of `threads` threads and `lds_bytes` bytes of dynamic
    /// LDS. The occupancy is this number times the block's waves, divided by [`Properties::waves_per_compute_unit`].
    ///
    /// [`Properties::waves_per_compute_unit`]: crate::Properties::waves_per_compute_unit
    ///
    /// # Errors
    ///
    /// [`Error::Device`](crate::Error::Device) if the driver fails, or if a block cannot have that many threads.
    pub fn max_active_blocks(&self, threads: u32, lds_bytes: usize) -> Result<u32> {
        let device = self.module().device();
        let hip = device.enter()?;
        let mut blocks = 0;
        let threads = self.threads(threads)?;
        // SAFETY: the call writes one int; the function belongs to a loaded module.
        unsafe {
            call!(
                device,
                hip.hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(
                    &mut blocks,
                    self.raw(),
                    threads,
                    lds_bytes
                )
            )
        }?;
        Ok(u32::try_from(blocks).unwrap_or(0))
    }

    /// Returns the block size with the most resident threads, for blocks with `lds_bytes` bytes of dynamic LDS. A block has at most `limit`
    /// threads (0: the device's limit).
    ///
    /// # Errors
    ///
    /// The driver does not report it.
    pub fn suggested_block(&self, lds_bytes: usize, limit: u32) -> Result<SuggestedBlock> {
        let device = self.module().device();
        let hip = device.enter()?;
        let (mut grid, mut block) = (0, 0);
        let limit = self.threads(limit)?;
        // SAFETY: the call writes two ints; the function belongs to a loaded module.
        unsafe {
            call!(
                device,
                hip.hipModuleOccupancyMaxPotentialBlockSize(
                    &mut grid,
                    &mut block,
                    self.raw(),
                    lds_bytes,
                    limit
                )
            )
        }?;
        let number = |n: i32| u32::try_from(n).unwrap_or(0);
        Ok(SuggestedBlock {
            block: number(block),
            grid: number(grid),
        })
    }

    fn threads(&self, threads: u32) -> Result<i32> {
        i32::try_from(threads)
            .map_err(|_| Error::argument("launch", format!("{}: {threads} threads in a block", self.name())))
    }
}
