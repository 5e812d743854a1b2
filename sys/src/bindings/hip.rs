// Made by sys/scripts/regenerate from ROCm's headers; do not edit.

pub const HIP_VERSION_MAJOR: u32 = 7;
pub const HIP_VERSION_MINOR: u32 = 2;
pub const HIP_VERSION_PATCH: u32 = 53211;
pub const HIP_VERSION: u32 = 70253211;
pub const hipIpcMemLazyEnablePeerAccess: u32 = 1;
pub const hipStreamDefault: u32 = 0;
pub const hipStreamNonBlocking: u32 = 1;
pub const hipEventDefault: u32 = 0;
pub const hipEventBlockingSync: u32 = 1;
pub const hipEventDisableTiming: u32 = 2;
pub const hipEventInterprocess: u32 = 4;
pub const hipEventDisableSystemFence: u32 = 536870912;
pub const hipEventReleaseToDevice: u32 = 1073741824;
pub const hipEventReleaseToSystem: u32 = 2147483648;
pub const hipHostMallocDefault: u32 = 0;
pub const hipHostMallocPortable: u32 = 1;
pub const hipHostMallocMapped: u32 = 2;
pub const hipHostMallocWriteCombined: u32 = 4;
pub const hipHostMallocUncached: u32 = 268435456;
pub const hipHostMallocNumaUser: u32 = 536870912;
pub const hipHostMallocCoherent: u32 = 1073741824;
pub const hipHostMallocNonCoherent: u32 = 2147483648;
pub const hipMemAttachGlobal: u32 = 1;
pub const hipDeviceMallocDefault: u32 = 0;
pub const hipDeviceMallocFinegrained: u32 = 1;
pub const hipDeviceMallocUncached: u32 = 3;
pub const hipDeviceMallocContiguous: u32 = 4;
pub const hipHostRegisterDefault: u32 = 0;
pub const hipHostRegisterPortable: u32 = 1;
pub const hipHostRegisterMapped: u32 = 2;
pub const hipHostRegisterIoMemory: u32 = 4;
pub const hipHostRegisterReadOnly: u32 = 8;
pub const hipDeviceScheduleAuto: u32 = 0;
pub const hipDeviceScheduleSpin: u32 = 1;
pub const hipDeviceScheduleYield: u32 = 2;
pub const hipDeviceScheduleBlockingSync: u32 = 4;
pub const hipDeviceScheduleMask: u32 = 7;
pub const hipOccupancyDefault: u32 = 0;
impl hipJitOption {
    pub const hipJitOptionMaxRegisters: hipJitOption = hipJitOption(0);
    pub const hipJitOptionThreadsPerBlock: hipJitOption = hipJitOption(1);
    pub const hipJitOptionWallTime: hipJitOption = hipJitOption(2);
    pub const hipJitOptionInfoLogBuffer: hipJitOption = hipJitOption(3);
    pub const hipJitOptionInfoLogBufferSizeBytes: hipJitOption = hipJitOption(4);
    pub const hipJitOptionErrorLogBuffer: hipJitOption = hipJitOption(5);
    pub const hipJitOptionErrorLogBufferSizeBytes: hipJitOption = hipJitOption(6);
    pub const hipJitOptionOptimizationLevel: hipJitOption = hipJitOption(7);
    pub const hipJitOptionTargetFromContext: hipJitOption = hipJitOption(8);
    pub const hipJitOptionTarget: hipJitOption = hipJitOption(9);
    pub const hipJitOptionFallbackStrategy: hipJitOption = hipJitOption(10);
    pub const hipJitOptionGenerateDebugInfo: hipJitOption = hipJitOption(11);
    pub const hipJitOptionLogVerbose: hipJitOption = hipJitOption(12);
    pub const hipJitOptionGenerateLineInfo: hipJitOption = hipJitOption(13);
    pub const hipJitOptionCacheMode: hipJitOption = hipJitOption(14);
    pub const hipJitOptionSm3xOpt: hipJitOption = hipJitOption(15);
    pub const hipJitOptionFastCompile: hipJitOption = hipJitOption(16);
    pub const hipJitOptionGlobalSymbolNames: hipJitOption = hipJitOption(17);
    pub const hipJitOptionGlobalSymbolAddresses: hipJitOption = hipJitOption(18);
    pub const hipJitOptionGlobalSymbolCount: hipJitOption = hipJitOption(19);
    pub const hipJitOptionLto: hipJitOption = hipJitOption(20);
    pub const hipJitOptionFtz: hipJitOption = hipJitOption(21);
    pub const hipJitOptionPrecDiv: hipJitOption = hipJitOption(22);
    pub const hipJitOptionPrecSqrt: hipJitOption = hipJitOption(23);
    pub const hipJitOptionFma: hipJitOption = hipJitOption(24);
    pub const hipJitOptionPositionIndependentCode: hipJitOption = hipJitOption(25);
    pub const hipJitOptionMinCTAPerSM: hipJitOption = hipJitOption(26);
    pub const hipJitOptionMaxThreadsPerBlock: hipJitOption = hipJitOption(27);
    pub const hipJitOptionOverrideDirectiveValues: hipJitOption = hipJitOption(28);
    pub const hipJitOptionNumOptions: hipJitOption = hipJitOption(29);
    pub const hipJitOptionIRtoISAOptExt: hipJitOption = hipJitOption(10000);
    pub const hipJitOptionIRtoISAOptCountExt: hipJitOption = hipJitOption(10001);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipJitOption(pub ::core::ffi::c_uint);
impl hipJitInputType {
    pub const hipJitInputCubin: hipJitInputType = hipJitInputType(0);
    pub const hipJitInputPtx: hipJitInputType = hipJitInputType(1);
    pub const hipJitInputFatBinary: hipJitInputType = hipJitInputType(2);
    pub const hipJitInputObject: hipJitInputType = hipJitInputType(3);
    pub const hipJitInputLibrary: hipJitInputType = hipJitInputType(4);
    pub const hipJitInputNvvm: hipJitInputType = hipJitInputType(5);
    pub const hipJitNumLegacyInputTypes: hipJitInputType = hipJitInputType(6);
    pub const hipJitInputLLVMBitcode: hipJitInputType = hipJitInputType(100);
    pub const hipJitInputLLVMBundledBitcode: hipJitInputType = hipJitInputType(101);
    pub const hipJitInputLLVMArchivesOfBundledBitcode: hipJitInputType = hipJitInputType(
        102,
    );
    pub const hipJitInputSpirv: hipJitInputType = hipJitInputType(103);
    pub const hipJitNumInputTypes: hipJitInputType = hipJitInputType(10);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipJitInputType(pub ::core::ffi::c_uint);
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct hipDeviceArch_t {
    pub _bindgen_align: [u32; 0],
    pub _bindgen_opaque_blob: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of hipDeviceArch_t"][::core::mem::size_of::<hipDeviceArch_t>() - 4usize];
    [
        "Alignment of hipDeviceArch_t",
    ][::core::mem::align_of::<hipDeviceArch_t>() - 4usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct hipUUID_t {
    pub bytes: [::core::ffi::c_char; 16usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of hipUUID_t"][::core::mem::size_of::<hipUUID_t>() - 16usize];
    ["Alignment of hipUUID_t"][::core::mem::align_of::<hipUUID_t>() - 1usize];
    [
        "Offset of field: hipUUID_t::bytes",
    ][::core::mem::offset_of!(hipUUID_t, bytes) - 0usize];
};
pub type hipUUID = hipUUID_t;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct hipDeviceProp_tR0600 {
    pub name: [::core::ffi::c_char; 256usize],
    pub uuid: hipUUID,
    pub luid: [::core::ffi::c_char; 8usize],
    pub luidDeviceNodeMask: ::core::ffi::c_uint,
    pub totalGlobalMem: usize,
    pub sharedMemPerBlock: usize,
    pub regsPerBlock: ::core::ffi::c_int,
    pub warpSize: ::core::ffi::c_int,
    pub memPitch: usize,
    pub maxThreadsPerBlock: ::core::ffi::c_int,
    pub maxThreadsDim: [::core::ffi::c_int; 3usize],
    pub maxGridSize: [::core::ffi::c_int; 3usize],
    pub clockRate: ::core::ffi::c_int,
    pub totalConstMem: usize,
    pub major: ::core::ffi::c_int,
    pub minor: ::core::ffi::c_int,
    pub textureAlignment: usize,
    pub texturePitchAlignment: usize,
    pub deviceOverlap: ::core::ffi::c_int,
    pub multiProcessorCount: ::core::ffi::c_int,
    pub kernelExecTimeoutEnabled: ::core::ffi::c_int,
    pub integrated: ::core::ffi::c_int,
    pub canMapHostMemory: ::core::ffi::c_int,
    pub computeMode: ::core::ffi::c_int,
    pub maxTexture1D: ::core::ffi::c_int,
    pub maxTexture1DMipmap: ::core::ffi::c_int,
    pub maxTexture1DLinear: ::core::ffi::c_int,
    pub maxTexture2D: [::core::ffi::c_int; 2usize],
    pub maxTexture2DMipmap: [::core::ffi::c_int; 2usize],
    pub maxTexture2DLinear: [::core::ffi::c_int; 3usize],
    pub maxTexture2DGather: [::core::ffi::c_int; 2usize],
    pub maxTexture3D: [::core::ffi::c_int; 3usize],
    pub maxTexture3DAlt: [::core::ffi::c_int; 3usize],
    pub maxTextureCubemap: ::core::ffi::c_int,
    pub maxTexture1DLayered: [::core::ffi::c_int; 2usize],
    pub maxTexture2DLayered: [::core::ffi::c_int; 3usize],
    pub maxTextureCubemapLayered: [::core::ffi::c_int; 2usize],
    pub maxSurface1D: ::core::ffi::c_int,
    pub maxSurface2D: [::core::ffi::c_int; 2usize],
    pub maxSurface3D: [::core::ffi::c_int; 3usize],
    pub maxSurface1DLayered: [::core::ffi::c_int; 2usize],
    pub maxSurface2DLayered: [::core::ffi::c_int; 3usize],
    pub maxSurfaceCubemap: ::core::ffi::c_int,
    pub maxSurfaceCubemapLayered: [::core::ffi::c_int; 2usize],
    pub surfaceAlignment: usize,
    pub concurrentKernels: ::core::ffi::c_int,
    pub ECCEnabled: ::core::ffi::c_int,
    pub pciBusID: ::core::ffi::c_int,
    pub pciDeviceID: ::core::ffi::c_int,
    pub pciDomainID: ::core::ffi::c_int,
    pub tccDriver: ::core::ffi::c_int,
    pub asyncEngineCount: ::core::ffi::c_int,
    pub unifiedAddressing: ::core::ffi::c_int,
    pub memoryClockRate: ::core::ffi::c_int,
    pub memoryBusWidth: ::core::ffi::c_int,
    pub l2CacheSize: ::core::ffi::c_int,
    pub persistingL2CacheMaxSize: ::core::ffi::c_int,
    pub maxThreadsPerMultiProcessor: ::core::ffi::c_int,
    pub streamPrioritiesSupported: ::core::ffi::c_int,
    pub globalL1CacheSupported: ::core::ffi::c_int,
    pub localL1CacheSupported: ::core::ffi::c_int,
    pub sharedMemPerMultiprocessor: usize,
    pub regsPerMultiprocessor: ::core::ffi::c_int,
    pub managedMemory: ::core::ffi::c_int,
    pub isMultiGpuBoard: ::core::ffi::c_int,
    pub multiGpuBoardGroupID: ::core::ffi::c_int,
    pub hostNativeAtomicSupported: ::core::ffi::c_int,
    pub singleToDoublePrecisionPerfRatio: ::core::ffi::c_int,
    pub pageableMemoryAccess: ::core::ffi::c_int,
    pub concurrentManagedAccess: ::core::ffi::c_int,
    pub computePreemptionSupported: ::core::ffi::c_int,
    pub canUseHostPointerForRegisteredMem: ::core::ffi::c_int,
    pub cooperativeLaunch: ::core::ffi::c_int,
    pub cooperativeMultiDeviceLaunch: ::core::ffi::c_int,
    pub sharedMemPerBlockOptin: usize,
    pub pageableMemoryAccessUsesHostPageTables: ::core::ffi::c_int,
    pub directManagedMemAccessFromHost: ::core::ffi::c_int,
    pub maxBlocksPerMultiProcessor: ::core::ffi::c_int,
    pub accessPolicyMaxWindowSize: ::core::ffi::c_int,
    pub reservedSharedMemPerBlock: usize,
    pub hostRegisterSupported: ::core::ffi::c_int,
    pub sparseHipArraySupported: ::core::ffi::c_int,
    pub hostRegisterReadOnlySupported: ::core::ffi::c_int,
    pub timelineSemaphoreInteropSupported: ::core::ffi::c_int,
    pub memoryPoolsSupported: ::core::ffi::c_int,
    pub gpuDirectRDMASupported: ::core::ffi::c_int,
    pub gpuDirectRDMAFlushWritesOptions: ::core::ffi::c_uint,
    pub gpuDirectRDMAWritesOrdering: ::core::ffi::c_int,
    pub memoryPoolSupportedHandleTypes: ::core::ffi::c_uint,
    pub deferredMappingHipArraySupported: ::core::ffi::c_int,
    pub ipcEventSupported: ::core::ffi::c_int,
    pub clusterLaunch: ::core::ffi::c_int,
    pub unifiedFunctionPointers: ::core::ffi::c_int,
    pub reserved: [::core::ffi::c_int; 63usize],
    pub hipReserved: [::core::ffi::c_int; 32usize],
    pub gcnArchName: [::core::ffi::c_char; 256usize],
    pub maxSharedMemoryPerMultiProcessor: usize,
    pub clockInstructionRate: ::core::ffi::c_int,
    pub arch: hipDeviceArch_t,
    pub hdpMemFlushCntl: *mut ::core::ffi::c_uint,
    pub hdpRegFlushCntl: *mut ::core::ffi::c_uint,
    pub cooperativeMultiDeviceUnmatchedFunc: ::core::ffi::c_int,
    pub cooperativeMultiDeviceUnmatchedGridDim: ::core::ffi::c_int,
    pub cooperativeMultiDeviceUnmatchedBlockDim: ::core::ffi::c_int,
    pub cooperativeMultiDeviceUnmatchedSharedMem: ::core::ffi::c_int,
    pub isLargeBar: ::core::ffi::c_int,
    pub asicRevision: ::core::ffi::c_int,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of hipDeviceProp_tR0600",
    ][::core::mem::size_of::<hipDeviceProp_tR0600>() - 1472usize];
    [
        "Alignment of hipDeviceProp_tR0600",
    ][::core::mem::align_of::<hipDeviceProp_tR0600>() - 8usize];
    [
        "Offset of field: hipDeviceProp_tR0600::name",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, name) - 0usize];
    [
        "Offset of field: hipDeviceProp_tR0600::uuid",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, uuid) - 256usize];
    [
        "Offset of field: hipDeviceProp_tR0600::luid",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, luid) - 272usize];
    [
        "Offset of field: hipDeviceProp_tR0600::luidDeviceNodeMask",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, luidDeviceNodeMask) - 280usize];
    [
        "Offset of field: hipDeviceProp_tR0600::totalGlobalMem",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, totalGlobalMem) - 288usize];
    [
        "Offset of field: hipDeviceProp_tR0600::sharedMemPerBlock",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, sharedMemPerBlock) - 296usize];
    [
        "Offset of field: hipDeviceProp_tR0600::regsPerBlock",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, regsPerBlock) - 304usize];
    [
        "Offset of field: hipDeviceProp_tR0600::warpSize",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, warpSize) - 308usize];
    [
        "Offset of field: hipDeviceProp_tR0600::memPitch",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, memPitch) - 312usize];
    [
        "Offset of field: hipDeviceProp_tR0600::maxThreadsPerBlock",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, maxThreadsPerBlock) - 320usize];
    [
        "Offset of field: hipDeviceProp_tR0600::maxThreadsDim",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, maxThreadsDim) - 324usize];
    [
        "Offset of field: hipDeviceProp_tR0600::maxGridSize",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, maxGridSize) - 336usize];
    [
        "Offset of field: hipDeviceProp_tR0600::clockRate",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, clockRate) - 348usize];
    [
        "Offset of field: hipDeviceProp_tR0600::totalConstMem",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, totalConstMem) - 352usize];
    [
        "Offset of field: hipDeviceProp_tR0600::major",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, major) - 360usize];
    [
        "Offset of field: hipDeviceProp_tR0600::minor",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, minor) - 364usize];
    [
        "Offset of field: hipDeviceProp_tR0600::textureAlignment",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, textureAlignment) - 368usize];
    [
        "Offset of field: hipDeviceProp_tR0600::texturePitchAlignment",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, texturePitchAlignment) - 376usize];
    [
        "Offset of field: hipDeviceProp_tR0600::deviceOverlap",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, deviceOverlap) - 384usize];
    [
        "Offset of field: hipDeviceProp_tR0600::multiProcessorCount",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, multiProcessorCount) - 388usize];
    [
        "Offset of field: hipDeviceProp_tR0600::kernelExecTimeoutEnabled",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, kernelExecTimeoutEnabled)
        - 392usize];
    [
        "Offset of field: hipDeviceProp_tR0600::integrated",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, integrated) - 396usize];
    [
        "Offset of field: hipDeviceProp_tR0600::canMapHostMemory",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, canMapHostMemory) - 400usize];
    [
        "Offset of field: hipDeviceProp_tR0600::computeMode",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, computeMode) - 404usize];
    [
        "Offset of field: hipDeviceProp_tR0600::maxTexture1D",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, maxTexture1D) - 408usize];
    [
        "Offset of field: hipDeviceProp_tR0600::maxTexture1DMipmap",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, maxTexture1DMipmap) - 412usize];
    [
        "Offset of field: hipDeviceProp_tR0600::maxTexture1DLinear",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, maxTexture1DLinear) - 416usize];
    [
        "Offset of field: hipDeviceProp_tR0600::maxTexture2D",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, maxTexture2D) - 420usize];
    [
        "Offset of field: hipDeviceProp_tR0600::maxTexture2DMipmap",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, maxTexture2DMipmap) - 428usize];
    [
        "Offset of field: hipDeviceProp_tR0600::maxTexture2DLinear",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, maxTexture2DLinear) - 436usize];
    [
        "Offset of field: hipDeviceProp_tR0600::maxTexture2DGather",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, maxTexture2DGather) - 448usize];
    [
        "Offset of field: hipDeviceProp_tR0600::maxTexture3D",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, maxTexture3D) - 456usize];
    [
        "Offset of field: hipDeviceProp_tR0600::maxTexture3DAlt",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, maxTexture3DAlt) - 468usize];
    [
        "Offset of field: hipDeviceProp_tR0600::maxTextureCubemap",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, maxTextureCubemap) - 480usize];
    [
        "Offset of field: hipDeviceProp_tR0600::maxTexture1DLayered",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, maxTexture1DLayered) - 484usize];
    [
        "Offset of field: hipDeviceProp_tR0600::maxTexture2DLayered",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, maxTexture2DLayered) - 492usize];
    [
        "Offset of field: hipDeviceProp_tR0600::maxTextureCubemapLayered",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, maxTextureCubemapLayered)
        - 504usize];
    [
        "Offset of field: hipDeviceProp_tR0600::maxSurface1D",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, maxSurface1D) - 512usize];
    [
        "Offset of field: hipDeviceProp_tR0600::maxSurface2D",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, maxSurface2D) - 516usize];
    [
        "Offset of field: hipDeviceProp_tR0600::maxSurface3D",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, maxSurface3D) - 524usize];
    [
        "Offset of field: hipDeviceProp_tR0600::maxSurface1DLayered",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, maxSurface1DLayered) - 536usize];
    [
        "Offset of field: hipDeviceProp_tR0600::maxSurface2DLayered",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, maxSurface2DLayered) - 544usize];
    [
        "Offset of field: hipDeviceProp_tR0600::maxSurfaceCubemap",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, maxSurfaceCubemap) - 556usize];
    [
        "Offset of field: hipDeviceProp_tR0600::maxSurfaceCubemapLayered",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, maxSurfaceCubemapLayered)
        - 560usize];
    [
        "Offset of field: hipDeviceProp_tR0600::surfaceAlignment",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, surfaceAlignment) - 568usize];
    [
        "Offset of field: hipDeviceProp_tR0600::concurrentKernels",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, concurrentKernels) - 576usize];
    [
        "Offset of field: hipDeviceProp_tR0600::ECCEnabled",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, ECCEnabled) - 580usize];
    [
        "Offset of field: hipDeviceProp_tR0600::pciBusID",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, pciBusID) - 584usize];
    [
        "Offset of field: hipDeviceProp_tR0600::pciDeviceID",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, pciDeviceID) - 588usize];
    [
        "Offset of field: hipDeviceProp_tR0600::pciDomainID",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, pciDomainID) - 592usize];
    [
        "Offset of field: hipDeviceProp_tR0600::tccDriver",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, tccDriver) - 596usize];
    [
        "Offset of field: hipDeviceProp_tR0600::asyncEngineCount",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, asyncEngineCount) - 600usize];
    [
        "Offset of field: hipDeviceProp_tR0600::unifiedAddressing",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, unifiedAddressing) - 604usize];
    [
        "Offset of field: hipDeviceProp_tR0600::memoryClockRate",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, memoryClockRate) - 608usize];
    [
        "Offset of field: hipDeviceProp_tR0600::memoryBusWidth",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, memoryBusWidth) - 612usize];
    [
        "Offset of field: hipDeviceProp_tR0600::l2CacheSize",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, l2CacheSize) - 616usize];
    [
        "Offset of field: hipDeviceProp_tR0600::persistingL2CacheMaxSize",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, persistingL2CacheMaxSize)
        - 620usize];
    [
        "Offset of field: hipDeviceProp_tR0600::maxThreadsPerMultiProcessor",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, maxThreadsPerMultiProcessor)
        - 624usize];
    [
        "Offset of field: hipDeviceProp_tR0600::streamPrioritiesSupported",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, streamPrioritiesSupported)
        - 628usize];
    [
        "Offset of field: hipDeviceProp_tR0600::globalL1CacheSupported",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, globalL1CacheSupported) - 632usize];
    [
        "Offset of field: hipDeviceProp_tR0600::localL1CacheSupported",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, localL1CacheSupported) - 636usize];
    [
        "Offset of field: hipDeviceProp_tR0600::sharedMemPerMultiprocessor",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, sharedMemPerMultiprocessor)
        - 640usize];
    [
        "Offset of field: hipDeviceProp_tR0600::regsPerMultiprocessor",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, regsPerMultiprocessor) - 648usize];
    [
        "Offset of field: hipDeviceProp_tR0600::managedMemory",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, managedMemory) - 652usize];
    [
        "Offset of field: hipDeviceProp_tR0600::isMultiGpuBoard",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, isMultiGpuBoard) - 656usize];
    [
        "Offset of field: hipDeviceProp_tR0600::multiGpuBoardGroupID",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, multiGpuBoardGroupID) - 660usize];
    [
        "Offset of field: hipDeviceProp_tR0600::hostNativeAtomicSupported",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, hostNativeAtomicSupported)
        - 664usize];
    [
        "Offset of field: hipDeviceProp_tR0600::singleToDoublePrecisionPerfRatio",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, singleToDoublePrecisionPerfRatio)
        - 668usize];
    [
        "Offset of field: hipDeviceProp_tR0600::pageableMemoryAccess",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, pageableMemoryAccess) - 672usize];
    [
        "Offset of field: hipDeviceProp_tR0600::concurrentManagedAccess",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, concurrentManagedAccess) - 676usize];
    [
        "Offset of field: hipDeviceProp_tR0600::computePreemptionSupported",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, computePreemptionSupported)
        - 680usize];
    [
        "Offset of field: hipDeviceProp_tR0600::canUseHostPointerForRegisteredMem",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, canUseHostPointerForRegisteredMem)
        - 684usize];
    [
        "Offset of field: hipDeviceProp_tR0600::cooperativeLaunch",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, cooperativeLaunch) - 688usize];
    [
        "Offset of field: hipDeviceProp_tR0600::cooperativeMultiDeviceLaunch",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, cooperativeMultiDeviceLaunch)
        - 692usize];
    [
        "Offset of field: hipDeviceProp_tR0600::sharedMemPerBlockOptin",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, sharedMemPerBlockOptin) - 696usize];
    [
        "Offset of field: hipDeviceProp_tR0600::pageableMemoryAccessUsesHostPageTables",
    ][::core::mem::offset_of!(
        hipDeviceProp_tR0600, pageableMemoryAccessUsesHostPageTables
    ) - 704usize];
    [
        "Offset of field: hipDeviceProp_tR0600::directManagedMemAccessFromHost",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, directManagedMemAccessFromHost)
        - 708usize];
    [
        "Offset of field: hipDeviceProp_tR0600::maxBlocksPerMultiProcessor",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, maxBlocksPerMultiProcessor)
        - 712usize];
    [
        "Offset of field: hipDeviceProp_tR0600::accessPolicyMaxWindowSize",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, accessPolicyMaxWindowSize)
        - 716usize];
    [
        "Offset of field: hipDeviceProp_tR0600::reservedSharedMemPerBlock",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, reservedSharedMemPerBlock)
        - 720usize];
    [
        "Offset of field: hipDeviceProp_tR0600::hostRegisterSupported",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, hostRegisterSupported) - 728usize];
    [
        "Offset of field: hipDeviceProp_tR0600::sparseHipArraySupported",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, sparseHipArraySupported) - 732usize];
    [
        "Offset of field: hipDeviceProp_tR0600::hostRegisterReadOnlySupported",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, hostRegisterReadOnlySupported)
        - 736usize];
    [
        "Offset of field: hipDeviceProp_tR0600::timelineSemaphoreInteropSupported",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, timelineSemaphoreInteropSupported)
        - 740usize];
    [
        "Offset of field: hipDeviceProp_tR0600::memoryPoolsSupported",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, memoryPoolsSupported) - 744usize];
    [
        "Offset of field: hipDeviceProp_tR0600::gpuDirectRDMASupported",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, gpuDirectRDMASupported) - 748usize];
    [
        "Offset of field: hipDeviceProp_tR0600::gpuDirectRDMAFlushWritesOptions",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, gpuDirectRDMAFlushWritesOptions)
        - 752usize];
    [
        "Offset of field: hipDeviceProp_tR0600::gpuDirectRDMAWritesOrdering",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, gpuDirectRDMAWritesOrdering)
        - 756usize];
    [
        "Offset of field: hipDeviceProp_tR0600::memoryPoolSupportedHandleTypes",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, memoryPoolSupportedHandleTypes)
        - 760usize];
    [
        "Offset of field: hipDeviceProp_tR0600::deferredMappingHipArraySupported",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, deferredMappingHipArraySupported)
        - 764usize];
    [
        "Offset of field: hipDeviceProp_tR0600::ipcEventSupported",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, ipcEventSupported) - 768usize];
    [
        "Offset of field: hipDeviceProp_tR0600::clusterLaunch",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, clusterLaunch) - 772usize];
    [
        "Offset of field: hipDeviceProp_tR0600::unifiedFunctionPointers",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, unifiedFunctionPointers) - 776usize];
    [
        "Offset of field: hipDeviceProp_tR0600::reserved",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, reserved) - 780usize];
    [
        "Offset of field: hipDeviceProp_tR0600::hipReserved",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, hipReserved) - 1032usize];
    [
        "Offset of field: hipDeviceProp_tR0600::gcnArchName",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, gcnArchName) - 1160usize];
    [
        "Offset of field: hipDeviceProp_tR0600::maxSharedMemoryPerMultiProcessor",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, maxSharedMemoryPerMultiProcessor)
        - 1416usize];
    [
        "Offset of field: hipDeviceProp_tR0600::clockInstructionRate",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, clockInstructionRate) - 1424usize];
    [
        "Offset of field: hipDeviceProp_tR0600::arch",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, arch) - 1428usize];
    [
        "Offset of field: hipDeviceProp_tR0600::hdpMemFlushCntl",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, hdpMemFlushCntl) - 1432usize];
    [
        "Offset of field: hipDeviceProp_tR0600::hdpRegFlushCntl",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, hdpRegFlushCntl) - 1440usize];
    [
        "Offset of field: hipDeviceProp_tR0600::cooperativeMultiDeviceUnmatchedFunc",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, cooperativeMultiDeviceUnmatchedFunc)
        - 1448usize];
    [
        "Offset of field: hipDeviceProp_tR0600::cooperativeMultiDeviceUnmatchedGridDim",
    ][::core::mem::offset_of!(
        hipDeviceProp_tR0600, cooperativeMultiDeviceUnmatchedGridDim
    ) - 1452usize];
    [
        "Offset of field: hipDeviceProp_tR0600::cooperativeMultiDeviceUnmatchedBlockDim",
    ][::core::mem::offset_of!(
        hipDeviceProp_tR0600, cooperativeMultiDeviceUnmatchedBlockDim
    ) - 1456usize];
    [
        "Offset of field: hipDeviceProp_tR0600::cooperativeMultiDeviceUnmatchedSharedMem",
    ][::core::mem::offset_of!(
        hipDeviceProp_tR0600, cooperativeMultiDeviceUnmatchedSharedMem
    ) - 1460usize];
    [
        "Offset of field: hipDeviceProp_tR0600::isLargeBar",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, isLargeBar) - 1464usize];
    [
        "Offset of field: hipDeviceProp_tR0600::asicRevision",
    ][::core::mem::offset_of!(hipDeviceProp_tR0600, asicRevision) - 1468usize];
};
impl Default for hipDeviceProp_tR0600 {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
impl hipMemoryType {
    pub const hipMemoryTypeUnregistered: hipMemoryType = hipMemoryType(0);
    pub const hipMemoryTypeHost: hipMemoryType = hipMemoryType(1);
    pub const hipMemoryTypeDevice: hipMemoryType = hipMemoryType(2);
    pub const hipMemoryTypeManaged: hipMemoryType = hipMemoryType(3);
    pub const hipMemoryTypeArray: hipMemoryType = hipMemoryType(10);
    pub const hipMemoryTypeUnified: hipMemoryType = hipMemoryType(11);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipMemoryType(pub ::core::ffi::c_uint);
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct hipPointerAttribute_t {
    pub type_: hipMemoryType,
    pub device: ::core::ffi::c_int,
    pub devicePointer: *mut ::core::ffi::c_void,
    pub hostPointer: *mut ::core::ffi::c_void,
    pub isManaged: ::core::ffi::c_int,
    pub allocationFlags: ::core::ffi::c_uint,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of hipPointerAttribute_t",
    ][::core::mem::size_of::<hipPointerAttribute_t>() - 32usize];
    [
        "Alignment of hipPointerAttribute_t",
    ][::core::mem::align_of::<hipPointerAttribute_t>() - 8usize];
    [
        "Offset of field: hipPointerAttribute_t::type_",
    ][::core::mem::offset_of!(hipPointerAttribute_t, type_) - 0usize];
    [
        "Offset of field: hipPointerAttribute_t::device",
    ][::core::mem::offset_of!(hipPointerAttribute_t, device) - 4usize];
    [
        "Offset of field: hipPointerAttribute_t::devicePointer",
    ][::core::mem::offset_of!(hipPointerAttribute_t, devicePointer) - 8usize];
    [
        "Offset of field: hipPointerAttribute_t::hostPointer",
    ][::core::mem::offset_of!(hipPointerAttribute_t, hostPointer) - 16usize];
    [
        "Offset of field: hipPointerAttribute_t::isManaged",
    ][::core::mem::offset_of!(hipPointerAttribute_t, isManaged) - 24usize];
    [
        "Offset of field: hipPointerAttribute_t::allocationFlags",
    ][::core::mem::offset_of!(hipPointerAttribute_t, allocationFlags) - 28usize];
};
impl Default for hipPointerAttribute_t {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
impl hipError_t {
    pub const hipSuccess: hipError_t = hipError_t(0);
    pub const hipErrorInvalidValue: hipError_t = hipError_t(1);
    pub const hipErrorOutOfMemory: hipError_t = hipError_t(2);
    pub const hipErrorMemoryAllocation: hipError_t = hipError_t(2);
    pub const hipErrorNotInitialized: hipError_t = hipError_t(3);
    pub const hipErrorInitializationError: hipError_t = hipError_t(3);
    pub const hipErrorDeinitialized: hipError_t = hipError_t(4);
    pub const hipErrorProfilerDisabled: hipError_t = hipError_t(5);
    pub const hipErrorProfilerNotInitialized: hipError_t = hipError_t(6);
    pub const hipErrorProfilerAlreadyStarted: hipError_t = hipError_t(7);
    pub const hipErrorProfilerAlreadyStopped: hipError_t = hipError_t(8);
    pub const hipErrorInvalidConfiguration: hipError_t = hipError_t(9);
    pub const hipErrorInvalidPitchValue: hipError_t = hipError_t(12);
    pub const hipErrorInvalidSymbol: hipError_t = hipError_t(13);
    pub const hipErrorInvalidDevicePointer: hipError_t = hipError_t(17);
    pub const hipErrorInvalidMemcpyDirection: hipError_t = hipError_t(21);
    pub const hipErrorInsufficientDriver: hipError_t = hipError_t(35);
    pub const hipErrorMissingConfiguration: hipError_t = hipError_t(52);
    pub const hipErrorPriorLaunchFailure: hipError_t = hipError_t(53);
    pub const hipErrorInvalidDeviceFunction: hipError_t = hipError_t(98);
    pub const hipErrorNoDevice: hipError_t = hipError_t(100);
    pub const hipErrorInvalidDevice: hipError_t = hipError_t(101);
    pub const hipErrorInvalidImage: hipError_t = hipError_t(200);
    pub const hipErrorInvalidContext: hipError_t = hipError_t(201);
    pub const hipErrorContextAlreadyCurrent: hipError_t = hipError_t(202);
    pub const hipErrorMapFailed: hipError_t = hipError_t(205);
    pub const hipErrorMapBufferObjectFailed: hipError_t = hipError_t(205);
    pub const hipErrorUnmapFailed: hipError_t = hipError_t(206);
    pub const hipErrorArrayIsMapped: hipError_t = hipError_t(207);
    pub const hipErrorAlreadyMapped: hipError_t = hipError_t(208);
    pub const hipErrorNoBinaryForGpu: hipError_t = hipError_t(209);
    pub const hipErrorAlreadyAcquired: hipError_t = hipError_t(210);
    pub const hipErrorNotMapped: hipError_t = hipError_t(211);
    pub const hipErrorNotMappedAsArray: hipError_t = hipError_t(212);
    pub const hipErrorNotMappedAsPointer: hipError_t = hipError_t(213);
    pub const hipErrorECCNotCorrectable: hipError_t = hipError_t(214);
    pub const hipErrorUnsupportedLimit: hipError_t = hipError_t(215);
    pub const hipErrorContextAlreadyInUse: hipError_t = hipError_t(216);
    pub const hipErrorPeerAccessUnsupported: hipError_t = hipError_t(217);
    pub const hipErrorInvalidKernelFile: hipError_t = hipError_t(218);
    pub const hipErrorInvalidGraphicsContext: hipError_t = hipError_t(219);
    pub const hipErrorInvalidSource: hipError_t = hipError_t(300);
    pub const hipErrorFileNotFound: hipError_t = hipError_t(301);
    pub const hipErrorSharedObjectSymbolNotFound: hipError_t = hipError_t(302);
    pub const hipErrorSharedObjectInitFailed: hipError_t = hipError_t(303);
    pub const hipErrorOperatingSystem: hipError_t = hipError_t(304);
    pub const hipErrorInvalidHandle: hipError_t = hipError_t(400);
    pub const hipErrorInvalidResourceHandle: hipError_t = hipError_t(400);
    pub const hipErrorIllegalState: hipError_t = hipError_t(401);
    pub const hipErrorNotFound: hipError_t = hipError_t(500);
    pub const hipErrorNotReady: hipError_t = hipError_t(600);
    pub const hipErrorIllegalAddress: hipError_t = hipError_t(700);
    pub const hipErrorLaunchOutOfResources: hipError_t = hipError_t(701);
    pub const hipErrorLaunchTimeOut: hipError_t = hipError_t(702);
    pub const hipErrorPeerAccessAlreadyEnabled: hipError_t = hipError_t(704);
    pub const hipErrorPeerAccessNotEnabled: hipError_t = hipError_t(705);
    pub const hipErrorSetOnActiveProcess: hipError_t = hipError_t(708);
    pub const hipErrorContextIsDestroyed: hipError_t = hipError_t(709);
    pub const hipErrorAssert: hipError_t = hipError_t(710);
    pub const hipErrorHostMemoryAlreadyRegistered: hipError_t = hipError_t(712);
    pub const hipErrorHostMemoryNotRegistered: hipError_t = hipError_t(713);
    pub const hipErrorLaunchFailure: hipError_t = hipError_t(719);
    pub const hipErrorCooperativeLaunchTooLarge: hipError_t = hipError_t(720);
    pub const hipErrorNotSupported: hipError_t = hipError_t(801);
    pub const hipErrorStreamCaptureUnsupported: hipError_t = hipError_t(900);
    pub const hipErrorStreamCaptureInvalidated: hipError_t = hipError_t(901);
    pub const hipErrorStreamCaptureMerge: hipError_t = hipError_t(902);
    pub const hipErrorStreamCaptureUnmatched: hipError_t = hipError_t(903);
    pub const hipErrorStreamCaptureUnjoined: hipError_t = hipError_t(904);
    pub const hipErrorStreamCaptureIsolation: hipError_t = hipError_t(905);
    pub const hipErrorStreamCaptureImplicit: hipError_t = hipError_t(906);
    pub const hipErrorCapturedEvent: hipError_t = hipError_t(907);
    pub const hipErrorStreamCaptureWrongThread: hipError_t = hipError_t(908);
    pub const hipErrorGraphExecUpdateFailure: hipError_t = hipError_t(910);
    pub const hipErrorInvalidChannelDescriptor: hipError_t = hipError_t(911);
    pub const hipErrorInvalidTexture: hipError_t = hipError_t(912);
    pub const hipErrorUnknown: hipError_t = hipError_t(999);
    pub const hipErrorRuntimeMemory: hipError_t = hipError_t(1052);
    pub const hipErrorRuntimeOther: hipError_t = hipError_t(1053);
    pub const hipErrorTbd: hipError_t = hipError_t(1054);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipError_t(pub ::core::ffi::c_uint);
impl hipDeviceAttribute_t {
    pub const hipDeviceAttributeCudaCompatibleBegin: hipDeviceAttribute_t = hipDeviceAttribute_t(
        0,
    );
    pub const hipDeviceAttributeEccEnabled: hipDeviceAttribute_t = hipDeviceAttribute_t(
        0,
    );
    pub const hipDeviceAttributeAccessPolicyMaxWindowSize: hipDeviceAttribute_t = hipDeviceAttribute_t(
        1,
    );
    pub const hipDeviceAttributeAsyncEngineCount: hipDeviceAttribute_t = hipDeviceAttribute_t(
        2,
    );
    pub const hipDeviceAttributeCanMapHostMemory: hipDeviceAttribute_t = hipDeviceAttribute_t(
        3,
    );
    pub const hipDeviceAttributeCanUseHostPointerForRegisteredMem: hipDeviceAttribute_t = hipDeviceAttribute_t(
        4,
    );
    pub const hipDeviceAttributeClockRate: hipDeviceAttribute_t = hipDeviceAttribute_t(
        5,
    );
    pub const hipDeviceAttributeComputeMode: hipDeviceAttribute_t = hipDeviceAttribute_t(
        6,
    );
    pub const hipDeviceAttributeComputePreemptionSupported: hipDeviceAttribute_t = hipDeviceAttribute_t(
        7,
    );
    pub const hipDeviceAttributeConcurrentKernels: hipDeviceAttribute_t = hipDeviceAttribute_t(
        8,
    );
    pub const hipDeviceAttributeConcurrentManagedAccess: hipDeviceAttribute_t = hipDeviceAttribute_t(
        9,
    );
    pub const hipDeviceAttributeCooperativeLaunch: hipDeviceAttribute_t = hipDeviceAttribute_t(
        10,
    );
    pub const hipDeviceAttributeCooperativeMultiDeviceLaunch: hipDeviceAttribute_t = hipDeviceAttribute_t(
        11,
    );
    pub const hipDeviceAttributeDeviceOverlap: hipDeviceAttribute_t = hipDeviceAttribute_t(
        12,
    );
    pub const hipDeviceAttributeDirectManagedMemAccessFromHost: hipDeviceAttribute_t = hipDeviceAttribute_t(
        13,
    );
    pub const hipDeviceAttributeGlobalL1CacheSupported: hipDeviceAttribute_t = hipDeviceAttribute_t(
        14,
    );
    pub const hipDeviceAttributeHostNativeAtomicSupported: hipDeviceAttribute_t = hipDeviceAttribute_t(
        15,
    );
    pub const hipDeviceAttributeIntegrated: hipDeviceAttribute_t = hipDeviceAttribute_t(
        16,
    );
    pub const hipDeviceAttributeIsMultiGpuBoard: hipDeviceAttribute_t = hipDeviceAttribute_t(
        17,
    );
    pub const hipDeviceAttributeKernelExecTimeout: hipDeviceAttribute_t = hipDeviceAttribute_t(
        18,
    );
    pub const hipDeviceAttributeL2CacheSize: hipDeviceAttribute_t = hipDeviceAttribute_t(
        19,
    );
    pub const hipDeviceAttributeLocalL1CacheSupported: hipDeviceAttribute_t = hipDeviceAttribute_t(
        20,
    );
    pub const hipDeviceAttributeLuid: hipDeviceAttribute_t = hipDeviceAttribute_t(21);
    pub const hipDeviceAttributeLuidDeviceNodeMask: hipDeviceAttribute_t = hipDeviceAttribute_t(
        22,
    );
    pub const hipDeviceAttributeComputeCapabilityMajor: hipDeviceAttribute_t = hipDeviceAttribute_t(
        23,
    );
    pub const hipDeviceAttributeManagedMemory: hipDeviceAttribute_t = hipDeviceAttribute_t(
        24,
    );
    pub const hipDeviceAttributeMaxBlocksPerMultiProcessor: hipDeviceAttribute_t = hipDeviceAttribute_t(
        25,
    );
    pub const hipDeviceAttributeMaxBlockDimX: hipDeviceAttribute_t = hipDeviceAttribute_t(
        26,
    );
    pub const hipDeviceAttributeMaxBlockDimY: hipDeviceAttribute_t = hipDeviceAttribute_t(
        27,
    );
    pub const hipDeviceAttributeMaxBlockDimZ: hipDeviceAttribute_t = hipDeviceAttribute_t(
        28,
    );
    pub const hipDeviceAttributeMaxGridDimX: hipDeviceAttribute_t = hipDeviceAttribute_t(
        29,
    );
    pub const hipDeviceAttributeMaxGridDimY: hipDeviceAttribute_t = hipDeviceAttribute_t(
        30,
    );
    pub const hipDeviceAttributeMaxGridDimZ: hipDeviceAttribute_t = hipDeviceAttribute_t(
        31,
    );
    pub const hipDeviceAttributeMaxSurface1D: hipDeviceAttribute_t = hipDeviceAttribute_t(
        32,
    );
    pub const hipDeviceAttributeMaxSurface1DLayered: hipDeviceAttribute_t = hipDeviceAttribute_t(
        33,
    );
    pub const hipDeviceAttributeMaxSurface2D: hipDeviceAttribute_t = hipDeviceAttribute_t(
        34,
    );
    pub const hipDeviceAttributeMaxSurface2DLayered: hipDeviceAttribute_t = hipDeviceAttribute_t(
        35,
    );
    pub const hipDeviceAttributeMaxSurface3D: hipDeviceAttribute_t = hipDeviceAttribute_t(
        36,
    );
    pub const hipDeviceAttributeMaxSurfaceCubemap: hipDeviceAttribute_t = hipDeviceAttribute_t(
        37,
    );
    pub const hipDeviceAttributeMaxSurfaceCubemapLayered: hipDeviceAttribute_t = hipDeviceAttribute_t(
        38,
    );
    pub const hipDeviceAttributeMaxTexture1DWidth: hipDeviceAttribute_t = hipDeviceAttribute_t(
        39,
    );
    pub const hipDeviceAttributeMaxTexture1DLayered: hipDeviceAttribute_t = hipDeviceAttribute_t(
        40,
    );
    pub const hipDeviceAttributeMaxTexture1DLinear: hipDeviceAttribute_t = hipDeviceAttribute_t(
        41,
    );
    pub const hipDeviceAttributeMaxTexture1DMipmap: hipDeviceAttribute_t = hipDeviceAttribute_t(
        42,
    );
    pub const hipDeviceAttributeMaxTexture2DWidth: hipDeviceAttribute_t = hipDeviceAttribute_t(
        43,
    );
    pub const hipDeviceAttributeMaxTexture2DHeight: hipDeviceAttribute_t = hipDeviceAttribute_t(
        44,
    );
    pub const hipDeviceAttributeMaxTexture2DGather: hipDeviceAttribute_t = hipDeviceAttribute_t(
        45,
    );
    pub const hipDeviceAttributeMaxTexture2DLayered: hipDeviceAttribute_t = hipDeviceAttribute_t(
        46,
    );
    pub const hipDeviceAttributeMaxTexture2DLinear: hipDeviceAttribute_t = hipDeviceAttribute_t(
        47,
    );
    pub const hipDeviceAttributeMaxTexture2DMipmap: hipDeviceAttribute_t = hipDeviceAttribute_t(
        48,
    );
    pub const hipDeviceAttributeMaxTexture3DWidth: hipDeviceAttribute_t = hipDeviceAttribute_t(
        49,
    );
    pub const hipDeviceAttributeMaxTexture3DHeight: hipDeviceAttribute_t = hipDeviceAttribute_t(
        50,
    );
    pub const hipDeviceAttributeMaxTexture3DDepth: hipDeviceAttribute_t = hipDeviceAttribute_t(
        51,
    );
    pub const hipDeviceAttributeMaxTexture3DAlt: hipDeviceAttribute_t = hipDeviceAttribute_t(
        52,
    );
    pub const hipDeviceAttributeMaxTextureCubemap: hipDeviceAttribute_t = hipDeviceAttribute_t(
        53,
    );
    pub const hipDeviceAttributeMaxTextureCubemapLayered: hipDeviceAttribute_t = hipDeviceAttribute_t(
        54,
    );
    pub const hipDeviceAttributeMaxThreadsDim: hipDeviceAttribute_t = hipDeviceAttribute_t(
        55,
    );
    pub const hipDeviceAttributeMaxThreadsPerBlock: hipDeviceAttribute_t = hipDeviceAttribute_t(
        56,
    );
    pub const hipDeviceAttributeMaxThreadsPerMultiProcessor: hipDeviceAttribute_t = hipDeviceAttribute_t(
        57,
    );
    pub const hipDeviceAttributeMaxPitch: hipDeviceAttribute_t = hipDeviceAttribute_t(
        58,
    );
    pub const hipDeviceAttributeMemoryBusWidth: hipDeviceAttribute_t = hipDeviceAttribute_t(
        59,
    );
    pub const hipDeviceAttributeMemoryClockRate: hipDeviceAttribute_t = hipDeviceAttribute_t(
        60,
    );
    pub const hipDeviceAttributeComputeCapabilityMinor: hipDeviceAttribute_t = hipDeviceAttribute_t(
        61,
    );
    pub const hipDeviceAttributeMultiGpuBoardGroupID: hipDeviceAttribute_t = hipDeviceAttribute_t(
        62,
    );
    pub const hipDeviceAttributeMultiprocessorCount: hipDeviceAttribute_t = hipDeviceAttribute_t(
        63,
    );
    pub const hipDeviceAttributeUnused1: hipDeviceAttribute_t = hipDeviceAttribute_t(64);
    pub const hipDeviceAttributePageableMemoryAccess: hipDeviceAttribute_t = hipDeviceAttribute_t(
        65,
    );
    pub const hipDeviceAttributePageableMemoryAccessUsesHostPageTables: hipDeviceAttribute_t = hipDeviceAttribute_t(
        66,
    );
    pub const hipDeviceAttributePciBusId: hipDeviceAttribute_t = hipDeviceAttribute_t(
        67,
    );
    pub const hipDeviceAttributePciDeviceId: hipDeviceAttribute_t = hipDeviceAttribute_t(
        68,
    );
    pub const hipDeviceAttributePciDomainId: hipDeviceAttribute_t = hipDeviceAttribute_t(
        69,
    );
    pub const hipDeviceAttributePciDomainID: hipDeviceAttribute_t = hipDeviceAttribute_t(
        69,
    );
    pub const hipDeviceAttributePersistingL2CacheMaxSize: hipDeviceAttribute_t = hipDeviceAttribute_t(
        70,
    );
    pub const hipDeviceAttributeMaxRegistersPerBlock: hipDeviceAttribute_t = hipDeviceAttribute_t(
        71,
    );
    pub const hipDeviceAttributeMaxRegistersPerMultiprocessor: hipDeviceAttribute_t = hipDeviceAttribute_t(
        72,
    );
    pub const hipDeviceAttributeReservedSharedMemPerBlock: hipDeviceAttribute_t = hipDeviceAttribute_t(
        73,
    );
    pub const hipDeviceAttributeMaxSharedMemoryPerBlock: hipDeviceAttribute_t = hipDeviceAttribute_t(
        74,
    );
    pub const hipDeviceAttributeSharedMemPerBlockOptin: hipDeviceAttribute_t = hipDeviceAttribute_t(
        75,
    );
    pub const hipDeviceAttributeSharedMemPerMultiprocessor: hipDeviceAttribute_t = hipDeviceAttribute_t(
        76,
    );
    pub const hipDeviceAttributeSingleToDoublePrecisionPerfRatio: hipDeviceAttribute_t = hipDeviceAttribute_t(
        77,
    );
    pub const hipDeviceAttributeStreamPrioritiesSupported: hipDeviceAttribute_t = hipDeviceAttribute_t(
        78,
    );
    pub const hipDeviceAttributeSurfaceAlignment: hipDeviceAttribute_t = hipDeviceAttribute_t(
        79,
    );
    pub const hipDeviceAttributeTccDriver: hipDeviceAttribute_t = hipDeviceAttribute_t(
        80,
    );
    pub const hipDeviceAttributeTextureAlignment: hipDeviceAttribute_t = hipDeviceAttribute_t(
        81,
    );
    pub const hipDeviceAttributeTexturePitchAlignment: hipDeviceAttribute_t = hipDeviceAttribute_t(
        82,
    );
    pub const hipDeviceAttributeTotalConstantMemory: hipDeviceAttribute_t = hipDeviceAttribute_t(
        83,
    );
    pub const hipDeviceAttributeTotalGlobalMem: hipDeviceAttribute_t = hipDeviceAttribute_t(
        84,
    );
    pub const hipDeviceAttributeUnifiedAddressing: hipDeviceAttribute_t = hipDeviceAttribute_t(
        85,
    );
    pub const hipDeviceAttributeUnused2: hipDeviceAttribute_t = hipDeviceAttribute_t(86);
    pub const hipDeviceAttributeWarpSize: hipDeviceAttribute_t = hipDeviceAttribute_t(
        87,
    );
    pub const hipDeviceAttributeMemoryPoolsSupported: hipDeviceAttribute_t = hipDeviceAttribute_t(
        88,
    );
    pub const hipDeviceAttributeVirtualMemoryManagementSupported: hipDeviceAttribute_t = hipDeviceAttribute_t(
        89,
    );
    pub const hipDeviceAttributeHostRegisterSupported: hipDeviceAttribute_t = hipDeviceAttribute_t(
        90,
    );
    pub const hipDeviceAttributeMemoryPoolSupportedHandleTypes: hipDeviceAttribute_t = hipDeviceAttribute_t(
        91,
    );
    pub const hipDeviceAttributeHostNumaId: hipDeviceAttribute_t = hipDeviceAttribute_t(
        92,
    );
    pub const hipDeviceAttributeCudaCompatibleEnd: hipDeviceAttribute_t = hipDeviceAttribute_t(
        9999,
    );
    pub const hipDeviceAttributeAmdSpecificBegin: hipDeviceAttribute_t = hipDeviceAttribute_t(
        10000,
    );
    pub const hipDeviceAttributeClockInstructionRate: hipDeviceAttribute_t = hipDeviceAttribute_t(
        10000,
    );
    pub const hipDeviceAttributeUnused3: hipDeviceAttribute_t = hipDeviceAttribute_t(
        10001,
    );
    pub const hipDeviceAttributeMaxSharedMemoryPerMultiprocessor: hipDeviceAttribute_t = hipDeviceAttribute_t(
        10002,
    );
    pub const hipDeviceAttributeUnused4: hipDeviceAttribute_t = hipDeviceAttribute_t(
        10003,
    );
    pub const hipDeviceAttributeUnused5: hipDeviceAttribute_t = hipDeviceAttribute_t(
        10004,
    );
    pub const hipDeviceAttributeHdpMemFlushCntl: hipDeviceAttribute_t = hipDeviceAttribute_t(
        10005,
    );
    pub const hipDeviceAttributeHdpRegFlushCntl: hipDeviceAttribute_t = hipDeviceAttribute_t(
        10006,
    );
    pub const hipDeviceAttributeCooperativeMultiDeviceUnmatchedFunc: hipDeviceAttribute_t = hipDeviceAttribute_t(
        10007,
    );
    pub const hipDeviceAttributeCooperativeMultiDeviceUnmatchedGridDim: hipDeviceAttribute_t = hipDeviceAttribute_t(
        10008,
    );
    pub const hipDeviceAttributeCooperativeMultiDeviceUnmatchedBlockDim: hipDeviceAttribute_t = hipDeviceAttribute_t(
        10009,
    );
    pub const hipDeviceAttributeCooperativeMultiDeviceUnmatchedSharedMem: hipDeviceAttribute_t = hipDeviceAttribute_t(
        10010,
    );
    pub const hipDeviceAttributeIsLargeBar: hipDeviceAttribute_t = hipDeviceAttribute_t(
        10011,
    );
    pub const hipDeviceAttributeAsicRevision: hipDeviceAttribute_t = hipDeviceAttribute_t(
        10012,
    );
    pub const hipDeviceAttributeCanUseStreamWaitValue: hipDeviceAttribute_t = hipDeviceAttribute_t(
        10013,
    );
    pub const hipDeviceAttributeImageSupport: hipDeviceAttribute_t = hipDeviceAttribute_t(
        10014,
    );
    pub const hipDeviceAttributePhysicalMultiProcessorCount: hipDeviceAttribute_t = hipDeviceAttribute_t(
        10015,
    );
    pub const hipDeviceAttributeFineGrainSupport: hipDeviceAttribute_t = hipDeviceAttribute_t(
        10016,
    );
    pub const hipDeviceAttributeWallClockRate: hipDeviceAttribute_t = hipDeviceAttribute_t(
        10017,
    );
    pub const hipDeviceAttributeNumberOfXccs: hipDeviceAttribute_t = hipDeviceAttribute_t(
        10018,
    );
    pub const hipDeviceAttributeMaxAvailableVgprsPerThread: hipDeviceAttribute_t = hipDeviceAttribute_t(
        10019,
    );
    pub const hipDeviceAttributePciChipId: hipDeviceAttribute_t = hipDeviceAttribute_t(
        10020,
    );
    pub const hipDeviceAttributeAmdSpecificEnd: hipDeviceAttribute_t = hipDeviceAttribute_t(
        19999,
    );
    pub const hipDeviceAttributeVendorSpecificBegin: hipDeviceAttribute_t = hipDeviceAttribute_t(
        20000,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipDeviceAttribute_t(pub ::core::ffi::c_uint);
pub type hipDeviceptr_t = *mut ::core::ffi::c_void;
impl hipMemcpyKind {
    pub const hipMemcpyHostToHost: hipMemcpyKind = hipMemcpyKind(0);
    pub const hipMemcpyHostToDevice: hipMemcpyKind = hipMemcpyKind(1);
    pub const hipMemcpyDeviceToHost: hipMemcpyKind = hipMemcpyKind(2);
    pub const hipMemcpyDeviceToDevice: hipMemcpyKind = hipMemcpyKind(3);
    pub const hipMemcpyDefault: hipMemcpyKind = hipMemcpyKind(4);
    pub const hipMemcpyDeviceToDeviceNoCU: hipMemcpyKind = hipMemcpyKind(1024);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipMemcpyKind(pub ::core::ffi::c_uint);
impl hipMemLocationType {
    pub const hipMemLocationTypeInvalid: hipMemLocationType = hipMemLocationType(0);
    pub const hipMemLocationTypeNone: hipMemLocationType = hipMemLocationType(0);
    pub const hipMemLocationTypeDevice: hipMemLocationType = hipMemLocationType(1);
    pub const hipMemLocationTypeHost: hipMemLocationType = hipMemLocationType(2);
    pub const hipMemLocationTypeHostNuma: hipMemLocationType = hipMemLocationType(3);
    pub const hipMemLocationTypeHostNumaCurrent: hipMemLocationType = hipMemLocationType(
        4,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipMemLocationType(pub ::core::ffi::c_uint);
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct hipMemLocation {
    pub type_: hipMemLocationType,
    pub id: ::core::ffi::c_int,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of hipMemLocation"][::core::mem::size_of::<hipMemLocation>() - 8usize];
    ["Alignment of hipMemLocation"][::core::mem::align_of::<hipMemLocation>() - 4usize];
    [
        "Offset of field: hipMemLocation::type_",
    ][::core::mem::offset_of!(hipMemLocation, type_) - 0usize];
    [
        "Offset of field: hipMemLocation::id",
    ][::core::mem::offset_of!(hipMemLocation, id) - 4usize];
};
impl Default for hipMemLocation {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
impl hipFunction_attribute {
    pub const HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: hipFunction_attribute = hipFunction_attribute(
        0,
    );
    pub const HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: hipFunction_attribute = hipFunction_attribute(
        1,
    );
    pub const HIP_FUNC_ATTRIBUTE_CONST_SIZE_BYTES: hipFunction_attribute = hipFunction_attribute(
        2,
    );
    pub const HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: hipFunction_attribute = hipFunction_attribute(
        3,
    );
    pub const HIP_FUNC_ATTRIBUTE_NUM_REGS: hipFunction_attribute = hipFunction_attribute(
        4,
    );
    pub const HIP_FUNC_ATTRIBUTE_PTX_VERSION: hipFunction_attribute = hipFunction_attribute(
        5,
    );
    pub const HIP_FUNC_ATTRIBUTE_BINARY_VERSION: hipFunction_attribute = hipFunction_attribute(
        6,
    );
    pub const HIP_FUNC_ATTRIBUTE_CACHE_MODE_CA: hipFunction_attribute = hipFunction_attribute(
        7,
    );
    pub const HIP_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: hipFunction_attribute = hipFunction_attribute(
        8,
    );
    pub const HIP_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: hipFunction_attribute = hipFunction_attribute(
        9,
    );
    pub const HIP_FUNC_ATTRIBUTE_MAX: hipFunction_attribute = hipFunction_attribute(10);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipFunction_attribute(pub ::core::ffi::c_uint);
impl hipPointer_attribute {
    pub const HIP_POINTER_ATTRIBUTE_CONTEXT: hipPointer_attribute = hipPointer_attribute(
        1,
    );
    pub const HIP_POINTER_ATTRIBUTE_MEMORY_TYPE: hipPointer_attribute = hipPointer_attribute(
        2,
    );
    pub const HIP_POINTER_ATTRIBUTE_DEVICE_POINTER: hipPointer_attribute = hipPointer_attribute(
        3,
    );
    pub const HIP_POINTER_ATTRIBUTE_HOST_POINTER: hipPointer_attribute = hipPointer_attribute(
        4,
    );
    pub const HIP_POINTER_ATTRIBUTE_P2P_TOKENS: hipPointer_attribute = hipPointer_attribute(
        5,
    );
    pub const HIP_POINTER_ATTRIBUTE_SYNC_MEMOPS: hipPointer_attribute = hipPointer_attribute(
        6,
    );
    pub const HIP_POINTER_ATTRIBUTE_BUFFER_ID: hipPointer_attribute = hipPointer_attribute(
        7,
    );
    pub const HIP_POINTER_ATTRIBUTE_IS_MANAGED: hipPointer_attribute = hipPointer_attribute(
        8,
    );
    pub const HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL: hipPointer_attribute = hipPointer_attribute(
        9,
    );
    pub const HIP_POINTER_ATTRIBUTE_IS_LEGACY_HIP_IPC_CAPABLE: hipPointer_attribute = hipPointer_attribute(
        10,
    );
    pub const HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR: hipPointer_attribute = hipPointer_attribute(
        11,
    );
    pub const HIP_POINTER_ATTRIBUTE_RANGE_SIZE: hipPointer_attribute = hipPointer_attribute(
        12,
    );
    pub const HIP_POINTER_ATTRIBUTE_MAPPED: hipPointer_attribute = hipPointer_attribute(
        13,
    );
    pub const HIP_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: hipPointer_attribute = hipPointer_attribute(
        14,
    );
    pub const HIP_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE: hipPointer_attribute = hipPointer_attribute(
        15,
    );
    pub const HIP_POINTER_ATTRIBUTE_ACCESS_FLAGS: hipPointer_attribute = hipPointer_attribute(
        16,
    );
    pub const HIP_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: hipPointer_attribute = hipPointer_attribute(
        17,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipPointer_attribute(pub ::core::ffi::c_uint);
#[repr(C)]
#[derive(Debug)]
pub struct ihipCtx_t {
    _unused: [u8; 0],
}
pub type hipCtx_t = *mut ihipCtx_t;
pub type hipDevice_t = ::core::ffi::c_int;
impl hipDeviceP2PAttr {
    pub const hipDevP2PAttrPerformanceRank: hipDeviceP2PAttr = hipDeviceP2PAttr(0);
    pub const hipDevP2PAttrAccessSupported: hipDeviceP2PAttr = hipDeviceP2PAttr(1);
    pub const hipDevP2PAttrNativeAtomicSupported: hipDeviceP2PAttr = hipDeviceP2PAttr(2);
    pub const hipDevP2PAttrHipArrayAccessSupported: hipDeviceP2PAttr = hipDeviceP2PAttr(
        3,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipDeviceP2PAttr(pub ::core::ffi::c_uint);
#[repr(C)]
#[derive(Debug)]
pub struct ihipStream_t {
    _unused: [u8; 0],
}
pub type hipStream_t = *mut ihipStream_t;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct hipIpcMemHandle_st {
    pub reserved: [::core::ffi::c_char; 64usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of hipIpcMemHandle_st",
    ][::core::mem::size_of::<hipIpcMemHandle_st>() - 64usize];
    [
        "Alignment of hipIpcMemHandle_st",
    ][::core::mem::align_of::<hipIpcMemHandle_st>() - 1usize];
    [
        "Offset of field: hipIpcMemHandle_st::reserved",
    ][::core::mem::offset_of!(hipIpcMemHandle_st, reserved) - 0usize];
};
impl Default for hipIpcMemHandle_st {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type hipIpcMemHandle_t = hipIpcMemHandle_st;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct hipIpcEventHandle_st {
    pub reserved: [::core::ffi::c_char; 64usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of hipIpcEventHandle_st",
    ][::core::mem::size_of::<hipIpcEventHandle_st>() - 64usize];
    [
        "Alignment of hipIpcEventHandle_st",
    ][::core::mem::align_of::<hipIpcEventHandle_st>() - 1usize];
    [
        "Offset of field: hipIpcEventHandle_st::reserved",
    ][::core::mem::offset_of!(hipIpcEventHandle_st, reserved) - 0usize];
};
impl Default for hipIpcEventHandle_st {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type hipIpcEventHandle_t = hipIpcEventHandle_st;
#[repr(C)]
#[derive(Debug)]
pub struct ihipModule_t {
    _unused: [u8; 0],
}
pub type hipModule_t = *mut ihipModule_t;
#[repr(C)]
#[derive(Debug)]
pub struct ihipModuleSymbol_t {
    _unused: [u8; 0],
}
pub type hipFunction_t = *mut ihipModuleSymbol_t;
#[repr(C)]
#[derive(Debug)]
pub struct ihipMemPoolHandle_t {
    _unused: [u8; 0],
}
pub type hipMemPool_t = *mut ihipMemPoolHandle_t;
#[repr(C)]
#[derive(Debug)]
pub struct ihipEvent_t {
    _unused: [u8; 0],
}
pub type hipEvent_t = *mut ihipEvent_t;
impl hipLimit_t {
    pub const hipLimitStackSize: hipLimit_t = hipLimit_t(0);
    pub const hipLimitPrintfFifoSize: hipLimit_t = hipLimit_t(1);
    pub const hipLimitMallocHeapSize: hipLimit_t = hipLimit_t(2);
    pub const hipExtLimitScratchMin: hipLimit_t = hipLimit_t(4096);
    pub const hipExtLimitScratchMax: hipLimit_t = hipLimit_t(4097);
    pub const hipExtLimitScratchCurrent: hipLimit_t = hipLimit_t(4098);
    pub const hipLimitRange: hipLimit_t = hipLimit_t(4099);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipLimit_t(pub ::core::ffi::c_uint);
impl hipMemoryAdvise {
    pub const hipMemAdviseSetReadMostly: hipMemoryAdvise = hipMemoryAdvise(1);
    pub const hipMemAdviseUnsetReadMostly: hipMemoryAdvise = hipMemoryAdvise(2);
    pub const hipMemAdviseSetPreferredLocation: hipMemoryAdvise = hipMemoryAdvise(3);
    pub const hipMemAdviseUnsetPreferredLocation: hipMemoryAdvise = hipMemoryAdvise(4);
    pub const hipMemAdviseSetAccessedBy: hipMemoryAdvise = hipMemoryAdvise(5);
    pub const hipMemAdviseUnsetAccessedBy: hipMemoryAdvise = hipMemoryAdvise(6);
    pub const hipMemAdviseSetCoarseGrain: hipMemoryAdvise = hipMemoryAdvise(100);
    pub const hipMemAdviseUnsetCoarseGrain: hipMemoryAdvise = hipMemoryAdvise(101);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipMemoryAdvise(pub ::core::ffi::c_uint);
impl hipMemPoolAttr {
    pub const hipMemPoolReuseFollowEventDependencies: hipMemPoolAttr = hipMemPoolAttr(1);
    pub const hipMemPoolReuseAllowOpportunistic: hipMemPoolAttr = hipMemPoolAttr(2);
    pub const hipMemPoolReuseAllowInternalDependencies: hipMemPoolAttr = hipMemPoolAttr(
        3,
    );
    pub const hipMemPoolAttrReleaseThreshold: hipMemPoolAttr = hipMemPoolAttr(4);
    pub const hipMemPoolAttrReservedMemCurrent: hipMemPoolAttr = hipMemPoolAttr(5);
    pub const hipMemPoolAttrReservedMemHigh: hipMemPoolAttr = hipMemPoolAttr(6);
    pub const hipMemPoolAttrUsedMemCurrent: hipMemPoolAttr = hipMemPoolAttr(7);
    pub const hipMemPoolAttrUsedMemHigh: hipMemPoolAttr = hipMemPoolAttr(8);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipMemPoolAttr(pub ::core::ffi::c_uint);
impl hipMemAccessFlags {
    pub const hipMemAccessFlagsProtNone: hipMemAccessFlags = hipMemAccessFlags(0);
    pub const hipMemAccessFlagsProtRead: hipMemAccessFlags = hipMemAccessFlags(1);
    pub const hipMemAccessFlagsProtReadWrite: hipMemAccessFlags = hipMemAccessFlags(3);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipMemAccessFlags(pub ::core::ffi::c_uint);
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct hipMemAccessDesc {
    pub location: hipMemLocation,
    pub flags: hipMemAccessFlags,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of hipMemAccessDesc"][::core::mem::size_of::<hipMemAccessDesc>() - 12usize];
    [
        "Alignment of hipMemAccessDesc",
    ][::core::mem::align_of::<hipMemAccessDesc>() - 4usize];
    [
        "Offset of field: hipMemAccessDesc::location",
    ][::core::mem::offset_of!(hipMemAccessDesc, location) - 0usize];
    [
        "Offset of field: hipMemAccessDesc::flags",
    ][::core::mem::offset_of!(hipMemAccessDesc, flags) - 8usize];
};
impl Default for hipMemAccessDesc {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
impl hipMemAllocationType {
    pub const hipMemAllocationTypeInvalid: hipMemAllocationType = hipMemAllocationType(
        0,
    );
    pub const hipMemAllocationTypePinned: hipMemAllocationType = hipMemAllocationType(1);
    pub const hipMemAllocationTypeUncached: hipMemAllocationType = hipMemAllocationType(
        1073741824,
    );
    pub const hipMemAllocationTypeMax: hipMemAllocationType = hipMemAllocationType(
        2147483647,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipMemAllocationType(pub ::core::ffi::c_uint);
impl hipMemAllocationHandleType {
    pub const hipMemHandleTypeNone: hipMemAllocationHandleType = hipMemAllocationHandleType(
        0,
    );
    pub const hipMemHandleTypePosixFileDescriptor: hipMemAllocationHandleType = hipMemAllocationHandleType(
        1,
    );
    pub const hipMemHandleTypeWin32: hipMemAllocationHandleType = hipMemAllocationHandleType(
        2,
    );
    pub const hipMemHandleTypeWin32Kmt: hipMemAllocationHandleType = hipMemAllocationHandleType(
        4,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipMemAllocationHandleType(pub ::core::ffi::c_uint);
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct hipMemPoolProps {
    pub allocType: hipMemAllocationType,
    pub handleTypes: hipMemAllocationHandleType,
    pub location: hipMemLocation,
    pub win32SecurityAttributes: *mut ::core::ffi::c_void,
    pub maxSize: usize,
    pub reserved: [::core::ffi::c_uchar; 56usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of hipMemPoolProps"][::core::mem::size_of::<hipMemPoolProps>() - 88usize];
    [
        "Alignment of hipMemPoolProps",
    ][::core::mem::align_of::<hipMemPoolProps>() - 8usize];
    [
        "Offset of field: hipMemPoolProps::allocType",
    ][::core::mem::offset_of!(hipMemPoolProps, allocType) - 0usize];
    [
        "Offset of field: hipMemPoolProps::handleTypes",
    ][::core::mem::offset_of!(hipMemPoolProps, handleTypes) - 4usize];
    [
        "Offset of field: hipMemPoolProps::location",
    ][::core::mem::offset_of!(hipMemPoolProps, location) - 8usize];
    [
        "Offset of field: hipMemPoolProps::win32SecurityAttributes",
    ][::core::mem::offset_of!(hipMemPoolProps, win32SecurityAttributes) - 16usize];
    [
        "Offset of field: hipMemPoolProps::maxSize",
    ][::core::mem::offset_of!(hipMemPoolProps, maxSize) - 24usize];
    [
        "Offset of field: hipMemPoolProps::reserved",
    ][::core::mem::offset_of!(hipMemPoolProps, reserved) - 32usize];
};
impl Default for hipMemPoolProps {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
impl hipFuncAttribute {
    pub const hipFuncAttributeMaxDynamicSharedMemorySize: hipFuncAttribute = hipFuncAttribute(
        8,
    );
    pub const hipFuncAttributePreferredSharedMemoryCarveout: hipFuncAttribute = hipFuncAttribute(
        9,
    );
    pub const hipFuncAttributeMax: hipFuncAttribute = hipFuncAttribute(10);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipFuncAttribute(pub ::core::ffi::c_uint);
impl hipFuncCache_t {
    pub const hipFuncCachePreferNone: hipFuncCache_t = hipFuncCache_t(0);
    pub const hipFuncCachePreferShared: hipFuncCache_t = hipFuncCache_t(1);
    pub const hipFuncCachePreferL1: hipFuncCache_t = hipFuncCache_t(2);
    pub const hipFuncCachePreferEqual: hipFuncCache_t = hipFuncCache_t(3);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipFuncCache_t(pub ::core::ffi::c_uint);
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct dim3 {
    pub x: u32,
    pub y: u32,
    pub z: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dim3"][::core::mem::size_of::<dim3>() - 12usize];
    ["Alignment of dim3"][::core::mem::align_of::<dim3>() - 4usize];
    ["Offset of field: dim3::x"][::core::mem::offset_of!(dim3, x) - 0usize];
    ["Offset of field: dim3::y"][::core::mem::offset_of!(dim3, y) - 4usize];
    ["Offset of field: dim3::z"][::core::mem::offset_of!(dim3, z) - 8usize];
};
#[repr(C)]
#[derive(Debug)]
pub struct ihipGraph {
    _unused: [u8; 0],
}
pub type hipGraph_t = *mut ihipGraph;
#[repr(C)]
#[derive(Debug)]
pub struct hipGraphNode {
    _unused: [u8; 0],
}
pub type hipGraphNode_t = *mut hipGraphNode;
#[repr(C)]
#[derive(Debug)]
pub struct hipGraphExec {
    _unused: [u8; 0],
}
pub type hipGraphExec_t = *mut hipGraphExec;
impl hipGraphNodeType {
    pub const hipGraphNodeTypeKernel: hipGraphNodeType = hipGraphNodeType(0);
    pub const hipGraphNodeTypeMemcpy: hipGraphNodeType = hipGraphNodeType(1);
    pub const hipGraphNodeTypeMemset: hipGraphNodeType = hipGraphNodeType(2);
    pub const hipGraphNodeTypeHost: hipGraphNodeType = hipGraphNodeType(3);
    pub const hipGraphNodeTypeGraph: hipGraphNodeType = hipGraphNodeType(4);
    pub const hipGraphNodeTypeEmpty: hipGraphNodeType = hipGraphNodeType(5);
    pub const hipGraphNodeTypeWaitEvent: hipGraphNodeType = hipGraphNodeType(6);
    pub const hipGraphNodeTypeEventRecord: hipGraphNodeType = hipGraphNodeType(7);
    pub const hipGraphNodeTypeExtSemaphoreSignal: hipGraphNodeType = hipGraphNodeType(8);
    pub const hipGraphNodeTypeExtSemaphoreWait: hipGraphNodeType = hipGraphNodeType(9);
    pub const hipGraphNodeTypeMemAlloc: hipGraphNodeType = hipGraphNodeType(10);
    pub const hipGraphNodeTypeMemFree: hipGraphNodeType = hipGraphNodeType(11);
    pub const hipGraphNodeTypeMemcpyFromSymbol: hipGraphNodeType = hipGraphNodeType(12);
    pub const hipGraphNodeTypeMemcpyToSymbol: hipGraphNodeType = hipGraphNodeType(13);
    pub const hipGraphNodeTypeBatchMemOp: hipGraphNodeType = hipGraphNodeType(14);
    pub const hipGraphNodeTypeCount: hipGraphNodeType = hipGraphNodeType(15);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipGraphNodeType(pub ::core::ffi::c_uint);
pub type hipHostFn_t = ::core::option::Option<
    unsafe extern "C" fn(userData: *mut ::core::ffi::c_void),
>;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct hipHostNodeParams {
    pub fn_: hipHostFn_t,
    pub userData: *mut ::core::ffi::c_void,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of hipHostNodeParams"][::core::mem::size_of::<hipHostNodeParams>() - 16usize];
    [
        "Alignment of hipHostNodeParams",
    ][::core::mem::align_of::<hipHostNodeParams>() - 8usize];
    [
        "Offset of field: hipHostNodeParams::fn_",
    ][::core::mem::offset_of!(hipHostNodeParams, fn_) - 0usize];
    [
        "Offset of field: hipHostNodeParams::userData",
    ][::core::mem::offset_of!(hipHostNodeParams, userData) - 8usize];
};
impl Default for hipHostNodeParams {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct hipKernelNodeParams {
    pub blockDim: dim3,
    pub extra: *mut *mut ::core::ffi::c_void,
    pub func: *mut ::core::ffi::c_void,
    pub gridDim: dim3,
    pub kernelParams: *mut *mut ::core::ffi::c_void,
    pub sharedMemBytes: ::core::ffi::c_uint,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of hipKernelNodeParams",
    ][::core::mem::size_of::<hipKernelNodeParams>() - 64usize];
    [
        "Alignment of hipKernelNodeParams",
    ][::core::mem::align_of::<hipKernelNodeParams>() - 8usize];
    [
        "Offset of field: hipKernelNodeParams::blockDim",
    ][::core::mem::offset_of!(hipKernelNodeParams, blockDim) - 0usize];
    [
        "Offset of field: hipKernelNodeParams::extra",
    ][::core::mem::offset_of!(hipKernelNodeParams, extra) - 16usize];
    [
        "Offset of field: hipKernelNodeParams::func",
    ][::core::mem::offset_of!(hipKernelNodeParams, func) - 24usize];
    [
        "Offset of field: hipKernelNodeParams::gridDim",
    ][::core::mem::offset_of!(hipKernelNodeParams, gridDim) - 32usize];
    [
        "Offset of field: hipKernelNodeParams::kernelParams",
    ][::core::mem::offset_of!(hipKernelNodeParams, kernelParams) - 48usize];
    [
        "Offset of field: hipKernelNodeParams::sharedMemBytes",
    ][::core::mem::offset_of!(hipKernelNodeParams, sharedMemBytes) - 56usize];
};
impl Default for hipKernelNodeParams {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct hipMemsetParams {
    pub dst: *mut ::core::ffi::c_void,
    pub elementSize: ::core::ffi::c_uint,
    pub height: usize,
    pub pitch: usize,
    pub value: ::core::ffi::c_uint,
    pub width: usize,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of hipMemsetParams"][::core::mem::size_of::<hipMemsetParams>() - 48usize];
    [
        "Alignment of hipMemsetParams",
    ][::core::mem::align_of::<hipMemsetParams>() - 8usize];
    [
        "Offset of field: hipMemsetParams::dst",
    ][::core::mem::offset_of!(hipMemsetParams, dst) - 0usize];
    [
        "Offset of field: hipMemsetParams::elementSize",
    ][::core::mem::offset_of!(hipMemsetParams, elementSize) - 8usize];
    [
        "Offset of field: hipMemsetParams::height",
    ][::core::mem::offset_of!(hipMemsetParams, height) - 16usize];
    [
        "Offset of field: hipMemsetParams::pitch",
    ][::core::mem::offset_of!(hipMemsetParams, pitch) - 24usize];
    [
        "Offset of field: hipMemsetParams::value",
    ][::core::mem::offset_of!(hipMemsetParams, value) - 32usize];
    [
        "Offset of field: hipMemsetParams::width",
    ][::core::mem::offset_of!(hipMemsetParams, width) - 40usize];
};
impl Default for hipMemsetParams {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
impl hipAccessProperty {
    pub const hipAccessPropertyNormal: hipAccessProperty = hipAccessProperty(0);
    pub const hipAccessPropertyStreaming: hipAccessProperty = hipAccessProperty(1);
    pub const hipAccessPropertyPersisting: hipAccessProperty = hipAccessProperty(2);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipAccessProperty(pub ::core::ffi::c_uint);
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct hipAccessPolicyWindow {
    pub base_ptr: *mut ::core::ffi::c_void,
    pub hitProp: hipAccessProperty,
    pub hitRatio: f32,
    pub missProp: hipAccessProperty,
    pub num_bytes: usize,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of hipAccessPolicyWindow",
    ][::core::mem::size_of::<hipAccessPolicyWindow>() - 32usize];
    [
        "Alignment of hipAccessPolicyWindow",
    ][::core::mem::align_of::<hipAccessPolicyWindow>() - 8usize];
    [
        "Offset of field: hipAccessPolicyWindow::base_ptr",
    ][::core::mem::offset_of!(hipAccessPolicyWindow, base_ptr) - 0usize];
    [
        "Offset of field: hipAccessPolicyWindow::hitProp",
    ][::core::mem::offset_of!(hipAccessPolicyWindow, hitProp) - 8usize];
    [
        "Offset of field: hipAccessPolicyWindow::hitRatio",
    ][::core::mem::offset_of!(hipAccessPolicyWindow, hitRatio) - 12usize];
    [
        "Offset of field: hipAccessPolicyWindow::missProp",
    ][::core::mem::offset_of!(hipAccessPolicyWindow, missProp) - 16usize];
    [
        "Offset of field: hipAccessPolicyWindow::num_bytes",
    ][::core::mem::offset_of!(hipAccessPolicyWindow, num_bytes) - 24usize];
};
impl Default for hipAccessPolicyWindow {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct hipLaunchMemSyncDomainMap {
    pub default_: ::core::ffi::c_uchar,
    pub remote: ::core::ffi::c_uchar,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of hipLaunchMemSyncDomainMap",
    ][::core::mem::size_of::<hipLaunchMemSyncDomainMap>() - 2usize];
    [
        "Alignment of hipLaunchMemSyncDomainMap",
    ][::core::mem::align_of::<hipLaunchMemSyncDomainMap>() - 1usize];
    [
        "Offset of field: hipLaunchMemSyncDomainMap::default_",
    ][::core::mem::offset_of!(hipLaunchMemSyncDomainMap, default_) - 0usize];
    [
        "Offset of field: hipLaunchMemSyncDomainMap::remote",
    ][::core::mem::offset_of!(hipLaunchMemSyncDomainMap, remote) - 1usize];
};
impl hipLaunchMemSyncDomain {
    pub const hipLaunchMemSyncDomainDefault: hipLaunchMemSyncDomain = hipLaunchMemSyncDomain(
        0,
    );
    pub const hipLaunchMemSyncDomainRemote: hipLaunchMemSyncDomain = hipLaunchMemSyncDomain(
        1,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipLaunchMemSyncDomain(pub ::core::ffi::c_uint);
impl hipSynchronizationPolicy {
    pub const hipSyncPolicyAuto: hipSynchronizationPolicy = hipSynchronizationPolicy(1);
    pub const hipSyncPolicySpin: hipSynchronizationPolicy = hipSynchronizationPolicy(2);
    pub const hipSyncPolicyYield: hipSynchronizationPolicy = hipSynchronizationPolicy(3);
    pub const hipSyncPolicyBlockingSync: hipSynchronizationPolicy = hipSynchronizationPolicy(
        4,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipSynchronizationPolicy(pub ::core::ffi::c_uint);
impl hipLaunchAttributeID {
    pub const hipLaunchAttributeAccessPolicyWindow: hipLaunchAttributeID = hipLaunchAttributeID(
        1,
    );
    pub const hipLaunchAttributeCooperative: hipLaunchAttributeID = hipLaunchAttributeID(
        2,
    );
    pub const hipLaunchAttributeSynchronizationPolicy: hipLaunchAttributeID = hipLaunchAttributeID(
        3,
    );
    pub const hipLaunchAttributePriority: hipLaunchAttributeID = hipLaunchAttributeID(8);
    pub const hipLaunchAttributeMemSyncDomainMap: hipLaunchAttributeID = hipLaunchAttributeID(
        9,
    );
    pub const hipLaunchAttributeMemSyncDomain: hipLaunchAttributeID = hipLaunchAttributeID(
        10,
    );
    pub const hipLaunchAttributeMax: hipLaunchAttributeID = hipLaunchAttributeID(11);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipLaunchAttributeID(pub ::core::ffi::c_uint);
#[repr(C)]
#[derive(Copy, Clone)]
pub union hipLaunchAttributeValue {
    pub pad: [::core::ffi::c_char; 64usize],
    pub accessPolicyWindow: hipAccessPolicyWindow,
    pub cooperative: ::core::ffi::c_int,
    pub priority: ::core::ffi::c_int,
    pub syncPolicy: hipSynchronizationPolicy,
    pub memSyncDomainMap: hipLaunchMemSyncDomainMap,
    pub memSyncDomain: hipLaunchMemSyncDomain,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of hipLaunchAttributeValue",
    ][::core::mem::size_of::<hipLaunchAttributeValue>() - 64usize];
    [
        "Alignment of hipLaunchAttributeValue",
    ][::core::mem::align_of::<hipLaunchAttributeValue>() - 8usize];
    [
        "Offset of field: hipLaunchAttributeValue::pad",
    ][::core::mem::offset_of!(hipLaunchAttributeValue, pad) - 0usize];
    [
        "Offset of field: hipLaunchAttributeValue::accessPolicyWindow",
    ][::core::mem::offset_of!(hipLaunchAttributeValue, accessPolicyWindow) - 0usize];
    [
        "Offset of field: hipLaunchAttributeValue::cooperative",
    ][::core::mem::offset_of!(hipLaunchAttributeValue, cooperative) - 0usize];
    [
        "Offset of field: hipLaunchAttributeValue::priority",
    ][::core::mem::offset_of!(hipLaunchAttributeValue, priority) - 0usize];
    [
        "Offset of field: hipLaunchAttributeValue::syncPolicy",
    ][::core::mem::offset_of!(hipLaunchAttributeValue, syncPolicy) - 0usize];
    [
        "Offset of field: hipLaunchAttributeValue::memSyncDomainMap",
    ][::core::mem::offset_of!(hipLaunchAttributeValue, memSyncDomainMap) - 0usize];
    [
        "Offset of field: hipLaunchAttributeValue::memSyncDomain",
    ][::core::mem::offset_of!(hipLaunchAttributeValue, memSyncDomain) - 0usize];
};
impl Default for hipLaunchAttributeValue {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
impl hipGraphExecUpdateResult {
    pub const hipGraphExecUpdateSuccess: hipGraphExecUpdateResult = hipGraphExecUpdateResult(
        0,
    );
    pub const hipGraphExecUpdateError: hipGraphExecUpdateResult = hipGraphExecUpdateResult(
        1,
    );
    pub const hipGraphExecUpdateErrorTopologyChanged: hipGraphExecUpdateResult = hipGraphExecUpdateResult(
        2,
    );
    pub const hipGraphExecUpdateErrorNodeTypeChanged: hipGraphExecUpdateResult = hipGraphExecUpdateResult(
        3,
    );
    pub const hipGraphExecUpdateErrorFunctionChanged: hipGraphExecUpdateResult = hipGraphExecUpdateResult(
        4,
    );
    pub const hipGraphExecUpdateErrorParametersChanged: hipGraphExecUpdateResult = hipGraphExecUpdateResult(
        5,
    );
    pub const hipGraphExecUpdateErrorNotSupported: hipGraphExecUpdateResult = hipGraphExecUpdateResult(
        6,
    );
    pub const hipGraphExecUpdateErrorUnsupportedFunctionChange: hipGraphExecUpdateResult = hipGraphExecUpdateResult(
        7,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipGraphExecUpdateResult(pub ::core::ffi::c_uint);
impl hipStreamCaptureMode {
    pub const hipStreamCaptureModeGlobal: hipStreamCaptureMode = hipStreamCaptureMode(0);
    pub const hipStreamCaptureModeThreadLocal: hipStreamCaptureMode = hipStreamCaptureMode(
        1,
    );
    pub const hipStreamCaptureModeRelaxed: hipStreamCaptureMode = hipStreamCaptureMode(
        2,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipStreamCaptureMode(pub ::core::ffi::c_uint);
impl hipStreamCaptureStatus {
    pub const hipStreamCaptureStatusNone: hipStreamCaptureStatus = hipStreamCaptureStatus(
        0,
    );
    pub const hipStreamCaptureStatusActive: hipStreamCaptureStatus = hipStreamCaptureStatus(
        1,
    );
    pub const hipStreamCaptureStatusInvalidated: hipStreamCaptureStatus = hipStreamCaptureStatus(
        2,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipStreamCaptureStatus(pub ::core::ffi::c_uint);
impl hipGraphInstantiateResult {
    pub const hipGraphInstantiateSuccess: hipGraphInstantiateResult = hipGraphInstantiateResult(
        0,
    );
    pub const hipGraphInstantiateError: hipGraphInstantiateResult = hipGraphInstantiateResult(
        1,
    );
    pub const hipGraphInstantiateInvalidStructure: hipGraphInstantiateResult = hipGraphInstantiateResult(
        2,
    );
    pub const hipGraphInstantiateNodeOperationNotSupported: hipGraphInstantiateResult = hipGraphInstantiateResult(
        3,
    );
    pub const hipGraphInstantiateMultipleDevicesNotSupported: hipGraphInstantiateResult = hipGraphInstantiateResult(
        4,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipGraphInstantiateResult(pub ::core::ffi::c_uint);
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct hipGraphInstantiateParams {
    pub errNode_out: hipGraphNode_t,
    pub flags: ::core::ffi::c_ulonglong,
    pub result_out: hipGraphInstantiateResult,
    pub uploadStream: hipStream_t,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of hipGraphInstantiateParams",
    ][::core::mem::size_of::<hipGraphInstantiateParams>() - 32usize];
    [
        "Alignment of hipGraphInstantiateParams",
    ][::core::mem::align_of::<hipGraphInstantiateParams>() - 8usize];
    [
        "Offset of field: hipGraphInstantiateParams::errNode_out",
    ][::core::mem::offset_of!(hipGraphInstantiateParams, errNode_out) - 0usize];
    [
        "Offset of field: hipGraphInstantiateParams::flags",
    ][::core::mem::offset_of!(hipGraphInstantiateParams, flags) - 8usize];
    [
        "Offset of field: hipGraphInstantiateParams::result_out",
    ][::core::mem::offset_of!(hipGraphInstantiateParams, result_out) - 16usize];
    [
        "Offset of field: hipGraphInstantiateParams::uploadStream",
    ][::core::mem::offset_of!(hipGraphInstantiateParams, uploadStream) - 24usize];
};
impl Default for hipGraphInstantiateParams {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct hipMemAllocationProp {
    pub type_: hipMemAllocationType,
    pub __bindgen_anon_1: hipMemAllocationProp__bindgen_ty_1,
    pub location: hipMemLocation,
    pub win32HandleMetaData: *mut ::core::ffi::c_void,
    pub allocFlags: hipMemAllocationProp__bindgen_ty_2,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union hipMemAllocationProp__bindgen_ty_1 {
    pub requestedHandleType: hipMemAllocationHandleType,
    pub requestedHandleTypes: hipMemAllocationHandleType,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of hipMemAllocationProp__bindgen_ty_1",
    ][::core::mem::size_of::<hipMemAllocationProp__bindgen_ty_1>() - 4usize];
    [
        "Alignment of hipMemAllocationProp__bindgen_ty_1",
    ][::core::mem::align_of::<hipMemAllocationProp__bindgen_ty_1>() - 4usize];
    [
        "Offset of field: hipMemAllocationProp__bindgen_ty_1::requestedHandleType",
    ][::core::mem::offset_of!(hipMemAllocationProp__bindgen_ty_1, requestedHandleType)
        - 0usize];
    [
        "Offset of field: hipMemAllocationProp__bindgen_ty_1::requestedHandleTypes",
    ][::core::mem::offset_of!(hipMemAllocationProp__bindgen_ty_1, requestedHandleTypes)
        - 0usize];
};
impl Default for hipMemAllocationProp__bindgen_ty_1 {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct hipMemAllocationProp__bindgen_ty_2 {
    pub compressionType: ::core::ffi::c_uchar,
    pub gpuDirectRDMACapable: ::core::ffi::c_uchar,
    pub usage: ::core::ffi::c_ushort,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of hipMemAllocationProp__bindgen_ty_2",
    ][::core::mem::size_of::<hipMemAllocationProp__bindgen_ty_2>() - 4usize];
    [
        "Alignment of hipMemAllocationProp__bindgen_ty_2",
    ][::core::mem::align_of::<hipMemAllocationProp__bindgen_ty_2>() - 2usize];
    [
        "Offset of field: hipMemAllocationProp__bindgen_ty_2::compressionType",
    ][::core::mem::offset_of!(hipMemAllocationProp__bindgen_ty_2, compressionType)
        - 0usize];
    [
        "Offset of field: hipMemAllocationProp__bindgen_ty_2::gpuDirectRDMACapable",
    ][::core::mem::offset_of!(hipMemAllocationProp__bindgen_ty_2, gpuDirectRDMACapable)
        - 1usize];
    [
        "Offset of field: hipMemAllocationProp__bindgen_ty_2::usage",
    ][::core::mem::offset_of!(hipMemAllocationProp__bindgen_ty_2, usage) - 2usize];
};
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of hipMemAllocationProp",
    ][::core::mem::size_of::<hipMemAllocationProp>() - 32usize];
    [
        "Alignment of hipMemAllocationProp",
    ][::core::mem::align_of::<hipMemAllocationProp>() - 8usize];
    [
        "Offset of field: hipMemAllocationProp::type_",
    ][::core::mem::offset_of!(hipMemAllocationProp, type_) - 0usize];
    [
        "Offset of field: hipMemAllocationProp::location",
    ][::core::mem::offset_of!(hipMemAllocationProp, location) - 8usize];
    [
        "Offset of field: hipMemAllocationProp::win32HandleMetaData",
    ][::core::mem::offset_of!(hipMemAllocationProp, win32HandleMetaData) - 16usize];
    [
        "Offset of field: hipMemAllocationProp::allocFlags",
    ][::core::mem::offset_of!(hipMemAllocationProp, allocFlags) - 24usize];
};
impl Default for hipMemAllocationProp {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug)]
pub struct ihipMemGenericAllocationHandle {
    _unused: [u8; 0],
}
pub type hipMemGenericAllocationHandle_t = *mut ihipMemGenericAllocationHandle;
impl hipMemAllocationGranularity_flags {
    pub const hipMemAllocationGranularityMinimum: hipMemAllocationGranularity_flags = hipMemAllocationGranularity_flags(
        0,
    );
    pub const hipMemAllocationGranularityRecommended: hipMemAllocationGranularity_flags = hipMemAllocationGranularity_flags(
        1,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipMemAllocationGranularity_flags(pub ::core::ffi::c_uint);
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct hipGraphEdgeData {
    pub from_port: ::core::ffi::c_uchar,
    pub reserved: [::core::ffi::c_uchar; 5usize],
    pub to_port: ::core::ffi::c_uchar,
    pub type_: ::core::ffi::c_uchar,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of hipGraphEdgeData"][::core::mem::size_of::<hipGraphEdgeData>() - 8usize];
    [
        "Alignment of hipGraphEdgeData",
    ][::core::mem::align_of::<hipGraphEdgeData>() - 1usize];
    [
        "Offset of field: hipGraphEdgeData::from_port",
    ][::core::mem::offset_of!(hipGraphEdgeData, from_port) - 0usize];
    [
        "Offset of field: hipGraphEdgeData::reserved",
    ][::core::mem::offset_of!(hipGraphEdgeData, reserved) - 1usize];
    [
        "Offset of field: hipGraphEdgeData::to_port",
    ][::core::mem::offset_of!(hipGraphEdgeData, to_port) - 6usize];
    [
        "Offset of field: hipGraphEdgeData::type_",
    ][::core::mem::offset_of!(hipGraphEdgeData, type_) - 7usize];
};
#[repr(C)]
#[derive(Copy, Clone)]
pub struct hipLaunchAttribute_st {
    pub id: hipLaunchAttributeID,
    pub pad: [::core::ffi::c_char; 4usize],
    pub __bindgen_anon_1: hipLaunchAttribute_st__bindgen_ty_1,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union hipLaunchAttribute_st__bindgen_ty_1 {
    pub val: hipLaunchAttributeValue,
    pub value: hipLaunchAttributeValue,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of hipLaunchAttribute_st__bindgen_ty_1",
    ][::core::mem::size_of::<hipLaunchAttribute_st__bindgen_ty_1>() - 64usize];
    [
        "Alignment of hipLaunchAttribute_st__bindgen_ty_1",
    ][::core::mem::align_of::<hipLaunchAttribute_st__bindgen_ty_1>() - 8usize];
    [
        "Offset of field: hipLaunchAttribute_st__bindgen_ty_1::val",
    ][::core::mem::offset_of!(hipLaunchAttribute_st__bindgen_ty_1, val) - 0usize];
    [
        "Offset of field: hipLaunchAttribute_st__bindgen_ty_1::value",
    ][::core::mem::offset_of!(hipLaunchAttribute_st__bindgen_ty_1, value) - 0usize];
};
impl Default for hipLaunchAttribute_st__bindgen_ty_1 {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of hipLaunchAttribute_st",
    ][::core::mem::size_of::<hipLaunchAttribute_st>() - 72usize];
    [
        "Alignment of hipLaunchAttribute_st",
    ][::core::mem::align_of::<hipLaunchAttribute_st>() - 8usize];
    [
        "Offset of field: hipLaunchAttribute_st::id",
    ][::core::mem::offset_of!(hipLaunchAttribute_st, id) - 0usize];
    [
        "Offset of field: hipLaunchAttribute_st::pad",
    ][::core::mem::offset_of!(hipLaunchAttribute_st, pad) - 4usize];
};
impl Default for hipLaunchAttribute_st {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type hipLaunchAttribute = hipLaunchAttribute_st;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct HIP_LAUNCH_CONFIG_st {
    pub gridDimX: ::core::ffi::c_uint,
    pub gridDimY: ::core::ffi::c_uint,
    pub gridDimZ: ::core::ffi::c_uint,
    pub blockDimX: ::core::ffi::c_uint,
    pub blockDimY: ::core::ffi::c_uint,
    pub blockDimZ: ::core::ffi::c_uint,
    pub sharedMemBytes: ::core::ffi::c_uint,
    pub hStream: hipStream_t,
    pub attrs: *mut hipLaunchAttribute,
    pub numAttrs: ::core::ffi::c_uint,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of HIP_LAUNCH_CONFIG_st",
    ][::core::mem::size_of::<HIP_LAUNCH_CONFIG_st>() - 56usize];
    [
        "Alignment of HIP_LAUNCH_CONFIG_st",
    ][::core::mem::align_of::<HIP_LAUNCH_CONFIG_st>() - 8usize];
    [
        "Offset of field: HIP_LAUNCH_CONFIG_st::gridDimX",
    ][::core::mem::offset_of!(HIP_LAUNCH_CONFIG_st, gridDimX) - 0usize];
    [
        "Offset of field: HIP_LAUNCH_CONFIG_st::gridDimY",
    ][::core::mem::offset_of!(HIP_LAUNCH_CONFIG_st, gridDimY) - 4usize];
    [
        "Offset of field: HIP_LAUNCH_CONFIG_st::gridDimZ",
    ][::core::mem::offset_of!(HIP_LAUNCH_CONFIG_st, gridDimZ) - 8usize];
    [
        "Offset of field: HIP_LAUNCH_CONFIG_st::blockDimX",
    ][::core::mem::offset_of!(HIP_LAUNCH_CONFIG_st, blockDimX) - 12usize];
    [
        "Offset of field: HIP_LAUNCH_CONFIG_st::blockDimY",
    ][::core::mem::offset_of!(HIP_LAUNCH_CONFIG_st, blockDimY) - 16usize];
    [
        "Offset of field: HIP_LAUNCH_CONFIG_st::blockDimZ",
    ][::core::mem::offset_of!(HIP_LAUNCH_CONFIG_st, blockDimZ) - 20usize];
    [
        "Offset of field: HIP_LAUNCH_CONFIG_st::sharedMemBytes",
    ][::core::mem::offset_of!(HIP_LAUNCH_CONFIG_st, sharedMemBytes) - 24usize];
    [
        "Offset of field: HIP_LAUNCH_CONFIG_st::hStream",
    ][::core::mem::offset_of!(HIP_LAUNCH_CONFIG_st, hStream) - 32usize];
    [
        "Offset of field: HIP_LAUNCH_CONFIG_st::attrs",
    ][::core::mem::offset_of!(HIP_LAUNCH_CONFIG_st, attrs) - 40usize];
    [
        "Offset of field: HIP_LAUNCH_CONFIG_st::numAttrs",
    ][::core::mem::offset_of!(HIP_LAUNCH_CONFIG_st, numAttrs) - 48usize];
};
impl Default for HIP_LAUNCH_CONFIG_st {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type HIP_LAUNCH_CONFIG = HIP_LAUNCH_CONFIG_st;
pub type hipStreamCallback_t = ::core::option::Option<
    unsafe extern "C" fn(
        stream: hipStream_t,
        status: hipError_t,
        userData: *mut ::core::ffi::c_void,
    ),
>;
impl hipDataType {
    pub const HIP_R_32F: hipDataType = hipDataType(0);
    pub const HIP_R_64F: hipDataType = hipDataType(1);
    pub const HIP_R_16F: hipDataType = hipDataType(2);
    pub const HIP_R_8I: hipDataType = hipDataType(3);
    pub const HIP_C_32F: hipDataType = hipDataType(4);
    pub const HIP_C_64F: hipDataType = hipDataType(5);
    pub const HIP_C_16F: hipDataType = hipDataType(6);
    pub const HIP_C_8I: hipDataType = hipDataType(7);
    pub const HIP_R_8U: hipDataType = hipDataType(8);
    pub const HIP_C_8U: hipDataType = hipDataType(9);
    pub const HIP_R_32I: hipDataType = hipDataType(10);
    pub const HIP_C_32I: hipDataType = hipDataType(11);
    pub const HIP_R_32U: hipDataType = hipDataType(12);
    pub const HIP_C_32U: hipDataType = hipDataType(13);
    pub const HIP_R_16BF: hipDataType = hipDataType(14);
    pub const HIP_C_16BF: hipDataType = hipDataType(15);
    pub const HIP_R_4I: hipDataType = hipDataType(16);
    pub const HIP_C_4I: hipDataType = hipDataType(17);
    pub const HIP_R_4U: hipDataType = hipDataType(18);
    pub const HIP_C_4U: hipDataType = hipDataType(19);
    pub const HIP_R_16I: hipDataType = hipDataType(20);
    pub const HIP_C_16I: hipDataType = hipDataType(21);
    pub const HIP_R_16U: hipDataType = hipDataType(22);
    pub const HIP_C_16U: hipDataType = hipDataType(23);
    pub const HIP_R_64I: hipDataType = hipDataType(24);
    pub const HIP_C_64I: hipDataType = hipDataType(25);
    pub const HIP_R_64U: hipDataType = hipDataType(26);
    pub const HIP_C_64U: hipDataType = hipDataType(27);
    pub const HIP_R_8F_E4M3: hipDataType = hipDataType(28);
    pub const HIP_R_8F_E5M2: hipDataType = hipDataType(29);
    pub const HIP_R_8F_UE8M0: hipDataType = hipDataType(30);
    pub const HIP_R_6F_E2M3: hipDataType = hipDataType(31);
    pub const HIP_R_6F_E3M2: hipDataType = hipDataType(32);
    pub const HIP_R_4F_E2M1: hipDataType = hipDataType(33);
    pub const HIP_R_8F_E4M3_FNUZ: hipDataType = hipDataType(1000);
    pub const HIP_R_8F_E5M2_FNUZ: hipDataType = hipDataType(1001);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipDataType(pub ::core::ffi::c_uint);
crate::table::table! {
    Hip;
    pub fn hipInit(flags: ::core::ffi::c_uint) -> hipError_t;
    pub fn hipDriverGetVersion(driverVersion: *mut ::core::ffi::c_int) -> hipError_t;
    pub fn hipRuntimeGetVersion(runtimeVersion: *mut ::core::ffi::c_int) -> hipError_t;
    pub fn hipDeviceGet(
        device: *mut hipDevice_t,
        ordinal: ::core::ffi::c_int,
    ) -> hipError_t;
    pub fn hipDeviceComputeCapability(
        major: *mut ::core::ffi::c_int,
        minor: *mut ::core::ffi::c_int,
        device: hipDevice_t,
    ) -> hipError_t;
    pub fn hipDeviceGetName(
        name: *mut ::core::ffi::c_char,
        len: ::core::ffi::c_int,
        device: hipDevice_t,
    ) -> hipError_t;
    pub fn hipDeviceGetUuid(uuid: *mut hipUUID, device: hipDevice_t) -> hipError_t;
    pub fn hipDeviceGetP2PAttribute(
        value: *mut ::core::ffi::c_int,
        attr: hipDeviceP2PAttr,
        srcDevice: ::core::ffi::c_int,
        dstDevice: ::core::ffi::c_int,
    ) -> hipError_t;
    pub fn hipDeviceGetPCIBusId(
        pciBusId: *mut ::core::ffi::c_char,
        len: ::core::ffi::c_int,
        device: ::core::ffi::c_int,
    ) -> hipError_t;
    pub fn hipDeviceGetByPCIBusId(
        device: *mut ::core::ffi::c_int,
        pciBusId: *const ::core::ffi::c_char,
    ) -> hipError_t;
    pub fn hipDeviceTotalMem(bytes: *mut usize, device: hipDevice_t) -> hipError_t;
    pub fn hipDeviceSynchronize() -> hipError_t;
    pub fn hipDeviceReset() -> hipError_t;
    pub fn hipSetDevice(deviceId: ::core::ffi::c_int) -> hipError_t;
    pub fn hipGetDevice(deviceId: *mut ::core::ffi::c_int) -> hipError_t;
    pub fn hipGetDeviceCount(count: *mut ::core::ffi::c_int) -> hipError_t;
    pub fn hipDeviceGetAttribute(
        pi: *mut ::core::ffi::c_int,
        attr: hipDeviceAttribute_t,
        deviceId: ::core::ffi::c_int,
    ) -> hipError_t;
    pub fn hipDeviceGetDefaultMemPool(
        mem_pool: *mut hipMemPool_t,
        device: ::core::ffi::c_int,
    ) -> hipError_t;
    pub fn hipDeviceSetMemPool(
        device: ::core::ffi::c_int,
        mem_pool: hipMemPool_t,
    ) -> hipError_t;
    pub fn hipDeviceGetMemPool(
        mem_pool: *mut hipMemPool_t,
        device: ::core::ffi::c_int,
    ) -> hipError_t;
    pub fn hipGetDevicePropertiesR0600(
        prop: *mut hipDeviceProp_tR0600,
        deviceId: ::core::ffi::c_int,
    ) -> hipError_t;
    pub fn hipDeviceGetLimit(pValue: *mut usize, limit: hipLimit_t) -> hipError_t;
    pub fn hipDeviceSetLimit(limit: hipLimit_t, value: usize) -> hipError_t;
    pub fn hipGetDeviceFlags(flags: *mut ::core::ffi::c_uint) -> hipError_t;
    pub fn hipSetDeviceFlags(flags: ::core::ffi::c_uint) -> hipError_t;
    pub fn hipChooseDeviceR0600(
        device: *mut ::core::ffi::c_int,
        prop: *const hipDeviceProp_tR0600,
    ) -> hipError_t;
    pub fn hipExtGetLinkTypeAndHopCount(
        device1: ::core::ffi::c_int,
        device2: ::core::ffi::c_int,
        linktype: *mut u32,
        hopcount: *mut u32,
    ) -> hipError_t;
    pub fn hipIpcGetMemHandle(
        handle: *mut hipIpcMemHandle_t,
        devPtr: *mut ::core::ffi::c_void,
    ) -> hipError_t;
    pub fn hipIpcOpenMemHandle(
        devPtr: *mut *mut ::core::ffi::c_void,
        handle: hipIpcMemHandle_t,
        flags: ::core::ffi::c_uint,
    ) -> hipError_t;
    pub fn hipIpcCloseMemHandle(devPtr: *mut ::core::ffi::c_void) -> hipError_t;
    pub fn hipIpcGetEventHandle(
        handle: *mut hipIpcEventHandle_t,
        event: hipEvent_t,
    ) -> hipError_t;
    pub fn hipIpcOpenEventHandle(
        event: *mut hipEvent_t,
        handle: hipIpcEventHandle_t,
    ) -> hipError_t;
    pub fn hipFuncSetAttribute(
        func: *const ::core::ffi::c_void,
        attr: hipFuncAttribute,
        value: ::core::ffi::c_int,
    ) -> hipError_t;
    pub fn hipFuncSetCacheConfig(
        func: *const ::core::ffi::c_void,
        config: hipFuncCache_t,
    ) -> hipError_t;
    pub fn hipGetLastError() -> hipError_t;
    pub fn hipExtGetLastError() -> hipError_t;
    pub fn hipPeekAtLastError() -> hipError_t;
    pub fn hipGetErrorName(hip_error: hipError_t) -> *const ::core::ffi::c_char;
    pub fn hipGetErrorString(hipError: hipError_t) -> *const ::core::ffi::c_char;
    pub fn hipDrvGetErrorName(
        hipError: hipError_t,
        errorString: *mut *const ::core::ffi::c_char,
    ) -> hipError_t;
    pub fn hipDrvGetErrorString(
        hipError: hipError_t,
        errorString: *mut *const ::core::ffi::c_char,
    ) -> hipError_t;
    pub fn hipStreamCreate(stream: *mut hipStream_t) -> hipError_t;
    pub fn hipStreamCreateWithFlags(
        stream: *mut hipStream_t,
        flags: ::core::ffi::c_uint,
    ) -> hipError_t;
    pub fn hipStreamCreateWithPriority(
        stream: *mut hipStream_t,
        flags: ::core::ffi::c_uint,
        priority: ::core::ffi::c_int,
    ) -> hipError_t;
    pub fn hipDeviceGetStreamPriorityRange(
        leastPriority: *mut ::core::ffi::c_int,
        greatestPriority: *mut ::core::ffi::c_int,
    ) -> hipError_t;
    pub fn hipStreamDestroy(stream: hipStream_t) -> hipError_t;
    pub fn hipStreamQuery(stream: hipStream_t) -> hipError_t;
    pub fn hipStreamSynchronize(stream: hipStream_t) -> hipError_t;
    pub fn hipStreamWaitEvent(
        stream: hipStream_t,
        event: hipEvent_t,
        flags: ::core::ffi::c_uint,
    ) -> hipError_t;
    pub fn hipStreamGetFlags(
        stream: hipStream_t,
        flags: *mut ::core::ffi::c_uint,
    ) -> hipError_t;
    pub fn hipStreamGetId(
        stream: hipStream_t,
        streamId: *mut ::core::ffi::c_ulonglong,
    ) -> hipError_t;
    pub fn hipStreamGetPriority(
        stream: hipStream_t,
        priority: *mut ::core::ffi::c_int,
    ) -> hipError_t;
    pub fn hipStreamGetDevice(
        stream: hipStream_t,
        device: *mut hipDevice_t,
    ) -> hipError_t;
    pub fn hipExtStreamCreateWithCUMask(
        stream: *mut hipStream_t,
        cuMaskSize: u32,
        cuMask: *const u32,
    ) -> hipError_t;
    pub fn hipExtStreamGetCUMask(
        stream: hipStream_t,
        cuMaskSize: u32,
        cuMask: *mut u32,
    ) -> hipError_t;
    pub fn hipStreamAddCallback(
        stream: hipStream_t,
        callback: hipStreamCallback_t,
        userData: *mut ::core::ffi::c_void,
        flags: ::core::ffi::c_uint,
    ) -> hipError_t;
    pub fn hipStreamWaitValue32(
        stream: hipStream_t,
        ptr: *mut ::core::ffi::c_void,
        value: u32,
        flags: ::core::ffi::c_uint,
        mask: u32,
    ) -> hipError_t;
    pub fn hipStreamWaitValue64(
        stream: hipStream_t,
        ptr: *mut ::core::ffi::c_void,
        value: u64,
        flags: ::core::ffi::c_uint,
        mask: u64,
    ) -> hipError_t;
    pub fn hipStreamWriteValue32(
        stream: hipStream_t,
        ptr: *mut ::core::ffi::c_void,
        value: u32,
        flags: ::core::ffi::c_uint,
    ) -> hipError_t;
    pub fn hipStreamWriteValue64(
        stream: hipStream_t,
        ptr: *mut ::core::ffi::c_void,
        value: u64,
        flags: ::core::ffi::c_uint,
    ) -> hipError_t;
    pub fn hipEventCreateWithFlags(
        event: *mut hipEvent_t,
        flags: ::core::ffi::c_uint,
    ) -> hipError_t;
    pub fn hipEventCreate(event: *mut hipEvent_t) -> hipError_t;
    pub fn hipEventRecordWithFlags(
        event: hipEvent_t,
        stream: hipStream_t,
        flags: ::core::ffi::c_uint,
    ) -> hipError_t;
    pub fn hipEventRecord(event: hipEvent_t, stream: hipStream_t) -> hipError_t;
    pub fn hipEventDestroy(event: hipEvent_t) -> hipError_t;
    pub fn hipEventSynchronize(event: hipEvent_t) -> hipError_t;
    pub fn hipEventElapsedTime(
        ms: *mut f32,
        start: hipEvent_t,
        stop: hipEvent_t,
    ) -> hipError_t;
    pub fn hipEventQuery(event: hipEvent_t) -> hipError_t;
    pub fn hipPointerGetAttributes(
        attributes: *mut hipPointerAttribute_t,
        ptr: *const ::core::ffi::c_void,
    ) -> hipError_t;
    pub fn hipPointerGetAttribute(
        data: *mut ::core::ffi::c_void,
        attribute: hipPointer_attribute,
        ptr: hipDeviceptr_t,
    ) -> hipError_t;
    pub fn hipDrvPointerGetAttributes(
        numAttributes: ::core::ffi::c_uint,
        attributes: *mut hipPointer_attribute,
        data: *mut *mut ::core::ffi::c_void,
        ptr: hipDeviceptr_t,
    ) -> hipError_t;
    pub fn hipMalloc(ptr: *mut *mut ::core::ffi::c_void, size: usize) -> hipError_t;
    pub fn hipExtMallocWithFlags(
        ptr: *mut *mut ::core::ffi::c_void,
        sizeBytes: usize,
        flags: ::core::ffi::c_uint,
    ) -> hipError_t;
    pub fn hipHostMalloc(
        ptr: *mut *mut ::core::ffi::c_void,
        size: usize,
        flags: ::core::ffi::c_uint,
    ) -> hipError_t;
    pub fn hipMallocManaged(
        dev_ptr: *mut *mut ::core::ffi::c_void,
        size: usize,
        flags: ::core::ffi::c_uint,
    ) -> hipError_t;
    pub fn hipMemPrefetchAsync(
        dev_ptr: *const ::core::ffi::c_void,
        count: usize,
        device: ::core::ffi::c_int,
        stream: hipStream_t,
    ) -> hipError_t;
    pub fn hipMemAdvise(
        dev_ptr: *const ::core::ffi::c_void,
        count: usize,
        advice: hipMemoryAdvise,
        device: ::core::ffi::c_int,
    ) -> hipError_t;
    pub fn hipMallocAsync(
        dev_ptr: *mut *mut ::core::ffi::c_void,
        size: usize,
        stream: hipStream_t,
    ) -> hipError_t;
    pub fn hipFreeAsync(
        dev_ptr: *mut ::core::ffi::c_void,
        stream: hipStream_t,
    ) -> hipError_t;
    pub fn hipMemPoolTrimTo(
        mem_pool: hipMemPool_t,
        min_bytes_to_hold: usize,
    ) -> hipError_t;
    pub fn hipMemPoolSetAttribute(
        mem_pool: hipMemPool_t,
        attr: hipMemPoolAttr,
        value: *mut ::core::ffi::c_void,
    ) -> hipError_t;
    pub fn hipMemPoolGetAttribute(
        mem_pool: hipMemPool_t,
        attr: hipMemPoolAttr,
        value: *mut ::core::ffi::c_void,
    ) -> hipError_t;
    pub fn hipMemPoolSetAccess(
        mem_pool: hipMemPool_t,
        desc_list: *const hipMemAccessDesc,
        count: usize,
    ) -> hipError_t;
    pub fn hipMemPoolGetAccess(
        flags: *mut hipMemAccessFlags,
        mem_pool: hipMemPool_t,
        location: *mut hipMemLocation,
    ) -> hipError_t;
    pub fn hipMemPoolCreate(
        mem_pool: *mut hipMemPool_t,
        pool_props: *const hipMemPoolProps,
    ) -> hipError_t;
    pub fn hipMemPoolDestroy(mem_pool: hipMemPool_t) -> hipError_t;
    pub fn hipMallocFromPoolAsync(
        dev_ptr: *mut *mut ::core::ffi::c_void,
        size: usize,
        mem_pool: hipMemPool_t,
        stream: hipStream_t,
    ) -> hipError_t;
    pub fn hipHostAlloc(
        ptr: *mut *mut ::core::ffi::c_void,
        size: usize,
        flags: ::core::ffi::c_uint,
    ) -> hipError_t;
    pub fn hipHostGetDevicePointer(
        devPtr: *mut *mut ::core::ffi::c_void,
        hstPtr: *mut ::core::ffi::c_void,
        flags: ::core::ffi::c_uint,
    ) -> hipError_t;
    pub fn hipHostGetFlags(
        flagsPtr: *mut ::core::ffi::c_uint,
        hostPtr: *mut ::core::ffi::c_void,
    ) -> hipError_t;
    pub fn hipHostRegister(
        hostPtr: *mut ::core::ffi::c_void,
        sizeBytes: usize,
        flags: ::core::ffi::c_uint,
    ) -> hipError_t;
    pub fn hipHostUnregister(hostPtr: *mut ::core::ffi::c_void) -> hipError_t;
    pub fn hipMallocPitch(
        ptr: *mut *mut ::core::ffi::c_void,
        pitch: *mut usize,
        width: usize,
        height: usize,
    ) -> hipError_t;
    pub fn hipFree(ptr: *mut ::core::ffi::c_void) -> hipError_t;
    pub fn hipHostFree(ptr: *mut ::core::ffi::c_void) -> hipError_t;
    pub fn hipMemcpy(
        dst: *mut ::core::ffi::c_void,
        src: *const ::core::ffi::c_void,
        sizeBytes: usize,
        kind: hipMemcpyKind,
    ) -> hipError_t;
    pub fn hipMemcpyWithStream(
        dst: *mut ::core::ffi::c_void,
        src: *const ::core::ffi::c_void,
        sizeBytes: usize,
        kind: hipMemcpyKind,
        stream: hipStream_t,
    ) -> hipError_t;
    pub fn hipMemcpyHtoD(
        dst: hipDeviceptr_t,
        src: *const ::core::ffi::c_void,
        sizeBytes: usize,
    ) -> hipError_t;
    pub fn hipMemcpyDtoH(
        dst: *mut ::core::ffi::c_void,
        src: hipDeviceptr_t,
        sizeBytes: usize,
    ) -> hipError_t;
    pub fn hipMemcpyDtoD(
        dst: hipDeviceptr_t,
        src: hipDeviceptr_t,
        sizeBytes: usize,
    ) -> hipError_t;
    pub fn hipMemcpyHtoDAsync(
        dst: hipDeviceptr_t,
        src: *const ::core::ffi::c_void,
        sizeBytes: usize,
        stream: hipStream_t,
    ) -> hipError_t;
    pub fn hipMemcpyDtoHAsync(
        dst: *mut ::core::ffi::c_void,
        src: hipDeviceptr_t,
        sizeBytes: usize,
        stream: hipStream_t,
    ) -> hipError_t;
    pub fn hipMemcpyDtoDAsync(
        dst: hipDeviceptr_t,
        src: hipDeviceptr_t,
        sizeBytes: usize,
        stream: hipStream_t,
    ) -> hipError_t;
    pub fn hipModuleGetGlobal(
        dptr: *mut hipDeviceptr_t,
        bytes: *mut usize,
        hmod: hipModule_t,
        name: *const ::core::ffi::c_char,
    ) -> hipError_t;
    pub fn hipMemcpyAsync(
        dst: *mut ::core::ffi::c_void,
        src: *const ::core::ffi::c_void,
        sizeBytes: usize,
        kind: hipMemcpyKind,
        stream: hipStream_t,
    ) -> hipError_t;
    pub fn hipMemset(
        dst: *mut ::core::ffi::c_void,
        value: ::core::ffi::c_int,
        sizeBytes: usize,
    ) -> hipError_t;
    pub fn hipMemsetD8(
        dest: hipDeviceptr_t,
        value: ::core::ffi::c_uchar,
        count: usize,
    ) -> hipError_t;
    pub fn hipMemsetD8Async(
        dest: hipDeviceptr_t,
        value: ::core::ffi::c_uchar,
        count: usize,
        stream: hipStream_t,
    ) -> hipError_t;
    pub fn hipMemsetD16(
        dest: hipDeviceptr_t,
        value: ::core::ffi::c_ushort,
        count: usize,
    ) -> hipError_t;
    pub fn hipMemsetD16Async(
        dest: hipDeviceptr_t,
        value: ::core::ffi::c_ushort,
        count: usize,
        stream: hipStream_t,
    ) -> hipError_t;
    pub fn hipMemsetD32(
        dest: hipDeviceptr_t,
        value: ::core::ffi::c_int,
        count: usize,
    ) -> hipError_t;
    pub fn hipMemsetAsync(
        dst: *mut ::core::ffi::c_void,
        value: ::core::ffi::c_int,
        sizeBytes: usize,
        stream: hipStream_t,
    ) -> hipError_t;
    pub fn hipMemsetD32Async(
        dst: hipDeviceptr_t,
        value: ::core::ffi::c_int,
        count: usize,
        stream: hipStream_t,
    ) -> hipError_t;
    pub fn hipMemset2D(
        dst: *mut ::core::ffi::c_void,
        pitch: usize,
        value: ::core::ffi::c_int,
        width: usize,
        height: usize,
    ) -> hipError_t;
    pub fn hipMemset2DAsync(
        dst: *mut ::core::ffi::c_void,
        pitch: usize,
        value: ::core::ffi::c_int,
        width: usize,
        height: usize,
        stream: hipStream_t,
    ) -> hipError_t;
    pub fn hipMemGetInfo(free: *mut usize, total: *mut usize) -> hipError_t;
    pub fn hipMemPtrGetInfo(
        ptr: *mut ::core::ffi::c_void,
        size: *mut usize,
    ) -> hipError_t;
    pub fn hipMemcpy2D(
        dst: *mut ::core::ffi::c_void,
        dpitch: usize,
        src: *const ::core::ffi::c_void,
        spitch: usize,
        width: usize,
        height: usize,
        kind: hipMemcpyKind,
    ) -> hipError_t;
    pub fn hipMemcpy2DAsync(
        dst: *mut ::core::ffi::c_void,
        dpitch: usize,
        src: *const ::core::ffi::c_void,
        spitch: usize,
        width: usize,
        height: usize,
        kind: hipMemcpyKind,
        stream: hipStream_t,
    ) -> hipError_t;
    pub fn hipMemGetAddressRange(
        pbase: *mut hipDeviceptr_t,
        psize: *mut usize,
        dptr: hipDeviceptr_t,
    ) -> hipError_t;
    pub fn hipDeviceCanAccessPeer(
        canAccessPeer: *mut ::core::ffi::c_int,
        deviceId: ::core::ffi::c_int,
        peerDeviceId: ::core::ffi::c_int,
    ) -> hipError_t;
    pub fn hipDeviceEnablePeerAccess(
        peerDeviceId: ::core::ffi::c_int,
        flags: ::core::ffi::c_uint,
    ) -> hipError_t;
    pub fn hipDeviceDisablePeerAccess(peerDeviceId: ::core::ffi::c_int) -> hipError_t;
    pub fn hipMemcpyPeer(
        dst: *mut ::core::ffi::c_void,
        dstDeviceId: ::core::ffi::c_int,
        src: *const ::core::ffi::c_void,
        srcDeviceId: ::core::ffi::c_int,
        sizeBytes: usize,
    ) -> hipError_t;
    pub fn hipMemcpyPeerAsync(
        dst: *mut ::core::ffi::c_void,
        dstDeviceId: ::core::ffi::c_int,
        src: *const ::core::ffi::c_void,
        srcDevice: ::core::ffi::c_int,
        sizeBytes: usize,
        stream: hipStream_t,
    ) -> hipError_t;
    pub fn hipCtxSetCurrent(ctx: hipCtx_t) -> hipError_t;
    pub fn hipCtxGetCurrent(ctx: *mut hipCtx_t) -> hipError_t;
    pub fn hipCtxGetDevice(device: *mut hipDevice_t) -> hipError_t;
    pub fn hipDevicePrimaryCtxGetState(
        dev: hipDevice_t,
        flags: *mut ::core::ffi::c_uint,
        active: *mut ::core::ffi::c_int,
    ) -> hipError_t;
    pub fn hipDevicePrimaryCtxRelease(dev: hipDevice_t) -> hipError_t;
    pub fn hipDevicePrimaryCtxRetain(
        pctx: *mut hipCtx_t,
        dev: hipDevice_t,
    ) -> hipError_t;
    pub fn hipModuleLoad(
        module: *mut hipModule_t,
        fname: *const ::core::ffi::c_char,
    ) -> hipError_t;
    pub fn hipModuleUnload(module: hipModule_t) -> hipError_t;
    pub fn hipModuleGetFunction(
        function: *mut hipFunction_t,
        module: hipModule_t,
        kname: *const ::core::ffi::c_char,
    ) -> hipError_t;
    pub fn hipModuleGetFunctionCount(
        count: *mut ::core::ffi::c_uint,
        mod_: hipModule_t,
    ) -> hipError_t;
    pub fn hipFuncGetAttribute(
        value: *mut ::core::ffi::c_int,
        attrib: hipFunction_attribute,
        hfunc: hipFunction_t,
    ) -> hipError_t;
    pub fn hipModuleLoadData(
        module: *mut hipModule_t,
        image: *const ::core::ffi::c_void,
    ) -> hipError_t;
    pub fn hipModuleLoadDataEx(
        module: *mut hipModule_t,
        image: *const ::core::ffi::c_void,
        numOptions: ::core::ffi::c_uint,
        options: *mut hipJitOption,
        optionValues: *mut *mut ::core::ffi::c_void,
    ) -> hipError_t;
    pub fn hipModuleLaunchKernel(
        f: hipFunction_t,
        gridDimX: ::core::ffi::c_uint,
        gridDimY: ::core::ffi::c_uint,
        gridDimZ: ::core::ffi::c_uint,
        blockDimX: ::core::ffi::c_uint,
        blockDimY: ::core::ffi::c_uint,
        blockDimZ: ::core::ffi::c_uint,
        sharedMemBytes: ::core::ffi::c_uint,
        stream: hipStream_t,
        kernelParams: *mut *mut ::core::ffi::c_void,
        extra: *mut *mut ::core::ffi::c_void,
    ) -> hipError_t;
    pub fn hipModuleLaunchCooperativeKernel(
        f: hipFunction_t,
        gridDimX: ::core::ffi::c_uint,
        gridDimY: ::core::ffi::c_uint,
        gridDimZ: ::core::ffi::c_uint,
        blockDimX: ::core::ffi::c_uint,
        blockDimY: ::core::ffi::c_uint,
        blockDimZ: ::core::ffi::c_uint,
        sharedMemBytes: ::core::ffi::c_uint,
        stream: hipStream_t,
        kernelParams: *mut *mut ::core::ffi::c_void,
    ) -> hipError_t;
    pub fn hipDrvLaunchKernelEx(
        config: *const HIP_LAUNCH_CONFIG,
        f: hipFunction_t,
        params: *mut *mut ::core::ffi::c_void,
        extra: *mut *mut ::core::ffi::c_void,
    ) -> hipError_t;
    pub fn hipModuleOccupancyMaxPotentialBlockSize(
        gridSize: *mut ::core::ffi::c_int,
        blockSize: *mut ::core::ffi::c_int,
        f: hipFunction_t,
        dynSharedMemPerBlk: usize,
        blockSizeLimit: ::core::ffi::c_int,
    ) -> hipError_t;
    pub fn hipModuleOccupancyMaxPotentialBlockSizeWithFlags(
        gridSize: *mut ::core::ffi::c_int,
        blockSize: *mut ::core::ffi::c_int,
        f: hipFunction_t,
        dynSharedMemPerBlk: usize,
        blockSizeLimit: ::core::ffi::c_int,
        flags: ::core::ffi::c_uint,
    ) -> hipError_t;
    pub fn hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(
        numBlocks: *mut ::core::ffi::c_int,
        f: hipFunction_t,
        blockSize: ::core::ffi::c_int,
        dynSharedMemPerBlk: usize,
    ) -> hipError_t;
    pub fn hipModuleOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        numBlocks: *mut ::core::ffi::c_int,
        f: hipFunction_t,
        blockSize: ::core::ffi::c_int,
        dynSharedMemPerBlk: usize,
        flags: ::core::ffi::c_uint,
    ) -> hipError_t;
    pub fn hipProfilerStart() -> hipError_t;
    pub fn hipProfilerStop() -> hipError_t;
    pub fn hipLaunchHostFunc(
        stream: hipStream_t,
        fn_: hipHostFn_t,
        userData: *mut ::core::ffi::c_void,
    ) -> hipError_t;
    pub fn hipStreamBeginCapture(
        stream: hipStream_t,
        mode: hipStreamCaptureMode,
    ) -> hipError_t;
    pub fn hipStreamBeginCaptureToGraph(
        stream: hipStream_t,
        graph: hipGraph_t,
        dependencies: *const hipGraphNode_t,
        dependencyData: *const hipGraphEdgeData,
        numDependencies: usize,
        mode: hipStreamCaptureMode,
    ) -> hipError_t;
    pub fn hipStreamEndCapture(
        stream: hipStream_t,
        pGraph: *mut hipGraph_t,
    ) -> hipError_t;
    pub fn hipStreamGetCaptureInfo_v2(
        stream: hipStream_t,
        captureStatus_out: *mut hipStreamCaptureStatus,
        id_out: *mut ::core::ffi::c_ulonglong,
        graph_out: *mut hipGraph_t,
        dependencies_out: *mut *const hipGraphNode_t,
        numDependencies_out: *mut usize,
    ) -> hipError_t;
    pub fn hipStreamIsCapturing(
        stream: hipStream_t,
        pCaptureStatus: *mut hipStreamCaptureStatus,
    ) -> hipError_t;
    pub fn hipStreamUpdateCaptureDependencies(
        stream: hipStream_t,
        dependencies: *mut hipGraphNode_t,
        numDependencies: usize,
        flags: ::core::ffi::c_uint,
    ) -> hipError_t;
    pub fn hipThreadExchangeStreamCaptureMode(
        mode: *mut hipStreamCaptureMode,
    ) -> hipError_t;
    pub fn hipGraphCreate(
        pGraph: *mut hipGraph_t,
        flags: ::core::ffi::c_uint,
    ) -> hipError_t;
    pub fn hipGraphDestroy(graph: hipGraph_t) -> hipError_t;
    pub fn hipGraphAddDependencies(
        graph: hipGraph_t,
        from: *const hipGraphNode_t,
        to: *const hipGraphNode_t,
        numDependencies: usize,
    ) -> hipError_t;
    pub fn hipGraphGetEdges(
        graph: hipGraph_t,
        from: *mut hipGraphNode_t,
        to: *mut hipGraphNode_t,
        numEdges: *mut usize,
    ) -> hipError_t;
    pub fn hipGraphGetNodes(
        graph: hipGraph_t,
        nodes: *mut hipGraphNode_t,
        numNodes: *mut usize,
    ) -> hipError_t;
    pub fn hipGraphGetRootNodes(
        graph: hipGraph_t,
        pRootNodes: *mut hipGraphNode_t,
        pNumRootNodes: *mut usize,
    ) -> hipError_t;
    pub fn hipGraphNodeGetDependencies(
        node: hipGraphNode_t,
        pDependencies: *mut hipGraphNode_t,
        pNumDependencies: *mut usize,
    ) -> hipError_t;
    pub fn hipGraphNodeGetDependentNodes(
        node: hipGraphNode_t,
        pDependentNodes: *mut hipGraphNode_t,
        pNumDependentNodes: *mut usize,
    ) -> hipError_t;
    pub fn hipGraphNodeGetType(
        node: hipGraphNode_t,
        pType: *mut hipGraphNodeType,
    ) -> hipError_t;
    pub fn hipGraphDestroyNode(node: hipGraphNode_t) -> hipError_t;
    pub fn hipGraphClone(
        pGraphClone: *mut hipGraph_t,
        originalGraph: hipGraph_t,
    ) -> hipError_t;
    pub fn hipGraphInstantiate(
        pGraphExec: *mut hipGraphExec_t,
        graph: hipGraph_t,
        pErrorNode: *mut hipGraphNode_t,
        pLogBuffer: *mut ::core::ffi::c_char,
        bufferSize: usize,
    ) -> hipError_t;
    pub fn hipGraphInstantiateWithFlags(
        pGraphExec: *mut hipGraphExec_t,
        graph: hipGraph_t,
        flags: ::core::ffi::c_ulonglong,
    ) -> hipError_t;
    pub fn hipGraphInstantiateWithParams(
        pGraphExec: *mut hipGraphExec_t,
        graph: hipGraph_t,
        instantiateParams: *mut hipGraphInstantiateParams,
    ) -> hipError_t;
    pub fn hipGraphLaunch(graphExec: hipGraphExec_t, stream: hipStream_t) -> hipError_t;
    pub fn hipGraphUpload(graphExec: hipGraphExec_t, stream: hipStream_t) -> hipError_t;
    pub fn hipGraphExecGetFlags(
        graphExec: hipGraphExec_t,
        flags: *mut ::core::ffi::c_ulonglong,
    ) -> hipError_t;
    pub fn hipGraphExecDestroy(graphExec: hipGraphExec_t) -> hipError_t;
    pub fn hipGraphExecUpdate(
        hGraphExec: hipGraphExec_t,
        hGraph: hipGraph_t,
        hErrorNode_out: *mut hipGraphNode_t,
        updateResult_out: *mut hipGraphExecUpdateResult,
    ) -> hipError_t;
    pub fn hipGraphAddKernelNode(
        pGraphNode: *mut hipGraphNode_t,
        graph: hipGraph_t,
        pDependencies: *const hipGraphNode_t,
        numDependencies: usize,
        pNodeParams: *const hipKernelNodeParams,
    ) -> hipError_t;
    pub fn hipGraphKernelNodeGetParams(
        node: hipGraphNode_t,
        pNodeParams: *mut hipKernelNodeParams,
    ) -> hipError_t;
    pub fn hipGraphKernelNodeSetParams(
        node: hipGraphNode_t,
        pNodeParams: *const hipKernelNodeParams,
    ) -> hipError_t;
    pub fn hipGraphExecKernelNodeSetParams(
        hGraphExec: hipGraphExec_t,
        node: hipGraphNode_t,
        pNodeParams: *const hipKernelNodeParams,
    ) -> hipError_t;
    pub fn hipGraphAddMemcpyNode1D(
        pGraphNode: *mut hipGraphNode_t,
        graph: hipGraph_t,
        pDependencies: *const hipGraphNode_t,
        numDependencies: usize,
        dst: *mut ::core::ffi::c_void,
        src: *const ::core::ffi::c_void,
        count: usize,
        kind: hipMemcpyKind,
    ) -> hipError_t;
    pub fn hipGraphExecMemcpyNodeSetParams1D(
        hGraphExec: hipGraphExec_t,
        node: hipGraphNode_t,
        dst: *mut ::core::ffi::c_void,
        src: *const ::core::ffi::c_void,
        count: usize,
        kind: hipMemcpyKind,
    ) -> hipError_t;
    pub fn hipGraphAddMemsetNode(
        pGraphNode: *mut hipGraphNode_t,
        graph: hipGraph_t,
        pDependencies: *const hipGraphNode_t,
        numDependencies: usize,
        pMemsetParams: *const hipMemsetParams,
    ) -> hipError_t;
    pub fn hipGraphExecMemsetNodeSetParams(
        hGraphExec: hipGraphExec_t,
        node: hipGraphNode_t,
        pNodeParams: *const hipMemsetParams,
    ) -> hipError_t;
    pub fn hipGraphAddHostNode(
        pGraphNode: *mut hipGraphNode_t,
        graph: hipGraph_t,
        pDependencies: *const hipGraphNode_t,
        numDependencies: usize,
        pNodeParams: *const hipHostNodeParams,
    ) -> hipError_t;
    pub fn hipGraphAddChildGraphNode(
        pGraphNode: *mut hipGraphNode_t,
        graph: hipGraph_t,
        pDependencies: *const hipGraphNode_t,
        numDependencies: usize,
        childGraph: hipGraph_t,
    ) -> hipError_t;
    pub fn hipGraphAddEmptyNode(
        pGraphNode: *mut hipGraphNode_t,
        graph: hipGraph_t,
        pDependencies: *const hipGraphNode_t,
        numDependencies: usize,
    ) -> hipError_t;
    pub fn hipGraphAddEventRecordNode(
        pGraphNode: *mut hipGraphNode_t,
        graph: hipGraph_t,
        pDependencies: *const hipGraphNode_t,
        numDependencies: usize,
        event: hipEvent_t,
    ) -> hipError_t;
    pub fn hipGraphAddEventWaitNode(
        pGraphNode: *mut hipGraphNode_t,
        graph: hipGraph_t,
        pDependencies: *const hipGraphNode_t,
        numDependencies: usize,
        event: hipEvent_t,
    ) -> hipError_t;
    pub fn hipGraphDebugDotPrint(
        graph: hipGraph_t,
        path: *const ::core::ffi::c_char,
        flags: ::core::ffi::c_uint,
    ) -> hipError_t;
    pub fn hipMemAddressFree(
        devPtr: *mut ::core::ffi::c_void,
        size: usize,
    ) -> hipError_t;
    pub fn hipMemAddressReserve(
        ptr: *mut *mut ::core::ffi::c_void,
        size: usize,
        alignment: usize,
        addr: *mut ::core::ffi::c_void,
        flags: ::core::ffi::c_ulonglong,
    ) -> hipError_t;
    pub fn hipMemCreate(
        handle: *mut hipMemGenericAllocationHandle_t,
        size: usize,
        prop: *const hipMemAllocationProp,
        flags: ::core::ffi::c_ulonglong,
    ) -> hipError_t;
    pub fn hipMemGetAccess(
        flags: *mut ::core::ffi::c_ulonglong,
        location: *const hipMemLocation,
        ptr: *mut ::core::ffi::c_void,
    ) -> hipError_t;
    pub fn hipMemGetAllocationGranularity(
        granularity: *mut usize,
        prop: *const hipMemAllocationProp,
        option: hipMemAllocationGranularity_flags,
    ) -> hipError_t;
    pub fn hipMemMap(
        ptr: *mut ::core::ffi::c_void,
        size: usize,
        offset: usize,
        handle: hipMemGenericAllocationHandle_t,
        flags: ::core::ffi::c_ulonglong,
    ) -> hipError_t;
    pub fn hipMemRelease(handle: hipMemGenericAllocationHandle_t) -> hipError_t;
    pub fn hipMemSetAccess(
        ptr: *mut ::core::ffi::c_void,
        size: usize,
        desc: *const hipMemAccessDesc,
        count: usize,
    ) -> hipError_t;
    pub fn hipMemUnmap(ptr: *mut ::core::ffi::c_void, size: usize) -> hipError_t;
}
crate::status::status! {
    hipError_t, success: hipSuccess;
    hipSuccess,
    hipErrorInvalidValue,
    hipErrorOutOfMemory,
    hipErrorMemoryAllocation,
    hipErrorNotInitialized,
    hipErrorInitializationError,
    hipErrorDeinitialized,
    hipErrorProfilerDisabled,
    hipErrorProfilerNotInitialized,
    hipErrorProfilerAlreadyStarted,
    hipErrorProfilerAlreadyStopped,
    hipErrorInvalidConfiguration,
    hipErrorInvalidPitchValue,
    hipErrorInvalidSymbol,
    hipErrorInvalidDevicePointer,
    hipErrorInvalidMemcpyDirection,
    hipErrorInsufficientDriver,
    hipErrorMissingConfiguration,
    hipErrorPriorLaunchFailure,
    hipErrorInvalidDeviceFunction,
    hipErrorNoDevice,
    hipErrorInvalidDevice,
    hipErrorInvalidImage,
    hipErrorInvalidContext,
    hipErrorContextAlreadyCurrent,
    hipErrorMapFailed,
    hipErrorMapBufferObjectFailed,
    hipErrorUnmapFailed,
    hipErrorArrayIsMapped,
    hipErrorAlreadyMapped,
    hipErrorNoBinaryForGpu,
    hipErrorAlreadyAcquired,
    hipErrorNotMapped,
    hipErrorNotMappedAsArray,
    hipErrorNotMappedAsPointer,
    hipErrorECCNotCorrectable,
    hipErrorUnsupportedLimit,
    hipErrorContextAlreadyInUse,
    hipErrorPeerAccessUnsupported,
    hipErrorInvalidKernelFile,
    hipErrorInvalidGraphicsContext,
    hipErrorInvalidSource,
    hipErrorFileNotFound,
    hipErrorSharedObjectSymbolNotFound,
    hipErrorSharedObjectInitFailed,
    hipErrorOperatingSystem,
    hipErrorInvalidHandle,
    hipErrorInvalidResourceHandle,
    hipErrorIllegalState,
    hipErrorNotFound,
    hipErrorNotReady,
    hipErrorIllegalAddress,
    hipErrorLaunchOutOfResources,
    hipErrorLaunchTimeOut,
    hipErrorPeerAccessAlreadyEnabled,
    hipErrorPeerAccessNotEnabled,
    hipErrorSetOnActiveProcess,
    hipErrorContextIsDestroyed,
    hipErrorAssert,
    hipErrorHostMemoryAlreadyRegistered,
    hipErrorHostMemoryNotRegistered,
    hipErrorLaunchFailure,
    hipErrorCooperativeLaunchTooLarge,
    hipErrorNotSupported,
    hipErrorStreamCaptureUnsupported,
    hipErrorStreamCaptureInvalidated,
    hipErrorStreamCaptureMerge,
    hipErrorStreamCaptureUnmatched,
    hipErrorStreamCaptureUnjoined,
    hipErrorStreamCaptureIsolation,
    hipErrorStreamCaptureImplicit,
    hipErrorCapturedEvent,
    hipErrorStreamCaptureWrongThread,
    hipErrorGraphExecUpdateFailure,
    hipErrorInvalidChannelDescriptor,
    hipErrorInvalidTexture,
    hipErrorUnknown,
    hipErrorRuntimeMemory,
    hipErrorRuntimeOther,
    hipErrorTbd,
}
