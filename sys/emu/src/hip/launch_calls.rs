//! HIP's functions for launches.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use hipvit_sys::hip::{HIP_LAUNCH_CONFIG, hipError_t, hipFunction_t, hipStream_t};

use super::launch::Launch;
use super::machine::machine;
use super::residency::blocks_per_multiprocessor;
use super::task::Task;
use super::{hip, stream};
use crate::faults::{Failure, report};

fn submit(launch: Arc<Launch>, stream: hipStream_t) -> Result<(), hipError_t> {
    let stream = stream::find(stream)?;
    if stream.device.ordinal != launch.function.module.device.ordinal {
        return Err(hipError_t::hipErrorInvalidHandle);
    }
    let machine = machine()?;
    if machine.launches.fires(machine.settings.faults.launch) {
        let failure = Failure::new(
            hipError_t::hipErrorLaunchFailure,
            "injected by HIP_EMU_FAIL_LAUNCH",
        );
        report(stream.device.ordinal, launch.name(), &failure);
        return Err(failure.status);
    }
    stream.submit(&Task::Kernel(launch)).map(drop)
}

hip! {
    fn hipModuleLaunchKernel(
        function: hipFunction_t, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared: u32, stream: hipStream_t, arguments: *mut *mut c_void, extra: *mut *mut c_void,
    ) {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        submit(Launch::new(function, grid, block, shared, arguments, extra)?, stream)
    }

    /// All blocks have to fit on the device at once. Grid-wide synchronisation is not emulated.
    fn hipModuleLaunchCooperativeKernel(
        function: hipFunction_t, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared: u32, stream: hipStream_t, arguments: *mut *mut c_void,
    ) {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        let launch = Launch::new(function, grid, block, shared, arguments, ptr::null_mut())?;
        let capacity = blocks_per_multiprocessor(launch.function.part(), &launch.function.info, block.iter().product(), shared)
            * launch.function.part().multiprocessors;
        if grid.iter().map(|&n| u64::from(n)).product::<u64>() > capacity.into() {
            return Err(hipError_t::hipErrorCooperativeLaunchTooLarge);
        }
        submit(launch, stream)
    }

    /// Attributes only affect the placement of blocks.
    fn hipDrvLaunchKernelEx(
        config: *const HIP_LAUNCH_CONFIG, function: hipFunction_t, arguments: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) {
        let config = config.as_ref().ok_or(hipError_t::hipErrorInvalidValue)?;
        let grid = [config.gridDimX, config.gridDimY, config.gridDimZ];
        let block = [config.blockDimX, config.blockDimY, config.blockDimZ];
        submit(Launch::new(function, grid, block, config.sharedMemBytes, arguments, extra)?, config.hStream)
    }
}
