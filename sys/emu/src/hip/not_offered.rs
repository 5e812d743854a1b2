//! What of HIP is not offered: interprocess sharing, virtual memory management, and explicit memory pools.

use hipvit_sys::hip::hipError_t;

hipvit_sys::not_offered! { hip, hipError_t, hipError_t::hipErrorNotSupported;
    hipIpcCloseMemHandle
    hipIpcGetEventHandle
    hipIpcGetMemHandle
    hipIpcOpenEventHandle
    hipIpcOpenMemHandle
    hipMemAddressFree
    hipMemAddressReserve
    hipMemCreate
    hipMemGetAccess
    hipMemGetAllocationGranularity
    hipMemMap
    hipMemPoolCreate
    hipMemPoolDestroy
    hipMemPoolGetAccess
    hipMemPoolGetAttribute
    hipMemPoolSetAccess
    hipMemPoolSetAttribute
    hipMemRelease
    hipMemSetAccess
    hipMemUnmap
}
