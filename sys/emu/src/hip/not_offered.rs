//! What of HIP is not offered: masks of compute units; sharing with other processes; virtual memory management; pools of
//! one's own.

use hipvit_sys::hip::hipError_t;

hipvit_sys::not_offered! { hip, hipError_t, hipError_t::hipErrorNotSupported;
    hipExtStreamCreateWithCUMask
    hipExtStreamGetCUMask
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
