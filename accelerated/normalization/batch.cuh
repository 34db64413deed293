// What the kernels of batch normalization share: which elements a thread has, statistics of blocks and clusters.
//
// A thread has one pack of statistics (SPAN of them: those of WIDTH neighbouring channels or activations, or one, whose
// positions are the neighbours) and of their positions every `stride`-th pack. A cluster has all positions of its
// groups: its blocks share the positions, and each leaves its moments with all others. What a thread has read it keeps
// in shared memory as far as there is room.
#pragma once
#include "primitives/cluster.cuh"
#include "primitives/geometry.cuh"
#include "primitives/types.cuh"

constexpr int WIDTH = PACK_WIDTH;  // elements of a pack
constexpr int SPAN = ALONG_STATISTICS ? WIDTH : 1;
constexpr int IN_FLIGHT = WIDTH == 1 ? 8 : 4;  // packs of an operand that a thread reads before it uses the first

using Elements = Pack<ELEMENT, WIDTH>;

// The elements of N operands, of which the first ones are tensors of statistics.
template <int N> struct Division {
  unsigned statistics, positions;  // packs
  unsigned cached;                 // packs of a thread that shared memory holds, of each operand that is read twice
  COMPUTE count;                   // positions of a group, in elements
  Geometry<N> group, position;

  __device__ __forceinline__ unsigned pack() const { return blockIdx.x * blockDim.x + threadIdx.x; }
  __device__ __forceinline__ unsigned stride() const { return blockDim.y * gridDim.y; }
  __device__ __forceinline__ unsigned first() const { return blockIdx.y * blockDim.y + threadIdx.y; }
  __device__ __forceinline__ bool exists() const { return pack() < statistics; }
  // How many elements of each group a thread has.
  __device__ __forceinline__ unsigned elements() const {
    const unsigned packs = exists() && first() < positions ? (positions - first() - 1) / stride() + 1 : 0;
    return packs * (WIDTH / SPAN);
  }
  __device__ __forceinline__ unsigned thread() const { return threadIdx.y * blockDim.x + threadIdx.x; }
  // Where pack k of a thread lies in shared memory.
  __device__ __forceinline__ unsigned slot(unsigned k) const { return k * blockDim.x * blockDim.y + thread(); }
};

__device__ __forceinline__ Elements read_elements_of(const ELEMENT* from) {
  return *reinterpret_cast<const Elements*>(from);
}

// The group of element i of a pack.
__device__ __forceinline__ constexpr int group_of(int i) { return SPAN == 1 ? 0 : i; }

// Visits the packs of a thread in groups of IN_FLIGHT: read(k, offsets, u) begins to read the k-th of them into the
// u-th slot, then use(k, offsets, u).
template <int N, class Read, class Use>
__device__ __forceinline__ void visit(const Division<N>& d, const unsigned (&start)[N], const Read& read,
                                      const Use& use) {
  if (!d.exists()) return;
  const unsigned stride = d.stride();
  for (unsigned p = d.first(), k = 0; p < d.positions; p += IN_FLIGHT * stride, k += IN_FLIGHT) {
    unsigned offset[IN_FLIGHT][N];
#pragma unroll
    for (int u = 0; u < IN_FLIGHT; u++) {
      if (p + u * stride >= d.positions) continue;
      d.position.locate(p + u * stride, offset[u]);
#pragma unroll
      for (int n = 0; n < N; n++) offset[u][n] += start[n];
      read(k + u, offset[u], u);
    }
#pragma unroll
    for (int u = 0; u < IN_FLIGHT; u++)
      if (p + u * stride < d.positions) use(k + u, offset[u], u);
  }
}

// --- sums and moments of a cluster ---

// Of up to `count` elements each: sums of the elements that a thread has, two for each group, or moments (mean, sum
// of squared differences from it).
struct Moments {
  COMPUTE count, first[SPAN], second[SPAN];
};

struct AddSums {
  static __device__ __forceinline__ void merge(COMPUTE, COMPUTE& first, COMPUTE& second, COMPUTE, COMPUTE other_first,
                                               COMPUTE other_second) {
    first += other_first;
    second += other_second;
  }
};
// Chan, Golub and LeVeque. The mean is the weighted one of both, so that an infinity stays one.
struct MergeMoments {
  static __device__ __forceinline__ void merge(COMPUTE count, COMPUTE& mean, COMPUTE& squares, COMPUTE other_count,
                                               COMPUTE other_mean, COMPUTE other_squares) {
    if (other_count == 0) return;
    if (count == 0) {
      mean = other_mean;
      squares = other_squares;
      return;
    }
    const COMPUTE total = count + other_count, difference = other_mean - mean;
    const COMPUTE part = count / total, other_part = other_count / total;
    squares += other_squares + difference * difference * (count * other_part);
    mean = mean * part + other_mean * other_part;
  }
};

// Shared memory of a block: the moments of its threads, then those of the blocks of the cluster.
struct MomentsExchange {
  COMPUTE* at;  // [2 * SPAN + 1][threads]
  __device__ __forceinline__ unsigned threads() const { return blockDim.x * blockDim.y; }
  __device__ __forceinline__ COMPUTE* blocks() const { return at + (2 * SPAN + 1) * threads(); }

  // Merges those of all threads of a cluster with the same statistics, in the order of threads and blocks. rows: a
  // power of two. To be called by all threads.
  template <class Rule> __device__ __forceinline__ void all_reduce(Moments& m) const {
    const unsigned size = threads(), row = threadIdx.y, lane = threadIdx.x, lanes = blockDim.x;
    COMPUTE* const mine = at + row * lanes + lane;
    auto write = [&](COMPUTE* to, unsigned apart) {
      to[0] = m.count;
#pragma unroll
      for (int i = 0; i < SPAN; i++) to[(2 * i + 1) * apart] = m.first[i], to[(2 * i + 2) * apart] = m.second[i];
    };
    auto merge = [&](const COMPUTE* from, unsigned apart) {
#pragma unroll
      for (int i = 0; i < SPAN; i++)
        Rule::merge(m.count, m.first[i], m.second[i], from[0], from[(2 * i + 1) * apart], from[(2 * i + 2) * apart]);
      m.count += from[0];
    };
    __syncthreads();  // what lay there before is read
    write(mine, size);
    for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
      __syncthreads();
      if (row < half) {
        merge(mine + half * lanes, size);
        write(mine, size);
      }
    }
    __syncthreads();
    if (CLUSTER_SIZE == 1) {
      if (row > 0) {
        m = Moments{};
        read(m, at + lane, size);
      }
      return;
    }
    // [CLUSTER_SIZE][2 * SPAN + 1][lanes] of every block
    COMPUTE* const parts = blocks();
    const unsigned words = (2 * SPAN + 1) * lanes;
    cluster_arrive();
    cluster_wait();  // all blocks run, and have read what lay there before
    for (unsigned i = threadIdx.y; i < CLUSTER_SIZE * (2 * SPAN + 1); i += blockDim.y) {
      const unsigned block = i / (2 * SPAN + 1), word = i % (2 * SPAN + 1);
      store_to_cluster_rank(parts + cluster_rank() * words + word * lanes + lane, block, at[word * size + lane]);
    }
    cluster_arrive();
    cluster_wait();
    read(m, parts + lane, lanes);
    for (unsigned block = 1; block < CLUSTER_SIZE; block++) merge(parts + block * words + lane, lanes);
  }

  static __device__ __forceinline__ void read(Moments& m, const COMPUTE* from, unsigned apart) {
    m.count = from[0];
#pragma unroll
    for (int i = 0; i < SPAN; i++) m.first[i] = from[(2 * i + 1) * apart], m.second[i] = from[(2 * i + 2) * apart];
  }
};

// The moments of the elements of a thread, as sums of differences from its first one: Welford's without a division
// each.
struct ShiftedSums {
  COMPUTE shift[SPAN], sum[SPAN], squares[SPAN];
  bool some = false;
  __device__ __forceinline__ void add(const Elements& pack) {
    if (!some) {
#pragma unroll
      for (int i = 0; i < SPAN; i++) {
        const COMPUTE value = load<COMPUTE>(pack.item[i]);
        shift[i] = value - value == COMPUTE(0) ? value : COMPUTE(0);  // infinities and NaN are no origin
        sum[i] = squares[i] = 0;
      }
      some = true;
    }
#pragma unroll
    for (int i = 0; i < WIDTH; i++) {
      const int s = group_of(i);
      const COMPUTE difference = load<COMPUTE>(pack.item[i]) - shift[s];
      sum[s] += difference;
      squares[s] += difference * difference;
    }
  }
  __device__ __forceinline__ Moments moments(unsigned elements) const {
    Moments m{};
    if (!some) return m;
    m.count = elements;
#pragma unroll
    for (int i = 0; i < SPAN; i++) {
      const COMPUTE mean = sum[i] / m.count;
      m.first[i] = shift[i] + mean;
      const COMPUTE squared = squares[i] - sum[i] * mean;
      m.second[i] = squared < COMPUTE(0) ? COMPUTE(0) : squared;
    }
    return m;
  }
};

// The values of SPAN statistics.
__device__ __forceinline__ void read_statistics(const COMPUTE* from, unsigned offset, int stride,
                                                COMPUTE (&values)[SPAN]) {
#pragma unroll
  for (int i = 0; i < SPAN; i++) values[i] = from[offset + i * stride];
}
