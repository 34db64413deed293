// This header provides CUDA C++ on the host; the compiler reads it before a kernel's source.
#pragma once
#define EMULATED_CUDA 1

#include <cassert>
#undef _GLIBCXX_USE_STD_SPEC_FUNCS  // Each module would instantiate the special functions of <cmath>.
#include <vector_functions.h>
#include <vector_types.h>

#include "scheduler.h"
#include "warp.h"
#include "intrinsics.h"

#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __grid_constant__
#define __grid_constant__
#undef __forceinline__
#ifdef EMULATED_RACES  // Accesses to structures passed by value or returned would be missed without inlining.
#define __forceinline__ inline __attribute__((always_inline))
#else
#define __forceinline__ inline  // Forced inlining would triple the compile time of kernels with many variants.
#endif
#undef __noinline__
#define __noinline__ __attribute__((noinline))

#define threadIdx (emulated::current->index)
#define blockIdx (emulated::block.index)
#define blockDim (emulated::block.size)
#define gridDim (emulated::block.grid)
#define warpSize 32
#define __builtin_assume(condition)

// This definition takes precedence over the C library's, so that an assertion fails the launch, not the process.
extern "C" __attribute__((visibility("hidden"))) inline void __assert_fail(const char* condition, const char* file,
                                                                           unsigned line, const char*) noexcept {
  emulated::fail("assertion failed at %s:%u: %s", emulated::base_name(file), line, condition);
}
