//! Device attributes, under HIP's names.

use cudarc::driver::sys::CUdevice_attribute_enum as Cu;
use hipvit_sys::hip::{hipDeviceAttribute_t, hipError_t};

use super::{context, cu, hip_without_context};

/// The driver's attribute for HIP's.
fn of_driver(attribute: hipDeviceAttribute_t) -> Option<Cu> {
    macro_rules! table {
        ($($hip:ident: $cuda:ident,)*) => {
            match attribute {
                $(hipDeviceAttribute_t::$hip => Some(Cu::$cuda),)*
                _ => None,
            }
        };
    }
    table! {
        hipDeviceAttributeEccEnabled: CU_DEVICE_ATTRIBUTE_ECC_ENABLED,
        hipDeviceAttributeAccessPolicyMaxWindowSize: CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE,
        hipDeviceAttributeAsyncEngineCount: CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT,
        hipDeviceAttributeCanMapHostMemory: CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY,
        hipDeviceAttributeCanUseHostPointerForRegisteredMem:
            CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
        hipDeviceAttributeClockRate: CU_DEVICE_ATTRIBUTE_CLOCK_RATE,
        hipDeviceAttributeComputeMode: CU_DEVICE_ATTRIBUTE_COMPUTE_MODE,
        hipDeviceAttributeComputePreemptionSupported: CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED,
        hipDeviceAttributeConcurrentKernels: CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS,
        hipDeviceAttributeConcurrentManagedAccess: CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
        hipDeviceAttributeCooperativeLaunch: CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH,
        hipDeviceAttributeCooperativeMultiDeviceLaunch: CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH,
        hipDeviceAttributeDeviceOverlap: CU_DEVICE_ATTRIBUTE_GPU_OVERLAP,
        hipDeviceAttributeDirectManagedMemAccessFromHost:
            CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST,
        hipDeviceAttributeGlobalL1CacheSupported: CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED,
        hipDeviceAttributeHostNativeAtomicSupported: CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED,
        hipDeviceAttributeIntegrated: CU_DEVICE_ATTRIBUTE_INTEGRATED,
        hipDeviceAttributeIsMultiGpuBoard: CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD,
        hipDeviceAttributeKernelExecTimeout: CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT,
        hipDeviceAttributeL2CacheSize: CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE,
        hipDeviceAttributeLocalL1CacheSupported: CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED,
        hipDeviceAttributeComputeCapabilityMajor: CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
        hipDeviceAttributeComputeCapabilityMinor: CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        hipDeviceAttributeManagedMemory: CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY,
        hipDeviceAttributeMaxBlocksPerMultiProcessor: CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR,
        hipDeviceAttributeMaxBlockDimX: CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X,
        hipDeviceAttributeMaxBlockDimY: CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y,
        hipDeviceAttributeMaxBlockDimZ: CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z,
        hipDeviceAttributeMaxGridDimX: CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X,
        hipDeviceAttributeMaxGridDimY: CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y,
        hipDeviceAttributeMaxGridDimZ: CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z,
        hipDeviceAttributeMaxTexture1DWidth: CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH,
        hipDeviceAttributeMaxTexture2DWidth: CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH,
        hipDeviceAttributeMaxTexture2DHeight: CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT,
        hipDeviceAttributeMaxTexture3DWidth: CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH,
        hipDeviceAttributeMaxTexture3DHeight: CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT,
        hipDeviceAttributeMaxTexture3DDepth: CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH,
        hipDeviceAttributeMaxThreadsPerBlock: CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
        hipDeviceAttributeMaxThreadsPerMultiProcessor: CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
        hipDeviceAttributeMaxPitch: CU_DEVICE_ATTRIBUTE_MAX_PITCH,
        hipDeviceAttributeMemoryBusWidth: CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH,
        hipDeviceAttributeMemoryClockRate: CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE,
        hipDeviceAttributeMultiGpuBoardGroupID: CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID,
        hipDeviceAttributeMultiprocessorCount: CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
        hipDeviceAttributePhysicalMultiProcessorCount: CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
        hipDeviceAttributePageableMemoryAccess: CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS,
        hipDeviceAttributePageableMemoryAccessUsesHostPageTables:
            CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES,
        hipDeviceAttributePciBusId: CU_DEVICE_ATTRIBUTE_PCI_BUS_ID,
        hipDeviceAttributePciDeviceId: CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID,
        hipDeviceAttributePciDomainId: CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID,
        hipDeviceAttributePersistingL2CacheMaxSize: CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE,
        hipDeviceAttributeMaxRegistersPerBlock: CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK,
        hipDeviceAttributeMaxRegistersPerMultiprocessor: CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR,
        hipDeviceAttributeReservedSharedMemPerBlock: CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK,
        hipDeviceAttributeMaxSharedMemoryPerBlock: CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK,
        hipDeviceAttributeSharedMemPerBlockOptin: CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
        hipDeviceAttributeSharedMemPerMultiprocessor:
            CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
        hipDeviceAttributeMaxSharedMemoryPerMultiprocessor:
            CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
        hipDeviceAttributeSingleToDoublePrecisionPerfRatio:
            CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO,
        hipDeviceAttributeStreamPrioritiesSupported: CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED,
        hipDeviceAttributeSurfaceAlignment: CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT,
        hipDeviceAttributeTccDriver: CU_DEVICE_ATTRIBUTE_TCC_DRIVER,
        hipDeviceAttributeTextureAlignment: CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT,
        hipDeviceAttributeTexturePitchAlignment: CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT,
        hipDeviceAttributeTotalConstantMemory: CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY,
        hipDeviceAttributeUnifiedAddressing: CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING,
        hipDeviceAttributeWarpSize: CU_DEVICE_ATTRIBUTE_WARP_SIZE,
        hipDeviceAttributeMemoryPoolsSupported: CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED,
        hipDeviceAttributeVirtualMemoryManagementSupported:
            CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
        hipDeviceAttributeHostRegisterSupported: CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED,
        hipDeviceAttributeMemoryPoolSupportedHandleTypes: CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES,
    }
}

/// The value of one of the driver's attributes.
pub(super) fn attribute(device: i32, attribute: Cu) -> Result<i32, hipError_t> {
    let mut value = 0;
    // SAFETY: `value` is a number that the call may write.
    unsafe { cu!(cuDeviceGetAttribute(&mut value, attribute as u32, device))? };
    Ok(value)
}

hip_without_context! {
    fn hipDeviceGetAttribute(value: *mut i32, wanted: hipDeviceAttribute_t, device: i32) {
        let device = context::known(device)?;
        let known = of_driver(wanted).ok_or(hipError_t::hipErrorNotSupported)?;
        value.write(attribute(device, known)?);
        Ok(())
    }
}
