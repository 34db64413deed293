// The loop of every element-by-element kernel: out[i] = function(in0[i], in1[i], ...), which may read what out[i] was.
//
// The roofline bound is bytes: memory needs some 25 KB in flight to every multiprocessor. Tensors that all operands
// index as one row move in accesses of 16 bytes, `flat` packs per thread, several of which are read before the first is
// used. Rows of a multiple of 16 bytes move pack by pack. Others, which start anywhere or have strides, move element by
// element: neighbouring threads touch neighbours, and a thread's elements lie a fixed stride apart, so that it computes
// only the first offset, in some 60 instructions. geometry.py chooses. Kernels compute their first offset before they
// wait for earlier ones: they begin with griddepcontrol_wait_deferred() (dependent_launch.cuh). Small tensors are
// limited by the latency of one read and of jumps to code that is not cached: one pack per thread has a path of its
// own.
//
// A sector (32 bytes) that is written in part is read when L2 evicts it, one by one: where a tensor does not stay in
// L2, the sectors at the ends of its rows are prefetched (set tensor, 205 MB of rows of 56 floats: 158 us without, 99
// us with it on an H200).
#pragma once
#include <type_traits>

#include "primitives/geometry.cuh"
#include "primitives/types.cuh"

template <class T, int WIDTH> __device__ __forceinline__ bool packed(const Pack<T, WIDTH>*& pack, const T* pointer) {
  pack = reinterpret_cast<const Pack<T, WIDTH>*>(pointer);
  return reinterpret_cast<uintptr_t>(pointer) % alignof(Pack<T, WIDTH>) == 0;
}

// Reads `count` elements that lie `stride` apart into `values`.
template <class C, int WIDTH, class T>
__device__ __forceinline__ void read_pack(const T* pointer, long long stride, bool vectorised, unsigned count,
                                          C (&values)[WIDTH]) {
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
__device__ __forceinline__ void write_pack(T* pointer, long long stride, bool vectorised, unsigned count,
                                           const C (&values)[WIDTH], C beta) {
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

template <class T, int WIDTH> __device__ __forceinline__ bool aligned(const T* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % alignof(Pack<T, WIDTH>) == 0;
}

// --- the loop ---

// Whether a function has so many instructions that a next kernel launched at once would only compete: tanh of 0.4 and
// 0.8 MB took 0.1 to 0.3 us longer so, and what reads two operands 0.2 us in a stream; functions of few instructions
// took 0.05 to 0.1 us less.
template <class Function> constexpr bool LONG_FUNCTION = false;

// What a kernel does to every element. Its function takes packs of the inputs and of the prior values of the output (of
// which it may use nothing where `blends` is false) to the pack that is stored:
//   template <bool BLENDS, int N> Pack<Out, N> operator()(const Pack<In, N>* in, const Pack<Out, N>& prior) const
template <class In, int INPUTS, class Out, class Function> struct Elementwise {
  const In* in[INPUTS == 0 ? 1 : INPUTS];
  Out* out;
  bool blends;
  Function function;
  int reads = INPUTS;               // the inputs that the function needs
  unsigned prefetching_blocks = 0;  // blocks that prefetch to L2 what they read first, of operands that are one row

  // Packs, or elements, whose reads are in flight together.
  static constexpr int FLAT = INPUTS == 2 ? 2 : 4, PACKS = INPUTS == 2 ? 1 : 2, ITEMS = 4;
  static constexpr int OPERANDS = INPUTS + 1, VALUES = INPUTS == 0 ? 1 : INPUTS;

  // Waits for earlier kernels; the offsets are those of the first elements.
  __device__ __forceinline__ void wait_for_operands(unsigned of_in, unsigned of_out) const {
    if constexpr (INPUTS == 0) griddepcontrol_wait_before_access(out + of_out);
    else griddepcontrol_wait_before_access(in[0] + of_in, out + of_out);
  }

  // One pack of one row: what small tensors have for a thread. Short from the wait to the end, and without jumps to far
  // code.
  template <int WIDTH> __device__ __forceinline__ void run_pack(unsigned pack) const {
    if (INPUTS < 2 && !LONG_FUNCTION<Function>) griddepcontrol_launch_dependents_early();
    wait_for_operands(pack * WIDTH, pack * WIDTH);
    Pack<In, WIDTH> values[VALUES];
#pragma unroll
    for (int n = 0; n < INPUTS; n++)
      if (n < reads) values[n] = reinterpret_cast<const Pack<In, WIDTH>*>(in[n])[pack];
    griddepcontrol_launch_dependents();
    reinterpret_cast<Pack<Out, WIDTH>*>(out)[pack] =
        function.template operator()<false, WIDTH>(values, Pack<Out, WIDTH>{});
  }

  // One row, packs before `end`.
  template <int WIDTH>
  __device__ __forceinline__ void run_flat(unsigned first, unsigned packs_per_thread, unsigned end) const {
    if (first >= end) return;
    if (packs_per_thread == 1) return run_pack<WIDTH>(first);
    if (blockIdx.x < prefetching_blocks) {
#pragma unroll
      for (int u = 0; u < FLAT; u++)
        if (u < packs_per_thread && first + u * blockDim.x < end)
#pragma unroll
          for (int n = 0; n < INPUTS; n++)
            if (n < reads) prefetch_l2(in[n] + (first + u * blockDim.x) * WIDTH);
    }
    wait_for_operands(first * WIDTH, first * WIDTH);
    for (unsigned done = 0; done < packs_per_thread; done += FLAT) {
      Pack<In, WIDTH> values[FLAT][VALUES];
      const unsigned start = first + done * blockDim.x;
#pragma unroll
      for (int u = 0; u < FLAT; u++)
        if (done + u < packs_per_thread && start + u * blockDim.x < end)
#pragma unroll
          for (int n = 0; n < INPUTS; n++)
            if (n < reads) values[u][n] = reinterpret_cast<const Pack<In, WIDTH>*>(in[n])[start + u * blockDim.x];
      if (done == 0) griddepcontrol_launch_dependents();
#pragma unroll
      for (int u = 0; u < FLAT; u++)
        if (done + u < packs_per_thread && start + u * blockDim.x < end)
          reinterpret_cast<Pack<Out, WIDTH>*>(out)[start + u * blockDim.x] =
              function.template operator()<false, WIDTH>(values[u], Pack<Out, WIDTH>{});
    }
  }

  // Rows of a multiple of a pack, packs before `end`, of operands whose packs are aligned or that are broadcast along
  // rows.
  template <int WIDTH>
  __device__ __forceinline__ void run_packs(const Geometry<OPERANDS>& geometry, unsigned first, unsigned end) const {
    for (unsigned done = 0; done < geometry.packs_per_thread; done += PACKS) {
      Pack<In, WIDTH> values[PACKS][VALUES];
      Pack<Out, WIDTH> prior[PACKS];
      unsigned offset[PACKS][OPERANDS];
      auto exists = [&](int u) {
        return done + u < geometry.packs_per_thread && first + (done + u) * blockDim.x < end;
      };
#pragma unroll
      for (int u = 0; u < PACKS; u++) {
        if (exists(u)) geometry.locate(first + (done + u) * blockDim.x, offset[u]);
        else if (u == 0) return;
      }
      if (done == 0) wait_for_operands(offset[0][0], offset[0][INPUTS]);
#pragma unroll
      for (int u = 0; u < PACKS; u++) {
        if (!exists(u)) continue;
#pragma unroll
        for (int n = 0; n < INPUTS; n++) {
          if (n >= reads) continue;
          if (geometry.row_stride[n] != 0) {
            values[u][n] = *reinterpret_cast<const Pack<In, WIDTH>*>(in[n] + offset[u][n]);
          } else {
            const In value = in[n][offset[u][n]];
#pragma unroll
            for (int i = 0; i < WIDTH; i++) values[u][n].item[i] = value;
          }
        }
        if (blends) prior[u] = *reinterpret_cast<const Pack<Out, WIDTH>*>(out + offset[u][INPUTS]);
      }
      if (done == 0) griddepcontrol_launch_dependents();
#pragma unroll
      for (int u = 0; u < PACKS; u++)
        if (exists(u))
          *reinterpret_cast<Pack<Out, WIDTH>*>(out + offset[u][INPUTS]) =
              function.template operator()<true, WIDTH>(values[u], prior[u]);
    }
  }

  // `N` elements of a thread from the `done`-th on; one switch of the function for all. edge: at the end of a row.
  template <int N>
  __device__ __forceinline__ void run_some(const Geometry<OPERANDS>& geometry, const unsigned (&offset)[OPERANDS],
                                           unsigned done, bool edge) const {
    Pack<In, N> values[VALUES];
    Pack<Out, N> prior;
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
        prefetch_line_l2(out + at(u, INPUTS));  // a partial sector there costs the memory more than this
    }
    if (done == 0) griddepcontrol_launch_dependents();
    const Pack<Out, N> results = function.template operator()<true, N>(values, prior);
#pragma unroll
    for (int u = 0; u < N; u++) out[at(u, INPUTS)] = results.item[u];
  }

  // Single elements.
  __device__ __forceinline__ void run_items(const Geometry<OPERANDS>& geometry) const {
    griddepcontrol_launch_dependents_early(SHORT_GRID_OF_ITEMS);
    const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= geometry.packs) return;
    unsigned offset[OPERANDS], position, in_row;
    geometry.locate(index, offset, position);
    // Only the last may lie beyond the end.
    const unsigned count =
        geometry.items - (position + (geometry.items - 1) * geometry.item_distance >= geometry.item_extent);
    geometry.packs_per_row.divide(index, in_row);
    const bool edge = geometry.partial_sectors && (in_row == 0 || in_row + 1 == geometry.packs_per_row.divisor);
    wait_for_operands(offset[0], offset[INPUTS]);
    if (INPUTS != 0 && count == 2) return run_some<2>(geometry, offset, 0, edge);  // what small tensors have
    unsigned done = 0;
    for (; done + ITEMS <= count; done += ITEMS) run_some<ITEMS>(geometry, offset, done, edge);
    for (; done < count; done++) run_some<1>(geometry, offset, done, edge);
  }

  // Packs from `begin` on that are not aligned or not full, element by element: neighbouring threads on neighbouring
  // elements.
  template <int WIDTH>
  __device__ __forceinline__ void run_rest(const Geometry<OPERANDS>& geometry, unsigned begin) const {
    const unsigned block = blockIdx.x * (blockDim.x * geometry.packs_per_thread),
                   packs_per_thread = geometry.packs_per_thread * WIDTH;
    if (block + blockDim.x * geometry.packs_per_thread <= begin) return;
    wait_for_operands(0, 0);
#pragma unroll 2
    for (unsigned done = 0; done < packs_per_thread; done++) {
      Pack<In, 1> values[VALUES];
      Pack<Out, 1> prior;
      unsigned offset[OPERANDS];
      const unsigned element = block * WIDTH + threadIdx.x + done * blockDim.x, pack = element / WIDTH;
      if (pack < begin || pack >= geometry.packs || geometry.locate(pack, offset) <= element % WIDTH) continue;
#pragma unroll
      for (int n = 0; n < OPERANDS; n++) offset[n] += element % WIDTH * geometry.row_stride[n];
#pragma unroll
      for (int n = 0; n < INPUTS; n++)
        if (n < reads) values[n].item[0] = in[n][offset[n]];
      if (blends) prior.item[0] = out[offset[INPUTS]];
      out[offset[INPUTS]] = function.template operator()<true, 1>(values, prior).item[0];
    }
  }

  // WIDTH: elements of a pack of neighbours.
  template <int WIDTH> __device__ __forceinline__ void run(const Geometry<OPERANDS>& geometry) const {
    const unsigned packs_per_thread = geometry.flat ? geometry.flat : geometry.packs_per_thread;
    const unsigned first = blockIdx.x * (blockDim.x * packs_per_thread) + threadIdx.x;
    if (!geometry.flat && geometry.width == 1) return run_items(geometry);
    bool packs = aligned<Out, WIDTH>(out);
#pragma unroll
    for (int n = 0; n < INPUTS; n++)
      packs = packs && (aligned<In, WIDTH>(in[n]) || (!geometry.flat && geometry.row_stride[n] == 0));
    const unsigned end = !packs ? 0 : geometry.flat ? geometry.row / WIDTH : geometry.packs;
    if (geometry.flat && !blends) run_flat<WIDTH>(first, packs_per_thread, end);
    else run_packs<WIDTH>(geometry, first, end);
    // The last elements of the row, or all of them.
    if (end == 0 || (geometry.flat && end * WIDTH < geometry.row)) run_rest<WIDTH>(geometry, end);
  }
};
