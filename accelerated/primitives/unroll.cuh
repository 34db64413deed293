// This header defines UNROLL, which stands before a loop and lets the compiler unroll all of it.
#pragma once

#ifdef EMULATED_CUDA
#define UNROLL
#else
#define UNROLL _Pragma("unroll")
#endif
