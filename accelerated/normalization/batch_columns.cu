// Batch normalization (3.2.3, 4.1.2 to 4.1.5, 3.2.66, 4.1.15, 4.1.16) of packed tensors whose fastest dimension has
// the channels, or the activations, each of which has statistics of its own.
//
// The tensor is a matrix; a row has all groups once, or several times, so that it is made of packs. A block has a tile
// of packs of columns and a segment of rows; a thread walks down one pack. Moments (or sums) of segments go to scratch
// memory, those of a cluster as one; every block of the second launch merges those of its columns in their order and
// walks its segment back, from what L2 still has. Together, in one cooperative launch, blocks keep their first rows in
// shared memory and registers while they wait for each other.
//
// Roofline bound: bytes, x read twice and y written (backward x and dy twice and dx), but for what blocks keep, 35 MB,
// and L2. 64 x 256 x 56 x 56 float on an H200: training 149 us, of which 135 are the bytes moved, at the copy's
// throughput. Flops: 6 an element forward, 12 backward.
#include "normalization/batch_call.cuh"
#include "primitives/cp_async.cuh"
#include "primitives/geometry.cuh"
#include "primitives/grid_exchange.cuh"

constexpr int WIDTH = PACK_WIDTH;         // elements of a pack
constexpr unsigned COPIES = COPIED_ROWS;  // of a thread, that are copied to shared memory at a time
using Elements = Pack<ELEMENT, WIDTH>;

struct Columns {
  unsigned packs, rows;      // of a row; rows
  unsigned tail;             // packs of the last row
  unsigned segment, part;    // rows of a block; of a partial result
  unsigned parts;            // partial results of each group
  unsigned groups, repeats;  // columns that a row has of each group
  FastDivmod group;          // by their number
  COMPUTE count;             // elements of a group

  __device__ __forceinline__ unsigned pack() const { return blockIdx.x * blockDim.x + threadIdx.x; }
  __device__ __forceinline__ unsigned columns() const { return blockDim.x * WIDTH; }  // of a tile
  __device__ __forceinline__ unsigned first_column() const { return blockIdx.x * columns(); }
  __device__ __forceinline__ unsigned group_of(unsigned column) const {
    unsigned remainder;
    group.divide(column, remainder);
    return remainder;
  }
  // The rows from `from` on, up to `count` of them, that a column has.
  __device__ __forceinline__ unsigned rows_of(unsigned column, unsigned from, unsigned count) const {
    const unsigned all = rows - (column / WIDTH >= tail);
    return from >= all ? 0 : min(count, all - from);
  }
  __device__ __forceinline__ unsigned first_row() const { return blockIdx.y * segment; }
  __device__ __forceinline__ unsigned my_rows() const {
    const unsigned of_block = pack() < packs ? rows_of(pack() * WIDTH, first_row(), segment) : 0;
    return of_block <= threadIdx.y ? 0 : (of_block - threadIdx.y - 1) / blockDim.y + 1;
  }
  // The offset of a thread's i-th row; of all tensors, which are described alike.
  __device__ __forceinline__ unsigned offset(unsigned i) const {
    return ((first_row() + threadIdx.y + i * blockDim.y) * packs + pack()) * WIDTH;
  }
};

// A partial result in scratch memory, of sums two numbers, of moments three.
struct Partial {
  COMPUTE* pair;
  COMPUTE* low;  // null of sums
  __device__ __forceinline__ void store(const Total& total) const {
    *reinterpret_cast<Pack<COMPUTE, 2>*>(pair) = Pack<COMPUTE, 2>{{total.first, total.second}};
    if (low) *low = total.low;
  }
  __device__ __forceinline__ Total load() const {
    const auto found = *reinterpret_cast<const Pack<COMPUTE, 2>*>(pair);
    return {found.item[0], found.item[1], low ? *low : COMPUTE(0)};
  }
};
template <class Rule>
__device__ __forceinline__ Partial partial(const Columns& c, COMPUTE* partials, unsigned part, unsigned group) {
  const unsigned across = c.repeats > 1 ? c.groups : c.packs * WIDTH, index = part * across + group;
  return {partials + 2 * index, same_type<Rule, MergeMoments> ? partials + (2 * c.parts * across + index) : nullptr};
}

__device__ __forceinline__ unsigned thread_of_block() { return threadIdx.y * blockDim.x + threadIdx.x; }
__device__ __forceinline__ Elements read_pack(const ELEMENT* from) { return *reinterpret_cast<const Elements*>(from); }
template <int N> __device__ __forceinline__ void read_values(const COMPUTE* from, COMPUTE (&values)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++) values[i] = from[i];
}

// The origin of the differences of a column's parts, of which the first is not empty.
template <class Part>
__device__ __forceinline__ COMPUTE origin_of_parts(unsigned column, unsigned parts, const Part& part) {
  unsigned second, third;
  const COMPUTE first = origin(part(column, 0, second));
  if (parts < 3) return first;
  const Total of_second = part(column, 1, second), of_third = part(column, 2, third);
  return second > 0 && third > 0 ? median(first, origin(of_second), origin(of_third)) : first;
}

// Merges the parts of each of `columns` by all threads of the block: part(column, index, count) reads one and says of
// how many elements it is; result(column, total) gets the result of all elements(column), in one thread.
template <class Rule, class Part, class Size, class Result>
__device__ __forceinline__ void merge_parts(unsigned columns, unsigned parts, const Part& part, const Size& elements,
                                            const Result& result) {
  __shared__ COMPUTE exchange[2][THREADS];
  const unsigned threads = blockDim.x * blockDim.y, across = min(columns, threads), share = threads / across;
  const unsigned mine = thread_of_block() / across, lane = thread_of_block() - mine * across;
  for (unsigned start = 0; start < columns; start += across) {
    const unsigned column = start + lane;
    const bool some = column < columns && mine < share;
    Total total{};
    COMPUTE from = 0, count = 0;
    if (some) {
      unsigned of_part;
      count = elements(column);
      if (same_type<Rule, MergeMoments> && count > COMPUTE(0)) from = origin_of_parts(column, parts, part);
      const COMPUTE weight = COMPUTE(1) / count;
#pragma unroll 4
      for (unsigned i = mine; i < parts; i += share) {
        const Total found = part(column, i, of_part);
        if (of_part > 0) Rule::add(total, from, weight, of_part, found);
      }
    }
    if (share > 1) {
      __syncthreads();
      exchange[0][thread_of_block()] = total.first, exchange[1][thread_of_block()] = total.second;
      __syncthreads();
      if (some && mine == 0)
        for (unsigned i = 1; i < share; i++) {
          total.first += exchange[0][i * across + lane];
          total.second += exchange[1][i * across + lane];
        }
    }
    if (some && mine == 0) result(column, Rule::finish(total, from, count));
  }
}

// Merges what the threads of a block have of their columns, then what those of a cluster have, and writes one partial
// result for each group, or for each column where a row has no group twice.
template <class Rule>
__device__ __forceinline__ void store_partials(const Columns& c, const Total (&mine)[WIDTH], COMPUTE* partials) {
  constexpr int NUMBERS = same_type<Rule, MergeMoments> ? 3 : 2;
  __shared__ COMPUTE threads[NUMBERS][THREADS * WIDTH];
  __shared__ COMPUTE blocks[CLUSTER_SIZE][NUMBERS][CLUSTER_SIZE > 1 ? MOST_PARTIALS : 1];
#pragma unroll
  for (int i = 0; i < WIDTH; i++) {
    threads[0][thread_of_block() * WIDTH + i] = mine[i].first;
    threads[1][thread_of_block() * WIDTH + i] = mine[i].second;
    if (NUMBERS > 2) threads[NUMBERS - 1][thread_of_block() * WIDTH + i] = mine[i].low;
  }
  __syncthreads();
  const unsigned columns = c.repeats > 1 ? c.groups : min(c.columns(), c.packs * WIDTH - c.first_column());
  // Of the columns that a group has: the rows from `from` on.
  auto rows_of = [&](unsigned column, unsigned from, unsigned rows) {
    unsigned sum = 0;
    for (unsigned i = 0; i < c.repeats; i++) sum += c.rows_of(c.first_column() + column + i * c.groups, from, rows);
    return sum;
  };
  auto store_partial = [&](unsigned column, const Total& total) {
    partial<Rule>(c, partials, blockIdx.y / CLUSTER_SIZE, c.first_column() + column).store(total);
  };
  auto store = [&](unsigned column, const Total& total) {
    if (CLUSTER_SIZE == 1) return store_partial(column, total);
    store_to_cluster_rank(&blocks[cluster_rank()][0][column], 0, total.first);
    store_to_cluster_rank(&blocks[cluster_rank()][1][column], 0, total.second);
    if (NUMBERS > 2) store_to_cluster_rank(&blocks[cluster_rank()][NUMBERS - 1][column], 0, total.low);
  };
  if (CLUSTER_SIZE > 1) cluster_wait();  // all blocks run
  merge_parts<Rule>(
      columns, blockDim.y * c.repeats,
      [&](unsigned column, unsigned index, unsigned& count) {
        unsigned repeat = 0, row = index;
        if (c.repeats > 1) repeat = index / blockDim.y, row = index - repeat * blockDim.y;
        const unsigned in_tile = column + repeat * c.groups;
        const unsigned of_block = c.rows_of(c.first_column() + in_tile, c.first_row(), c.segment);
        count = of_block <= row ? 0 : (of_block - row - 1) / blockDim.y + 1;
        const unsigned at = row * c.columns() + in_tile;
        return Total{threads[0][at], threads[1][at], NUMBERS > 2 ? threads[NUMBERS - 1][at] : COMPUTE(0)};
      },
      [&](unsigned column) { return COMPUTE(rows_of(column, c.first_row(), c.segment)); }, store);
  if (CLUSTER_SIZE == 1) return;
  cluster_arrive();
  cluster_wait();
  if (cluster_rank() > 0) return;
  merge_parts<Rule>(
      columns, CLUSTER_SIZE,
      [&](unsigned column, unsigned index, unsigned& count) {
        count = rows_of(column, c.first_row() + index * c.segment, c.segment);
        const COMPUTE(&found)[NUMBERS][CLUSTER_SIZE > 1 ? MOST_PARTIALS : 1] = blocks[index];
        return Total{found[0][column], found[1][column], NUMBERS > 2 ? found[NUMBERS - 1][column] : COMPUTE(0)};
      },
      [&](unsigned column) { return COMPUTE(rows_of(column, c.first_row(), c.part)); }, store_partial);
}
__device__ __forceinline__ void begin_partials() {
  if (CLUSTER_SIZE > 1) cluster_arrive_relaxed();
}

// The total of each column of a block's tile from the partial results; all threads know them behind it. result(column,
// group, total): in one thread.
template <class Rule, class Result>
__device__ __forceinline__ void load_partials(const Columns& c, COMPUTE* partials, const Result& result) {
  merge_parts<Rule>(
      min(c.columns(), c.packs * WIDTH - c.first_column()), c.parts,
      [&](unsigned column, unsigned index, unsigned& count) {
        const unsigned group = c.repeats > 1 ? c.group_of(c.first_column() + column) : c.first_column() + column;
        count = 0;
        for (unsigned i = 0; i < c.repeats; i++) count += c.rows_of(group + i * c.groups, index * c.part, c.part);
        return partial<Rule>(c, partials, index, group).load();
      },
      [&](unsigned) { return c.count; },
      [&](unsigned column, const Total& total) { result(column, c.group_of(c.first_column() + column), total); });
  cp_async_wait<0>();  // of copy_parameters()
  __syncthreads();
}
// Begins to copy a parameter of each column to shared memory; load_partials() waits for it.
__device__ __forceinline__ void copy_parameters(const Columns& c, const COMPUTE* from, COMPUTE* to) {
  const unsigned columns = min(c.columns(), c.packs * WIDTH - c.first_column());
  for (unsigned column = thread_of_block(); column < columns; column += blockDim.x * blockDim.y)
    cp_async<sizeof(COMPUTE)>(to + column, from + c.group_of(c.first_column() + column), true);
  cp_async_commit();
}
// Whether a thread that has the total of this column writes the results of its group.
__device__ __forceinline__ bool writes_results(const Columns& c, unsigned column) {
  return blockIdx.y == 0 && c.first_column() + column < c.groups;
}

// Whether the origin of a thread's differences is a median.
constexpr bool MEDIANS = ROWS_IN_FLIGHT > 2;

// The moments of a thread's elements, in each of its columns.
__device__ __forceinline__ void moments_of_thread(const Columns& c, const ELEMENT* x, Total (&moments)[WIDTH]) {
  const unsigned rows = c.my_rows();
  ShiftedSum sums[WIDTH];
  for (unsigned i = 0; i < rows; i += ROWS_IN_FLIGHT) {
    Elements read[ROWS_IN_FLIGHT];
#pragma unroll
    for (int u = 0; u < ROWS_IN_FLIGHT; u++)
      if (i + u < rows) read[u] = read_pack(x + c.offset(i + u));
    if (i == 0) {
#pragma unroll
      for (int k = 0; k < WIDTH; k++)
        sums[k].begin(read[0].item[k], read[MEDIANS ? 1 : 0].item[k], read[MEDIANS ? 2 : 0].item[k], rows);
    }
#pragma unroll
    for (int u = 0; u < ROWS_IN_FLIGHT; u++)
      if (i + u < rows) {
#pragma unroll
        for (int k = 0; k < WIDTH; k++) sums[k].add(read[u].item[k]);
      }
  }
  const COMPUTE reciprocal = COMPUTE(1) / COMPUTE(rows);
#pragma unroll
  for (int k = 0; k < WIDTH; k++) moments[k] = rows > 0 ? sums[k].moments(reciprocal) : Total{};
}

struct ForwardArguments {
  ForwardCall call;
  Columns columns;
};

extern "C" __global__ void __launch_bounds__(THREADS, 2) CLUSTER_DIMS_Y
    normalization_batch_columns_moments(const ForwardArguments a) {
  griddepcontrol_wait();
  begin_partials();
  Total moments[WIDTH];
  moments_of_thread(a.columns, a.call.x, moments);
  store_partials<MergeMoments>(a.columns, moments, a.call.partials);
}

// y of a thread's elements, its last rows first. find(): the statistics of its columns, while the first reads are in
// flight.
template <class Find>
__device__ __forceinline__ void apply(const ForwardCall& call, const Columns& c, const Find& find) {
  Normalizer of[WIDTH];
  const unsigned rows = c.my_rows();
  for (unsigned left = rows; left > 0; left -= min(left, static_cast<unsigned>(ROWS_IN_FLIGHT))) {
    Elements x[ROWS_IN_FLIGHT], z[ROWS_IN_FLIGHT];
#pragma unroll
    for (int u = 0; u < ROWS_IN_FLIGHT; u++)
      if (u < left) {
        x[u] = read_pack(call.x + c.offset(left - 1 - u));
        if (call.adds()) z[u] = read_pack(call.z + c.offset(left - 1 - u));
      }
    if (left == rows) {
#pragma unroll
      for (int k = 0; k < WIDTH; k++) of[k] = find(k);
    }
#pragma unroll
    for (int u = 0; u < ROWS_IN_FLIGHT; u++)
      if (u < left) call.store_pack(c.offset(left - 1 - u), x[u], z[u], [&](int k) { return of[k]; });
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    normalization_batch_columns_training(const ForwardArguments a) {
  griddepcontrol_wait();
  const Columns& c = a.columns;
  __shared__ COMPUTE mean[MOST_COLUMNS], squares[MOST_COLUMNS], scale[MOST_COLUMNS], bias[MOST_COLUMNS];
  copy_parameters(c, a.call.scale, scale);
  copy_parameters(c, a.call.bias, bias);
  load_partials<MergeMoments>(c, a.call.partials, [&](unsigned column, unsigned, const Total& total) {
    mean[column] = total.first + total.low, squares[column] = total.second;
  });
  apply(a.call, c, [&](int k) {
    const unsigned column = threadIdx.x * WIDTH + k;
    return Normalizer{mean[column], scale[column] * a.call.inverse(squares[column], c.count), bias[column]};
  });
  for (unsigned column = thread_of_block(); column < c.columns(); column += blockDim.x * blockDim.y)
    if (writes_results(c, column))
      a.call.store_statistics(mean[column], squares[column], c.count, c.first_column() + column);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    normalization_batch_columns_inference(const ForwardArguments a) {
  griddepcontrol_wait();
  const Columns& c = a.columns;
  if (c.pack() >= c.packs) return;
  apply(a.call, c, [&](int k) {
    const unsigned group = c.group_of(c.pack() * WIDTH + k);
    return a.call.given(group, group);
  });
}

struct BackwardArguments {
  BackwardCall call;
  Columns columns;
  unsigned sums;  // numbers of scratch memory before the partial sums: those of partial moments
};

// Where mean and inverse are not saved.
extern "C" __global__ void __launch_bounds__(THREADS, 2) CLUSTER_DIMS_Y
    normalization_batch_columns_backward_moments(const BackwardArguments a) {
  griddepcontrol_wait();
  begin_partials();
  Total moments[WIDTH];
  moments_of_thread(a.columns, a.call.x, moments);
  store_partials<MergeMoments>(a.columns, moments, a.call.partials);
}

// What a block knows of its columns: mean, inverse, scale * inverse, bias.
struct Known {
  COMPUTE mean[MOST_COLUMNS], inverse[MOST_COLUMNS], factor[MOST_COLUMNS], bias[MOST_COLUMNS];

  __device__ __forceinline__ void read(const BackwardCall& call, const Columns& c) {
    auto keep = [&](unsigned column, unsigned group, COMPUTE of_group, COMPUTE inverse_of_group) {
      mean[column] = of_group, inverse[column] = inverse_of_group;
      factor[column] = call.scale[group] * inverse_of_group;
      bias[column] = call.has_bias() ? call.bias[group] : COMPUTE(0);
    };
    if (call.saved_mean) {
      const unsigned columns = min(c.columns(), c.packs * WIDTH - c.first_column());
      for (unsigned column = thread_of_block(); column < columns; column += blockDim.x * blockDim.y) {
        const unsigned group = c.group_of(c.first_column() + column);
        keep(column, group, call.saved_mean[group], call.saved_inverse[group]);
      }
      __syncthreads();
    } else {
      load_partials<MergeMoments>(c, call.partials, [&](unsigned column, unsigned group, const Total& total) {
        keep(column, group, total.first + total.low, COMPUTE(1) / sqrt(total.second / c.count + call.epsilon));
      });
    }
  }
  // dy of a pack where it counts; passes: bits of the mask.
  __device__ __forceinline__ void undo_activation(const BackwardCall& call, const Elements& x, Elements& dy,
                                                  unsigned passes) const {
    const unsigned first = threadIdx.x * WIDTH;
#pragma unroll
    for (int k = 0; k < WIDTH; k++) {
      const bool counts = call.has_mask() ? passes >> k & 1
                                          : !call.has_bias() || call.counts(x.item[k], mean[first + k],
                                                                            factor[first + k], bias[first + k]);
      if (!counts) dy.item[k] = store<ELEMENT>(COMPUTE(0));
    }
  }
  // The gradients of a thread's columns, from the sums.
  __device__ __forceinline__ void gradients(const BackwardCall& call, const Columns& c, COMPUTE* sums,
                                            GradientOf (&of)[WIDTH]) const {
    __shared__ COMPUTE of_x[MOST_COLUMNS], constant[MOST_COLUMNS];
    load_partials<AddSums>(c, sums, [&](unsigned column, unsigned group, const Total& total) {
      if (writes_results(c, column)) call.store_parameters(group, total.first, total.second);
      const auto found = GradientOf::from(mean[column], inverse[column], factor[column], total, c.count);
      of_x[column] = found.of_x, constant[column] = found.constant;
    });
#pragma unroll
    for (int k = 0; k < WIDTH; k++) {
      const unsigned column = threadIdx.x * WIDTH + k;
      of[k] = {mean[column], factor[column], of_x[column], constant[column]};
    }
  }
};

// Reads x, dy and the mask of up to ROWS_IN_FLIGHT rows; use(offset, x, dy) gets those that exist with the activation
// undone. row(u): the u-th of them.
template <class Row, class Use>
__device__ __forceinline__ void visit_gradients(const BackwardCall& call, const Columns& c, const Known& known,
                                                unsigned count, const Row& row, const Use& use) {
  Elements x[ROWS_IN_FLIGHT], dy[ROWS_IN_FLIGHT];
  unsigned char passes[ROWS_IN_FLIGHT];
#pragma unroll
  for (int u = 0; u < ROWS_IN_FLIGHT; u++)
    if (u < count) {
      const unsigned offset = c.offset(row(u));
      x[u] = read_pack(call.x + offset);
      dy[u] = read_pack(call.dy + offset);
      if (call.has_mask()) passes[u] = call.mask[offset / WIDTH];
    }
#pragma unroll
  for (int u = 0; u < ROWS_IN_FLIGHT; u++)
    if (u < count) {
      known.undo_activation(call, x[u], dy[u], passes[u]);
      use(c.offset(row(u)), x[u], dy[u]);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) CLUSTER_DIMS_Y
    normalization_batch_columns_sums(const BackwardArguments a) {
  griddepcontrol_wait();
  begin_partials();
  const Columns& c = a.columns;
  __shared__ Known known;
  known.read(a.call, c);
  COMPUTE mean[WIDTH], inverse[WIDTH];
  Total sums[WIDTH] = {};
  read_values(known.mean + threadIdx.x * WIDTH, mean);
  read_values(known.inverse + threadIdx.x * WIDTH, inverse);
  const unsigned rows = c.my_rows();
  for (unsigned i = 0; i < rows; i += ROWS_IN_FLIGHT)
    visit_gradients(
        a.call, c, known, rows - i, [&](int u) { return i + u; },
        [&](unsigned, const Elements& x, const Elements& dy) {
#pragma unroll
          for (int k = 0; k < WIDTH; k++) {
            const COMPUTE gradient = load<COMPUTE>(dy.item[k]);
            sums[k].first += gradient;
            sums[k].second += gradient * ((load<COMPUTE>(x.item[k]) - mean[k]) * inverse[k]);
          }
        });
  store_partials<AddSums>(c, sums, a.call.partials + a.sums);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    normalization_batch_columns_gradient(const BackwardArguments a) {
  griddepcontrol_wait();
  const Columns& c = a.columns;
  __shared__ Known known;
  known.read(a.call, c);
  GradientOf of[WIDTH];
  known.gradients(a.call, c, a.call.partials + a.sums, of);
  for (unsigned left = c.my_rows(); left > 0; left -= min(left, static_cast<unsigned>(ROWS_IN_FLIGHT)))
    visit_gradients(
        a.call, c, known, left, [&](int u) { return left - 1 - u; },
        [&](unsigned offset, const Elements& x, const Elements& dy) {
          a.call.store_pack(offset, x, dy, [&](int k) { return of[k]; });
        });
}

// --- all blocks at once ---

// The blocks of a tile wait for each other: the launch is cooperative, and has a multiprocessor for each.
__device__ unsigned tile_barriers[MOST_TILES];
__device__ __forceinline__ void wait_for_tile() {
  __syncthreads();
  if (gridDim.y > 1 && thread_of_block() == 0) wait_for_blocks(tile_barriers + blockIdx.x, blockIdx.y == 0, gridDim.y);
  __syncthreads();
}

// What a block merges of its threads: the columns of a tile, by warp.
struct BlockExchange {
  COMPUTE origin[MOST_COLUMNS], warps[2][THREADS / 32][MOST_COLUMNS];
};

// Merges what the threads of a block have of their columns, of which each has all rows of the block, and writes one
// partial result for each column. Rows of the tile are threads: a power of two of them in a warp.
template <class Rule>
__device__ __forceinline__ void store_block_partials(BlockExchange& exchange, const Columns& c,
                                                     const Total (&mine)[WIDTH], COMPUTE* partials) {
  const unsigned warp = thread_of_block() / 32, first = threadIdx.x * WIDTH;
  const COMPUTE count = COMPUTE(c.rows_of(c.first_column(), c.first_row(), c.segment)), weight = COMPUTE(1) / count;
  const COMPUTE of_thread = COMPUTE(c.my_rows());
  if (same_type<Rule, MergeMoments>) {
    COMPUTE(&origins)[THREADS / 32][MOST_COLUMNS] = exchange.warps[0];
    if (threadIdx.y < 3) {
#pragma unroll
      for (int k = 0; k < WIDTH; k++) origins[threadIdx.y][first + k] = origin(mine[k]);
    }
    __syncthreads();
    for (unsigned i = thread_of_block(); i < c.columns(); i += THREADS)
      exchange.origin[i] = count > COMPUTE(2) ? median(origins[0][i], origins[1][i], origins[2][i]) : origins[0][i];
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
      exchange.warps[0][warp][first + k] = sum.first, exchange.warps[1][warp][first + k] = sum.second;
  }
  __syncthreads();
  const unsigned column = thread_of_block();
  if (column >= c.columns() || c.first_column() + column >= c.groups) return;
  Total sum{};
#pragma unroll
  for (unsigned w = 0; w < THREADS / 32; w++)
    sum.first += exchange.warps[0][w][column], sum.second += exchange.warps[1][w][column];
  partial<Rule>(c, partials, blockIdx.y, c.first_column() + column)
      .store(Rule::finish(sum, exchange.origin[column], count));
}

// What a thread keeps of TENSORS tensors from the first pass to the second: its first rows in shared memory, the next
// HELD in registers. It reads the others again (AGAIN: where there are some), from the last one on, which L2 still has.
// All reads are copies to shared memory, COPIES rows ahead, through COPIES slots behind those of the rows that stay:
// little is left of L1, through which other reads would pass. What the second pass adds comes through such slots, too,
// AHEAD rows ahead, and words of a mask, that of a pack and those beside it, through slots of their own.
template <int TENSORS> struct Kept {
  static constexpr unsigned AHEAD = TENSORS == 1 && AGAIN && (CALLS == ADDED || CALLS == ANY) ? COPIES / 2 : COPIES;
  const ELEMENT* const (&from)[TENSORS];
  const ELEMENT* const added;       // null where nothing is
  const unsigned char* const mask;  // null where there is none
  const unsigned rows, cached;      // of this thread
  const unsigned first, step;       // the offset of its first row; from one to the next
  Elements* slots[TENSORS];
  unsigned* words;
  Elements held[TENSORS][HELD > 0 ? HELD : 1];

  // room: rows of a thread that shared memory has room for, besides COPIES.
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
#pragma unroll
    for (int t = 0; t < TENSORS; t++)
      slots[t] = own(reinterpret_cast<Elements*>(shared_memory) + t * of_tensor + thread);
    words = own(reinterpret_cast<unsigned*>(reinterpret_cast<Elements*>(shared_memory) + TENSORS * of_tensor) + thread);
  }
  // An address in a register: ptxas of CUDA 13.0 encoded a copy to an address with a uniform part as an instruction
  // that there is not.
  template <class T> static __device__ __forceinline__ T* own(T* address) {
    unsigned char* bytes = reinterpret_cast<unsigned char*>(address);
    keep_shared_pointer(bytes);
    return reinterpret_cast<T*>(bytes);
  }
  __device__ __forceinline__ Elements* slot(unsigned index, int tensor) const {
    return slots[tensor] + index * THREADS;
  }
  // The bits of the mask of the pack at an offset, which is the thread's `row`-th.
  __device__ __forceinline__ unsigned bits(unsigned row, unsigned offset) const {
    return mask ? words[row % COPIES * THREADS] >> offset / WIDTH % 4 * 8 : 0;
  }
  __device__ __forceinline__ void get(unsigned index, Elements (&packs)[TENSORS]) const {
#pragma unroll
    for (int t = 0; t < TENSORS; t++) packs[t] = *slot(index, t);
  }
  // Begins to copy the row at an offset, where it exists. again: it is read again.
  __device__ __forceinline__ void copy(unsigned index, unsigned row, unsigned offset, bool exists,
                                       bool again = false) const {
    if (exists) {
#pragma unroll
      for (int t = 0; t < TENSORS; t++) {
        const Elements* const pack = reinterpret_cast<const Elements*>(from[t] + offset);
        if (again) cp_async<sizeof(Elements)>(slot(index, t), pack, true);
        else copy_once(slot(index, t), pack);
      }
      if (mask) cp_async<4>(words + row % COPIES * THREADS, mask + offset / WIDTH / 4 * 4, true);
    }
  }
  // The slot of what is added to the row that has `left` rows behind it; where nothing is read again, as if it were the
  // row behind the last one.
  __device__ __forceinline__ Elements* added_slot(unsigned left) const {
    return slot(cached + (AGAIN ? COPIES - AHEAD + left % AHEAD : (rows - cached + left) % COPIES), 0);
  }
  __device__ __forceinline__ void copy_added(unsigned left) const {
    if (added && left < rows)
      copy_once(added_slot(left), reinterpret_cast<const Elements*>(added + (last() - left * step)));
  }
  // The first pass: use(offset, packs) of every row, which may change the last pack where calls are not plain.
  template <class Use> __device__ __forceinline__ void visit_first(const Use& use) {
    Elements packs[TENSORS];
    unsigned i = 0, offset = first;
    auto read = [&](unsigned index) {
      cp_async_wait<COPIES - 1>();
      get(index, packs);
      use(offset, packs, bits(i, offset));
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
      if (!PLAIN && TENSORS > 1) *slot(i, TENSORS - 1) = packs[TENSORS - 1];
      copy_next(i + COPIES, false);
    }
#pragma unroll
    for (int u = 0; u < HELD; u++, i++, offset += step) {
      if (i >= rows) break;
      read(cached + u % COPIES);
#pragma unroll
      for (int t = 0; t < TENSORS; t++) held[t][u] = packs[t];
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
  // The second pass, from the last row on: begins to copy what is read again, and what is added.
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
  // use(offset, packs, what is added, bits of the mask of those that are copied again, whether they are)
  template <class Use> __device__ __forceinline__ void visit_again(const Use& use) const {
    Elements packs[TENSORS], other;
    unsigned left = 0, offset = last();  // rows behind this one
    const unsigned all = read_again();
    auto visit = [&](unsigned passes, bool again) {
      if (added) {
        if (!again) cp_async_wait<AHEAD - 1>();
        other = *added_slot(left);
      }
      use(offset, packs, other, passes, again);
      if (again) copy(cached + left % AHEAD, left, offset - AHEAD * step, left + AHEAD < all);
      copy_added(left + AHEAD);
      if (added || again) cp_async_commit();
    };
    while (left < all) {
#pragma unroll
      for (unsigned u = 0; u < AHEAD; u++, left++, offset -= step) {
        if (left == all) break;
        cp_async_wait<AHEAD - 1>();
        get(cached + u, packs);
        visit(bits(u, offset), true);
      }
    }
#pragma unroll
    for (int u = HELD - 1; u >= 0; u--) {
      if (cached + u >= rows) continue;
#pragma unroll
      for (int t = 0; t < TENSORS; t++) packs[t] = held[t][u];
      visit(0, false);
      left++, offset -= step;
    }
#pragma unroll 2
    for (unsigned i = cached; i > 0; i--, left++, offset -= step) {
      get(i - 1, packs);
      visit(0, false);
    }
  }
};

struct ForwardTogetherArguments {
  ForwardCall call;
  Columns columns;
  unsigned room;  // rows of a thread in shared memory
};

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    normalization_batch_columns_training_together(const ForwardTogetherArguments a) {
  griddepcontrol_wait();
  const Columns& c = a.columns;
  const ForwardCall& call = a.call;
  __shared__ BlockExchange exchange;
  __shared__ COMPUTE mean[MOST_COLUMNS], squares[MOST_COLUMNS], scale[MOST_COLUMNS], bias[MOST_COLUMNS];
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
    call.store_pack(offset, x[0], z, [&](int k) { return of[k]; });
  });
  for (unsigned column = thread_of_block(); column < c.columns(); column += THREADS)
    if (writes_results(c, column))
      call.store_statistics(mean[column], squares[column], c.count, c.first_column() + column);
}

struct BackwardTogetherArguments {
  BackwardCall call;
  Columns columns;
  unsigned room;
};

// Where mean and inverse are saved.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    normalization_batch_columns_backward_together(const BackwardTogetherArguments a) {
  griddepcontrol_wait();
  const Columns& c = a.columns;
  const BackwardCall& call = a.call;
  __shared__ BlockExchange exchange;
  __shared__ Known known;
  known.read(call, c);
  const ELEMENT* const from[2] = {call.x, call.dy};
  Kept<2> kept(c, from, nullptr, call.has_mask() ? call.mask : nullptr, a.room);
  COMPUTE mean[WIDTH];
  read_values(known.mean + threadIdx.x * WIDTH, mean);
  Total sums[WIDTH] = {};
  kept.visit_first([&](unsigned, Elements(&packs)[2], unsigned passes) {
    known.undo_activation(call, packs[0], packs[1], passes);
#pragma unroll
    for (int k = 0; k < WIDTH; k++) {
      const COMPUTE gradient = load<COMPUTE>(packs[1].item[k]);
      sums[k].first += gradient;
      sums[k].second += gradient * (load<COMPUTE>(packs[0].item[k]) - mean[k]);
    }
  });
#pragma unroll
  for (int k = 0; k < WIDTH; k++) sums[k].second *= known.inverse[threadIdx.x * WIDTH + k];
  store_block_partials<AddSums>(exchange, c, sums, call.partials);
  kept.begin_again();
  wait_for_tile();
  GradientOf of[WIDTH];
  known.gradients(call, c, call.partials, of);
  kept.visit_again([&](unsigned offset, Elements(&packs)[2], const Elements&, unsigned passes, bool again) {
    if (again) known.undo_activation(call, packs[0], packs[1], passes);
    call.store_pack(offset, packs[0], packs[1], [&](int k) { return of[k]; });
  });
}
