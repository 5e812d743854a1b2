//! Modules, kernels, launches, occupancy.
//!
//! A module's image is what the driver takes: a cubin, a fat binary or PTX. Occupancy is counted in blocks per
//! multiprocessor in both APIs.

use std::ffi::{c_char, c_void};
use std::ptr;

use hipvit_sys::hip::{
    hipDeviceptr_t, hipError_t, hipFuncAttribute, hipFuncCache_t, hipFunction_attribute, hipFunction_t,
    hipJitOption, hipModule_t, hipStream_t,
};

use super::{cu, hip};

/// `HIP_LAUNCH_PARAM_END`; the driver's is 0. The keys of the argument buffer and its size are 1 and 2 in both.
const END: usize = 3;

/// The launch options with the driver's end marker.
///
/// # Safety
/// `extra` is null, or an array of options that ends with HIP's end marker.
pub(super) unsafe fn launch_options(extra: *mut *mut c_void) -> Result<Option<[*mut c_void; 5]>, hipError_t> {
    if extra.is_null() {
        return Ok(None);
    }
    // At most a buffer, its size, and the end marker.
    let mut options = [ptr::null_mut(); 5];
    for pair in 0..2 {
        // SAFETY: the end was not reached, so there is an option, and its value after it.
        unsafe {
            let option = *extra.add(2 * pair);
            if option.addr() == END || option.is_null() {
                return Ok(Some(options));
            }
            options[2 * pair] = option;
            options[2 * pair + 1] = *extra.add(2 * pair + 1);
        }
    }
    // SAFETY: after two options there must be the end.
    let last = unsafe { *extra.add(4) }.addr();
    if last == END || last == 0 {
        Ok(Some(options))
    } else {
        Err(hipError_t::hipErrorInvalidValue)
    }
}

hip! {
    fn hipModuleLoad(module: *mut hipModule_t, file: *const c_char) {
        cu!(cuModuleLoad(module.cast(), file))
    }

    fn hipModuleLoadData(module: *mut hipModule_t, image: *const c_void) {
        if image.is_null() {
            return Err(hipError_t::hipErrorInvalidValue);
        }
        cu!(cuModuleLoadData(module.cast(), image))
    }

    /// HIP's options have the driver's values.
    fn hipModuleLoadDataEx(
        module: *mut hipModule_t, image: *const c_void, count: u32, options: *mut hipJitOption,
        values: *mut *mut c_void,
    ) {
        cu!(cuModuleLoadDataEx(module.cast(), image, count, options.cast(), values))
    }

    fn hipModuleUnload(module: hipModule_t) {
        cu!(cuModuleUnload(module.cast()))
    }

    fn hipModuleGetFunction(function: *mut hipFunction_t, module: hipModule_t, name: *const c_char) {
        cu!(cuModuleGetFunction(function.cast(), module.cast(), name))
    }

    fn hipModuleGetFunctionCount(count: *mut u32, module: hipModule_t) {
        cu!(cuModuleGetFunctionCount(count, module.cast()))
    }

    fn hipModuleGetGlobal(at: *mut hipDeviceptr_t, bytes: *mut usize, module: hipModule_t, name: *const c_char) {
        cu!(cuModuleGetGlobal_v2(at.cast(), bytes, module.cast(), name))
    }

    /// HIP's attributes have the driver's values.
    fn hipFuncGetAttribute(value: *mut i32, attribute: hipFunction_attribute, function: hipFunction_t) {
        cu!(cuFuncGetAttribute(value, attribute.0, function.cast()))
    }

    /// `function` is a `hipFunction_t`: kernels have no host function here. More dynamic shared memory than
    /// `sharedMemPerBlock`, up to `sharedMemPerBlockOptin`, needs `hipFuncAttributeMaxDynamicSharedMemorySize`.
    fn hipFuncSetAttribute(function: *const c_void, attribute: hipFuncAttribute, value: i32) {
        cu!(cuFuncSetAttribute(function.cast_mut().cast(), attribute.0, value))
    }

    /// `function` is a `hipFunction_t`, as for `hipFuncSetAttribute`.
    fn hipFuncSetCacheConfig(function: *const c_void, config: hipFuncCache_t) {
        cu!(cuFuncSetCacheConfig(function.cast_mut().cast(), config.0))
    }

    fn hipModuleLaunchKernel(
        function: hipFunction_t, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared: u32, stream: hipStream_t, arguments: *mut *mut c_void, extra: *mut *mut c_void,
    ) {
        let mut options = launch_options(extra)?;
        let options = options.as_mut().map_or(ptr::null_mut(), |options| options.as_mut_ptr());
        cu!(cuLaunchKernel(
            function.cast(), grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream.cast(), arguments,
            options,
        ))
    }

    fn hipModuleLaunchCooperativeKernel(
        function: hipFunction_t, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared: u32, stream: hipStream_t, arguments: *mut *mut c_void,
    ) {
        cu!(cuLaunchCooperativeKernel(
            function.cast(), grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream.cast(), arguments,
        ))
    }

    fn hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut i32, function: hipFunction_t, block: i32, shared: usize,
    ) {
        cu!(cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function.cast(), block, shared))
    }

    fn hipModuleOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks: *mut i32, function: hipFunction_t, block: i32, shared: usize, flags: u32,
    ) {
        cu!(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function.cast(), block, shared, flags))
    }

    fn hipModuleOccupancyMaxPotentialBlockSize(
        grid: *mut i32, block: *mut i32, function: hipFunction_t, shared: usize, limit: i32,
    ) {
        cu!(cuOccupancyMaxPotentialBlockSize(grid, block, function.cast(), None, shared, limit))
    }

    fn hipModuleOccupancyMaxPotentialBlockSizeWithFlags(
        grid: *mut i32, block: *mut i32, function: hipFunction_t, shared: usize, limit: i32, flags: u32,
    ) {
        cu!(cuOccupancyMaxPotentialBlockSizeWithFlags(grid, block, function.cast(), None, shared, limit, flags))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(value: usize) -> *mut c_void {
        ptr::without_provenance_mut(value)
    }

    #[test]
    fn launch_options_end_as_the_driver_wants() {
        let mut extra = [mark(1), mark(0x1000), mark(2), mark(0x2000), mark(END)];
        // SAFETY: the array ends with HIP's end marker.
        let options = unsafe { launch_options(extra.as_mut_ptr()) };
        assert_eq!(
            options,
            Ok(Some([mark(1), mark(0x1000), mark(2), mark(0x2000), mark(0)]))
        );
        // SAFETY: there is no array.
        assert_eq!(unsafe { launch_options(ptr::null_mut()) }, Ok(None));
    }

    #[test]
    fn more_options_than_there_are_is_an_error() {
        let mut extra = [mark(1), mark(0x1000), mark(2), mark(0x2000), mark(1)];
        // SAFETY: five elements are read.
        let options = unsafe { launch_options(extra.as_mut_ptr()) };
        assert_eq!(options, Err(hipError_t::hipErrorInvalidValue));
    }
}
