// Gradients of a bias (6.2.1) of dy in planes: the sums of each channel, where rows and planes begin anywhere and may
// have gaps.
//
// The blocks of a cluster share a channel, several clusters where channels are few. What a plane spans is read in
// 16-byte-aligned packs, gaps and what lies around the plane included, as far as dy reaches: elements that are none of
// the plane's count as 0. PITCHES: of gaps, behind the planes of a volume and behind rows.
//
// Roofline bound: bytes, dy read once; 2 flops an element. Instructions come next: with gaps about 40 for a pack of 4
// floats and 60 for one of 8 of half, where the memory leaves 110.
#include "convolution/bias_gradient.cuh"

constexpr int BATCH = 4;  // packs of a thread in flight

struct Arguments {
  const ELEMENT* dy;
  ELEMENT* db;
  COMPUTE* partials;  // [part][channel], where parts are several
  COMPUTE alpha, beta;
  FastDivmod packs;            // of a plane, at most
  FastDivmod pitch[2];         // elements from the beginning of a part of a plane to the next
  int kept[2];                 // elements of a part; the rest is a gap
  int image, channel;          // elements from one to the next
  unsigned all_packs, length;  // of a channel; elements that a plane spans
  unsigned span, parts;        // elements of dy, gaps counted; clusters of a channel
};

// The pack `index` of a channel: where it begins, its first element in the plane, which may be in front of it.
struct Window {
  const ELEMENT* pointer;
  int first;
  bool exists, inside;  // inside: of dy

  __device__ __forceinline__ Window(const Arguments& a, unsigned index) : exists(index < a.all_packs) {
    unsigned pack;
    const unsigned image = a.packs.divide(exists ? index : 0, pack);
    const ELEMENT* plane =
        a.dy + static_cast<long long>(image) * a.image + static_cast<long long>(blockIdx.x) * a.channel;
    first =
        static_cast<int>(pack * WIDTH) - static_cast<int>(reinterpret_cast<uintptr_t>(plane) / sizeof(ELEMENT) % WIDTH);
    pointer = plane + first;
    inside = pointer >= a.dy && pointer + WIDTH <= a.dy + a.span;
  }
};

// Element `i` of a pack in the parts of its plane: of the first part that it reaches, or of the next one.
struct Parts {
  int at[2];

  __device__ __forceinline__ Parts(const Arguments& a, int first) : at{first, first} {
#pragma unroll
    for (int p = 0; p < PITCHES; p++) {
      unsigned in_part = 0;
      if (first > 0) a.pitch[p].divide(p ? at[0] : first, in_part);
      at[p] = first > 0 ? static_cast<int>(in_part) : first;
    }
  }
  __device__ __forceinline__ bool counts(const Arguments& a, int first, int i) const {
    if (static_cast<unsigned>(first + i) >= a.length) return false;
    int of_part = at[0] + i, in = at[1] + i;
    bool kept = true;
    if (PITCHES > 0) {
      const int pitch = a.pitch[0].divisor;
      if (of_part >= pitch) of_part -= pitch, in = of_part;
      kept = of_part < a.kept[0];
    }
    if (PITCHES > 1) {
      const int pitch = a.pitch[1].divisor;
      if (in >= pitch) in -= pitch;
      kept = kept && in < a.kept[1];
    }
    return kept;
  }
};

extern "C" __global__ void CLUSTER_DIMS_Y __launch_bounds__(THREADS, sizeof(COMPUTE) == 4 ? 4 : 2)
    convolution_bias_gradient_planes(const Arguments a) {
  griddepcontrol_wait_deferred();
  __shared__ COMPUTE warps[WARPS], blocks[CLUSTER_SIZE];
  __shared__ ClusterGather gather;
  gather.init_and_expect(CLUSTER_SIZE * sizeof(COMPUTE));
  const unsigned step = a.parts * CLUSTER_SIZE * THREADS;
  const unsigned start = (blockIdx.z * CLUSTER_SIZE + cluster_rank()) * THREADS + threadIdx.x;
  griddepcontrol_wait_before_access(a.dy + blockIdx.x * a.channel);
  COMPUTE sums[2] = {};
  const ELEMENT* const any = a.dy + (-reinterpret_cast<uintptr_t>(a.dy) / sizeof(ELEMENT)) % WIDTH;
  const auto add = [&](const Elements& pack, int first) {
    const Parts parts(a, first);
#pragma unroll
    for (int i = 0; i < static_cast<int>(WIDTH); i++)
      if (parts.counts(a, first, i)) sums[i % 2] += load<COMPUTE>(pack.item[i]);
  };
  for (unsigned index = start; index < a.all_packs; index += BATCH * step) {
    Elements packs[BATCH];
    int first[BATCH];  // behind the plane: the pack is not added here
#pragma unroll
    for (int u = 0; u < BATCH; u++) {
      const Window window(a, index + u * step);
      const DroppedReads others(true);
      const bool reads = window.exists && window.inside;
      first[u] = reads ? window.first : static_cast<int>(a.length);
      // A thread without a pack reads one that it does not add.
      packs[u] = *reinterpret_cast<const Elements*>(reads ? window.pointer : any);
    }
#pragma unroll
    for (int u = 0; u < BATCH; u++) add(packs[u], first[u]);
  }
  // The packs that reach over the ends of dy: the first of a channel, and its last two.
  if (start == 0) {
    for (unsigned index = 0; index < a.all_packs; index = max(index + 1, a.all_packs - 2)) {
      const Window window(a, index);
      if (window.inside) continue;
      Elements pack = {};
#pragma unroll
      for (int i = 0; i < static_cast<int>(WIDTH); i++)
        if (Parts(a, window.first).counts(a, window.first, i)) pack.item[i] = window.pointer[i];
      add(pack, window.first);
    }
  }
  COMPUTE sum = sums[0] + sums[1];
#pragma unroll
  for (int distance = WARP / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
  if (threadIdx.x % WARP == 0) warps[threadIdx.x / WARP] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    sum = warps[0];
#pragma unroll
    for (int warp = 1; warp < static_cast<int>(WARPS); warp++) sum += warps[warp];
    gather.send(blocks + cluster_rank(), sum);
    if (cluster_rank() > 0) return;
    gather.wait_one_thread();
    sum = blocks[0];
#pragma unroll
    for (int block = 1; block < static_cast<int>(CLUSTER_SIZE); block++) sum += blocks[block];
    if (a.parts > 1) a.partials[blockIdx.z * gridDim.x + blockIdx.x] = sum;
    else a.db[blockIdx.x] = blend<COMPUTE>(a.alpha, sum, a.beta, a.db + blockIdx.x);
  }
}
