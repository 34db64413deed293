// Batch normalization (3.2.3, 4.1.2 to 4.1.5, 3.2.66, 4.1.15, 4.1.16) of packed tensors whose planes are contiguous,
// with the statistics of a channel.
//
// Training and backward a cluster of blocks has a channel. Planes begin anywhere: their 16-byte-aligned packs are all
// copied to shared memory by cp.async, IN_FLIGHT of a thread at a time, and stay there until they are used the last
// time; the up to 2 (WIDTH - 1) elements at the edges of each plane are read again from L2, as is what shared memory
// has no room for. A small channel is in the registers of a block; of small planes a block has as many channels as have
// planes made of packs together; a thread has the same pack of every image. Inference takes the tensor as one row.
//
// Roofline bound: bytes, x read and y written once (backward x and dy and dx), while a channel fits the shared memory
// of a cluster. 64 x 1024 x 14 x 14 float on an H200: training 38 us, 66 % of the copy, backward 49 us, 76 %. Flops: 6
// an element forward, 12 backward.
#include "normalization/batch_planes.cuh"
#include "primitives/cp_async.cuh"
#include "primitives/geometry.cuh"

constexpr unsigned EDGES = 2 * (WIDTH - 1);
constexpr int IN_FLIGHT = 8;  // packs of a thread that cp.async copies at a time
constexpr int READS = 2;      // reads of a thread at a time
constexpr unsigned WARPS = THREADS / 32;
constexpr unsigned TRAINING_BLOCKS = (sizeof(COMPUTE) > 4 ? 768 : 1024) / THREADS;  // of a multiprocessor

struct Planes {
  unsigned images, channels, plane;  // elements of a plane
  unsigned cached;                   // packs of a thread, of each tensor, that shared memory holds
  FastDivmod packs;                  // of a plane, at most
  COMPUTE count;                     // elements of a channel

  __device__ __forceinline__ unsigned first() const { return blockIdx.y * THREADS + threadIdx.x; }
  __device__ __forceinline__ unsigned stride() const { return gridDim.y * THREADS; }
  __device__ __forceinline__ unsigned of_thread(unsigned all) const {
    return first() < all ? (all - first() - 1) / stride() + 1 : 0;
  }
  __device__ __forceinline__ unsigned my_packs() const { return of_thread(images * packs.divisor); }
  __device__ __forceinline__ unsigned my_edges() const { return plane % WIDTH ? of_thread(images * EDGES) : 0; }
};

// Those of a channel.
struct ChannelPlanes {
  const Planes& all;
  unsigned channel;

  __device__ __forceinline__ unsigned plane_start(unsigned image) const {
    return (image * all.channels + channel) * all.plane;
  }
  // A number near the mean: the median of three of the first plane.
  __device__ __forceinline__ COMPUTE near(const ELEMENT* x) const {
    const ELEMENT* const first = x + plane_start(0);
    return median(origin(load<COMPUTE>(first[0])), origin(load<COMPUTE>(first[all.plane / 2])),
                  origin(load<COMPUTE>(first[all.plane - 1])));
  }
  // The offset of a thread's i-th pack; false where the plane, as it lies, has fewer.
  __device__ __forceinline__ bool pack(unsigned i, unsigned& offset) const {
    unsigned in_plane;
    const unsigned start = plane_start(all.packs.divide(all.first() + i * all.stride(), in_plane));
    offset = (start + WIDTH - 1) / WIDTH * WIDTH + in_plane * WIDTH;
    return offset + WIDTH <= start + all.plane;
  }
  // The offset of a thread's i-th element at the edges of planes; false where there is none.
  __device__ __forceinline__ bool edge(unsigned i, unsigned& offset) const {
    const unsigned item = all.first() + i * all.stride(), image = item / EDGES, k = item - image * EDGES;
    const unsigned start = plane_start(image), end = start + all.plane;
    const unsigned body = (start + WIDTH - 1) / WIDTH * WIDTH, behind = max(end / WIDTH * WIDTH, body);
    offset = k < WIDTH - 1 ? start + k : behind + (k - (WIDTH - 1));
    return offset < (k < WIDTH - 1 ? body : end);
  }
};

// The packs of a thread that shared memory holds, of TENSORS tensors.
template <int TENSORS> struct Cache {
  const ChannelPlanes& planes;
  const ELEMENT* const (&from)[TENSORS];
  const unsigned kept;  // of this thread

  __device__ __forceinline__ Cache(const ChannelPlanes& planes, const ELEMENT* const (&from)[TENSORS])
      : planes(planes), from(from), kept(min(planes.all.my_packs(), planes.all.cached)) {}
  __device__ __forceinline__ Elements* slot(unsigned i, int tensor) const {
    return reinterpret_cast<Elements*>(shared_memory) + (tensor * planes.all.cached + i) * THREADS + threadIdx.x;
  }
  // Begins to copy pack i, if there is one; one group of copies.
  __device__ __forceinline__ void copy(unsigned i) const {
    unsigned offset;
    if (i < kept && planes.pack(i, offset)) {
#pragma unroll
      for (int t = 0; t < TENSORS; t++) cp_async<16>(slot(i, t), from[t] + offset, true);
    }
    cp_async_commit();
  }
  // use(i, offset) for every pack that is kept, as soon as it is there.
  template <class Use> __device__ __forceinline__ void visit_copies(const Use& use) const {
#pragma unroll
    for (unsigned i = 0; i < IN_FLIGHT; i++) copy(i);
    for (unsigned i = 0; i < kept; i++) {
      cp_async_wait<IN_FLIGHT - 1>();
      unsigned offset;
      if (planes.pack(i, offset)) use(i, offset);
      copy(i + IN_FLIGHT);
    }
    cp_async_wait<0>();
  }
};

// Visits packs from `begin` to `end` of a thread, READS at a time: read(u, i, offset) begins to read, use(u, i, offset)
// uses what was read.
template <class Read, class Use>
__device__ __forceinline__ void visit_packs(const ChannelPlanes& planes, unsigned begin, unsigned end, const Read& read,
                                            const Use& use) {
  for (unsigned i = begin; i < end; i += READS) {
    unsigned offset[READS];
    bool exists[READS];
#pragma unroll
    for (int u = 0; u < READS; u++) {
      exists[u] = i + u < end && planes.pack(i + u, offset[u]);
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
  COMPUTE origins[3];  // of differences: the median
};

// Merges the shares of the threads of a cluster, in their order; all threads get the result. fallback: a number near
// the mean. A cluster begins with cluster_arrive_relaxed(), or has waited for its blocks.
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
    // The differences were weighted for the channel: those of the block.
    const COMPUTE of_block = sum.count > COMPUTE(0) ? sum.total.first * (count / sum.count) : COMPUTE(0);
    sum.total = Rule::finish({of_block, sum.total.second, 0}, from, sum.count);
  }
  if (CLUSTER_SIZE == 1) {
    __syncthreads();
    return sum.total;
  }
  cluster_wait();  // all blocks run, and have read what lay there before
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
// Blocks of a cluster end together: others may still write to their shared memory.
__device__ __forceinline__ void end_cluster() {
  if (CLUSTER_SIZE > 1) cluster_wait();
}

struct ForwardArguments {
  ForwardCall call;
  Planes planes;
};

extern "C" __global__ void __launch_bounds__(THREADS, TRAINING_BLOCKS) CLUSTER_DIMS_Y
    normalization_batch_planes_training(const ForwardArguments a) {
  griddepcontrol_wait();
  begin_cluster();
  const ForwardCall& call = a.call;
  __shared__ Exchange exchange;
  const unsigned packs = a.planes.my_packs();
  const ELEMENT* const from[1] = {call.x};
  const ChannelPlanes p{a.planes, blockIdx.x};
  const Cache<1> cache(p, from);
  Normalizer of{0, call.scale[p.channel], call.bias[p.channel]};
  const COMPUTE near = p.near(call.x);
  ThreadMoments moments;
  Elements x[READS];
  ELEMENT edge[READS];
  cache.visit_copies([&](unsigned i, unsigned) { moments.add(*cache.slot(i, 0)); });
  visit_packs(
      p, cache.kept, packs, [&](int u, unsigned, unsigned offset) { x[u] = read_pack(call.x + offset); },
      [&](int u, unsigned, unsigned) { moments.add(x[u]); });
  visit_edges(
      p, [&](int u, unsigned offset) { edge[u] = call.x[offset]; }, [&](int u, unsigned) { moments.add(edge[u]); });
  const Total total = all_reduce<MergeMoments>(exchange, moments.share(), near, a.planes.count);
  of.mean = total.first + total.low;
  of.factor *= call.inverse(total.second, a.planes.count);
  end_cluster();

  visit_packs(
      p, 0, packs,
      [&](int u, unsigned i, unsigned offset) {
        x[u] = i < cache.kept ? *cache.slot(i, 0) : read_pack(call.x + offset);
      },
      [&](int u, unsigned, unsigned offset) { call.store_pack(offset, x[u], x[u], [&](int) { return of; }); });
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
    normalization_batch_planes_backward(const BackwardArguments a) {
  griddepcontrol_wait();
  begin_cluster();
  const BackwardCall& call = a.call;
  __shared__ Exchange exchange;
  const unsigned packs = a.planes.my_packs();
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
    visit_packs(
        p, cache.kept, packs, [&](int u, unsigned, unsigned offset) { x[u] = read_pack(call.x + offset); },
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
    x[u] = i < cache.kept ? *cache.slot(i, 0) : read_pack(call.x + offset);
    dy[u] = i < cache.kept ? *cache.slot(i, 1) : read_pack(call.dy + offset);
  };
  auto read_edge = [&](int u, unsigned offset) { edge[u] = call.x[offset], edge_dy[u] = call.dy[offset]; };
  visit_packs(p, summed, packs, read, [&](int u, unsigned, unsigned) { sums.add(x[u], dy[u]); });
  visit_edges(p, read_edge, [&](int u, unsigned) { sums.add(edge[u], edge_dy[u]); });
  const Total total = all_reduce<AddSums>(exchange, {COMPUTE(1), sums.total}, 0, a.planes.count);
  if (blockIdx.y + threadIdx.x == 0) call.store_parameters(p.channel, total.first, total.second);
  const GradientOf of = sums.known.gradient(total, a.planes.count);
  end_cluster();

  visit_packs(p, 0, packs, read,
              [&](int u, unsigned, unsigned offset) { call.store_pack(offset, x[u], dy[u], [&](int) { return of; }); });
  visit_edges(p, read_edge, [&](int u, unsigned offset) {
    call.dx[offset] = call.gradient(edge[u], edge_dy[u], of, call.dx + offset);
  });
}

// --- a channel in the registers of a block ---

constexpr unsigned NO_PACK = ~0u;

// Of a thread's packs, of planes that are made of packs.
struct HeldPacks {
  unsigned offset[HELD];  // or NO_PACK

  __device__ __forceinline__ explicit HeldPacks(const ChannelPlanes& p) {
    const unsigned packs = p.all.my_packs();
#pragma unroll
    for (unsigned i = 0; i < HELD; i++)
      if (i >= packs || !p.pack(i, offset[i])) offset[i] = NO_PACK;
  }
  // use(i, offset) for each.
  template <class Use> __device__ __forceinline__ void visit(const Use& use) const {
#pragma unroll
    for (unsigned i = 0; i < HELD; i++)
      if (offset[i] != NO_PACK) use(i, offset[i]);
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1024 / THREADS)
    normalization_batch_planes_training_held(const ForwardArguments a) {
  griddepcontrol_wait_deferred();
  const ChannelPlanes p{a.planes, blockIdx.x};
  const ForwardCall& call = a.call;
  __shared__ Exchange exchange;
  const HeldPacks packs(p);
  griddepcontrol_wait_before_access(call.x + packs.offset[0]);
  Elements x[HELD];
  packs.visit([&](unsigned i, unsigned offset) { x[i] = read_pack(call.x + offset); });
  const COMPUTE scale = call.scale[p.channel], bias = call.bias[p.channel], near = p.near(call.x);
  ThreadMoments moments;
  packs.visit([&](unsigned i, unsigned) { moments.add(x[i]); });
  const Total total = all_reduce<MergeMoments>(exchange, moments.share(), near, a.planes.count);
  const Normalizer of{total.first + total.low, scale * call.inverse(total.second, a.planes.count), bias};
  packs.visit([&](unsigned i, unsigned offset) { call.store_pack(offset, x[i], x[i], [&](int) { return of; }); });
  if (threadIdx.x == 0) call.store_statistics(of.mean, total.second, a.planes.count, p.channel);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1024 / THREADS)
    normalization_batch_planes_backward_held(const BackwardArguments a) {
  griddepcontrol_wait_deferred();
  const ChannelPlanes p{a.planes, blockIdx.x};
  const BackwardCall& call = a.call;
  __shared__ Exchange exchange;
  const HeldPacks packs(p);
  griddepcontrol_wait_before_access(call.x + packs.offset[0], call.dy + packs.offset[0]);
  Elements x[HELD], dy[HELD];
  packs.visit([&](unsigned i, unsigned offset) {
    x[i] = read_pack(call.x + offset);
    dy[i] = read_pack(call.dy + offset);
  });
  GradientSums sums{KnownChannel::read(call, p.channel)};
  if (!call.saved_mean) {
    const COMPUTE near = p.near(call.x);
    ThreadMoments moments;
    packs.visit([&](unsigned i, unsigned) { moments.add(x[i]); });
    sums.known.use(call, all_reduce<MergeMoments>(exchange, moments.share(), near, a.planes.count), a.planes.count);
  }
  packs.visit([&](unsigned i, unsigned) { sums.add(x[i], dy[i]); });
  const Total total = all_reduce<AddSums>(exchange, {COMPUTE(1), sums.total}, 0, a.planes.count);
  if (threadIdx.x == 0) call.store_parameters(p.channel, total.first, total.second);
  const GradientOf of = sums.known.gradient(total, a.planes.count);
  packs.visit([&](unsigned i, unsigned offset) { call.store_pack(offset, x[i], dy[i], [&](int) { return of; }); });
}

// --- several channels a block ---

struct Channels {
  unsigned images, channels;  // of the tensor
  unsigned group;             // channels of a block: 2 to WARPS, a power of two
  unsigned packs, plane;      // of their planes in an image, which are its row; elements of a plane
  COMPUTE count;              // elements of a channel

  __device__ __forceinline__ unsigned first_channel() const { return blockIdx.x * group; }
  __device__ __forceinline__ unsigned all_packs() const { return images * packs; }
  // The images that threads have at a time, a pack each; those of a thread which begins with image `line`.
  __device__ __forceinline__ unsigned lines() const { return THREADS / packs; }
  __device__ __forceinline__ unsigned images_of(unsigned line) const {
    return line < min(lines(), images) ? (images - line - 1) / lines() + 1 : 0;
  }
};

// A thread has the same pack of the rows of its images, so that each of its elements has one channel: the thread's
// own, or the next one behind the first `left`.
struct RowPack {
  unsigned images, line, channel, left;
  unsigned slot, slot_step;      // of its pack of the first image in shared memory; from one to the next
  unsigned offset, offset_step;  // and in the tensors

  __device__ __forceinline__ explicit RowPack(const Channels& c) {
    line = threadIdx.x / c.packs;
    const unsigned in_row = (threadIdx.x - line * c.packs) * WIDTH;
    images = c.images_of(line);
    channel = in_row / c.plane, left = min(WIDTH, (channel + 1) * c.plane - in_row);
    slot = threadIdx.x, slot_step = c.lines() * c.packs;
    offset = (line * c.channels + c.first_channel()) * c.plane + in_row;
    offset_step = c.lines() * c.channels * c.plane;
  }
  // Begins to copy the packs of all images, in two groups, of which the first has those before `half`.
  template <int TENSORS>
  __device__ __forceinline__ void copy(const Channels& c, const ELEMENT* const (&from)[TENSORS],
                                       Elements* cache) const {
    for (unsigned i = 0; i < images; i++) {
      if (i == images / 2) cp_async_commit();
#pragma unroll
      for (int t = 0; t < TENSORS; t++)
        cp_async<16>(cache + (t * c.all_packs() + slot + i * slot_step), from[t] + (offset + i * offset_step), true);
    }
    cp_async_commit();
  }
  // use(slot, offset) of each image.
  template <class Use> __device__ __forceinline__ void visit(unsigned begin, unsigned end, const Use& use) const {
#pragma unroll 2
    for (unsigned i = begin; i < end; i++) use(slot + i * slot_step, offset + i * offset_step);
  }
  template <class Use> __device__ __forceinline__ void visit(const Use& use) const { visit(0, images, use); }
  // The same while they arrive.
  template <class Use> __device__ __forceinline__ void visit_copies(const Use& use) const {
    cp_async_wait<1>();
    visit(0, images / 2, use);
    cp_async_wait<0>();
    visit(images / 2, images, use);
  }
  template <class T> __device__ __forceinline__ T choose(unsigned k, T own, T next) const {
    if (k < left) return own;
    return next;
  }
};

// The moments of a thread's elements from `begin` to `end` of a pack, of all of its images. from: a number near them.
__device__ __forceinline__ Total merge_elements(const Total (&of)[WIDTH], unsigned begin, unsigned end, COMPUTE images,
                                                COMPUTE from) {
  const COMPUTE reciprocal = COMPUTE(1) / COMPUTE(end - begin);
  COMPUTE mean = 0, squares = 0;
#pragma unroll
  for (unsigned k = 0; k < WIDTH; k++)
    if (k >= begin && k < end) mean += of[k].first - from + of[k].low;
  mean *= reciprocal;
#pragma unroll
  for (unsigned k = 0; k < WIDTH; k++)
    if (k >= begin && k < end) {
      const COMPUTE difference = of[k].first - from + of[k].low - mean;
      squares += of[k].second + images * difference * difference;
    }
  return {from, squares, mean};
}
__device__ __forceinline__ Total add_elements(const Total (&of)[WIDTH], unsigned begin, unsigned end) {
  Total sum{};
#pragma unroll
  for (unsigned k = 0; k < WIDTH; k++)
    if (k >= begin && k < end) sum.first += of[k].first, sum.second += of[k].second;
  return sum;
}

// What threads have of their own channels, then, by line and channel, what they have of the next ones.
struct RowExchange {
  Total* at;
  __device__ __forceinline__ explicit RowExchange(Elements* behind) : at(reinterpret_cast<Total*>(behind)) {}
  __device__ __forceinline__ Total& of_next(const Channels& c, unsigned line, unsigned channel) const {
    return at[THREADS + line * c.group + channel];
  }

  // Merges what the threads have of each channel, a warp for each; result(k, total) in one thread, that of channel k of
  // the block.
  template <class Rule, class Result>
  __device__ __forceinline__ void merge(const Channels& c, const RowPack& mine, const Total& own, const Total& next,
                                        const Result& result) const {
    if (mine.images > 0) {
      at[threadIdx.x] = own;
      if (mine.left < WIDTH) of_next(c, mine.line, mine.channel) = next;
    }
    __syncthreads();
    const unsigned channel = threadIdx.x / 32, begin = channel * c.plane, end = begin + c.plane;
    if (channel < c.group) {
      const unsigned first = begin / WIDTH, packs = (end - 1) / WIDTH - first + 1;
      const unsigned shares = packs * min(c.lines(), c.images);
      auto share = [&](unsigned i, COMPUTE& count) {
        const unsigned line = i / packs, pack = first + i - line * packs, from = max(begin, pack * WIDTH);
        count = COMPUTE((min(end, (pack + 1) * WIDTH) - from) * c.images_of(line));
        return pack * WIDTH < begin ? of_next(c, line, channel - 1) : at[line * c.packs + pack];
      };
      const COMPUTE weight = COMPUTE(1) / c.count;
      COMPUTE from = 0, count;
      if (same_type<Rule, MergeMoments>) {
        from = origin(share(0, count));
        if (shares > 2) from = median(from, origin(share(1, count)), origin(share(2, count)));
      }
      Total sum{};
      for (unsigned i = threadIdx.x % 32; i < shares; i += 32) {
        const Total part = share(i, count);
        Rule::add(sum, from, weight, count, part);
      }
#pragma unroll
      for (int distance = 16; distance > 0; distance /= 2) {
        sum.first += __shfl_down_sync(0xFFFFFFFFu, sum.first, distance);
        sum.second += __shfl_down_sync(0xFFFFFFFFu, sum.second, distance);
      }
      if (threadIdx.x % 32 == 0) result(channel, Rule::finish(sum, from, c.count));
    }
    __syncthreads();
  }
  // The moments of each channel, of a thread's sums of its elements.
  template <class Result>
  __device__ __forceinline__ void merge_moments(const Channels& c, const RowPack& mine, const ShiftedSum (&sums)[WIDTH],
                                                const Result& result) const {
    const COMPUTE images = COMPUTE(mine.images), reciprocal = COMPUTE(1) / images;
    Total own{}, next{};
    if (mine.images > 0) {
      Total of[WIDTH];
#pragma unroll
      for (unsigned k = 0; k < WIDTH; k++) of[k] = sums[k].moments(reciprocal);
      own = merge_elements(of, 0, mine.left, images, origin(of[0]));
      if (mine.left < WIDTH) next = merge_elements(of, mine.left, WIDTH, images, origin(of[WIDTH - 1]));
    }
    merge<MergeMoments>(c, mine, own, next, result);
  }
};

// The sums of a thread's elements from the packs of x as they arrive.
__device__ __forceinline__ void sum_rows(const RowPack& mine, const Elements* cache, ShiftedSum (&sums)[WIDTH]) {
  cp_async_wait<0>();
  if (mine.images == 0) return;
  const Elements first = cache[mine.slot];
  const bool three = mine.images > 2;
  const Elements second = cache[mine.slot + three * mine.slot_step],
                 third = cache[mine.slot + 2 * three * mine.slot_step];
#pragma unroll
  for (unsigned k = 0; k < WIDTH; k++) sums[k].begin(first.item[k], second.item[k], third.item[k]);
  mine.visit([&](unsigned slot, unsigned) {
    const Elements x = cache[slot];
#pragma unroll
    for (unsigned k = 0; k < WIDTH; k++) sums[k].add(x.item[k]);
  });
}

struct ForwardChannels {
  ForwardCall call;
  Channels channels;
};

extern "C" __global__ void __launch_bounds__(THREADS, (PLAIN ? 1024 : 512) / THREADS)
    normalization_batch_planes_training_channels(const ForwardChannels a) {
  griddepcontrol_wait();
  const Channels& c = a.channels;
  const ForwardCall& call = a.call;
  __shared__ Normalizer known[WARPS];
  Elements* const cache = reinterpret_cast<Elements*>(shared_memory);
  const RowExchange exchange(cache + c.all_packs());
  const ELEMENT* const from[1] = {call.x};
  const RowPack mine(c);
  mine.copy(c, from, cache);
  // A warp has the statistics of a channel.
  const bool finishes = threadIdx.x % 32 == 0 && threadIdx.x / 32 < c.group;
  const unsigned channel = c.first_channel() + threadIdx.x / 32;
  COMPUTE scale = 0, bias = 0, mean = 0, squares = 0;
  if (finishes) scale = call.scale[channel], bias = call.bias[channel];
  griddepcontrol_launch_dependents();
  ShiftedSum sums[WIDTH];
  sum_rows(mine, cache, sums);
  exchange.merge_moments(c, mine, sums, [&](unsigned k, const Total& total) {
    mean = total.first + total.low, squares = total.second;
    known[k] = {mean, scale * call.inverse(squares, c.count), bias};
  });
  if (mine.images > 0) {
    const Normalizer own = known[mine.channel], next = known[min(mine.channel + 1, c.group - 1)];
    mine.visit([&](unsigned slot, unsigned offset) {
      call.store_pack(offset, cache[slot], cache[slot], [&](unsigned k) { return mine.choose(k, own, next); });
    });
  }
  if (finishes) call.store_statistics(mean, squares, c.count, channel);
}

struct BackwardChannels {
  BackwardCall call;
  Channels channels;
};

extern "C" __global__ void __launch_bounds__(THREADS, (PLAIN ? 1024 : 512) / THREADS)
    normalization_batch_planes_backward_channels(const BackwardChannels a) {
  griddepcontrol_wait();
  const Channels& c = a.channels;
  const BackwardCall& call = a.call;
  __shared__ KnownChannel known[WARPS];
  __shared__ GradientOf gradient[WARPS];
  Elements* const cache = reinterpret_cast<Elements*>(shared_memory);
  Elements* const gradients = cache + c.all_packs();
  const RowExchange exchange(gradients + c.all_packs());
  const ELEMENT* const from[2] = {call.x, call.dy};
  const RowPack mine(c);
  mine.copy(c, from, cache);
  auto keep = [&](unsigned k, COMPUTE mean, COMPUTE inverse) {
    const unsigned channel = c.first_channel() + k;
    known[k] = {mean, inverse, call.scale[channel] * inverse};
  };
  if (call.saved_mean) {
    const unsigned channel = c.first_channel() + threadIdx.x;
    if (threadIdx.x < c.group) keep(threadIdx.x, call.saved_mean[channel], call.saved_inverse[channel]);
    __syncthreads();
  } else {
    ShiftedSum sums[WIDTH];
    sum_rows(mine, cache, sums);
    exchange.merge_moments(c, mine, sums, [&](unsigned k, const Total& total) {
      keep(k, total.first + total.low, COMPUTE(1) / sqrt(total.second / c.count + call.epsilon));
    });
  }
  griddepcontrol_launch_dependents();
  const unsigned following = min(mine.channel + 1, c.group - 1);
  Total own{}, next{};
  if (mine.images > 0) {
    const KnownChannel of_own = known[mine.channel], of_next = known[following];
    Total sums[WIDTH] = {};
    mine.visit_copies([&](unsigned slot, unsigned) {
      const Elements x = cache[slot], dy = gradients[slot];
#pragma unroll
      for (unsigned k = 0; k < WIDTH; k++) {
        const KnownChannel of = mine.choose(k, of_own, of_next);
        const COMPUTE value = load<COMPUTE>(dy.item[k]);
        sums[k].first += value;
        sums[k].second += value * ((load<COMPUTE>(x.item[k]) - of.mean) * of.inverse);
      }
    });
    own = add_elements(sums, 0, mine.left), next = add_elements(sums, mine.left, WIDTH);
  }
  exchange.merge<AddSums>(c, mine, own, next, [&](unsigned k, const Total& total) {
    call.store_parameters(c.first_channel() + k, total.first, total.second);
    gradient[k] = GradientOf::from(known[k].mean, known[k].inverse, known[k].factor, total, c.count);
  });
  if (mine.images == 0) return;
  const GradientOf of_own = gradient[mine.channel], of_next = gradient[following];
  mine.visit([&](unsigned slot, unsigned offset) {
    call.store_pack(offset, cache[slot], gradients[slot], [&](unsigned k) { return mine.choose(k, of_own, of_next); });
  });
}

// Of a multiprocessor: where a thread has one pack, as many as it holds.
constexpr unsigned INFERENCE_THREADS = PACKS == 1 && sizeof(COMPUTE) == 4 ? 2048 : PACKS == 2 ? 1280 : 768;

struct InferenceArguments {
  ForwardCall call;
  unsigned elements;
  FastDivmod plane, channels;
};

// The tensor as one row: a pack may have the end of a plane and the beginning of the next one. A block finds the
// statistics of its planes once.
extern "C" __global__ void __launch_bounds__(THREADS, INFERENCE_THREADS / THREADS)
    normalization_batch_planes_inference(const InferenceArguments a) {
  griddepcontrol_wait();
  __shared__ Normalizer known[THREADS * PACKS + 1];  // planes have a pack at least
  const unsigned first = blockIdx.x * (THREADS * PACKS), begin = first + threadIdx.x, packs = a.elements / WIDTH;
  Elements x[PACKS];
#pragma unroll
  for (int u = 0; u < PACKS; u++) {
    const unsigned pack = begin + u * THREADS;
    if (pack < packs) x[u] = read_pack(a.call.x + pack * WIDTH);
  }
  griddepcontrol_launch_dependents();
  unsigned in_plane;
  const unsigned first_plane = a.plane.divide(first * WIDTH, in_plane);
  const unsigned last_plane = a.plane.divide(min(a.elements, (first + THREADS * PACKS) * WIDTH) - 1, in_plane);
  for (unsigned plane = first_plane + threadIdx.x; plane <= last_plane; plane += THREADS) {
    unsigned channel;
    a.channels.divide(plane, channel);
    known[plane - first_plane] = a.call.given(channel, channel);
  }
  __syncthreads();
#pragma unroll
  for (int u = 0; u < PACKS; u++) {
    const unsigned pack = begin + u * THREADS, offset = pack * WIDTH;
    if (pack > packs || (pack == packs && a.elements % WIDTH == 0)) break;
    const unsigned plane = a.plane.divide(offset, in_plane) - first_plane, left = a.plane.divisor - in_plane;
    const Normalizer own = known[plane], next = STRADDLES && left < WIDTH ? known[plane + 1] : own;
    auto normalizer = [&](unsigned i) { return STRADDLES && i >= left ? next : own; };
    if (pack < packs) {
      a.call.store_pack(offset, x[u], x[u], normalizer);
    } else {
      for (unsigned i = offset; i < a.elements; i++)
        a.call.store_element(i, a.call.x[i], a.call.x[i], normalizer(i - offset));
    }
  }
}
