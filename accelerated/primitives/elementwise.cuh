// This header runs every element-by-element kernel: out[i] = function(in0[i], in1[i], ...). The function may read the
// previous out[i].
//
// The roofline bound is bytes: memory needs about 25 KB in flight per SM. Tensors that all operands index as one row
// move in accesses of 16 bytes. A thread takes `flat` vectors and reads several before the first use. Rows of full
// vectors move vector by vector. Other rows, unaligned or strided, move element by element. Neighbouring threads touch
// neighbouring elements, and a thread's elements have a fixed stride. So it computes only the first offset, in about 60
// instructions. geometry.py chooses the path.
//
// Kernels compute their first offset before they wait for earlier kernels: they begin with
// griddepcontrol_wait_deferred() (dependent_launch.cuh). The latency of one read and of jumps to uncached code limits
// small tensors. So one vector per thread has a separate path.
//
// L2 reads each partly written sector (32 bytes) separately when it evicts it. If a tensor exceeds L2, the kernel
// prefetches the sectors at the ends of its rows. On an H200, setting 205 MB in rows of 56 float takes 158 us without
// prefetches and 99 us with them.
#pragma once
#include <type_traits>

#include "primitives/geometry.cuh"
#include "primitives/types.cuh"

template <class T, int WIDTH>
__device__ __forceinline__ bool packed(const Vector<T, WIDTH>*& vector, const T* pointer) {
  vector = reinterpret_cast<const Vector<T, WIDTH>*>(pointer);
  return reinterpret_cast<uintptr_t>(pointer) % alignof(Vector<T, WIDTH>) == 0;
}

// Reads `count` elements with stride `stride` into `values`.
template <class C, int WIDTH, class T>
__device__ __forceinline__ void read_vector(const T* pointer, long long stride, bool vectorised, unsigned count,
                                            C (&values)[WIDTH]) {
  const Vector<T, WIDTH>* vector;
  if (vectorised && count == WIDTH && packed<T, WIDTH>(vector, pointer)) {
    Vector<T, WIDTH> loaded = *vector;
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
__device__ __forceinline__ void write_vector(T* pointer, long long stride, bool vectorised, unsigned count,
                                             const C (&values)[WIDTH], C beta) {
  C prior[WIDTH];
  if (beta != C(0)) read_vector<C, WIDTH>(const_cast<const T*>(pointer), stride, vectorised, count, prior);
  const Vector<T, WIDTH>* vector;
  if (vectorised && count == WIDTH && packed<T, WIDTH>(vector, pointer)) {
    Vector<T, WIDTH> stored;
#pragma unroll
    for (int i = 0; i < WIDTH; i++) stored.item[i] = store<T>(beta != C(0) ? values[i] + beta * prior[i] : values[i]);
    *reinterpret_cast<Vector<T, WIDTH>*>(pointer) = stored;
  } else {
#pragma unroll
    for (int i = 0; i < WIDTH; i++)
      if (i < count) pointer[i * stride] = store<T>(beta != C(0) ? values[i] + beta * prior[i] : values[i]);
  }
}

template <class T, int WIDTH> __device__ __forceinline__ bool aligned(const T* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % alignof(Vector<T, WIDTH>) == 0;
}

// --- the loop ---

// LONG_FUNCTION says that an early launch of the next kernel would only compete with the function's instructions. With
// an early launch, tanh of 0.4 and 0.8 MB takes 0.1 to 0.3 us longer. Functions of two operands take 0.2 us longer in a
// stream. Short functions take 0.05 to 0.1 us less.
template <class Function> constexpr bool LONG_FUNCTION = false;

// This type describes a kernel's work per element. Its function maps vectors of the inputs and of the output's prior
// values to the stored vector. It must not use the prior values if `blends` is false.
//   template <bool BLENDS, int N> Vector<Out, N> operator()(const Vector<In, N>* in, const Vector<Out, N>& prior) const
template <class In, int INPUTS, class Out, class Function> struct Elementwise {
  const In* in[INPUTS == 0 ? 1 : INPUTS];
  Out* out;
  bool blends;
  Function function;
  int reads = INPUTS;               // number of inputs that the function needs
  unsigned prefetching_blocks = 0;  // blocks that prefetch their first reads to L2, for operands that are one row

  // These are vectors, or elements, whose reads are in flight together.
  static constexpr int FLAT = INPUTS == 2 ? 2 : 4, VECTORS = INPUTS == 2 ? 1 : 2, ITEMS = 4;
  static constexpr int OPERANDS = INPUTS + 1, VALUES = INPUTS == 0 ? 1 : INPUTS;

  // Waits for earlier kernels. The arguments are the offsets of the first elements.
  __device__ __forceinline__ void wait_for_operands(unsigned of_in, unsigned of_out) const {
    if constexpr (INPUTS == 0) griddepcontrol_wait_before_access(out + of_out);
    else griddepcontrol_wait_before_access(in[0] + of_in, out + of_out);
  }

  // Handles one vector per thread of one row, as in small tensors. The path from the wait to the end is short and has
  // no far jumps.
  template <int WIDTH> __device__ __forceinline__ void run_vector(unsigned vector) const {
    if (INPUTS < 2 && !LONG_FUNCTION<Function>) griddepcontrol_launch_dependents_early();
    wait_for_operands(vector * WIDTH, vector * WIDTH);
    Vector<In, WIDTH> values[VALUES];
#pragma unroll
    for (int n = 0; n < INPUTS; n++)
      if (n < reads) values[n] = reinterpret_cast<const Vector<In, WIDTH>*>(in[n])[vector];
    griddepcontrol_launch_dependents();
    reinterpret_cast<Vector<Out, WIDTH>*>(out)[vector] =
        function.template operator()<false, WIDTH>(values, Vector<Out, WIDTH>{});
  }

  // Handles one row, vectors before `end`.
  template <int WIDTH>
  __device__ __forceinline__ void run_flat(unsigned first, unsigned vectors_per_thread, unsigned end) const {
    if (first >= end) return;
    if (vectors_per_thread == 1) return run_vector<WIDTH>(first);
    if (blockIdx.x < prefetching_blocks) {
#pragma unroll
      for (int u = 0; u < FLAT; u++)
        if (u < vectors_per_thread && first + u * blockDim.x < end)
#pragma unroll
          for (int n = 0; n < INPUTS; n++)
            if (n < reads) prefetch_l2(in[n] + (first + u * blockDim.x) * WIDTH);
    }
    wait_for_operands(first * WIDTH, first * WIDTH);
    for (unsigned done = 0; done < vectors_per_thread; done += FLAT) {
      Vector<In, WIDTH> values[FLAT][VALUES];
      const unsigned start = first + done * blockDim.x;
#pragma unroll
      for (int u = 0; u < FLAT; u++)
        if (done + u < vectors_per_thread && start + u * blockDim.x < end)
#pragma unroll
          for (int n = 0; n < INPUTS; n++)
            if (n < reads) values[u][n] = reinterpret_cast<const Vector<In, WIDTH>*>(in[n])[start + u * blockDim.x];
      if (done == 0) griddepcontrol_launch_dependents();
#pragma unroll
      for (int u = 0; u < FLAT; u++)
        if (done + u < vectors_per_thread && start + u * blockDim.x < end)
          reinterpret_cast<Vector<Out, WIDTH>*>(out)[start + u * blockDim.x] =
              function.template operator()<false, WIDTH>(values[u], Vector<Out, WIDTH>{});
    }
  }

  // Handles rows of full vectors, up to `end`. The vectors of each operand are aligned, or the operand is broadcast
  // along rows.
  template <int WIDTH>
  __device__ __forceinline__ void run_vectors(const Geometry<OPERANDS>& geometry, unsigned first, unsigned end) const {
    for (unsigned done = 0; done < geometry.vectors_per_thread; done += VECTORS) {
      Vector<In, WIDTH> values[VECTORS][VALUES];
      Vector<Out, WIDTH> prior[VECTORS];
      unsigned offset[VECTORS][OPERANDS];
      auto exists = [&](int u) {
        return done + u < geometry.vectors_per_thread && first + (done + u) * blockDim.x < end;
      };
#pragma unroll
      for (int u = 0; u < VECTORS; u++) {
        if (exists(u)) geometry.locate(first + (done + u) * blockDim.x, offset[u]);
        else if (u == 0) return;
      }
      if (done == 0) wait_for_operands(offset[0][0], offset[0][INPUTS]);
#pragma unroll
      for (int u = 0; u < VECTORS; u++) {
        if (!exists(u)) continue;
#pragma unroll
        for (int n = 0; n < INPUTS; n++) {
          if (n >= reads) continue;
          if (geometry.row_stride[n] != 0) {
            values[u][n] = *reinterpret_cast<const Vector<In, WIDTH>*>(in[n] + offset[u][n]);
          } else {
            const In value = in[n][offset[u][n]];
#pragma unroll
            for (int i = 0; i < WIDTH; i++) values[u][n].item[i] = value;
          }
        }
        if (blends) prior[u] = *reinterpret_cast<const Vector<Out, WIDTH>*>(out + offset[u][INPUTS]);
      }
      if (done == 0) griddepcontrol_launch_dependents();
#pragma unroll
      for (int u = 0; u < VECTORS; u++)
        if (exists(u))
          *reinterpret_cast<Vector<Out, WIDTH>*>(out + offset[u][INPUTS]) =
              function.template operator()<true, WIDTH>(values[u], prior[u]);
    }
  }

  // Handles `N` elements of a thread from the `done`-th on, with one switch for all. `edge` says that they are at the
  // end of a row.
  template <int N>
  __device__ __forceinline__ void run_some(const Geometry<OPERANDS>& geometry, const unsigned (&offset)[OPERANDS],
                                           unsigned done, bool edge) const {
    Vector<In, N> values[VALUES];
    Vector<Out, N> prior;
    auto at = [&](int u, int n) { return offset[n] + (done + u) * geometry.item_stride[n]; };
#pragma unroll
    for (int u = 0; u < N; u++)
#pragma unroll
      for (int n = 0; n < INPUTS; n++)
        if (n < reads) values[n].item[u] = in[n][at(u, n)];
    if (blends) {
#pragma unroll
      for (int u = 0; u < N; u++) prior.item[u] = out[at(u, INPUTS)];
    } else if (edge) {
#pragma unroll
      for (int u = 0; u < N; u++)
        prefetch_line_l2(out + at(u, INPUTS));  // A partial sector there costs more than this prefetch.
    }
    if (done == 0) griddepcontrol_launch_dependents();
    const Vector<Out, N> results = function.template operator()<true, N>(values, prior);
#pragma unroll
    for (int u = 0; u < N; u++) out[at(u, INPUTS)] = results.item[u];
  }

  // Handles single elements.
  __device__ __forceinline__ void run_items(const Geometry<OPERANDS>& geometry) const {
    griddepcontrol_launch_dependents_early(SHORT_GRID_OF_ITEMS);
    const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= geometry.vectors) return;
    unsigned offset[OPERANDS], position, in_row;
    geometry.locate(index, offset, position);
    // Only the last element may be missing.
    const unsigned count =
        geometry.items - (position + (geometry.items - 1) * geometry.item_distance >= geometry.item_extent);
    geometry.vectors_per_row.divide(index, in_row);
    const bool edge = geometry.partial_sectors && (in_row == 0 || in_row + 1 == geometry.vectors_per_row.divisor);
    wait_for_operands(offset[0], offset[INPUTS]);
    if (INPUTS != 0 && count == 2) return run_some<2>(geometry, offset, 0, edge);  // Small tensors use this path.
    unsigned done = 0;
    for (; done + ITEMS <= count; done += ITEMS) run_some<ITEMS>(geometry, offset, done, edge);
    for (; done < count; done++) run_some<1>(geometry, offset, done, edge);
  }

  // Handles vectors from `begin` on that are not aligned or not full, element by element. Neighbouring threads take
  // neighbouring elements.
  template <int WIDTH>
  __device__ __forceinline__ void run_rest(const Geometry<OPERANDS>& geometry, unsigned begin) const {
    const unsigned block = blockIdx.x * (blockDim.x * geometry.vectors_per_thread),
                   vectors_per_thread = geometry.vectors_per_thread * WIDTH;
    if (block + blockDim.x * geometry.vectors_per_thread <= begin) return;
    wait_for_operands(0, 0);
#pragma unroll 2
    for (unsigned done = 0; done < vectors_per_thread; done++) {
      Vector<In, 1> values[VALUES];
      Vector<Out, 1> prior;
      unsigned offset[OPERANDS];
      const unsigned element = block * WIDTH + threadIdx.x + done * blockDim.x, vector = element / WIDTH;
      if (vector < begin || vector >= geometry.vectors || geometry.locate(vector, offset) <= element % WIDTH) continue;
#pragma unroll
      for (int n = 0; n < OPERANDS; n++) offset[n] += element % WIDTH * geometry.row_stride[n];
#pragma unroll
      for (int n = 0; n < INPUTS; n++)
        if (n < reads) values[n].item[0] = in[n][offset[n]];
      if (blends) prior.item[0] = out[offset[INPUTS]];
      out[offset[INPUTS]] = function.template operator()<true, 1>(values, prior).item[0];
    }
  }

  // WIDTH is the number of elements per vector.
  template <int WIDTH> __device__ __forceinline__ void run(const Geometry<OPERANDS>& geometry) const {
    const unsigned vectors_per_thread = geometry.flat ? geometry.flat : geometry.vectors_per_thread;
    const unsigned first = blockIdx.x * (blockDim.x * vectors_per_thread) + threadIdx.x;
    if (!geometry.flat && geometry.width == 1) return run_items(geometry);
    bool vectors = aligned<Out, WIDTH>(out);
#pragma unroll
    for (int n = 0; n < INPUTS; n++)
      vectors = vectors && (aligned<In, WIDTH>(in[n]) || (!geometry.flat && geometry.row_stride[n] == 0));
    const unsigned end = !vectors ? 0 : geometry.flat ? geometry.row / WIDTH : geometry.vectors;
    if (geometry.flat && !blends) run_flat<WIDTH>(first, vectors_per_thread, end);
    else run_vectors<WIDTH>(geometry, first, end);
    // This handles the last elements of the row, or all of them.
    if (end == 0 || (geometry.flat && end * WIDTH < geometry.row)) run_rest<WIDTH>(geometry, end);
  }
};
