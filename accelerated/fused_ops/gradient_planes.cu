// The gradient behind an activation, and that of the batch normalisation before it (6.1.3.1,
// DACTIVATION_FORK_DBATCHNORM) of tensors in planes, in one launch: gradient.cu has the formulas.
//
// All blocks have the same share of the pixels of every group of channels. TMA loads x and dy of several groups ahead
// into slots of shared memory, where they stay until the sums of their channels, which all blocks exchange through
// memory, have become factors; what lies behind the mask becomes 0 there. The blocks wait for each other: the launch is
// cooperative.
//
// Roofline bound: bytes, x and dy read, dx and dz written once, one bit of mask an element: 195 us for
// 64 x 256 x 56 x 56 float at 4.2 TB/s; with a pass for the sums, which reads x and dy once more, 293.
#include "fused_ops/gradient.cuh"
#include "primitives/tma.cuh"

constexpr unsigned MOST_SLOTS = 32, MOST_GROUP = 32, PARTS = WARPS > MOST_GROUP ? WARPS : MOST_GROUP;

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
  unsigned slots, lag;      // lag: groups that are summed before the first is written
  int mask_row, mask_word;  // elements from one pixel of the bit mask, from one word to the next
  int parameter_stride, scale_stride, result_stride;
  COMPUTE count_share;  // 1 / m
};

struct Sums {
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

struct Block {
  const Arguments& a;
  Mbarrier* full;
  const unsigned* begun;        // of each slot: the top bit before the launch
  Sums (*parts)[PARTS];         // of channels, in warps
  const unsigned first, count;  // packs

  __device__ __forceinline__ unsigned* words() const { return reinterpret_cast<unsigned*>(shared_memory); }
  __device__ __forceinline__ Packed* slot(unsigned group, unsigned tensor, unsigned channel) const {
    Packed* slots = reinterpret_cast<Packed*>(shared_memory) + (a.share * WIDTH + 3) / 4;  // behind the words
    return slots + ((group % a.slots * 2 + tensor) * a.group + channel) * a.share;
  }

  // A warp begins to load a group.
  __device__ __forceinline__ void begin_load(unsigned group) const {
    Mbarrier* barrier = full + group % a.slots;
    const unsigned lane = threadIdx.x % WARP, image = a.plane.divide(first), plane = a.plane.divisor;
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

  // Copies the words of the bit mask of a group's channels; those of a pack of pixels lie `share` words apart.
  __device__ __forceinline__ void load_words(unsigned group) const {
    const int word = group * a.group / WARP * a.mask_word;
    for (unsigned i = threadIdx.x; i < count * WIDTH; i += THREADS)
      words()[i % WIDTH * a.share + i / WIDTH] = a.mask[(first * WIDTH + i) * a.mask_row + word];
  }

  // visit(channel of the group, part, parts) by the warps that share a channel.
  template <class Visit> __device__ __forceinline__ void visit_channels(const Visit& visit) const {
    const unsigned warp = threadIdx.x / WARP, parts = max(1u, WARPS / a.group);
    for (unsigned channel = warp / parts; channel < a.group; channel += WARPS / parts)
      visit(channel, warp % parts, parts);
  }

  __device__ __forceinline__ void add_up(unsigned group) const {
    mbarrier_wait_parity(full + group % a.slots, group / a.slots & 1);
    const unsigned lane = threadIdx.x % WARP;
    visit_channels([&](unsigned channel, unsigned part, unsigned parts) {
      const unsigned of = group * a.group + channel, bit = of % WARP;
      const COMPUTE mean = a.mean[of * a.parameter_stride];
      const Packed* x = slot(group, 0, channel);
      Packed* dy = slot(group, 1, channel);
      Sums sums = {};
      for (unsigned i = part * WARP + lane; i < count; i += parts * WARP) {
        const Packed of_x = x[i];
        Packed of_dy = dy[i];
#pragma unroll
        for (int j = 0; j < WIDTH; j++) {
          if (a.mask && !(words()[j * a.share + i] >> bit & 1)) {
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
      if (lane == 0) this->parts[group % 2][channel * parts + part] = sums;
    });
  }

  // The first warp writes the block's sums for the others.
  __device__ __forceinline__ void publish(unsigned group) const {
    const unsigned channel = threadIdx.x, parts = max(1u, WARPS / a.group);
    if (channel < a.group) {
      Sums sums = this->parts[group % 2][channel * parts];
      for (unsigned part = 1; part < parts; part++) {
        const Sums more = this->parts[group % 2][channel * parts + part];
        sums.sum += more.sum, sums.product += more.product;
      }
      COMPUTE* to = a.partials + 2 * ((group * a.group + channel) * gridDim.x + blockIdx.x);
      to[0] = sums.sum, to[1] = sums.product;
    }
    if (gridDim.x == 1) return;
    __syncwarp();
    if (threadIdx.x == 0) {
      __threadfence();
      atomicAdd(slot_barriers + group % a.slots, blockIdx.x == 0 ? 0x80000001u - gridDim.x : 1u);
    }
  }

  __device__ __forceinline__ void wait_for_blocks(unsigned group) const {
    if (gridDim.x > 1) {
      const unsigned slot = group % a.slots, before = begun[slot] ^ (group / a.slots & 1);
      const volatile unsigned* word = slot_barriers + slot;
      if (threadIdx.x % WARP == 0) {
        while (*word >> 31 == before) {}
        __threadfence();
      }
    }
    __syncwarp();
  }

  __device__ __forceinline__ void write(unsigned group) const {
    wait_for_blocks(group);
    const unsigned lane = threadIdx.x % WARP;
    visit_channels([&](unsigned channel, unsigned part, unsigned parts) {
      const unsigned of = group * a.group + channel;
      const volatile COMPUTE* from = a.partials + 2 * (of * gridDim.x);
      Sums sums = {};
      for (unsigned block = lane; block < gridDim.x; block += WARP)
        sums.sum += from[2 * block], sums.product += from[2 * block + 1];
      sums = sum_of_warp(sums);
      const COMPUTE inverse = a.inverse[of * a.parameter_stride], of_dy = a.scale[of * a.scale_stride] * inverse;
      sums.product *= inverse;
      if (part == 0 && lane == 0 && group % gridDim.x == blockIdx.x) {
        if (a.sum) a.sum[of * a.result_stride] = sums.sum;
        if (a.product) a.product[of * a.result_stride] = sums.product;
      }
      const Factors factors{of_dy, -of_dy * (sums.product * a.count_share) * inverse, a.mean[of * a.parameter_stride],
                            -of_dy * (sums.sum * a.count_share)};
      for (unsigned i = part * WARP + lane; i < count; i += parts * WARP) {
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
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1) fused_ops_gradient_planes(const Arguments a) {
  griddepcontrol_wait();
  __shared__ Mbarrier full[MOST_SLOTS];
  __shared__ unsigned begun[MOST_SLOTS];
  __shared__ Sums parts[2][PARTS];
  if (threadIdx.x < a.slots) {
    mbarrier_init(full + threadIdx.x, 1);
    begun[threadIdx.x] = *const_cast<const volatile unsigned*>(slot_barriers + threadIdx.x) >> 31;
    fence_mbarrier_init();
  }
  const unsigned first = blockIdx.x * a.share;
  const Block block{a, full, begun, parts, first, min(a.share, a.packs - first)};
  __syncthreads();
  if (threadIdx.x < WARP)
    for (unsigned group = 0; group < a.slots; group++) block.begin_load(group);
  if (a.mask) block.load_words(0);
  __syncthreads();
  for (unsigned group = 0; group < a.groups + a.lag; group++) {
    const unsigned next = group + 1;
    if (group < a.groups) {
      block.add_up(group);
      __syncthreads();
      if (threadIdx.x < WARP) block.publish(group);
      if (a.mask && next < a.groups && next * a.group % WARP == 0) block.load_words(next);
    }
    if (group >= a.lag) {
      block.write(group - a.lag);
      fence_proxy_async();
    }
    __syncthreads();
    if (group >= a.lag && group - a.lag + a.slots < a.groups && threadIdx.x < WARP)
      block.begin_load(group - a.lag + a.slots);
  }
}
