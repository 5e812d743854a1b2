//! Functions of HIP that are not offered: interprocess sharing and explicit memory pools.

use hipvit_sys::hip::hipError_t;

hip_provider::not_offered! { hip, hipError_t, hipError_t::hipErrorNotSupported;
    hipIpcCloseMemHandle
    hipIpcGetEventHandle
    hipIpcGetMemHandle
    hipIpcOpenEventHandle
    hipIpcOpenMemHandle
    hipMemPoolCreate
    hipMemPoolDestroy
    hipMemPoolGetAccess
    hipMemPoolGetAttribute
    hipMemPoolSetAccess
    hipMemPoolSetAttribute
}
