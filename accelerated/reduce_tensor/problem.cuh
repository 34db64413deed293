// This header holds arguments, results and block-level merging for reductions of any tensor (reduce_tensor/generic.cu).
#pragma once
#include "reduce_tensor/accumulators.cuh"

constexpr int BLOCK = 256;     // threads
constexpr int EVEN_BATCH = 8;  // loads in flight per thread
// RESIDENT is the number of blocks per SM that registers must allow; with four, bfloat16 would spill.
constexpr int RESIDENT = sizeof(ELEMENT) == 1 || std::is_same_v<ELEMENT, bfloat16> ? 2 : 4;
constexpr int RESIDENT_INDEXED = sizeof(ELEMENT) >= 4 ? 4 : 2;
constexpr bool FEW_ELEMENTS = WIDTH <= 4;  // Vectors of few elements leave registers for faster code.
constexpr unsigned ACROSS = 8;             // neighbouring vectors of a row per tile, as in reduce_tensor/problem.py

struct Arguments {
  const ELEMENT* a;
  void* c;
  void* indices;
  COMPUTE* workspace;   // partial results [segment][number], then their indices
  Geometry<2> reduced;  // geometry of one reduction: row-major position (0 without indices) and offset in A
  Geometry<3> kept;     // geometry of C: offset in C, number (row-major with indices), offset in A
  COMPUTE alpha, beta;
  unsigned length;             // elements of A per element of C
  unsigned outputs;            // elements of C
  unsigned segments, segment;  // number of segments, and vectors per segment
  unsigned lanes_log2;
  int alone;  // columns: whether one thread computes a vector of C, which is aligned if C is
  int tiled;  // columns: whether a block has 2 ** across_log2 vectors of each of several rows; one segment
  unsigned across_log2;
  FastDivmod blocks_across;
  int early;    // rows: whether dependents are launched before the loads
  int even;     // whether vectors of a segment of A are equidistant, full, and aligned if A is
  int windows;  // whether rows are unaligned; their vectors are aligned, and the outer ones extend beyond the row
  int op, propagate, c_type, index_bytes;
};

// --- results ---

template <class T>
__device__ __forceinline__ void blend_into(void* c, long long offset, const Arguments& a, COMPUTE value) {
  T* target = static_cast<T*>(c) + offset;
  *target = blend<COMPUTE, T>(a.alpha, value, a.beta, target);
}

__device__ __forceinline__ void store_index(const Arguments& a, long long number, unsigned index) {
  switch (a.index_bytes) {
    case 1:
      static_cast<unsigned char*>(a.indices)[number] = index;
      break;
    case 2:
      static_cast<unsigned short*>(a.indices)[number] = index;
      break;
    case 4:
      static_cast<unsigned*>(a.indices)[number] = index;
      break;
    case 8:
      static_cast<unsigned long long*>(a.indices)[number] = index;
      break;
  }
}

__device__ __forceinline__ COMPUTE finished(const Arguments& a, COMPUTE value) {
  switch (a.op) {
    case AVG:
      return value / COMPUTE(a.length);
    case NORM2:
      return sqrt(value);
    case MIN:
      return -value;
  }
  return value;
}

__device__ __forceinline__ void store_result(const Arguments& a, COMPUTE value, long long offset) {
  value = finished(a, value);
  switch (a.c_type) {
    case FLOAT:
      return blend_into<float>(a.c, offset, a, value);
    case DOUBLE:
      return blend_into<double>(a.c, offset, a, value);
    case HALF:
      return blend_into<half>(a.c, offset, a, value);
    case INT8:
      return blend_into<int8>(a.c, offset, a, value);
    case BFLOAT16:  // Only gradients of a bias use it, where A and C have one type.
      if constexpr (OWN_TYPE == BFLOAT16) return blend_into<bfloat16>(a.c, offset, a, value);
  }
}

// Writes a vector of neighbouring results.
template <class T>
__device__ __forceinline__ void blend_vector(const Arguments& a, unsigned offset, const Value (&state)[WIDTH]) {
  using Results = Vector<T, WIDTH>;
  Results* target = reinterpret_cast<Results*>(static_cast<T*>(a.c) + offset);
  Results prior, results;
  if (a.beta != COMPUTE(0)) prior = *target;
#pragma unroll
  for (int i = 0; i < WIDTH; i++) {
    COMPUTE value = a.alpha * finished(a, state[i].value);
    if (a.beta != COMPUTE(0)) value += a.beta * load<COMPUTE>(prior.item[i]);
    results.item[i] = store<T>(value);
  }
  *target = results;
}

__device__ __forceinline__ void conclude_vector(const Arguments& a, const Value (&state)[WIDTH], unsigned offset) {
  switch (a.c_type) {
    case FLOAT:
      return blend_vector<float>(a, offset, state);
    case DOUBLE:
      return blend_vector<double>(a, offset, state);
    case HALF:
      return blend_vector<half>(a, offset, state);
    case INT8:
      return blend_vector<int8>(a, offset, state);
    case BFLOAT16:
      if constexpr (OWN_TYPE == BFLOAT16) return blend_vector<bfloat16>(a, offset, state);
  }
}
__device__ __forceinline__ void conclude_vector(const Arguments&, const Ranked (&)[WIDTH], unsigned) {}

__device__ __forceinline__ void conclude(const Arguments& a, Value state, long long offset, long long) {
  store_result(a, state.value, offset);
}
__device__ __forceinline__ void conclude(const Arguments& a, Ranked state, long long offset, long long number) {
  store_result(a, state.value, offset);
  store_index(a, number, state.index == NOWHERE ? 0 : state.index);
}

__device__ __forceinline__ unsigned* partial_indices(const Arguments& a) {
  return reinterpret_cast<unsigned*>(a.workspace + static_cast<long long>(a.segments) * a.outputs);
}
__device__ __forceinline__ void keep(const Arguments& a, Value state, long long index) {
  a.workspace[index] = state.value;
}
__device__ __forceinline__ void keep(const Arguments& a, Ranked state, long long index) {
  a.workspace[index] = state.value;
  partial_indices(a)[index] = state.index;
}

// Writes the result of this block's segment for one element of C.
template <class State>
__device__ __forceinline__ void deliver(const Arguments& a, State state, long long offset, long long number) {
  if (a.segments == 1) conclude(a, state, offset, number);
  else keep(a, state, static_cast<long long>(blockIdx.y) * a.outputs + number);
}

// --- threads of a block ---

// Merges the states of 2 ** lanes_log2 neighbouring threads into that of the first. All threads of the block take part.
template <class Reduction, class State>
__device__ __forceinline__ void merge_neighbours(const Reduction& reduction, State& state, unsigned lanes_log2) {
  unsigned lanes = 1u << lanes_log2;
  for (unsigned distance = lanes < 32 ? lanes / 2 : 16; distance > 0; distance /= 2)
    reduction.merge(state, from_lane(state, distance));
  if (lanes <= 32) return;
  State* warps = reinterpret_cast<State*>(shared_memory);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = state;
  __syncthreads();
  if (threadIdx.x % lanes == 0)
    for (unsigned warp = 1; warp < lanes / 32; warp++) reduction.merge(state, warps[threadIdx.x / 32 + warp]);
}

// Merges tile[lane][item] of all lanes (a power of two) into tile[0][item]. All threads of the block take part.
template <class Reduction, class State>
__device__ __forceinline__ void merge_lanes(const Reduction& reduction, State* tile, unsigned items, unsigned lanes) {
  constexpr unsigned AT_ONCE = 8;
  __syncthreads();
  while (lanes > 1) {
    const unsigned parts = min(lanes, AT_ONCE);
    lanes /= parts;
    for (unsigned slot = threadIdx.x; slot < lanes * items; slot += BLOCK) {
      State state = tile[slot];
#pragma unroll
      for (unsigned part = 1; part < AT_ONCE; part++)
        if (part < parts) reduction.merge(state, tile[slot + part * lanes * items]);
      tile[slot] = state;
    }
    __syncthreads();
  }
}

__device__ __forceinline__ bool aligned(const ELEMENT* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % sizeof(Vector<ELEMENT, WIDTH>) == 0;
}

// Reduces `count` vectors `step` elements apart, which serves most reductions of packed tensors. Computing all offsets
// before consecutive loads saves up to 8 % (H200); vectors of more elements leave no registers for it.
template <class Reduction>
__device__ __forceinline__ void reduce_even(const Reduction& reduction, typename Reduction::State* state,
                                            const ELEMENT* pointer, unsigned step, unsigned count, unsigned index,
                                            unsigned vector_step, unsigned index_step) {
  using Read = Vector<ELEMENT, WIDTH>;
  Read loaded[EVEN_BATCH];
  auto read = [&](unsigned done) {
    if constexpr (FEW_ELEMENTS) {
#pragma unroll
      for (int u = 0; u < EVEN_BATCH; u++)
        if (done + u < count) loaded[u] = *reinterpret_cast<const Read*>(pointer + u * step);
      pointer += EVEN_BATCH * step;
    } else {
#pragma unroll
      for (int u = 0; u < EVEN_BATCH; u++, pointer += step)
        if (done + u < count) loaded[u] = *reinterpret_cast<const Read*>(pointer);
    }
  };
  auto reduce = [&](unsigned done) {
#pragma unroll
    for (int u = 0; u < EVEN_BATCH; u++)
      if (done + u < count) {
#pragma unroll
        for (int i = 0; i < WIDTH; i++)
          reduction.add(state[i], load<COMPUTE>(loaded[u].item[i]), index + (done + u) * vector_step + i * index_step);
      }
  };
  if constexpr (FEW_ELEMENTS) {
    read(0);
    for (unsigned done = 0;;) {
      reduce(done);
      done += EVEN_BATCH;
      if (done >= count) break;
      read(done);
    }
  } else {
    for (unsigned done = 0; done < count; done += EVEN_BATCH) {
      read(done);
      reduce(done);
    }
  }
}

// Returns the number of vectors from `first` to `last` that one of the sharing threads takes.
__device__ __forceinline__ unsigned share(const Arguments& a, unsigned first, unsigned last) {
  return first < last ? ((last - first - 1) >> a.lanes_log2) + 1 : 0;
}

// --- rows ---

// Merges the states of the threads that share an element of C. The offset of the element is computed again after the
// loads, because keeping it would take registers.
template <class Reduction, class State>
__device__ __forceinline__ void finish_rows(const Arguments& a, const Reduction& reduction, State (&state)[WIDTH],
                                            unsigned output, unsigned lane) {
#pragma unroll
  for (int i = 1; i < WIDTH; i++) reduction.merge(state[0], state[i]);
  merge_neighbours(reduction, state[0], a.lanes_log2);
  if (lane != 0 || output >= a.outputs) return;
  long long located[3];
  a.kept.locate(output, located);
  deliver(a, state[0], located[0], located[1]);
}

// --- columns ---

// Returns the vector of C of a column of this block.
__device__ __forceinline__ unsigned vector_of(const Arguments& a, unsigned column, unsigned columns) {
  if (!a.tiled) return blockIdx.x * columns + column;
  unsigned block, down = a.blocks_across.divide(blockIdx.x, block);
  const unsigned across = block << a.across_log2 | (column & ((1u << a.across_log2) - 1)),
                 per_row = a.kept.vectors_per_row.divisor;
  return across < per_row ? (down * (columns >> a.across_log2) + (column >> a.across_log2)) * per_row + across : ~0u;
}

// Returns the slot of a column's states in shared memory. For tiles, a warp writes neighbouring vectors and reads
// neighbouring rows, ACROSS vectors apart, without bank conflicts. For vectors of more elements this would take 4 %
// longer (H200).
__device__ __forceinline__ unsigned slot_of(const Arguments& a, unsigned column) {
  return FEW_ELEMENTS && a.tiled ? column ^ (column / 32) : column;
}

// Sets the offset in C of this block's element `slot`; returns whether it exists.
__device__ __forceinline__ bool locate_column(const Arguments& a, unsigned slot, unsigned columns, unsigned& offset,
                                              unsigned& number) {
  const unsigned vector = blockIdx.x * columns + slot / WIDTH, i = slot % WIDTH;
  unsigned located[3];
  if (vector >= a.kept.vectors || i >= a.kept.locate(vector, located)) return false;
  offset = located[0] + i * a.kept.row_stride[0];
  number = located[1] + i * a.kept.row_stride[1];
  return true;
}

// Writes the results of tiles: neighbouring threads take neighbouring rows, and a thread at most WIDTH elements of one
// row.
template <class State>
__device__ __forceinline__ void deliver_tile(const Arguments& a, const State* tile, unsigned columns) {
  const unsigned rows = columns / ACROSS, row = threadIdx.x & (rows - 1), step = BLOCK / rows;
  const unsigned vector = vector_of(a, row * ACROSS, columns);
  unsigned located[3], position;
  if (vector >= a.kept.vectors) return;
  a.kept.locate(vector, located);
  a.kept.vectors_per_row.divide(vector, position);
  const unsigned end = min(a.kept.row - position * WIDTH, WIDTH * ACROSS);
  auto state = [&](unsigned element) -> const State& {
    return tile[element % WIDTH * columns + slot_of(a, row * ACROSS + element / WIDTH)];
  };
  auto deliver = [&](State of, unsigned element) {
    conclude(a, of, located[0] + element * a.kept.row_stride[0], located[1] + element * a.kept.row_stride[1]);
  };
  unsigned element = threadIdx.x / rows;
  if constexpr (FEW_ELEMENTS) {  // Their square roots are independent.
    State own[WIDTH];
#pragma unroll
    for (int i = 0; i < WIDTH; i++)
      if (element + i * step < end) own[i] = state(element + i * step);
#pragma unroll
    for (int i = 0; i < WIDTH; i++)
      if (element + i * step < end) deliver(own[i], element + i * step);
  } else {
    for (; element < end; element += step) deliver(state(element), element);
  }
}

// Merges the states of the threads that share a vector of C.
template <class Reduction, class State>
__device__ __forceinline__ void finish_columns(const Arguments& a, const Reduction& reduction,
                                               const State (&state)[WIDTH], unsigned column, unsigned lane,
                                               unsigned lanes, unsigned columns) {
  griddepcontrol_launch_dependents_medium_grid();
  unsigned items = columns * WIDTH;
  State* tile = reinterpret_cast<State*>(shared_memory);  // [lane][i][column]
#pragma unroll
  for (int i = 0; i < WIDTH; i++) tile[(lane * WIDTH + i) * columns + slot_of(a, column)] = state[i];
  merge_lanes(reduction, tile, items, lanes);
  if (a.tiled) return deliver_tile(a, tile, columns);
  // Neighbouring threads write neighbouring elements.
  unsigned offset, number;
  for (unsigned slot = threadIdx.x; slot < items; slot += BLOCK)
    if (locate_column(a, slot, columns, offset, number))
      deliver(a, tile[slot % WIDTH * columns + slot / WIDTH], offset, number);
}
