// The gradient behind an activation, and that of the batch normalisation before it (6.1.3.1,
// DACTIVATION_FORK_DBATCHNORM) of tensors in planes, in one launch: gradient.cu has the formulas.
//
// All blocks have the same share of the pixels of every group of channels. TMA loads x and dy of several groups ahead
// into slots of shared memory, where they stay until the sums of their channels have become factors; what lies behind
// the mask becomes 0 there. A group takes LAG + 1 steps: its sums; their way to the other blocks, through memory; the
// factors; the gradient. Between two barriers a block does one step for each of as many groups, by warps of their own.
// The blocks wait for each other: the launch is cooperative.
//
// Roofline bound: bytes, x and dy read, dx and dz written once, one bit of mask an element: 195 us for
// 64 x 256 x 56 x 56 float at 4.2 TB/s; with a pass for the sums, which reads x and dy once more, 293.
#include "fused_ops/gradient.cuh"
#include "primitives/tma.cuh"

constexpr unsigned MOST_SLOTS = 32, MOST_GROUP = 32, LAG = 3, AT_ONCE = 6;
constexpr unsigned WORKERS = 16, COMBINERS = 4;  // warps; then one that publishes and loads, and one for the mask
static_assert(WARPS == WORKERS + COMBINERS + 2);
constexpr unsigned PARTS = WORKERS > MOST_GROUP ? WORKERS : MOST_GROUP;

struct Arguments {
  const ELEMENT *x, *dy;
  const unsigned* mask;
  const COMPUTE *mean, *inverse, *scale;
  COMPUTE* partials;  // sums of [channel][block]
  ELEMENT *dx, *dz;   // NULL: not wanted
  COMPUTE *sum, *product;
  TensorStrides x_strides, dy_strides, dx_strides, dz_strides;
  FastDivmod plane;         // packs
  unsigned packs, share;    // of all images; of a block
  unsigned group, groups;   // channels that are loaded together; groups of them
  unsigned slots;           // for groups
  int mask_row, mask_word;  // elements from one pixel of the bit mask, from one word to the next
  int parameter_stride, scale_stride, result_stride;
  COMPUTE count_share;  // 1 / m
};

struct alignas(2 * sizeof(COMPUTE)) Sums {
  COMPUTE sum, product;
};
__device__ __forceinline__ Sums sum_of_warp(Sums sums) {
#pragma unroll
  for (int distance = WARP / 2; distance > 0; distance /= 2) {
    sums.sum += __shfl_xor_sync(~0u, sums.sum, distance);
    sums.product += __shfl_xor_sync(~0u, sums.product, distance);
  }
  return sums;
}

// Blocks arrive at the barrier of a slot; the top bit of its word changes when all have, whatever their number.
__device__ unsigned slot_barriers[MOST_SLOTS];

#ifdef EMULATED_CUDA
inline void add_release(unsigned* word, unsigned value) { __threadfence(), atomicAdd(word, value); }
inline unsigned load_acquire(const unsigned* word) { return *word; }
inline Sums load_partial(const Sums* from) { return *from; }
#else
__device__ __forceinline__ void add_release(unsigned* word, unsigned value) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}
__device__ __forceinline__ unsigned load_acquire(const unsigned* word) {
  unsigned value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
}
// Of another block: past the cache of this multiprocessor.
__device__ __forceinline__ Sums load_partial(const Sums* from) { return {__ldcg(&from->sum), __ldcg(&from->product)}; }
#endif

struct Shared {
  Mbarrier full[MOST_SLOTS];
  unsigned begun[MOST_SLOTS];  // the top bits of the slots' barriers before the launch
  Sums parts[2][PARTS];        // of channels, in warps
  COMPUTE mean[2][MOST_GROUP];
  Factors factors[2][MOST_GROUP];
};

struct Block {
  const Arguments& a;
  Shared& shared;
  const unsigned first, count;    // packs
  const unsigned lane, per_word;  // per_word: groups

  __device__ __forceinline__ Block(const Arguments& a, Shared& shared)
      : a(a),
        shared(shared),
        first(blockIdx.x * a.share),
        count(min(a.share, a.packs - first)),
        lane(threadIdx.x % WARP),
        per_word(WARP / a.group) {}

  // The words of the bit mask for groups of one word; those of a pack of pixels lie `share` words apart.
  __device__ __forceinline__ unsigned* words(unsigned word) const {
    return reinterpret_cast<unsigned*>(shared_memory) + word % 2 * a.share * WIDTH;
  }
  __device__ __forceinline__ Packed* slot(unsigned group, unsigned tensor, unsigned channel) const {
    Packed* slots = reinterpret_cast<Packed*>(shared_memory) + (2 * a.share * WIDTH + 3) / 4;  // behind the words
    return slots + ((group % a.slots * 2 + tensor) * a.group + channel) * a.share;
  }
  __device__ __forceinline__ void load_words(unsigned word, unsigned begin, unsigned end, unsigned step) const {
    unsigned* to = words(word);
    for (unsigned i = begin; i < min(end, count * WIDTH); i += step)
      to[i % WIDTH * a.share + i / WIDTH] =
          a.mask[(first * WIDTH + i) * a.mask_row + static_cast<int>(word) * a.mask_word];
  }

  // A warp begins to load a group.
  __device__ __forceinline__ void begin_load(unsigned group) const {
    Mbarrier* barrier = shared.full + group % a.slots;
    const unsigned image = a.plane.divide(first), plane = a.plane.divisor;
    const unsigned pieces = a.plane.divide(first + count - 1) - image + 1;  // of an image each
    const L2CachePolicy policy = l2_cache_policy(false);
    if (lane == 0) mbarrier_arrive_expect_tx(barrier, 2 * a.group * count * sizeof(Packed));
    __syncwarp();
    for (unsigned i = lane; i < 2 * a.group * pieces; i += WARP) {
      const unsigned which = i / pieces, piece = image + i % pieces, tensor = which % 2, channel = which / 2;
      const unsigned begin = max(first, piece * plane), end = min(first + count, (piece + 1) * plane);
      const TensorStrides& strides = tensor ? a.dy_strides : a.x_strides;
      const ELEMENT* from = (tensor ? a.dy : a.x) + piece * strides.image + (begin - piece * plane) * WIDTH +
                            (group * a.group + channel) * strides.channel;
      tma_load_bulk(slot(group, tensor, channel) + (begin - first), from, (end - begin) * sizeof(Packed), barrier,
                    policy);
    }
  }

  // Warps of workers that share a channel.
  __device__ __forceinline__ unsigned sharing() const { return max(1u, WORKERS / a.group); }

  // visit(channel of the group, part) by the workers.
  template <class Visit> __device__ __forceinline__ void visit_channels(const Visit& visit) const {
    const unsigned warp = threadIdx.x / WARP, parts = sharing();
    for (unsigned channel = warp / parts; channel < a.group; channel += WORKERS / parts) visit(channel, warp % parts);
  }

  __device__ __forceinline__ void add_up(unsigned group) const {
    const unsigned step = sharing() * WARP, first_bit = group % per_word * a.group;
    const unsigned* words = this->words(group / per_word);
    mbarrier_wait_parity(shared.full + group % a.slots, group / a.slots & 1);
    visit_channels([&](unsigned channel, unsigned part) {
      const COMPUTE mean = shared.mean[group % 2][channel];
      const Packed* x = slot(group, 0, channel);
      Packed* dy = slot(group, 1, channel);
      Sums sums = {};
      for (unsigned i = part * WARP + lane; i < count; i += step) {
        const Packed of_x = x[i];
        Packed of_dy = dy[i];
#pragma unroll
        for (int j = 0; j < WIDTH; j++) {
          if (a.mask && !(words[j * a.share + i] >> (first_bit + channel) & 1)) {
            of_dy.item[j] = store<ELEMENT>(COMPUTE(0));
            continue;
          }
          const COMPUTE gradient = load<COMPUTE>(of_dy.item[j]);
          sums.sum += gradient;
          sums.product += gradient * (load<COMPUTE>(of_x.item[j]) - mean);
        }
        if (a.mask) dy[i] = of_dy;
      }
      sums = sum_of_warp(sums);
      if (lane == 0) shared.parts[group % 2][channel * sharing() + part] = sums;
    });
  }

  __device__ __forceinline__ Sums* partials(unsigned group, unsigned channel) const {
    return reinterpret_cast<Sums*>(a.partials) + (group * a.group + channel) * gridDim.x;
  }

  // A warp writes the block's sums for the others.
  __device__ __forceinline__ void publish(unsigned group) const {
    if (lane < a.group) {
      const Sums* parts = shared.parts[group % 2] + lane * sharing();
      Sums sums = parts[0];
      for (unsigned part = 1; part < sharing(); part++)
        sums.sum += parts[part].sum, sums.product += parts[part].product;
      partials(group, lane)[blockIdx.x] = sums;
    }
    __syncwarp();
    if (gridDim.x > 1 && lane == 0)
      add_release(slot_barriers + group % a.slots, blockIdx.x == 0 ? 0x80000001u - gridDim.x : 1u);
  }

  __device__ __forceinline__ void wait_for_blocks(unsigned group) const {
    const unsigned slot = group % a.slots, before = shared.begun[slot] ^ (group / a.slots & 1);
    if (gridDim.x > 1 && lane == 0)
      while (load_acquire(slot_barriers + slot) >> 31 == before) {}
    __syncwarp();
  }

  // Warp `which` of the combiners: the factors of its channels.
  __device__ __forceinline__ void combine(unsigned group, unsigned which) const {
    const unsigned next = group + LAG;  // whose sums follow the barrier
    if (which == 0 && lane < a.group && next < a.groups)
      shared.mean[next % 2][lane] = a.mean[(next * a.group + lane) * a.parameter_stride];
    if (group >= a.groups) return;
    wait_for_blocks(group);
    for (unsigned channel = which; channel < a.group; channel += COMBINERS) {
      const unsigned of = group * a.group + channel;
      const COMPUTE inverse = a.inverse[of * a.parameter_stride], of_dy = a.scale[of * a.scale_stride] * inverse;
      const COMPUTE mean = a.mean[of * a.parameter_stride];
      const Sums* from = partials(group, channel);
      Sums sums = {};
      for (unsigned block = lane; block < gridDim.x; block += AT_ONCE * WARP) {
        Sums of_block[AT_ONCE] = {};
#pragma unroll
        for (unsigned u = 0; u < AT_ONCE; u++)
          if (block + u * WARP < gridDim.x) of_block[u] = load_partial(from + block + u * WARP);
#pragma unroll
        for (unsigned u = 0; u < AT_ONCE; u++) sums.sum += of_block[u].sum, sums.product += of_block[u].product;
      }
      sums = sum_of_warp(sums);
      sums.product *= inverse;
      if (lane > 0) continue;
      shared.factors[group % 2][channel] = {of_dy, -of_dy * (sums.product * a.count_share) * inverse, mean,
                                            -of_dy * (sums.sum * a.count_share)};
      if (group % gridDim.x != blockIdx.x) continue;
      if (a.sum) a.sum[of * a.result_stride] = sums.sum;
      if (a.product) a.product[of * a.result_stride] = sums.product;
    }
  }

  __device__ __forceinline__ void write(unsigned group) const {
    const unsigned step = sharing() * WARP;
    visit_channels([&](unsigned channel, unsigned part) {
      const Factors factors = shared.factors[group % 2][channel];
      const unsigned of = group * a.group + channel;
      for (unsigned i = part * WARP + lane; i < count; i += step) {
        const Packed x = slot(group, 0, channel)[i], dz = slot(group, 1, channel)[i];
        Packed dx;
#pragma unroll
        for (int j = 0; j < WIDTH; j++)
          dx.item[j] = store<ELEMENT>(factors.gradient(load<COMPUTE>(dz.item[j]), load<COMPUTE>(x.item[j])));
        unsigned in_plane;
        const unsigned image = a.plane.divide(first + i, in_plane);
        const auto at = [&](const TensorStrides& strides) {
          return image * strides.image + of * strides.channel + in_plane * WIDTH;
        };
        *reinterpret_cast<Packed*>(a.dx + at(a.dx_strides)) = dx;
        if (a.dz) *reinterpret_cast<Packed*>(a.dz + at(a.dz_strides)) = dz;
      }
    });
    fence_proxy_async();
  }

  // What the workers do between two barriers, the combiners, the warp that publishes and loads, that of the mask.
  __device__ __forceinline__ void step(unsigned time) const {
    const unsigned warp = threadIdx.x / WARP;
    if (warp < WORKERS) {
      if (time < a.groups) add_up(time);
      if (time >= LAG) write(time - LAG);
    } else if (warp < WORKERS + COMBINERS) {
      combine(time - (LAG - 1), warp - WORKERS);
    } else if (warp == WORKERS + COMBINERS) {
      if (time >= 1 && time <= a.groups) publish(time - 1);
      if (time > LAG && time - LAG - 1 + a.slots < a.groups) begin_load(time - LAG - 1 + a.slots);
    } else if (a.mask) {
      const unsigned next = time / per_word + 1, part = -(-count * WIDTH / per_word);
      if (next * per_word < a.groups)
        load_words(next, time % per_word * part + lane, (time % per_word + 1) * part, WARP);
    }
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1) fused_ops_gradient_planes(const Arguments a) {
  griddepcontrol_wait();
  __shared__ Shared shared;
  if (threadIdx.x < a.slots) {
    mbarrier_init(shared.full + threadIdx.x, 1);
    shared.begun[threadIdx.x] = load_acquire(slot_barriers + threadIdx.x) >> 31;
    fence_mbarrier_init();
  }
  const Block block(a, shared);
  __syncthreads();
  if (threadIdx.x < WARP) {
    for (unsigned group = 0; group < a.slots; group++) block.begin_load(group);
  } else if (threadIdx.x < 2 * WARP && block.lane < a.group) {
    shared.mean[0][block.lane] = a.mean[block.lane * a.parameter_stride];
  }
  if (a.mask) block.load_words(0, threadIdx.x, ~0u, THREADS);
  __syncthreads();
  for (unsigned time = 0; time < a.groups + LAG; time++) {
    block.step(time);
    __syncthreads();
  }
}
