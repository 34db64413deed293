// This file normalizes batches per channel (3.2.3, 4.1.2 to 4.1.5, 3.2.66, 4.1.15, 4.1.16). Tensors are packed and
// their planes are contiguous.
//
// Training and backward assign one channel to a cluster of blocks. Planes may begin at any alignment. cp.async copies
// their 16-byte-aligned vectors to shared memory, IN_FLIGHT per thread at a time. The vectors stay there until their
// last use. Each plane has up to 2 (WIDTH - 1) elements at its edges. The threads read these again from L2, and also
// everything that exceeds shared memory.
//
// A small channel fits the registers of one block. Inference reads the tensor as one row.
//
// The roofline bound is bytes while a channel fits the shared memory of a cluster. Forward reads x and writes y once;
// backward reads x and dy and writes dx once. An H200 takes 38 us for training 64 x 1024 x 14 x 14 float, 66 % of the
// copy's speed. Backward takes 49 us, 76 %. Forward needs 6 flops per element, backward 12.
#include "normalization/batch_nchw.cuh"
#include "primitives/cp_async.cuh"
#include "primitives/geometry.cuh"

constexpr unsigned EDGES = 2 * (WIDTH - 1);
constexpr int IN_FLIGHT = 8;  // per thread, vectors that cp.async copies at a time
constexpr int READS = 2;      // per thread, reads in flight
constexpr unsigned WARPS = THREADS / 32;
constexpr unsigned TRAINING_BLOCKS = (sizeof(COMPUTE) > 4 ? 768 : 1024) / THREADS;  // per SM

struct Planes {
  unsigned images, channels, plane;  // plane: elements per plane
  unsigned cached;                   // vectors per thread and tensor in shared memory
  FastDivmod vectors;                // vectors per plane, upper bound
  COMPUTE count;                     // elements per channel

  __device__ __forceinline__ unsigned first() const { return blockIdx.y * THREADS + threadIdx.x; }
  __device__ __forceinline__ unsigned stride() const { return gridDim.y * THREADS; }
  __device__ __forceinline__ unsigned of_thread(unsigned all) const {
    return first() < all ? (all - first() - 1) / stride() + 1 : 0;
  }
  __device__ __forceinline__ unsigned my_vectors() const { return of_thread(images * vectors.divisor); }
  __device__ __forceinline__ unsigned my_edges() const { return plane % WIDTH ? of_thread(images * EDGES) : 0; }
};

// This view locates the elements of one channel.
struct ChannelPlanes {
  const Planes& all;
  unsigned channel;

  __device__ __forceinline__ unsigned plane_start(unsigned image) const {
    return (image * all.channels + channel) * all.plane;
  }
  // Returns a number near the mean: the median of three elements of the first plane.
  __device__ __forceinline__ COMPUTE near(const ELEMENT* x) const {
    const ELEMENT* const first = x + plane_start(0);
    return median(origin(load<COMPUTE>(first[0])), origin(load<COMPUTE>(first[all.plane / 2])),
                  origin(load<COMPUTE>(first[all.plane - 1])));
  }
  // Finds the offset of the thread's i-th vector. Returns false where the plane, at its alignment, has fewer vectors.
  __device__ __forceinline__ bool vector(unsigned i, unsigned& offset) const {
    unsigned in_plane;
    const unsigned start = plane_start(all.vectors.divide(all.first() + i * all.stride(), in_plane));
    offset = (start + WIDTH - 1) / WIDTH * WIDTH + in_plane * WIDTH;
    return offset + WIDTH <= start + all.plane;
  }
  // Finds the offset of the thread's i-th edge element. Returns false where it does not exist.
  __device__ __forceinline__ bool edge(unsigned i, unsigned& offset) const {
    const unsigned item = all.first() + i * all.stride(), image = item / EDGES, k = item - image * EDGES;
    const unsigned start = plane_start(image), end = start + all.plane;
    const unsigned body = (start + WIDTH - 1) / WIDTH * WIDTH, behind = max(end / WIDTH * WIDTH, body);
    offset = k < WIDTH - 1 ? start + k : behind + (k - (WIDTH - 1));
    return offset < (k < WIDTH - 1 ? body : end);
  }
};

// This cache holds a thread's vectors of TENSORS tensors in shared memory.
template <int TENSORS> struct Cache {
  const ChannelPlanes& planes;
  const ELEMENT* const (&from)[TENSORS];
  const unsigned kept;  // vectors of this thread in shared memory

  __device__ __forceinline__ Cache(const ChannelPlanes& planes, const ELEMENT* const (&from)[TENSORS])
      : planes(planes), from(from), kept(min(planes.all.my_vectors(), planes.all.cached)) {}
  __device__ __forceinline__ Elements* slot(unsigned i, int tensor) const {
    return reinterpret_cast<Elements*>(shared_memory) + (tensor * planes.all.cached + i) * THREADS + threadIdx.x;
  }
  // Begins to copy vector i, if it exists, and commits one group of copies.
  __device__ __forceinline__ void copy(unsigned i) const {
    unsigned offset;
    if (i < kept && planes.vector(i, offset)) {
#pragma unroll
      for (int t = 0; t < TENSORS; t++) cp_async<16>(slot(i, t), from[t] + offset, true);
    }
    cp_async_commit();
  }
  // Calls use(i, offset) for every cached vector as soon as its copy has arrived.
  template <class Use> __device__ __forceinline__ void visit_copies(const Use& use) const {
#pragma unroll
    for (unsigned i = 0; i < IN_FLIGHT; i++) copy(i);
    for (unsigned i = 0; i < kept; i++) {
      cp_async_wait<IN_FLIGHT - 1>();
      unsigned offset;
      if (planes.vector(i, offset)) use(i, offset);
      copy(i + IN_FLIGHT);
    }
    cp_async_wait<0>();
  }
};

// Visits the vectors of a thread from `begin` to `end`, READS at a time. read(u, i, offset) begins a read; use(u, i,
// offset) uses its result.
template <class Read, class Use>
__device__ __forceinline__ void visit_vectors(const ChannelPlanes& planes, unsigned begin, unsigned end,
                                              const Read& read, const Use& use) {
  for (unsigned i = begin; i < end; i += READS) {
    unsigned offset[READS];
    bool exists[READS];
#pragma unroll
    for (int u = 0; u < READS; u++) {
      exists[u] = i + u < end && planes.vector(i + u, offset[u]);
      if (exists[u]) read(u, i + u, offset[u]);
    }
#pragma unroll
    for (int u = 0; u < READS; u++)
      if (exists[u]) use(u, i + u, offset[u]);
  }
}
template <class Read, class Use>
__device__ __forceinline__ void visit_edges(const ChannelPlanes& planes, const Read& read, const Use& use) {
  const unsigned end = planes.all.my_edges();
  for (unsigned i = 0; i < end; i += READS) {
    unsigned offset[READS];
    bool exists[READS];
#pragma unroll
    for (int u = 0; u < READS; u++) {
      exists[u] = i + u < end && planes.edge(i + u, offset[u]);
      if (exists[u]) read(u, offset[u]);
    }
#pragma unroll
    for (int u = 0; u < READS; u++)
      if (exists[u]) use(u, offset[u]);
  }
}

// --- sums and moments of a cluster ---

struct Exchange {
  COMPUTE warps[3][WARPS], blocks[CLUSTER_SIZE][4];
  COMPUTE origins[3];  // candidates for the median that is subtracted
};

// Merges the shares of all threads of a cluster in their order and returns the result to all threads. `fallback` is a
// number near the mean. The caller has called cluster_arrive_relaxed() or has waited for the blocks of the cluster.
template <class Rule>
__device__ __forceinline__ Total all_reduce(Exchange& exchange, Share mine, COMPUTE fallback, COMPUTE count) {
  COMPUTE from = 0;
  if (same_type<Rule, MergeMoments>) {
    if (threadIdx.x < 3)
      exchange.origins[threadIdx.x] = mine.count > COMPUTE(0) ? origin(mine.total) : origin(fallback);
    __syncthreads();
    from = median(exchange.origins[0], exchange.origins[1], exchange.origins[2]);
  }
  const COMPUTE weight = COMPUTE(1) / count;
  Share sum{mine.count, {}};
  if (mine.count > COMPUTE(0)) Rule::add(sum.total, from, weight, mine.count, mine.total);
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    sum.count += __shfl_down_sync(0xFFFFFFFFu, sum.count, distance);
    sum.total.first += __shfl_down_sync(0xFFFFFFFFu, sum.total.first, distance);
    sum.total.second += __shfl_down_sync(0xFFFFFFFFu, sum.total.second, distance);
  }
  const unsigned warp = threadIdx.x / 32;
  if (threadIdx.x % 32 == 0) {
    exchange.warps[0][warp] = sum.count;
    exchange.warps[1][warp] = sum.total.first, exchange.warps[2][warp] = sum.total.second;
  }
  __syncthreads();
  const unsigned other = threadIdx.x % WARPS;
  sum = {exchange.warps[0][other], {exchange.warps[1][other], exchange.warps[2][other], 0}};
#pragma unroll
  for (unsigned distance = WARPS / 2; distance > 0; distance /= 2) {
    sum.count += __shfl_xor_sync(0xFFFFFFFFu, sum.count, distance);
    sum.total.first += __shfl_xor_sync(0xFFFFFFFFu, sum.total.first, distance);
    sum.total.second += __shfl_xor_sync(0xFFFFFFFFu, sum.total.second, distance);
  }
  if (same_type<Rule, MergeMoments>) {
    // The weights of the differences refer to the channel; this rescales them to the block.
    const COMPUTE of_block = sum.count > COMPUTE(0) ? sum.total.first * (count / sum.count) : COMPUTE(0);
    sum.total = Rule::finish({of_block, sum.total.second, 0}, from, sum.count);
  }
  if (CLUSTER_SIZE == 1) {
    __syncthreads();
    return sum.total;
  }
  cluster_wait();  // All blocks run and have read the earlier contents.
  if (threadIdx.x < CLUSTER_SIZE) {
    COMPUTE* const at = exchange.blocks[cluster_rank()];
    store_to_cluster_rank(at, threadIdx.x, sum.count);
    store_to_cluster_rank(at + 1, threadIdx.x, sum.total.first);
    store_to_cluster_rank(at + 2, threadIdx.x, sum.total.second);
    store_to_cluster_rank(at + 3, threadIdx.x, sum.total.low);
  }
  cluster_arrive();
  cluster_wait();
  Total total{};
  from = origin(exchange.blocks[0][1] + exchange.blocks[0][3]);
#pragma unroll
  for (unsigned b = 0; b < CLUSTER_SIZE; b++) {
    const Total part{exchange.blocks[b][1], exchange.blocks[b][2], exchange.blocks[b][3]};
    if (exchange.blocks[b][0] > COMPUTE(0)) Rule::add(total, from, weight, exchange.blocks[b][0], part);
  }
  cluster_arrive();
  return Rule::finish(total, from, count);
}
__device__ __forceinline__ void begin_cluster() {
  if (CLUSTER_SIZE > 1) cluster_arrive_relaxed();
}
// The blocks of a cluster end together, since others may still write to their shared memory.
__device__ __forceinline__ void end_cluster() {
  if (CLUSTER_SIZE > 1) cluster_wait();
}

struct ForwardArguments {
  ForwardCall call;
  Planes planes;
};

extern "C" __global__ void __launch_bounds__(THREADS, TRAINING_BLOCKS) CLUSTER_DIMS_Y
    normalization_batch_nchw_training(const ForwardArguments a) {
  griddepcontrol_wait();
  begin_cluster();
  const ForwardCall& call = a.call;
  __shared__ Exchange exchange;
  const unsigned vectors = a.planes.my_vectors();
  const ELEMENT* const from[1] = {call.x};
  const ChannelPlanes p{a.planes, blockIdx.x};
  const Cache<1> cache(p, from);
  Normalizer of{0, call.scale[p.channel], call.bias[p.channel]};
  const COMPUTE near = p.near(call.x);
  ThreadMoments moments;
  Elements x[READS];
  ELEMENT edge[READS];
  cache.visit_copies([&](unsigned i, unsigned) { moments.add(*cache.slot(i, 0)); });
  visit_vectors(
      p, cache.kept, vectors, [&](int u, unsigned, unsigned offset) { x[u] = read_vector(call.x + offset); },
      [&](int u, unsigned, unsigned) { moments.add(x[u]); });
  visit_edges(
      p, [&](int u, unsigned offset) { edge[u] = call.x[offset]; }, [&](int u, unsigned) { moments.add(edge[u]); });
  const Total total = all_reduce<MergeMoments>(exchange, moments.share(), near, a.planes.count);
  of.mean = total.first + total.low;
  of.factor *= call.inverse(total.second, a.planes.count);
  end_cluster();

  visit_vectors(
      p, 0, vectors,
      [&](int u, unsigned i, unsigned offset) {
        x[u] = i < cache.kept ? *cache.slot(i, 0) : read_vector(call.x + offset);
      },
      [&](int u, unsigned, unsigned offset) { call.store_vector(offset, x[u], x[u], [&](int) { return of; }); });
  visit_edges(
      p, [&](int u, unsigned offset) { edge[u] = call.x[offset]; },
      [&](int u, unsigned offset) { call.store_element(offset, edge[u], edge[u], of); });
  if (blockIdx.y + threadIdx.x == 0) call.store_statistics(of.mean, total.second, a.planes.count, p.channel);
}

struct BackwardArguments {
  BackwardCall call;
  Planes planes;
};

extern "C" __global__ void __launch_bounds__(THREADS, 512 / THREADS) CLUSTER_DIMS_Y
    normalization_batch_nchw_backward(const BackwardArguments a) {
  griddepcontrol_wait();
  begin_cluster();
  const BackwardCall& call = a.call;
  __shared__ Exchange exchange;
  const unsigned vectors = a.planes.my_vectors();
  const ELEMENT* const from[2] = {call.x, call.dy};
  const ChannelPlanes p{a.planes, blockIdx.x};
  const Cache<2> cache(p, from);
  GradientSums sums{KnownChannel::read(call, p.channel)};
  Elements x[READS], dy[READS];
  ELEMENT edge[READS], edge_dy[READS];
  if (!call.saved_mean) {
    const COMPUTE near = p.near(call.x);
    ThreadMoments moments;
    cache.visit_copies([&](unsigned i, unsigned) { moments.add(*cache.slot(i, 0)); });
    visit_vectors(
        p, cache.kept, vectors, [&](int u, unsigned, unsigned offset) { x[u] = read_vector(call.x + offset); },
        [&](int u, unsigned, unsigned) { moments.add(x[u]); });
    visit_edges(
        p, [&](int u, unsigned offset) { edge[u] = call.x[offset]; }, [&](int u, unsigned) { moments.add(edge[u]); });
    sums.known.use(call, all_reduce<MergeMoments>(exchange, moments.share(), near, a.planes.count), a.planes.count);
  }
  unsigned summed = 0;
  if (call.saved_mean) {
    cache.visit_copies([&](unsigned i, unsigned) { sums.add(*cache.slot(i, 0), *cache.slot(i, 1)); });
    summed = cache.kept;
  }
  auto read = [&](int u, unsigned i, unsigned offset) {
    x[u] = i < cache.kept ? *cache.slot(i, 0) : read_vector(call.x + offset);
    dy[u] = i < cache.kept ? *cache.slot(i, 1) : read_vector(call.dy + offset);
  };
  auto read_edge = [&](int u, unsigned offset) { edge[u] = call.x[offset], edge_dy[u] = call.dy[offset]; };
  visit_vectors(p, summed, vectors, read, [&](int u, unsigned, unsigned) { sums.add(x[u], dy[u]); });
  visit_edges(p, read_edge, [&](int u, unsigned) { sums.add(edge[u], edge_dy[u]); });
  const Total total = all_reduce<AddSums>(exchange, {COMPUTE(1), sums.total}, 0, a.planes.count);
  if (blockIdx.y + threadIdx.x == 0) call.store_parameters(p.channel, total.first, total.second);
  const GradientOf of = sums.known.gradient(total, a.planes.count);
  end_cluster();

  visit_vectors(p, 0, vectors, read, [&](int u, unsigned, unsigned offset) {
    call.store_vector(offset, x[u], dy[u], [&](int) { return of; });
  });
  visit_edges(p, read_edge, [&](int u, unsigned offset) {
    call.dx[offset] = call.gradient(edge[u], edge_dy[u], of, call.dx + offset);
  });
}

// --- a channel in the registers of a block ---

constexpr unsigned NO_VECTOR = ~0u;

// This struct lists the offsets of a thread's vectors where planes consist of full vectors.
struct HeldVectors {
  unsigned offset[HELD];  // NO_VECTOR where no vector exists

  __device__ __forceinline__ explicit HeldVectors(const ChannelPlanes& p) {
    const unsigned vectors = p.all.my_vectors();
#pragma unroll
    for (unsigned i = 0; i < HELD; i++)
      if (i >= vectors || !p.vector(i, offset[i])) offset[i] = NO_VECTOR;
  }
  // Calls use(i, offset) for each vector.
  template <class Use> __device__ __forceinline__ void visit(const Use& use) const {
#pragma unroll
    for (unsigned i = 0; i < HELD; i++)
      if (offset[i] != NO_VECTOR) use(i, offset[i]);
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1024 / THREADS)
    normalization_batch_nchw_training_in_registers(const ForwardArguments a) {
  griddepcontrol_wait_deferred();
  const ChannelPlanes p{a.planes, blockIdx.x};
  const ForwardCall& call = a.call;
  __shared__ Exchange exchange;
  const HeldVectors vectors(p);
  griddepcontrol_wait_before_access(call.x + vectors.offset[0]);
  Elements x[HELD];
  vectors.visit([&](unsigned i, unsigned offset) { x[i] = read_vector(call.x + offset); });
  const COMPUTE scale = call.scale[p.channel], bias = call.bias[p.channel], near = p.near(call.x);
  ThreadMoments moments;
  vectors.visit([&](unsigned i, unsigned) { moments.add(x[i]); });
  const Total total = all_reduce<MergeMoments>(exchange, moments.share(), near, a.planes.count);
  const Normalizer of{total.first + total.low, scale * call.inverse(total.second, a.planes.count), bias};
  vectors.visit([&](unsigned i, unsigned offset) { call.store_vector(offset, x[i], x[i], [&](int) { return of; }); });
  if (threadIdx.x == 0) call.store_statistics(of.mean, total.second, a.planes.count, p.channel);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1024 / THREADS)
    normalization_batch_nchw_backward_in_registers(const BackwardArguments a) {
  griddepcontrol_wait_deferred();
  const ChannelPlanes p{a.planes, blockIdx.x};
  const BackwardCall& call = a.call;
  __shared__ Exchange exchange;
  const HeldVectors vectors(p);
  griddepcontrol_wait_before_access(call.x + vectors.offset[0], call.dy + vectors.offset[0]);
  Elements x[HELD], dy[HELD];
  vectors.visit([&](unsigned i, unsigned offset) {
    x[i] = read_vector(call.x + offset);
    dy[i] = read_vector(call.dy + offset);
  });
  GradientSums sums{KnownChannel::read(call, p.channel)};
  if (!call.saved_mean) {
    const COMPUTE near = p.near(call.x);
    ThreadMoments moments;
    vectors.visit([&](unsigned i, unsigned) { moments.add(x[i]); });
    sums.known.use(call, all_reduce<MergeMoments>(exchange, moments.share(), near, a.planes.count), a.planes.count);
  }
  vectors.visit([&](unsigned i, unsigned) { sums.add(x[i], dy[i]); });
  const Total total = all_reduce<AddSums>(exchange, {COMPUTE(1), sums.total}, 0, a.planes.count);
  if (threadIdx.x == 0) call.store_parameters(p.channel, total.first, total.second);
  const GradientOf of = sums.known.gradient(total, a.planes.count);
  vectors.visit([&](unsigned i, unsigned offset) { call.store_vector(offset, x[i], dy[i], [&](int) { return of; }); });
}

// INFERENCE_THREADS is a number per SM. With one vector per thread an SM is filled to its maximum.
constexpr unsigned INFERENCE_THREADS = VECTORS == 1 && sizeof(COMPUTE) == 4 ? 2048 : VECTORS == 2 ? 1280 : 768;

struct InferenceArguments {
  ForwardCall call;
  unsigned elements;
  FastDivmod plane, channels;
};

// Reads the tensor as one row, so a vector may contain the end of one plane and the beginning of the next. A block
// computes the statistics of its planes once.
extern "C" __global__ void __launch_bounds__(THREADS, INFERENCE_THREADS / THREADS)
    normalization_batch_nchw_inference(const InferenceArguments a) {
  griddepcontrol_wait();
  __shared__ Normalizer known[THREADS * VECTORS + 1];  // A plane has at least one vector.
  const unsigned first = blockIdx.x * (THREADS * VECTORS), begin = first + threadIdx.x, vectors = a.elements / WIDTH;
  Elements x[VECTORS];
#pragma unroll
  for (int u = 0; u < VECTORS; u++) {
    const unsigned vector = begin + u * THREADS;
    if (vector < vectors) x[u] = read_vector(a.call.x + vector * WIDTH);
  }
  griddepcontrol_launch_dependents();
  unsigned in_plane;
  const unsigned first_plane = a.plane.divide(first * WIDTH, in_plane);
  const unsigned last_plane = a.plane.divide(min(a.elements, (first + THREADS * VECTORS) * WIDTH) - 1, in_plane);
  for (unsigned plane = first_plane + threadIdx.x; plane <= last_plane; plane += THREADS) {
    unsigned channel;
    a.channels.divide(plane, channel);
    known[plane - first_plane] = a.call.given(channel, channel);
  }
  __syncthreads();
#pragma unroll
  for (int u = 0; u < VECTORS; u++) {
    const unsigned vector = begin + u * THREADS, offset = vector * WIDTH;
    if (vector > vectors || (vector == vectors && a.elements % WIDTH == 0)) break;
    const unsigned plane = a.plane.divide(offset, in_plane) - first_plane, left = a.plane.divisor - in_plane;
    const Normalizer own = known[plane], next = STRADDLES && left < WIDTH ? known[plane + 1] : own;
    auto normalizer = [&](unsigned i) { return STRADDLES && i >= left ? next : own; };
    if (vector < vectors) {
      a.call.store_vector(offset, x[u], x[u], normalizer);
    } else {
      for (unsigned i = offset; i < a.elements; i++)
        a.call.store_element(i, a.call.x[i], a.call.x[i], normalizer(i - offset));
    }
  }
}
