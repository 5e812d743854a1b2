// Addresses in the kernels' argument structures: pointers for the device compilers, hip_safe::DeviceAddress for bindgen,
// since the host never follows them.
#pragma once

#ifdef HIPVIT_BINDGEN
typedef unsigned long long DeviceAddress;
#define DEVICE_POINTER(type) DeviceAddress
#else
#define DEVICE_POINTER(type) type *
#endif
