// Addresses in the kernels' argument structures: pointers for the device compilers, 64-bit integers for bindgen, since
// the host never follows them.
#pragma once

#ifdef HIPVIT_BINDGEN
#define DEVICE_POINTER(type) unsigned long long
#else
#define DEVICE_POINTER(type) type *
#endif
