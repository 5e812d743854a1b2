//! Device properties and attributes: those that AMD's runtime reports for the real GPU, except the memory size, which is a
//! setting. Limits of textures and surfaces, which are not supported, are zero.

use std::ffi::c_char;

use hip_provider::hip::put;
use hipvit_sys::hip::{hipDeviceAttribute_t, hipDeviceProp_tR0600, hipError_t, hipUUID};

use super::hip;
use super::machine::{Device, device, machine};
use crate::parts::THREADS_PER_BLOCK;

/// `gfx942` in a fixed array of C characters.
fn write_text(field: &mut [c_char], text: &str) {
    // With a terminating zero.
    let capacity = field.len().saturating_sub(1);
    for (to, from) in field.iter_mut().zip(text.bytes().take(capacity)) {
        *to = from.cast_signed();
    }
}

/// Sixteen characters, as in AMD's runtime.
pub(super) fn uuid(device: &Device) -> hipUUID {
    let text = format!("emu{:04x}{:09x}", device.part.pci_id, device.ordinal);
    let mut uuid = hipUUID { bytes: [0; 16] };
    for (to, from) in uuid.bytes.iter_mut().zip(text.bytes()) {
        *to = from.cast_signed();
    }
    uuid
}

/// Value of `hipDeviceArch_t`, by bits: everything but funnel shifts, extended synchronisation, surfaces and dynamic parallelism.
const ARCH: u32 = 0b1001_0111_1111_1111;

pub(super) fn properties(device: &Device) -> Result<hipDeviceProp_tR0600, hipError_t> {
    let part = device.part;
    let mut p = hipDeviceProp_tR0600::default();
    write_text(&mut p.name, part.name);
    write_text(&mut p.gcnArchName, part.target);
    p.uuid = uuid(device);
    p.totalGlobalMem = machine()?.settings.memory as usize;
    p.totalConstMem = i32::MAX as usize;
    p.memPitch = i32::MAX as usize;
    (p.major, p.minor) = part.capability;

    p.warpSize = part.wave as i32;
    p.multiProcessorCount = part.multiprocessors as i32;
    p.maxThreadsPerBlock = THREADS_PER_BLOCK as i32;
    p.maxThreadsPerMultiProcessor = (part.wave * part.simds * part.waves_per_simd).min(2048) as i32;
    p.maxBlocksPerMultiProcessor = 32;
    p.maxThreadsDim = [THREADS_PER_BLOCK as i32; 3];
    p.maxGridSize = [i32::MAX, 65536, 65536];
    p.regsPerBlock = 65536;
    p.regsPerMultiprocessor = 65536;
    p.sharedMemPerBlock = part.lds_per_block() as usize;
    p.sharedMemPerBlockOptin = part.lds_per_block() as usize;
    p.sharedMemPerMultiprocessor = part.lds as usize;
    p.maxSharedMemoryPerMultiProcessor = part.lds as usize;

    p.clockRate = part.clock as i32;
    p.clockInstructionRate = 100_000;
    p.memoryClockRate = part.memory.clock as i32;
    p.memoryBusWidth = part.memory.bus as i32;
    p.l2CacheSize = part.l2 as i32;
    p.globalL1CacheSupported = 1;
    p.localL1CacheSupported = 1;
    p.ECCEnabled = part.memory.ecc.into();
    p.integrated = part.memory.shared.into();
    p.pciBusID = bus(device) as i32;
    p.isLargeBar = 1;
    p.textureAlignment = 256;
    p.texturePitchAlignment = 256;
    p.surfaceAlignment = 256;

    p.asyncEngineCount = 2;
    p.deviceOverlap = 1;
    p.concurrentKernels = 1;
    p.streamPrioritiesSupported = 1;
    p.canMapHostMemory = 1;
    p.unifiedAddressing = 1;
    p.managedMemory = 1;
    p.concurrentManagedAccess = 1;
    p.canUseHostPointerForRegisteredMem = 1;
    p.hostNativeAtomicSupported = 1;
    p.hostRegisterSupported = 1;
    p.memoryPoolsSupported = 1;
    p.cooperativeLaunch = 1;
    p.arch._bindgen_opaque_blob = ARCH;
    Ok(p)
}

fn attribute(device: &Device, wanted: hipDeviceAttribute_t) -> Result<i32, hipError_t> {
    let p = properties(device)?;
    let bytes = |size: usize| i32::try_from(size).unwrap_or(i32::MAX);
    macro_rules! table {
        ($($attribute:ident => $value:expr,)*) => {
            match wanted {
                $(hipDeviceAttribute_t::$attribute => Ok($value),)*
                _ => Err(hipError_t::hipErrorInvalidValue),
            }
        };
    }
    table! {
        hipDeviceAttributeEccEnabled => p.ECCEnabled,
        hipDeviceAttributeAsyncEngineCount => p.asyncEngineCount,
        hipDeviceAttributeCanMapHostMemory => p.canMapHostMemory,
        hipDeviceAttributeCanUseHostPointerForRegisteredMem => p.canUseHostPointerForRegisteredMem,
        hipDeviceAttributeCanUseStreamWaitValue => 1,
        hipDeviceAttributeClockRate => p.clockRate,
        hipDeviceAttributeClockInstructionRate => p.clockInstructionRate,
        hipDeviceAttributeWallClockRate => 100_000,
        hipDeviceAttributeComputeMode => 0,
        hipDeviceAttributeComputePreemptionSupported => 0,
        hipDeviceAttributeConcurrentKernels => p.concurrentKernels,
        hipDeviceAttributeConcurrentManagedAccess => p.concurrentManagedAccess,
        hipDeviceAttributeCooperativeLaunch => p.cooperativeLaunch,
        hipDeviceAttributeCooperativeMultiDeviceLaunch => 0,
        hipDeviceAttributeDeviceOverlap => p.deviceOverlap,
        hipDeviceAttributeDirectManagedMemAccessFromHost => 0,
        hipDeviceAttributeFineGrainSupport => 1,
        hipDeviceAttributeGlobalL1CacheSupported => p.globalL1CacheSupported,
        hipDeviceAttributeLocalL1CacheSupported => p.localL1CacheSupported,
        hipDeviceAttributeHostNativeAtomicSupported => p.hostNativeAtomicSupported,
        hipDeviceAttributeHostRegisterSupported => p.hostRegisterSupported,
        hipDeviceAttributeImageSupport => 0,
        hipDeviceAttributeIntegrated => p.integrated,
        hipDeviceAttributeIsLargeBar => 1,
        hipDeviceAttributeIsMultiGpuBoard => 0,
        hipDeviceAttributeKernelExecTimeout => 0,
        hipDeviceAttributeL2CacheSize => p.l2CacheSize,
        hipDeviceAttributeComputeCapabilityMajor => p.major,
        hipDeviceAttributeComputeCapabilityMinor => p.minor,
        hipDeviceAttributeManagedMemory => p.managedMemory,
        hipDeviceAttributeMaxAvailableVgprsPerThread => device.part.vector_registers.per_wave as i32,
        hipDeviceAttributeMaxBlocksPerMultiProcessor => p.maxBlocksPerMultiProcessor,
        hipDeviceAttributeMaxBlockDimX => p.maxThreadsDim[0],
        hipDeviceAttributeMaxBlockDimY => p.maxThreadsDim[1],
        hipDeviceAttributeMaxBlockDimZ => p.maxThreadsDim[2],
        hipDeviceAttributeMaxGridDimX => p.maxGridSize[0],
        hipDeviceAttributeMaxGridDimY => p.maxGridSize[1],
        hipDeviceAttributeMaxGridDimZ => p.maxGridSize[2],
        hipDeviceAttributeMaxThreadsPerBlock => p.maxThreadsPerBlock,
        hipDeviceAttributeMaxThreadsPerMultiProcessor => p.maxThreadsPerMultiProcessor,
        hipDeviceAttributeMaxPitch => bytes(p.memPitch),
        hipDeviceAttributeMaxRegistersPerBlock => p.regsPerBlock,
        hipDeviceAttributeMaxRegistersPerMultiprocessor => p.regsPerMultiprocessor,
        hipDeviceAttributeMaxSharedMemoryPerBlock => bytes(p.sharedMemPerBlock),
        hipDeviceAttributeSharedMemPerBlockOptin => bytes(p.sharedMemPerBlockOptin),
        hipDeviceAttributeSharedMemPerMultiprocessor => bytes(p.sharedMemPerMultiprocessor),
        hipDeviceAttributeMaxSharedMemoryPerMultiprocessor => bytes(p.maxSharedMemoryPerMultiProcessor),
        hipDeviceAttributeReservedSharedMemPerBlock => 0,
        hipDeviceAttributeMemoryBusWidth => p.memoryBusWidth,
        hipDeviceAttributeMemoryClockRate => p.memoryClockRate,
        hipDeviceAttributeMemoryPoolsSupported => p.memoryPoolsSupported,
        hipDeviceAttributeMemoryPoolSupportedHandleTypes => 0,
        hipDeviceAttributeMultiGpuBoardGroupID => 0,
        hipDeviceAttributeMultiprocessorCount => p.multiProcessorCount,
        hipDeviceAttributePhysicalMultiProcessorCount => p.multiProcessorCount,
        hipDeviceAttributeNumberOfXccs => 1,
        hipDeviceAttributePageableMemoryAccess => 0,
        hipDeviceAttributePageableMemoryAccessUsesHostPageTables => 0,
        hipDeviceAttributePciBusId => p.pciBusID,
        hipDeviceAttributePciChipId => device.part.pci_id as i32,
        hipDeviceAttributePciDeviceId => p.pciDeviceID,
        hipDeviceAttributePciDomainId => p.pciDomainID,
        hipDeviceAttributePersistingL2CacheMaxSize => 0,
        hipDeviceAttributeSingleToDoublePrecisionPerfRatio => p.singleToDoublePrecisionPerfRatio,
        hipDeviceAttributeStreamPrioritiesSupported => p.streamPrioritiesSupported,
        hipDeviceAttributeSurfaceAlignment => bytes(p.surfaceAlignment),
        hipDeviceAttributeTextureAlignment => bytes(p.textureAlignment),
        hipDeviceAttributeTexturePitchAlignment => bytes(p.texturePitchAlignment),
        hipDeviceAttributeTccDriver => 0,
        hipDeviceAttributeTotalConstantMemory => bytes(p.totalConstMem),
        hipDeviceAttributeUnifiedAddressing => p.unifiedAddressing,
        hipDeviceAttributeVirtualMemoryManagementSupported => 0,
        hipDeviceAttributeWarpSize => p.warpSize,
        hipDeviceAttributeAsicRevision => p.asicRevision,
    }
}

hip! {
    fn hipGetDevicePropertiesR0600(to: *mut hipDeviceProp_tR0600, ordinal: i32) {
        put(to, properties(device(ordinal)?)?)
    }

    fn hipDeviceGetAttribute(value: *mut i32, wanted: hipDeviceAttribute_t, ordinal: i32) {
        put(value, attribute(device(ordinal)?, wanted)?)
    }
}

/// The number of a device's PCI bus.
pub(crate) fn bus(device: &Device) -> u32 {
    0xc1 + device.ordinal
}
