// This header locates an attention call's vectors and their padding.
#pragma once
#include "primitives/geometry.cuh"
#include "primitives/types.cuh"

// Orders the vectors of a call: all of them, as in memory, or the vectors of one time-step. Vector n has the indices (n
// / inner / middle, n / inner % middle, n % inner). Each property of a vector is a sum over its indices.
struct Rows {
  FastDivmod middle, inner;
  int count;
  int address[3];   // strides of the vector in memory
  int time[3];      // strides of its time-step
  int sequence[3];  // strides of its sequence, batch * beams + beam
  int first_address, first_time;
};

struct Row {
  int address, time, sequence;
};

__device__ __forceinline__ Row locate(const Rows& rows, unsigned n) {
  unsigned index[3], outer;
  outer = rows.inner.divide(n, index[2]);
  index[0] = rows.middle.divide(outer, index[1]);
  Row row{rows.first_address, rows.first_time, 0};
#pragma unroll
  for (int d = 0; d < 3; d++) {
    row.address += index[d] * rows.address[d];
    row.time += index[d] * rows.time[d];
    row.sequence += index[d] * rows.sequence[d];
  }
  return row;
}

// Locates the windows of queries and the lengths of sequences in a space, as attention_schedule stores them.
struct Schedule {
  long long offset;  // bytes from the start of the space
  int windows, q_sequences;

  __device__ __forceinline__ const int* at(const void* space) const {
    return reinterpret_cast<const int*>(static_cast<const char*>(space) + offset);
  }
  __device__ __forceinline__ const int* low(const void* space) const { return at(space); }
  __device__ __forceinline__ const int* high(const void* space) const { return at(space) + windows; }
  __device__ __forceinline__ const int* q_lengths(const void* space) const { return at(space) + 2 * windows; }
  __device__ __forceinline__ const int* k_lengths(const void* space) const {
    return at(space) + 2 * windows + q_sequences;
  }
};

template <class T> __device__ __forceinline__ T* at_byte(void* base, long long offset) {
  return reinterpret_cast<T*>(static_cast<char*>(base) + offset);
}
template <class T> __device__ __forceinline__ const T* at_byte(const void* base, long long offset) {
  return reinterpret_cast<const T*>(static_cast<const char*>(base) + offset);
}
