// The loop of every element-by-element kernel: out[i] = function(in0[i], in1[i], ...) blended with out[i].
//
// One thread computes one pack of neighbours along the innermost dimension of the output: operands that are contiguous
// there move in single accesses of up to 16 bytes, operands broadcast along it are read once, others element by element.
#pragma once
#include "index.cuh"
#include "types.cuh"

template <class T, int WIDTH>
__device__ __forceinline__ bool packed(const Pack<T, WIDTH>*& pack, const T* pointer) {
  pack = reinterpret_cast<const Pack<T, WIDTH>*>(pointer);
  return reinterpret_cast<uintptr_t>(pointer) % alignof(Pack<T, WIDTH>) == 0;
}

// Reads `count` elements that lie `stride` apart into `values`.
template <class C, int WIDTH, class T>
__device__ __forceinline__ void read_pack(const T* pointer, long long stride, bool vectorised, unsigned count, C (&values)[WIDTH]) {
  const Pack<T, WIDTH>* pack;
  if (vectorised && count == WIDTH && packed<T, WIDTH>(pack, pointer)) {
    Pack<T, WIDTH> loaded = *pack;
#pragma unroll
    for (int i = 0; i < WIDTH; i++) values[i] = load<C>(loaded.item[i]);
  } else if (stride == 0) {
    C value = load<C>(*pointer);
#pragma unroll
    for (int i = 0; i < WIDTH; i++) values[i] = value;
  } else {
#pragma unroll
    for (int i = 0; i < WIDTH; i++)
      if (i < count) values[i] = load<C>(pointer[i * stride]);
  }
}

template <int WIDTH, class C, class T>
__device__ __forceinline__ void write_pack(T* pointer, long long stride, bool vectorised, unsigned count, const C (&values)[WIDTH], C beta) {
  C prior[WIDTH];
  if (beta != C(0)) read_pack<C, WIDTH>(const_cast<const T*>(pointer), stride, vectorised, count, prior);
  const Pack<T, WIDTH>* pack;
  if (vectorised && count == WIDTH && packed<T, WIDTH>(pack, pointer)) {
    Pack<T, WIDTH> stored;
#pragma unroll
    for (int i = 0; i < WIDTH; i++) stored.item[i] = store<T>(beta != C(0) ? values[i] + beta * prior[i] : values[i]);
    *reinterpret_cast<Pack<T, WIDTH>*>(pointer) = stored;
  } else {
#pragma unroll
    for (int i = 0; i < WIDTH; i++)
      if (i < count) pointer[i * stride] = store<T>(beta != C(0) ? values[i] + beta * prior[i] : values[i]);
  }
}

// A whole pack where every operand is one contiguous row that starts at an address of 16 bytes: the common case, whose
// index arithmetic is one addition.
template <class T, int WIDTH>
__device__ __forceinline__ bool aligned(const T* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % alignof(Pack<T, WIDTH>) == 0;
}

// out = alpha * function(in) + beta * out for one input.
template <int WIDTH, class C, class TIn, class TOut, class Function>
__device__ __forceinline__ void map(const Geometry<2>& geometry, const TIn* in, TOut* out, C alpha, C beta, Function function) {
  if (geometry.outer_rank == 0 && geometry.vectorised == 3 && beta == C(0) && aligned<TIn, WIDTH>(in) && aligned<TOut, WIDTH>(out)) {
    unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
    if ((index + 1) * WIDTH <= geometry.row) {
      Pack<TIn, WIDTH> a = reinterpret_cast<const Pack<TIn, WIDTH>*>(in)[index];
      Pack<TOut, WIDTH> result;
#pragma unroll
      for (int i = 0; i < WIDTH; i++) result.item[i] = store<TOut>(alpha * function(load<C>(a.item[i])));
      reinterpret_cast<Pack<TOut, WIDTH>*>(out)[index] = result;
      return;
    }
  }
  for (unsigned index = blockIdx.x * blockDim.x + threadIdx.x; index < geometry.packs; index += gridDim.x * blockDim.x) {
    long long offset[2];
    unsigned count = geometry.locate(index, offset);
    C a[WIDTH], result[WIDTH];
    read_pack<C, WIDTH>(in + offset[0], geometry.row_stride[0], geometry.vectorised & 1, count, a);
#pragma unroll
    for (int i = 0; i < WIDTH; i++) result[i] = i < count ? alpha * function(a[i]) : C(0);
    write_pack<WIDTH>(out + offset[1], geometry.row_stride[1], geometry.vectorised & 2, count, result, beta);
  }
}

// out = alpha * function(in0, in1) + beta * out for two inputs.
template <int WIDTH, class C, class TIn, class TOut, class Function>
__device__ __forceinline__ void map(const Geometry<3>& geometry, const TIn* in0, const TIn* in1, TOut* out, C alpha, C beta, Function function) {
  bool whole = geometry.outer_rank == 0 && geometry.vectorised == 7 && beta == C(0);
  if (whole && aligned<TIn, WIDTH>(in0) && aligned<TIn, WIDTH>(in1) && aligned<TOut, WIDTH>(out)) {
    unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
    if ((index + 1) * WIDTH <= geometry.row) {
      Pack<TIn, WIDTH> a = reinterpret_cast<const Pack<TIn, WIDTH>*>(in0)[index];
      Pack<TIn, WIDTH> b = reinterpret_cast<const Pack<TIn, WIDTH>*>(in1)[index];
      Pack<TOut, WIDTH> result;
#pragma unroll
      for (int i = 0; i < WIDTH; i++) result.item[i] = store<TOut>(alpha * function(load<C>(a.item[i]), load<C>(b.item[i])));
      reinterpret_cast<Pack<TOut, WIDTH>*>(out)[index] = result;
      return;
    }
  }
  for (unsigned index = blockIdx.x * blockDim.x + threadIdx.x; index < geometry.packs; index += gridDim.x * blockDim.x) {
    long long offset[3];
    unsigned count = geometry.locate(index, offset);
    C a[WIDTH], b[WIDTH], result[WIDTH];
    read_pack<C, WIDTH>(in0 + offset[0], geometry.row_stride[0], geometry.vectorised & 1, count, a);
    read_pack<C, WIDTH>(in1 + offset[1], geometry.row_stride[1], geometry.vectorised & 2, count, b);
#pragma unroll
    for (int i = 0; i < WIDTH; i++) result[i] = i < count ? alpha * function(a[i], b[i]) : C(0);
    write_pack<WIDTH>(out + offset[2], geometry.row_stride[2], geometry.vectorised & 4, count, result, beta);
  }
}
