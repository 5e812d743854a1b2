//! `hipGetDevicePropertiesR0600`: what the driver knows about a device, in HIP's structure. What it does not report is
//! zero, and so are the limits of textures and surfaces, which are not supported.

use std::ffi::c_char;

use cudarc::driver::sys::CUdevice_attribute_enum as Cu;
use hipvit_sys::hip::{hipDeviceProp_tR0600, hipError_t};

use super::attributes::attribute;
use super::{context, cu, hip_without_context};

/// `sm_90` in a fixed array of C characters.
fn write_text(field: &mut [c_char], text: &str) {
    // The last character stays zero.
    let most = field.len().saturating_sub(1);
    for (to, from) in field.iter_mut().zip(text.bytes().take(most)) {
        *to = from.cast_signed();
    }
}

/// The architecture of the thread's device, such as `sm_90`; `None` without a device.
pub(crate) fn device_arch() -> Option<String> {
    let device = context::known(context::device()).ok()?;
    let major = attribute(device, Cu::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR).ok()?;
    let minor = attribute(device, Cu::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR).ok()?;
    Some(format!("sm_{major}{minor}"))
}

pub(super) fn properties(device: i32) -> Result<hipDeviceProp_tR0600, hipError_t> {
    let mut properties = hipDeviceProp_tR0600::default();
    // An attribute that an old driver does not have is 0.
    let number = |wanted| attribute(device, wanted).unwrap_or_default();
    let size = |wanted| usize::try_from(number(wanted)).unwrap_or_default();
    let length = properties.name.len() as i32;
    // SAFETY: each call writes one field of the structure, whose size it is given or knows.
    unsafe {
        cu!(cuDeviceGetName(properties.name.as_mut_ptr(), length, device))?;
        cu!(cuDeviceTotalMem_v2(&mut properties.totalGlobalMem, device))?;
        cu!(cuDeviceGetUuid_v2((&raw mut properties.uuid).cast(), device))?;
    }

    properties.major = attribute(device, Cu::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    properties.minor = attribute(device, Cu::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    let arch = format!("sm_{}{}", properties.major, properties.minor);
    write_text(&mut properties.gcnArchName, &arch);

    properties.warpSize = attribute(device, Cu::CU_DEVICE_ATTRIBUTE_WARP_SIZE)?;
    properties.multiProcessorCount = attribute(device, Cu::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
    properties.maxThreadsPerBlock = number(Cu::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    properties.maxThreadsPerMultiProcessor = number(Cu::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
    properties.maxBlocksPerMultiProcessor = number(Cu::CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR);
    properties.maxThreadsDim = [
        number(Cu::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X),
        number(Cu::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y),
        number(Cu::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z),
    ];
    properties.maxGridSize = [
        number(Cu::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X),
        number(Cu::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
        number(Cu::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z),
    ];
    properties.clockRate = number(Cu::CU_DEVICE_ATTRIBUTE_CLOCK_RATE);

    properties.sharedMemPerBlock = size(Cu::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
    properties.sharedMemPerBlockOptin = size(Cu::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    properties.sharedMemPerMultiprocessor =
        size(Cu::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
    properties.maxSharedMemoryPerMultiProcessor = properties.sharedMemPerMultiprocessor;
    properties.reservedSharedMemPerBlock = size(Cu::CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK);
    properties.regsPerBlock = number(Cu::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
    properties.regsPerMultiprocessor = number(Cu::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
    properties.totalConstMem = size(Cu::CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY);
    properties.memPitch = size(Cu::CU_DEVICE_ATTRIBUTE_MAX_PITCH);
    properties.l2CacheSize = number(Cu::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
    properties.persistingL2CacheMaxSize = number(Cu::CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE);
    properties.accessPolicyMaxWindowSize = number(Cu::CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE);
    properties.memoryClockRate = number(Cu::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
    properties.memoryBusWidth = number(Cu::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
    properties.globalL1CacheSupported = number(Cu::CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED);
    properties.localL1CacheSupported = number(Cu::CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED);
    properties.ECCEnabled = number(Cu::CU_DEVICE_ATTRIBUTE_ECC_ENABLED);
    properties.textureAlignment = size(Cu::CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT);
    properties.texturePitchAlignment = size(Cu::CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT);
    properties.surfaceAlignment = size(Cu::CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT);

    properties.pciBusID = number(Cu::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
    properties.pciDeviceID = number(Cu::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID);
    properties.pciDomainID = number(Cu::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID);
    properties.tccDriver = number(Cu::CU_DEVICE_ATTRIBUTE_TCC_DRIVER);
    properties.integrated = number(Cu::CU_DEVICE_ATTRIBUTE_INTEGRATED);
    properties.isMultiGpuBoard = number(Cu::CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD);
    properties.multiGpuBoardGroupID = number(Cu::CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID);
    properties.computeMode = number(Cu::CU_DEVICE_ATTRIBUTE_COMPUTE_MODE);
    properties.kernelExecTimeoutEnabled = number(Cu::CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT);

    properties.asyncEngineCount = number(Cu::CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT);
    properties.deviceOverlap = number(Cu::CU_DEVICE_ATTRIBUTE_GPU_OVERLAP);
    properties.concurrentKernels = number(Cu::CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS);
    properties.streamPrioritiesSupported = number(Cu::CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED);
    properties.computePreemptionSupported = number(Cu::CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED);
    properties.cooperativeLaunch = number(Cu::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH);
    properties.singleToDoublePrecisionPerfRatio =
        number(Cu::CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO);
    properties.canMapHostMemory = number(Cu::CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY);
    properties.unifiedAddressing = number(Cu::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING);
    properties.managedMemory = number(Cu::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY);
    properties.concurrentManagedAccess = number(Cu::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS);
    properties.directManagedMemAccessFromHost =
        number(Cu::CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST);
    properties.pageableMemoryAccess = number(Cu::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS);
    properties.pageableMemoryAccessUsesHostPageTables =
        number(Cu::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES);
    properties.canUseHostPointerForRegisteredMem =
        number(Cu::CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM);
    properties.hostNativeAtomicSupported = number(Cu::CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED);
    properties.hostRegisterSupported = number(Cu::CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED);
    properties.hostRegisterReadOnlySupported =
        number(Cu::CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED);
    properties.memoryPoolsSupported = number(Cu::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
    properties.gpuDirectRDMASupported = number(Cu::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED);
    properties.ipcEventSupported = number(Cu::CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED);
    properties.clusterLaunch = number(Cu::CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH);
    properties.unifiedFunctionPointers = number(Cu::CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS);
    Ok(properties)
}

hip_without_context! {
    fn hipGetDevicePropertiesR0600(to: *mut hipDeviceProp_tR0600, device: i32) {
        let device = context::known(device)?;
        if to.is_null() {
            return Err(hipError_t::hipErrorInvalidValue);
        }
        to.write(properties(device)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::write_text;

    #[test]
    fn text_is_cut_to_fit_and_ended_by_a_zero() {
        let mut field = [0; 4];
        write_text(&mut field, "sm_90");
        assert_eq!(field.map(i8::cast_unsigned), *b"sm_\0");
    }
}
