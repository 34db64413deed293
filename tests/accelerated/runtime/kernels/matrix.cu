// One warp multiplies a 16 x K tile by the transpose of a 16 x K tile with ldmatrix and mma, on both devices.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#ifndef ELEMENT
#define ELEMENT __half
#define PTX_ELEMENT "f16"
#endif

struct Arguments {
  const ELEMENT* a;  // 16 x depth
  const ELEMENT* b;  // columns x depth
  float* c;          // 16 x columns
  int columns;       // a multiple of 16
  int depth;         // a multiple of 16
};

__device__ __forceinline__ void multiply(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
#ifdef EMULATED_CUDA
  emulated::mma_m16n8k16<ELEMENT>(d, a, b);
#else
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." PTX_ELEMENT "." PTX_ELEMENT
               ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

__device__ __forceinline__ void load_matrices(unsigned (&registers)[4], const void* row) {
#ifdef EMULATED_CUDA
  emulated::ldmatrix(registers, row);
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
               : "r"((unsigned)__cvta_generic_to_shared(row)));
#endif
}

extern "C" __global__ void multiply_tile(const Arguments arguments) {
  __shared__ __align__(16) ELEMENT a_tile[16][24], b_tile[16][24];
  const int lane = threadIdx.x, first_column = blockIdx.x * 16, depth = arguments.depth;
  float sums[2][4] = {};
  for (int k = 0; k < depth; k += 16) {
    for (int i = lane; i < 256; i += 32) {
      a_tile[i / 16][i % 16] = arguments.a[i / 16 * depth + k + i % 16];
      b_tile[i / 16][i % 16] = arguments.b[(first_column + i / 16) * depth + k + i % 16];
    }
    __syncthreads();
    unsigned a[4], b[4];
    load_matrices(a, &a_tile[lane % 16][lane / 16 * 8]);
    load_matrices(b, &b_tile[lane % 16][lane / 16 * 8]);
    const unsigned left[2] = {b[0], b[2]}, right[2] = {b[1], b[3]};
    multiply(sums[0], a, left);
    multiply(sums[1], a, right);
    __syncthreads();
  }
  for (int half = 0; half < 2; half++)
    for (int i = 0; i < 4; i++)
      arguments.c[(lane / 4 + i / 2 * 8) * arguments.columns + first_column + half * 8 + lane % 4 * 2 + i % 2] =
          sums[half][i];
}
