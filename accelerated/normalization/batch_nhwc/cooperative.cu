// This file normalizes columns (batch_nhwc.cu) in one cooperative launch, for training or for the gradient. Blocks
// keep their first rows in shared memory and registers while they wait for each other.
//
// The roofline bound is bytes. Forward reads x twice and writes y; backward reads x and dy twice and writes dx. Data
// that blocks (35 MB) or L2 keep are read from memory once. Training 64 x 256 x 56 x 56 float takes 149 us on an H200.
// The bytes alone take 135 us of these at the copy's 4.2 TB/s. Forward needs 6 flops per element, backward 12.
#include "normalization/batch_nhwc/batch_nhwc.cuh"
#include "primitives/grid_barrier.cuh"

constexpr unsigned COPIES = COPIED_ROWS;  // rows per thread that are copied to shared memory at a time

// The blocks of a tile wait for each other, so the launch is cooperative with one SM per block.
__device__ unsigned tile_barriers[MAX_TILES];
__device__ __forceinline__ void wait_for_tile() {
  __syncthreads();
  if (gridDim.y > 1 && thread_of_block() == 0) wait_for_blocks(tile_barriers + blockIdx.x, blockIdx.y == 0, gridDim.y);
  __syncthreads();
}

constexpr unsigned WARPS = THREADS / 32;

// A block merges the partial results of its warps in these arrays. They follow those of Known in dynamic shared memory,
// and have one entry per column of the tile.
struct BlockExchange {
  COMPUTE *origin, *first, *second;  // first, second: the two numbers of each warp
  unsigned columns;
  __device__ __forceinline__ explicit BlockExchange(const Columns& c)
      : origin(array_of_columns(c, ARRAYS)),
        first(array_of_columns(c, ARRAYS + 1)),
        second(array_of_columns(c, ARRAYS + 1 + WARPS)),
        columns(c.columns()) {}
};
constexpr unsigned ALL_ARRAYS = ARRAYS + 1 + 2 * WARPS;

// Merges the threads' partial results of each column, which cover all rows of the block. Writes one partial result per
// column. Threads form rows along the tile; the number of rows per warp is a power of two.
template <class Rule>
__device__ __forceinline__ void store_block_partials(const BlockExchange& exchange, const Columns& c,
                                                     const Total (&mine)[WIDTH], COMPUTE* partials) {
  const unsigned warp = thread_of_block() / 32, first = threadIdx.x * WIDTH;
  const COMPUTE count = COMPUTE(c.rows_of(c.first_column(), c.first_row(), c.segment)), weight = COMPUTE(1) / count;
  const COMPUTE of_thread = COMPUTE(c.my_rows());
  if (same_type<Rule, MergeMoments>) {
    COMPUTE* const origins = exchange.first;
    if (threadIdx.y < 3) {
#pragma unroll
      for (int k = 0; k < WIDTH; k++) origins[threadIdx.y * exchange.columns + first + k] = origin(mine[k]);
    }
    __syncthreads();
    for (unsigned i = thread_of_block(); i < exchange.columns; i += THREADS)
      exchange.origin[i] = count > COMPUTE(2)
                               ? median(origins[i], origins[exchange.columns + i], origins[2 * exchange.columns + i])
                               : origins[i];
    __syncthreads();
  }
#pragma unroll
  for (int k = 0; k < WIDTH; k++) {
    Total sum{};
    if (of_thread > COMPUTE(0)) Rule::add(sum, exchange.origin[first + k], weight, of_thread, mine[k]);
    for (unsigned distance = 16; distance >= blockDim.x; distance /= 2) {
      sum.first += __shfl_xor_sync(0xFFFFFFFFu, sum.first, distance);
      sum.second += __shfl_xor_sync(0xFFFFFFFFu, sum.second, distance);
    }
    if (thread_of_block() % 32 < blockDim.x)
      exchange.first[warp * exchange.columns + first + k] = sum.first,
                                                       exchange.second[warp * exchange.columns + first + k] =
                                                           sum.second;
  }
  __syncthreads();
  const unsigned column = thread_of_block();
  if (column >= exchange.columns || c.first_column() + column >= c.groups) return;
  Total sum{};
#pragma unroll
  for (unsigned w = 0; w < WARPS; w++)
    sum.first += exchange.first[w * exchange.columns + column],
        sum.second += exchange.second[w * exchange.columns + column];
  partial<Rule>(c, partials, blockIdx.y, c.first_column() + column)
      .store(Rule::finish(sum, exchange.origin[column], count));
}

// This keeps the data that a thread needs in both passes, for TENSORS tensors. Its first rows stay in shared memory and
// the next HELD rows in registers. Where more rows exist (AGAIN), the second pass reads them again, backwards, since L2
// still has the last ones.
//
// Every read is a copy to shared memory, COPIES rows ahead, because little of L1 is left for other reads. These copies
// use COPIES slots after the rows that stay. So does the operand that the second pass adds, AHEAD rows ahead. The words
// of a mask hold the bits of a vector and its neighbours, in separate slots.
template <int TENSORS> struct Kept {
  static constexpr unsigned AHEAD = TENSORS == 1 && AGAIN && (CALLS == ADDED || CALLS == ANY) ? COPIES / 2 : COPIES;
  const ELEMENT* const (&from)[TENSORS];
  const ELEMENT* const added;       // null where nothing is added
  const unsigned char* const mask;  // null without a mask
  const unsigned rows, cached;      // rows: rows of this thread; cached: its rows in shared memory
  const unsigned first, step;       // first: offset of the first row; step: stride between rows
  Elements* slots[TENSORS];
  unsigned* words;
  Elements held[TENSORS][HELD > 0 ? HELD : 1];

  // `room` is the number of rows per thread that fit in shared memory besides COPIES.
  __device__ __forceinline__ Kept(const Columns& c, const ELEMENT* const (&from)[TENSORS], const ELEMENT* added,
                                  const unsigned char* mask, unsigned room)
      : from(from),
        added(added),
        mask(mask),
        rows(c.my_rows()),
        cached(min(rows, room)),
        first(c.offset(0)),
        step(c.offset(1) - c.offset(0)) {
    const unsigned of_tensor = (room + COPIES) * THREADS, thread = thread_of_block();
    Elements* const all = reinterpret_cast<Elements*>(array_of_columns(c, ALL_ARRAYS));
#pragma unroll
    for (int t = 0; t < TENSORS; t++) slots[t] = own(all + t * of_tensor + thread);
    words = own(reinterpret_cast<unsigned*>(all + TENSORS * of_tensor) + thread);
  }
  // This keeps the address in a register. For an address with a uniform part, ptxas of CUDA 13.0 encodes an invalid
  // copy instruction.
  template <class T> static __device__ __forceinline__ T* own(T* address) {
    unsigned char* bytes = reinterpret_cast<unsigned char*>(address);
    keep_shared_pointer(bytes);
    return reinterpret_cast<T*>(bytes);
  }
  __device__ __forceinline__ Elements* slot(unsigned index, int tensor) const {
    return slots[tensor] + index * THREADS;
  }
  // Returns the mask bits of the vector at an offset in the thread's row `row`.
  __device__ __forceinline__ unsigned bits(unsigned row, unsigned offset) const {
    return mask ? words[row % COPIES * THREADS] >> offset / WIDTH % 4 * 8 : 0;
  }
  __device__ __forceinline__ void get(unsigned index, Elements (&vectors)[TENSORS]) const {
#pragma unroll
    for (int t = 0; t < TENSORS; t++) vectors[t] = *slot(index, t);
  }
  // Begins to copy the row at an offset if it exists. `again` says that the row will be read once more.
  __device__ __forceinline__ void copy(unsigned index, unsigned row, unsigned offset, bool exists,
                                       bool again = false) const {
    if (exists) {
#pragma unroll
      for (int t = 0; t < TENSORS; t++) {
        const Elements* const vector = reinterpret_cast<const Elements*>(from[t] + offset);
        if (again) cp_async<sizeof(Elements)>(slot(index, t), vector, true);
        else copy_once(slot(index, t), vector);
      }
      if (mask) cp_async<4>(words + row % COPIES * THREADS, mask + offset / WIDTH / 4 * 4, true);
    }
  }
  // Returns the slot of the added operand for the row that `left` rows follow. If no row is read again, slots continue
  // as for the row after the last one.
  __device__ __forceinline__ Elements* added_slot(unsigned left) const {
    return slot(cached + (AGAIN ? COPIES - AHEAD + left % AHEAD : (rows - cached + left) % COPIES), 0);
  }
  __device__ __forceinline__ void copy_added(unsigned left) const {
    if (added && left < rows)
      copy_once(added_slot(left), reinterpret_cast<const Elements*>(added + (last() - left * step)));
  }
  // Runs the first pass: calls use(offset, vectors, bits) for every row. Unless calls are plain, it may change the last
  // vector.
  template <class Use> __device__ __forceinline__ void visit_first(const Use& use) {
    Elements vectors[TENSORS];
    unsigned i = 0, offset = first;
    auto read = [&](unsigned index) {
      cp_async_wait<COPIES - 1>();
      get(index, vectors);
      use(offset, vectors, bits(i, offset));
    };
    auto copy_row = [&](unsigned index, unsigned row, unsigned at, bool again) {
      copy(index, row, at, row < rows, again);
      if (!AGAIN && row >= rows) copy_added(row - rows);
      cp_async_commit();
    };
    auto copy_next = [&](unsigned index, bool again) { copy_row(index, i + COPIES, offset + COPIES * step, again); };
#pragma unroll
    for (unsigned k = 0; k < COPIES; k++) copy_row(k, k, offset + k * step, false);
    for (; i < cached; i++, offset += step) {
      read(i);
      if (!PLAIN && TENSORS > 1) *slot(i, TENSORS - 1) = vectors[TENSORS - 1];
      copy_next(i + COPIES, false);
    }
#pragma unroll
    for (int u = 0; u < HELD; u++, i++, offset += step) {
      if (i >= rows) break;
      read(cached + u % COPIES);
#pragma unroll
      for (int t = 0; t < TENSORS; t++) held[t][u] = vectors[t];
      copy_next(cached + u % COPIES, true);
    }
    while (i < rows) {
#pragma unroll
      for (unsigned u = 0; u < COPIES; u++, i++, offset += step) {
        if (i >= rows) break;
        read(cached + (HELD + u) % COPIES);
        copy_next(cached + (HELD + u) % COPIES, true);
      }
    }
  }
  // The second pass begins with the last row. It first starts the copies of rows that are read again and of the added
  // operand.
  __device__ __forceinline__ unsigned read_again() const {
    return AGAIN && rows > cached + HELD ? rows - cached - HELD : 0;
  }
  __device__ __forceinline__ unsigned last() const { return first + (rows - 1) * step; }
  __device__ __forceinline__ void begin_again() const {
#pragma unroll
    for (unsigned k = 0; AGAIN && k < AHEAD; k++) {
      copy(cached + k, k, last() - k * step, k < read_again());
      copy_added(k);
      cp_async_commit();
    }
  }
  // Calls use(offset, vectors, added operand, mask bits, again). The mask bits are valid only for rows that are copied
  // again.
  template <class Use> __device__ __forceinline__ void visit_again(const Use& use) const {
    Elements vectors[TENSORS], other;
    unsigned left = 0, offset = last();  // `left` counts the rows after this one.
    const unsigned all = read_again();
    auto visit = [&](unsigned passes, bool again) {
      if (added) {
        if (!again) cp_async_wait<AHEAD - 1>();
        other = *added_slot(left);
      }
      use(offset, vectors, other, passes, again);
      if (again) copy(cached + left % AHEAD, left, offset - AHEAD * step, left + AHEAD < all);
      copy_added(left + AHEAD);
      if (added || again) cp_async_commit();
    };
    while (left < all) {
#pragma unroll
      for (unsigned u = 0; u < AHEAD; u++, left++, offset -= step) {
        if (left == all) break;
        cp_async_wait<AHEAD - 1>();
        get(cached + u, vectors);
        visit(bits(u, offset), true);
      }
    }
#pragma unroll
    for (int u = HELD - 1; u >= 0; u--) {
      if (cached + u >= rows) continue;
#pragma unroll
      for (int t = 0; t < TENSORS; t++) vectors[t] = held[t][u];
      visit(0, false);
      left++, offset -= step;
    }
#pragma unroll 2
    for (unsigned i = cached; i > 0; i--, left++, offset -= step) {
      get(i - 1, vectors);
      visit(0, false);
    }
  }
};

#if BACKWARD
struct BackwardCooperativeArguments {
  BackwardCall call;
  Columns columns;
  unsigned room;
};

// This kernel needs the saved mean and inverse.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    normalization_batch_nhwc_backward_cooperative(const BackwardCooperativeArguments a) {
  griddepcontrol_wait();
  const Columns& c = a.columns;
  const BackwardCall& call = a.call;
  const BlockExchange exchange(c);
  const Known known(c);
  known.read(call, c);
  const ELEMENT* const from[2] = {call.x, call.dy};
  Kept<2> kept(c, from, nullptr, call.has_mask() ? call.mask : nullptr, a.room);
  COMPUTE mean[WIDTH];
  read_values(known.mean + threadIdx.x * WIDTH, mean);
  Total sums[WIDTH] = {};
  kept.visit_first([&](unsigned, Elements(&vectors)[2], unsigned passes) {
    known.undo_activation(call, vectors[0], vectors[1], passes);
#pragma unroll
    for (int k = 0; k < WIDTH; k++) {
      const COMPUTE gradient = load<COMPUTE>(vectors[1].item[k]);
      sums[k].first += gradient;
      sums[k].second += gradient * (load<COMPUTE>(vectors[0].item[k]) - mean[k]);
    }
  });
#pragma unroll
  for (int k = 0; k < WIDTH; k++) sums[k].second *= known.inverse[threadIdx.x * WIDTH + k];
  store_block_partials<AddSums>(exchange, c, sums, call.partials);
  kept.begin_again();
  wait_for_tile();
  GradientOf of[WIDTH];
  known.gradients(call, c, call.partials, of);
  kept.visit_again([&](unsigned offset, Elements(&vectors)[2], const Elements&, unsigned passes, bool again) {
    if (again) known.undo_activation(call, vectors[0], vectors[1], passes);
    call.store_vector(offset, vectors[0], vectors[1], [&](int k) { return of[k]; });
  });
}
#else
struct ForwardCooperativeArguments {
  ForwardCall call;
  Columns columns;
  unsigned room;  // rows per thread in shared memory
};

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    normalization_batch_nhwc_training_cooperative(const ForwardCooperativeArguments a) {
  griddepcontrol_wait();
  const Columns& c = a.columns;
  const ForwardCall& call = a.call;
  const BlockExchange exchange(c);
  COMPUTE *const mean = array_of_columns(c, 0), *const squares = array_of_columns(c, 1);
  COMPUTE *const scale = array_of_columns(c, 2), *const bias = array_of_columns(c, 3);
  const ELEMENT* const from[1] = {call.x};
  Kept<1> kept(c, from, call.adds() ? call.z : nullptr, nullptr, a.room);
  ShiftedSum sums[WIDTH];
  kept.visit_first([&](unsigned offset, const Elements(&x)[1], unsigned) {
    if (offset == kept.first) {
#pragma unroll
      for (int k = 0; k < WIDTH; k++) sums[k].begin(x[0].item[k]);
    }
#pragma unroll
    for (int k = 0; k < WIDTH; k++) sums[k].add(x[0].item[k]);
  });
  const COMPUTE reciprocal = COMPUTE(1) / COMPUTE(kept.rows);
  Total moments[WIDTH];
#pragma unroll
  for (int k = 0; k < WIDTH; k++) moments[k] = kept.rows > 0 ? sums[k].moments(reciprocal) : Total{};
  store_block_partials<MergeMoments>(exchange, c, moments, call.partials);
  copy_parameters(c, call.scale, scale);
  copy_parameters(c, call.bias, bias);
  kept.begin_again();
  wait_for_tile();
  load_partials<MergeMoments>(c, call.partials, [&](unsigned column, unsigned, const Total& total) {
    mean[column] = total.first + total.low, squares[column] = total.second;
  });
  Normalizer of[WIDTH];
#pragma unroll
  for (int k = 0; k < WIDTH; k++) {
    const unsigned column = threadIdx.x * WIDTH + k;
    of[k] = {mean[column], scale[column] * call.inverse(squares[column], c.count), bias[column]};
  }
  kept.visit_again([&](unsigned offset, const Elements(&x)[1], const Elements& z, unsigned, bool) {
    call.store_vector(offset, x[0], z, [&](int k) { return of[k]; });
  });
  for (unsigned column = thread_of_block(); column < c.columns(); column += THREADS)
    if (writes_results(c, column))
      call.store_statistics(mean[column], squares[column], c.count, c.first_column() + column);
}
#endif
