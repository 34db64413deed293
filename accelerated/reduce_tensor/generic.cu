// These kernels reduce any tensor (3.2.71).
//
// Rows: the innermost dimension of A is reduced, and `lanes` neighbouring threads share one element of C. Columns: it
// is kept, and `lanes` threads share a vector of neighbouring elements of C. Long reductions are split into segments
// (blockIdx.y), whose partial results another launch merges in a fixed order, so that sums are reproducible.
//
// Roofline: bytes. Every element of A is read once, in 16-byte accesses (8 bytes for int8), with four or eight in
// flight per thread. C and partial results are a few percent of that. An element costs 2 instructions (extrema with
// indices 8). An access costs 15 more for its offset, and 20 more for every dimension that is not contiguous with the
// next. At 4.2 TB/s an H200 issues 110 instructions per 16 bytes of a thread. Bytes limit float, double and half;
// instructions limit int8, half extrema with indices, and unaligned rows. On an H200, maxima over W of 64x256x56x56
// float NCHW take 51.3 us, which is 96 % of a copy's throughput. See docs/performance/reduce_tensor.md.
#include "reduce_tensor/problem.cuh"

constexpr int BATCH = 4;  // loads in flight per thread, where each needs its own offset

// Sets the start of a vector's row in the reduction and in A; returns the vector's position in its row.
__device__ __forceinline__ unsigned walk(const Geometry<2>& reduced, unsigned vector, long long& position,
                                         long long& offset) {
  position = offset = 0;
  if (reduced.outer_rank == 0) return vector;
  unsigned in_row, row = reduced.vectors_per_row.divide(vector, in_row);
  int outermost = reduced.outer_rank - 1;
#pragma unroll 1
  for (int d = 0; d < outermost; d++) {
    unsigned along;
    row = reduced.outer[d].extent.divide(row, along);
    position += along * reduced.outer[d].stride[0];
    offset += along * reduced.outer[d].stride[1];
  }
  position += row * reduced.outer[outermost].stride[0];
  offset += row * reduced.outer[outermost].stride[1];
  return in_row;
}

// Holds vectors that a thread reads before it uses the first.
struct Batch {
  Vector<ELEMENT, WIDTH> loaded[BATCH];
  unsigned index[BATCH];  // index of each vector's first element
  unsigned full = 0;      // mask of the vectors that exist

  __device__ __forceinline__ void read(int u, const ELEMENT* pointer) {
    loaded[u] = *reinterpret_cast<const Vector<ELEMENT, WIDTH>*>(pointer);
    full |= 1u << u;
  }
  template <class Reduction>
  __device__ __forceinline__ void reduce(const Reduction& reduction, typename Reduction::State* state,
                                         unsigned index_step) const {
#pragma unroll
    for (int u = 0; u < BATCH; u++)
      if (full >> u & 1) {
#pragma unroll
        for (int i = 0; i < WIDTH; i++)
          reduction.add(state[i], load<COMPUTE>(loaded[u].item[i]), index[u] + i * index_step);
      }
  }
};

// Reduces elements `begin` to `end` of a vector that is not one access; all loads precede the first use.
template <class Reduction>
__device__ __forceinline__ void reduce_partial(const Reduction& reduction, typename Reduction::State* state,
                                               const ELEMENT* pointer, long long step, int begin, int end,
                                               unsigned index, unsigned index_step) {
  ELEMENT loaded[WIDTH];
#pragma unroll
  for (int i = 0; i < WIDTH; i++)
    if (begin <= i && i < end) loaded[i] = pointer[i * step];
#pragma unroll
  for (int i = 0; i < WIDTH; i++)
    if (begin <= i && i < end) reduction.add(state[i], load<COMPUTE>(loaded[i]), index + i * index_step);
}

// --- rows ---

struct Window {  // It is a vector of one row of A.
  const ELEMENT* pointer;
  int first;       // start in the row; outer windows of a row may start below 0 or end after it
  unsigned index;  // position of the first element in the reduction
  bool full;       // whether one access reads it
};

__device__ __forceinline__ Window locate(const Arguments& a, const ELEMENT* source, unsigned vector) {
  const Geometry<2>& reduced = a.reduced;
  long long position, offset;
  unsigned in_row = walk(reduced, vector, position, offset);
  const ELEMENT* start = source + offset;
  int shift = a.windows ? reinterpret_cast<uintptr_t>(start) / sizeof(ELEMENT) % WIDTH : 0;
  Window window;
  window.first = static_cast<int>(in_row * WIDTH) - shift;
  window.pointer = start + window.first * reduced.row_stride[1];
  window.index = position + window.first * reduced.row_stride[0];
  window.full = reduced.row_stride[1] == 1 && window.first >= 0 &&
                static_cast<int>(reduced.row) - window.first >= WIDTH && aligned(window.pointer);
  return window;
}

template <class Reduction> __device__ __forceinline__ void reduce_rows(const Arguments& a, const Reduction& reduction) {
  using State = typename Reduction::State;
  unsigned lanes = 1u << a.lanes_log2, lane = threadIdx.x & (lanes - 1);
  unsigned output = blockIdx.x * (BLOCK >> a.lanes_log2) + (threadIdx.x >> a.lanes_log2);
  State state[WIDTH];
#pragma unroll
  for (int i = 0; i < WIDTH; i++) state[i] = reduction.start();
  const ELEMENT* source = a.a;
  if (output < a.outputs) {
    long long located[3];
    a.kept.locate(output, located);
    source += located[2];
  }
  griddepcontrol_wait_only(source);
  if (a.early) griddepcontrol_launch_dependents_after_reads();
  if (output < a.outputs) {
    unsigned index_step = a.reduced.row_stride[0];
    unsigned first = blockIdx.y * a.segment,
             last = first + a.segment < a.reduced.vectors ? first + a.segment : a.reduced.vectors;
    if (a.even && aligned(a.a)) {
      long long position, offset;
      const unsigned from = walk(a.reduced, first, position, offset) + lane, step = lanes * WIDTH;
      reduce_even(reduction, state, source + offset + from * WIDTH, step, share(a, first + lane, last),
                  position + from * WIDTH * index_step, step * index_step, index_step);
      first = last;
    }
    for (unsigned vector = first + lane; vector < last; vector += BATCH * lanes) {
      Batch batch;
      unsigned partial = 0;
#pragma unroll
      for (int u = 0; u < BATCH; u++)
        if (vector + u * lanes < last) {
          Window window = locate(a, source, vector + u * lanes);
          batch.index[u] = window.index;
          if (window.full) batch.read(u, window.pointer);
          else partial |= 1u << u;
        }
      batch.reduce(reduction, state, index_step);
      for (; partial; partial &= partial - 1) {
        Window window = locate(a, source, vector + (__ffs(partial) - 1) * lanes);
        int behind = static_cast<int>(a.reduced.row) - window.first;
        reduce_partial(reduction, state, window.pointer, a.reduced.row_stride[1], -window.first, behind, window.index,
                       index_step);
      }
    }
  }
  if (!a.early) griddepcontrol_launch_dependents_after_reads();
  finish_rows(a, reduction, state, output, lane);
}

// --- columns ---

// Holds the offset in A and the index of one position of the reduction.
__device__ __forceinline__ long long locate(const Arguments& a, unsigned which, unsigned& index) {
  long long position, offset;
  unsigned in_row = walk(a.reduced, which, position, offset);
  index = position + in_row * a.reduced.row_stride[0];
  return offset + in_row * a.reduced.row_stride[1];
}

template <class Reduction>
__device__ __forceinline__ void reduce_columns(const Arguments& a, const Reduction& reduction) {
  using State = typename Reduction::State;
  unsigned lanes = 1u << a.lanes_log2, columns = BLOCK >> a.lanes_log2;
  unsigned column = threadIdx.x & (columns - 1), lane = threadIdx.x / columns;
  State state[WIDTH];
#pragma unroll
  for (int i = 0; i < WIDTH; i++) state[i] = reduction.start();
  const unsigned own = vector_of(a, column, columns);
  const bool alone = a.alone && reinterpret_cast<uintptr_t>(a.c) % 16 == 0;
  if (own < a.kept.vectors) {  // Threads without a vector wait for the others.
    unsigned located[3], count = a.kept.locate(own, located);
    const ELEMENT* source = a.a + located[2];
    const int step = a.kept.row_stride[2];
    bool contiguous = count == WIDTH && step == 1;
    unsigned first = blockIdx.y * a.segment,
             last = first + a.segment < a.reduced.vectors ? first + a.segment : a.reduced.vectors;
    const bool even = a.even && aligned(a.a);
    griddepcontrol_wait_before_access(source, source + (even ? (first + lane) * a.reduced.row_stride[1] : 0));
    if (even) {
      const unsigned from = first + lane, step = a.reduced.row_stride[1], index_step = a.reduced.row_stride[0];
      reduce_even(reduction, state, source + from * step, lanes * step, share(a, from, last), from * index_step,
                  lanes * index_step, 0);
      first = last;
    }
    for (unsigned position = first + lane; position < last; position += BATCH * lanes) {
      Batch batch;
      unsigned partial = 0;
#pragma unroll
      for (int u = 0; u < BATCH; u++)
        if (position + u * lanes < last) {
          const ELEMENT* pointer = source + locate(a, position + u * lanes, batch.index[u]);
          if (contiguous && aligned(pointer)) batch.read(u, pointer);
          else partial |= 1u << u;
        }
      batch.reduce(reduction, state, 0);
      for (; partial; partial &= partial - 1) {
        unsigned index;
        const ELEMENT* pointer = source + locate(a, position + (__ffs(partial) - 1) * lanes, index);
        reduce_partial(reduction, state, pointer, step, 0, count, index, 0);
      }
    }
    if (alone) conclude_vector(a, state, located[0]);
  }
  if (!alone) finish_columns(a, reduction, state, column, lane, lanes, columns);
}

// --- partial results ---

__device__ __forceinline__ void kept_partial(const Arguments& a, long long index, Value& state) {
  state = {a.workspace[index]};
}
__device__ __forceinline__ void kept_partial(const Arguments& a, long long index, Ranked& state) {
  state = {a.workspace[index], partial_indices(a)[index]};
}

// Merges every `step`-th partial result of one element of C into the state.
template <class Reduction, class State>
__device__ __forceinline__ void merge_partials(const Arguments& a, const Reduction& reduction, State& state,
                                               long long number, unsigned first, unsigned step) {
  constexpr int AT_ONCE = 8;
  for (unsigned segment = first; segment < a.segments; segment += AT_ONCE * step) {
    State partial[AT_ONCE];
#pragma unroll
    for (int u = 0; u < AT_ONCE; u++)
      if (segment + u * step < a.segments)
        kept_partial(a, static_cast<long long>(segment + u * step) * a.outputs + number, partial[u]);
#pragma unroll
    for (int u = 0; u < AT_ONCE; u++)
      if (segment + u * step < a.segments) reduction.merge(state, partial[u]);
  }
}

// Computes result offsets before it waits for the segments' blocks, because most of them are still reading.
template <class Reduction>
__device__ __forceinline__ void merge_partial_results(const Arguments& a, const Reduction& reduction) {
  typename Reduction::State state = reduction.start();
  unsigned lanes = 1u << a.lanes_log2, lane = threadIdx.x & (lanes - 1);
  unsigned output = blockIdx.x * (BLOCK >> a.lanes_log2) + (threadIdx.x >> a.lanes_log2);
  long long located[3] = {};
  if (output < a.outputs) a.kept.locate(output, located);
  griddepcontrol_launch_dependents_early(MANY_BLOCKS_BEFORE_READS);
  griddepcontrol_wait_only(a.workspace + located[1], static_cast<const char*>(a.c) + located[0]);
  if (output < a.outputs) merge_partials(a, reduction, state, located[1], lane, lanes);
  merge_neighbours(reduction, state, a.lanes_log2);
  if (lane == 0 && output < a.outputs) conclude(a, state, located[0], located[1]);
}

// Partial results are sums, products or maxima, so the function of the elements is not applied again.
extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT) reduce_tensor_generic_partial_results(const Arguments a) {
  griddepcontrol_wait_deferred();
  switch (a.op) {
    case MUL:
    case MUL_NO_ZEROS:
      return merge_partial_results(a, Product<Itself>{});
    case MIN:
    case MAX:
      EXTREMUM(merge_partial_results, Itself)
    case AMAX:
      EXTREMUM(merge_partial_results, Absolute)
    default:
      return merge_partial_results(a, Sum<Itself>{});
  }
}
extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT_INDEXED)
    reduce_tensor_generic_partial_results_indexed(const Arguments a) {
  griddepcontrol_wait_deferred();
  merge_partial_results(a, FirstLargest<Itself>{static_cast<bool>(a.propagate)});
}

// --- kernels ---

extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT) reduce_tensor_generic_rows(const Arguments a) {
  griddepcontrol_wait_deferred();
  PLAIN(reduce_rows)
}
extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT_INDEXED)
    reduce_tensor_generic_rows_indexed(const Arguments a) {
  griddepcontrol_wait_deferred();
  bool propagate = a.propagate;
  INDEXED(reduce_rows)
}
extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT) reduce_tensor_generic_columns(const Arguments a) {
  griddepcontrol_wait_deferred();
  PLAIN(reduce_columns)
}
extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT_INDEXED)
    reduce_tensor_generic_columns_indexed(const Arguments a) {
  griddepcontrol_wait_deferred();
  bool propagate = a.propagate;
  INDEXED(reduce_columns)
}
