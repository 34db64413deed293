// This header locates a thread's elements and merges the partial results of columns.
#pragma once
#include "normalization/batch_call.cuh"
#include "primitives/cp_async.cuh"
#include "primitives/geometry.cuh"

constexpr int WIDTH = VECTOR_WIDTH;  // elements per vector
using Elements = Vector<ELEMENT, WIDTH>;

struct Columns {
  unsigned vectors, rows;    // vectors: vectors per row; rows: number of rows
  unsigned tail;             // vectors in the last row
  unsigned segment, part;    // segment: rows per block; part: rows per partial result
  unsigned parts;            // partial results per group
  unsigned groups, repeats;  // repeats: columns per row and group
  FastDivmod group;          // divides by the number of groups
  COMPUTE count;

  __device__ __forceinline__ unsigned vector() const { return blockIdx.x * blockDim.x + threadIdx.x; }
  __device__ __forceinline__ unsigned columns() const { return blockDim.x * WIDTH; }  // columns per tile
  __device__ __forceinline__ unsigned first_column() const { return blockIdx.x * columns(); }
  __device__ __forceinline__ unsigned group_of(unsigned column) const {
    unsigned remainder;
    group.divide(column, remainder);
    return remainder;
  }
  // Returns how many of the `count` rows from `from` on a column has.
  __device__ __forceinline__ unsigned rows_of(unsigned column, unsigned from, unsigned count) const {
    const unsigned all = rows - (column / WIDTH >= tail);
    return from >= all ? 0 : min(count, all - from);
  }
  __device__ __forceinline__ unsigned first_row() const { return blockIdx.y * segment; }
  __device__ __forceinline__ unsigned my_rows() const {
    const unsigned of_block = vector() < vectors ? rows_of(vector() * WIDTH, first_row(), segment) : 0;
    return of_block <= threadIdx.y ? 0 : (of_block - threadIdx.y - 1) / blockDim.y + 1;
  }
  // Returns the offset of a thread's i-th row, which is the same in all tensors.
  __device__ __forceinline__ unsigned offset(unsigned i) const {
    return ((first_row() + threadIdx.y + i * blockDim.y) * vectors + vector()) * WIDTH;
  }
};

// This is a partial result in scratch memory: two values for sums, three for moments.
struct Partial {
  COMPUTE* pair;
  COMPUTE* low;  // null for sums
  __device__ __forceinline__ void store(const Total& total) const {
    *reinterpret_cast<Vector<COMPUTE, 2>*>(pair) = Vector<COMPUTE, 2>{{total.first, total.second}};
    if (low) *low = total.low;
  }
  __device__ __forceinline__ Total load() const {
    const auto found = *reinterpret_cast<const Vector<COMPUTE, 2>*>(pair);
    return {found.item[0], found.item[1], low ? *low : COMPUTE(0)};
  }
};
template <class Rule>
__device__ __forceinline__ Partial partial(const Columns& c, COMPUTE* partials, unsigned part, unsigned group) {
  const unsigned across = c.repeats > 1 ? c.groups : c.vectors * WIDTH, index = part * across + group;
  return {partials + 2 * index, same_type<Rule, MergeMoments> ? partials + (2 * c.parts * across + index) : nullptr};
}

__device__ __forceinline__ unsigned thread_of_block() { return threadIdx.y * blockDim.x + threadIdx.x; }
__device__ __forceinline__ Elements read_vector(const ELEMENT* from) {
  return *reinterpret_cast<const Elements*>(from);
}
template <int N> __device__ __forceinline__ void read_values(const COMPUTE* from, COMPUTE (&values)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++) values[i] = from[i];
}

// Returns the origin that is subtracted from the parts of a column. The first part is not empty.
template <class Part>
__device__ __forceinline__ COMPUTE origin_of_parts(unsigned column, unsigned parts, const Part& part) {
  unsigned second, third;
  const COMPUTE first = origin(part(column, 0, second));
  if (parts < 3) return first;
  const Total of_second = part(column, 1, second), of_third = part(column, 2, third);
  return second > 0 && third > 0 ? median(first, origin(of_second), origin(of_third)) : first;
}

// Merges the parts of each of `columns` with all threads of the block. part(column, index, count) reads one part and
// reports its elements. elements(column) returns the elements of all parts. One thread per column calls result(column,
// total).
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

// Merges the partial results of each column of a block's tile. One thread per column calls result(column, group,
// total). All threads see the results when this returns.
template <class Rule, class Result>
__device__ __forceinline__ void load_partials(const Columns& c, COMPUTE* partials, const Result& result) {
  merge_parts<Rule>(
      min(c.columns(), c.vectors * WIDTH - c.first_column()), c.parts,
      [&](unsigned column, unsigned index, unsigned& count) {
        const unsigned group = c.repeats > 1 ? c.group_of(c.first_column() + column) : c.first_column() + column;
        count = 0;
        for (unsigned i = 0; i < c.repeats; i++) count += c.rows_of(group + i * c.groups, index * c.part, c.part);
        return partial<Rule>(c, partials, index, group).load();
      },
      [&](unsigned) { return c.count; },
      [&](unsigned column, const Total& total) { result(column, c.group_of(c.first_column() + column), total); });
  cp_async_wait<0>();  // This waits for the copies of copy_parameters().
  __syncthreads();
}
// Begins to copy a parameter of each column to shared memory; load_partials() waits for it.
__device__ __forceinline__ void copy_parameters(const Columns& c, const COMPUTE* from, COMPUTE* to) {
  const unsigned columns = min(c.columns(), c.vectors * WIDTH - c.first_column());
  for (unsigned column = thread_of_block(); column < columns; column += blockDim.x * blockDim.y)
    cp_async<sizeof(COMPUTE)>(to + column, from + c.group_of(c.first_column() + column), true);
  cp_async_commit();
}
constexpr unsigned ARRAYS = 6;  // arrays of columns at the begin of dynamic shared memory

// Returns an array in dynamic shared memory with a number for each column of the tile.
__device__ __forceinline__ COMPUTE* array_of_columns(const Columns& c, unsigned index) {
  return reinterpret_cast<COMPUTE*>(shared_memory) + index * c.columns();
}
// Returns whether the thread with this column's total writes the results of its group.
__device__ __forceinline__ bool writes_results(const Columns& c, unsigned column) {
  return blockIdx.y == 0 && c.first_column() + column < c.groups;
}

// These arrays in dynamic shared memory have one entry per column of the tile: the parameters, with factor = scale *
// inverse, and two terms of the gradient.
struct Known {
  COMPUTE *mean, *inverse, *factor, *bias, *of_x, *constant;

  __device__ __forceinline__ explicit Known(const Columns& c)
      : mean(array_of_columns(c, 0)),
        inverse(array_of_columns(c, 1)),
        factor(array_of_columns(c, 2)),
        bias(array_of_columns(c, 3)),
        of_x(array_of_columns(c, 4)),
        constant(array_of_columns(c, 5)) {}
  __device__ __forceinline__ void read(const BackwardCall& call, const Columns& c) const {
    auto keep = [&](unsigned column, unsigned group, COMPUTE of_group, COMPUTE inverse_of_group) {
      mean[column] = of_group, inverse[column] = inverse_of_group;
      factor[column] = call.scale[group] * inverse_of_group;
      bias[column] = call.has_bias() ? call.bias[group] : COMPUTE(0);
    };
    if (call.saved_mean) {
      const unsigned columns = min(c.columns(), c.vectors * WIDTH - c.first_column());
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
  // Sets dy to zero where the activation blocks it. `passes` has the bits of the mask.
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
  // Computes the gradients of a thread's columns from the sums.
  __device__ __forceinline__ void gradients(const BackwardCall& call, const Columns& c, COMPUTE* sums,
                                            GradientOf (&of)[WIDTH]) const {
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
