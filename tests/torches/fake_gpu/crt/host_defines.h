// What the CUDA runtime's headers take from the compiler of CUDA, whose own headers are not in the runtime's wheel: for a host, nothing.
#pragma once

#define CUDARTAPI
#define CUDARTAPI_CDECL
#define CUDA_CB
#define __host__
#define __device__
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __builtin_align__(bytes) __align__(bytes)
#define __device_builtin__
#define __cudart_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
