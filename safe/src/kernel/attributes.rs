//! Resources that a kernel takes of a compute unit, and the number of its blocks that fit there.

use hipvit_sys::hip::hipFunction_attribute;

use crate::error::{Error, Result};
use crate::kernel::function::Function;
use crate::status::call;

/// Resources of a kernel, as the driver reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Attributes {
    /// Vector registers of 32 bits that each thread has.
    pub registers: u32,
    /// Bytes of LDS (shared memory) that the kernel declares for each block, without dynamic LDS.
    pub lds_bytes: usize,
    /// Bytes of scratch (local memory) for each thread: arrays that are not in registers, and spilled registers.
    pub scratch_bytes: usize,
    /// Bytes of constant memory that it declares.
    pub constant_bytes: usize,
    /// The largest number of threads that a block can have.
    pub max_threads_per_block: u32,
}

/// A geometry that fills the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuggestedBlock {
    /// Threads of a block.
    pub block: u32,
    /// The fewest blocks of that size with which every compute unit has as many as it holds.
    pub grid: u32,
}

impl Function {
    /// Returns the kernel's resources.
    ///
    /// # Errors
    ///
    /// The driver does not say.
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
        // SAFETY: the call writes one int; the function is of a loaded module.
        unsafe { call!(device, hip.hipFuncGetAttribute(&mut value, attribute, self.raw())) }?;
        Ok(u32::try_from(value).unwrap_or(0))
    }

    /// Returns the number of blocks of `threads` threads and `lds_bytes` bytes of dynamic LDS that one compute unit holds at
    /// once. The occupancy is this times the block's waves, of [`Properties::waves_per_compute_unit`].
    ///
    /// [`Properties::waves_per_compute_unit`]: crate::Properties::waves_per_compute_unit
    ///
    /// # Errors
    ///
    /// The driver does not say, or a block cannot have that many threads.
    pub fn max_active_blocks(&self, threads: u32, lds_bytes: usize) -> Result<u32> {
        let device = self.module().device();
        let hip = device.enter()?;
        let mut blocks = 0;
        let threads = self.threads(threads)?;
        // SAFETY: the call writes one int; the function is of a loaded module.
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

    /// Returns the block size with the most active threads, if each block has `lds_bytes` bytes of dynamic LDS. A block has at
    /// most `limit` threads (0: the device's limit).
    ///
    /// # Errors
    ///
    /// The driver does not say.
    pub fn suggested_block(&self, lds_bytes: usize, limit: u32) -> Result<SuggestedBlock> {
        let device = self.module().device();
        let hip = device.enter()?;
        let (mut grid, mut block) = (0, 0);
        let limit = self.threads(limit)?;
        // SAFETY: the call writes two ints; the function is of a loaded module.
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
