// This file normalizes packed tensors whose fastest dimension has the channels or activations (3.2.3, 4.1.2 to 4.1.5,
// 3.2.66, 4.1.15, 4.1.16). Each of these has its own statistics.
//
// The tensor is a matrix. A row contains all groups once, or several times so that it consists of full vectors. A
// block owns a tile of vector columns and a segment of rows. Each thread walks down one vector column. Moments or sums
// of segments go to scratch memory, one partial result per cluster. Every block of the second launch merges the partial
// results of its columns in order. It then walks its segment backwards, because L2 still has the last rows.
//
// The roofline bound is bytes. Forward reads x twice and writes y; backward reads x and dy twice and writes dx. L2
// saves part of the second read. 64 x 256 x 56 x 56 float takes 135 us at the copy's 4.2 TB/s of an H200. Forward needs
// 6 flops per element, backward 12.
#include "normalization/batch_nhwc/batch_nhwc.cuh"

// Merges the partial results of the threads of a block, then of the blocks of a cluster. Writes one partial result per
// group, or per column where no row repeats a group.
template <class Rule>
__device__ __forceinline__ void store_partials(const Columns& c, const Total (&mine)[WIDTH], COMPUTE* partials) {
  constexpr int NUMBERS = same_type<Rule, MergeMoments> ? 3 : 2;
  __shared__ COMPUTE threads[NUMBERS][THREADS * WIDTH];
#pragma unroll
  for (int i = 0; i < WIDTH; i++) {
    threads[0][thread_of_block() * WIDTH + i] = mine[i].first;
    threads[1][thread_of_block() * WIDTH + i] = mine[i].second;
    if (NUMBERS > 2) threads[NUMBERS - 1][thread_of_block() * WIDTH + i] = mine[i].low;
  }
  __syncthreads();
  const unsigned columns = c.repeats > 1 ? c.groups : min(c.columns(), c.vectors * WIDTH - c.first_column());
  // Returns where the first block of the cluster keeps numbers of another one, by column.
  auto of_block = [&](unsigned rank, unsigned number) {
    return array_of_columns(c, ARRAYS) + (rank * NUMBERS + number) * columns;
  };
  // Counts the rows from `from` on in all columns of a group.
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
    store_to_cluster_rank(of_block(cluster_rank(), 0) + column, 0, total.first);
    store_to_cluster_rank(of_block(cluster_rank(), 1) + column, 0, total.second);
    if (NUMBERS > 2) store_to_cluster_rank(of_block(cluster_rank(), NUMBERS - 1) + column, 0, total.low);
  };
  if (CLUSTER_SIZE > 1) cluster_wait();  // All blocks run.
  merge_parts<Rule>(
      columns, blockDim.y * c.repeats,
      [&](unsigned column, unsigned index, unsigned& count) {
        unsigned repeat = 0, row = index;
        if (c.repeats > 1) repeat = index / blockDim.y, row = index - repeat * blockDim.y;
        const unsigned in_tile = column + repeat * c.groups;
        const unsigned rows = c.rows_of(c.first_column() + in_tile, c.first_row(), c.segment);
        count = rows <= row ? 0 : (rows - row - 1) / blockDim.y + 1;
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
        return Total{of_block(index, 0)[column], of_block(index, 1)[column],
                     NUMBERS > 2 ? of_block(index, NUMBERS - 1)[column] : COMPUTE(0)};
      },
      [&](unsigned column) { return COMPUTE(rows_of(column, c.first_row(), c.part)); }, store_partial);
}
__device__ __forceinline__ void begin_partials() {
  if (CLUSTER_SIZE > 1) cluster_arrive_relaxed();
}

// MEDIANS says whether the origin of a thread's differences is a median.
constexpr bool MEDIANS = ROWS_IN_FLIGHT > 2;

// Computes the moments of a thread's elements in each of its columns.
__device__ __forceinline__ void moments_of_thread(const Columns& c, const ELEMENT* x, Total (&moments)[WIDTH]) {
  const unsigned rows = c.my_rows();
  ShiftedSum sums[WIDTH];
  for (unsigned i = 0; i < rows; i += ROWS_IN_FLIGHT) {
    Elements read[ROWS_IN_FLIGHT];
#pragma unroll
    for (int u = 0; u < ROWS_IN_FLIGHT; u++)
      if (i + u < rows) read[u] = read_vector(x + c.offset(i + u));
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
    normalization_batch_nhwc_moments(const ForwardArguments a) {
  griddepcontrol_wait();
  begin_partials();
  Total moments[WIDTH];
  moments_of_thread(a.columns, a.call.x, moments);
  store_partials<MergeMoments>(a.columns, moments, a.call.partials);
}

// Computes y for a thread's elements, the last rows first. find() returns the statistics of its columns while the first
// reads are in flight.
template <class Find>
__device__ __forceinline__ void apply(const ForwardCall& call, const Columns& c, const Find& find) {
  Normalizer of[WIDTH];
  const unsigned rows = c.my_rows();
  for (unsigned left = rows; left > 0; left -= min(left, static_cast<unsigned>(ROWS_IN_FLIGHT))) {
    Elements x[ROWS_IN_FLIGHT], z[ROWS_IN_FLIGHT];
#pragma unroll
    for (int u = 0; u < ROWS_IN_FLIGHT; u++)
      if (u < left) {
        x[u] = read_vector(call.x + c.offset(left - 1 - u));
        if (call.adds()) z[u] = read_vector(call.z + c.offset(left - 1 - u));
      }
    if (left == rows) {
#pragma unroll
      for (int k = 0; k < WIDTH; k++) of[k] = find(k);
    }
#pragma unroll
    for (int u = 0; u < ROWS_IN_FLIGHT; u++)
      if (u < left) call.store_vector(c.offset(left - 1 - u), x[u], z[u], [&](int k) { return of[k]; });
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) normalization_batch_nhwc_training(const ForwardArguments a) {
  griddepcontrol_wait();
  const Columns& c = a.columns;
  COMPUTE *const mean = array_of_columns(c, 0), *const squares = array_of_columns(c, 1);
  COMPUTE *const scale = array_of_columns(c, 2), *const bias = array_of_columns(c, 3);
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

extern "C" __global__ void __launch_bounds__(THREADS, 2) normalization_batch_nhwc_inference(const ForwardArguments a) {
  griddepcontrol_wait();
  const Columns& c = a.columns;
  if (c.vector() >= c.vectors) return;
  apply(a.call, c, [&](int k) {
    const unsigned group = c.group_of(c.vector() * WIDTH + k);
    return a.call.given(group, group);
  });
}

struct BackwardArguments {
  BackwardCall call;
  Columns columns;
  unsigned sums;  // values of partial moments that precede the partial sums in scratch memory
};

// This kernel runs where mean and inverse are not saved.
extern "C" __global__ void __launch_bounds__(THREADS, 2) CLUSTER_DIMS_Y
    normalization_batch_nhwc_backward_moments(const BackwardArguments a) {
  griddepcontrol_wait();
  begin_partials();
  Total moments[WIDTH];
  moments_of_thread(a.columns, a.call.x, moments);
  store_partials<MergeMoments>(a.columns, moments, a.call.partials);
}

// Reads x, dy and the mask of up to ROWS_IN_FLIGHT rows. use(offset, x, dy) receives each existing row after the
// activation is undone. row(u) returns the u-th row.
template <class Row, class Use>
__device__ __forceinline__ void visit_gradients(const BackwardCall& call, const Columns& c, const Known& known,
                                                unsigned count, const Row& row, const Use& use) {
  Elements x[ROWS_IN_FLIGHT], dy[ROWS_IN_FLIGHT];
  unsigned char passes[ROWS_IN_FLIGHT];
#pragma unroll
  for (int u = 0; u < ROWS_IN_FLIGHT; u++)
    if (u < count) {
      const unsigned offset = c.offset(row(u));
      x[u] = read_vector(call.x + offset);
      dy[u] = read_vector(call.dy + offset);
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
    normalization_batch_nhwc_sums(const BackwardArguments a) {
  griddepcontrol_wait();
  begin_partials();
  const Columns& c = a.columns;
  const Known known(c);
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

extern "C" __global__ void __launch_bounds__(THREADS, 2) normalization_batch_nhwc_gradient(const BackwardArguments a) {
  griddepcontrol_wait();
  const Columns& c = a.columns;
  const Known known(c);
  known.read(a.call, c);
  GradientOf of[WIDTH];
  known.gradients(a.call, c, a.call.partials + a.sums, of);
  for (unsigned left = c.my_rows(); left > 0; left -= min(left, static_cast<unsigned>(ROWS_IN_FLIGHT)))
    visit_gradients(
        a.call, c, known, left, [&](int u) { return left - 1 - u; },
        [&](unsigned offset, const Elements& x, const Elements& dy) {
          a.call.store_vector(offset, x, dy, [&](int k) { return of[k]; });
        });
}
