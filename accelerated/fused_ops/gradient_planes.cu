// The gradient behind an activation, and that of the batch normalisation before it (6.1.3.1,
// DACTIVATION_FORK_DBATCHNORM), of planes, in one cooperative launch that reads x and dy once.
//
// All that is read fits the shared memory of all multiprocessors. A block for each has a tile of TILE_CHANNELS channels
// and a segment of the pixels, a thread packs of these, THREADS packs apart, in each of the channels, which it copies
// (cp.async): the first pass writes dz and adds up, the second one, once the blocks of a tile have exchanged their
// sums, writes dx.
//
// Roofline bound: bytes, x and dy read, dx and dz written once, 14 flops an element: 12 us for 32 x 128 x 28 x 28 FLOAT
// at 4.2 TB/s, of which an H200 takes 16. Next come the words of the mask: every tile reads those of all pixels from
// L2.
#include "fused_ops/gradient_team.cuh"

constexpr int SLOTS = STEPS * TILE_CHANNELS, PADDED = TILE_CHANNELS > 4 ? 8 : 4;
static_assert(TILE_CHANNELS <= 8);

// f(Index<i>) for every i below COUNT.
template <int VALUE> struct Index {
  static constexpr int value = VALUE;
};
template <int COUNT, class F> __device__ __forceinline__ void for_each(const F& f) {
  if constexpr (COUNT > 0) {
    for_each<COUNT - 1>(f);
    f(Index<COUNT - 1>());
  }
}

// What a thread has of the tile: slot step * TILE_CHANNELS + c is a pack of channel c.
struct Slots {
  const Arguments& a;
  const int begin;  // the first channel of the tile
  const unsigned first, end;
  Packed* slots;

  __device__ __forceinline__ Slots(const Arguments& a, unsigned tile, unsigned member)
      : a(a),
        begin(tile * TILE_CHANNELS),
        first(member * a.items + threadIdx.x),
        end(min((member + 1) * a.items, a.pixels.count / WIDTH)),
        slots(reinterpret_cast<Packed*>(shared_memory) + threadIdx.x) {
    // In a register: ptxas of CUDA 13.0 encoded a copy to an address with a uniform part as an instruction that there
    // is not.
    keep_shared_pointer(slots);
  }
  __device__ __forceinline__ Packed* slot(int index, int tensor) const {
    return slots + (index * 2 + tensor) * THREADS;
  }
  __device__ __forceinline__ unsigned pack(int index) const { return first + index / TILE_CHANNELS * THREADS; }
  __device__ __forceinline__ Pixel pixel(int index) const { return locate(a.pixels, pack(index) * WIDTH); }
  __device__ __forceinline__ int channel(int index) const { return begin + index % TILE_CHANNELS; }
  __device__ __forceinline__ bool exists(int index) const {
    return pack(index) < end && channel(index) < a.pixels.channels;
  }

  // Begins to copy all packs, a group of copies for each.
  __device__ __forceinline__ void copy() const {
    for_each<SLOTS>([&](auto index) {
      constexpr int i = decltype(index)::value;
      if (exists(i)) {
        const Pixel at = pixel(i);
        cp_async<sizeof(Packed)>(slot(i, 0), a.x + offset(a.x_strides, at, channel(i)), true);
        cp_async<sizeof(Packed)>(slot(i, 1), a.dy + offset(a.dy_strides, at, channel(i)), true);
      }
      cp_async_commit();
    });
  }
  // Of each pixel of a step, the bits of the channels of the tile, from bit 0 on.
  __device__ __forceinline__ void load_bits(int step, unsigned (&bits)[WIDTH]) const {
    const int last = min(begin + TILE_CHANNELS, a.pixels.channels) - 1;
#pragma unroll
    for (int j = 0; j < WIDTH; j++) {
      const unsigned at = pack(step * TILE_CHANNELS) * WIDTH + j;
      const unsigned word = mask_word(a.pixels, a.mask, at, begin / WARP);
      const bool one = WARP % TILE_CHANNELS == 0 || begin / WARP == last / WARP;
      const unsigned next = one ? 0 : mask_word(a.pixels, a.mask, at, last / WARP);
      bits[j] = (static_cast<unsigned long long>(next) << WARP | word) >> begin % WARP;
    }
  }

  // dz, which overwrites dy in shared memory, and the sums of the thread.
  __device__ __forceinline__ void first_pass(Sums (&sums)[PADDED]) const {
    COMPUTE mean[TILE_CHANNELS];
    unsigned bits[STEPS][WIDTH];
#pragma unroll
    for (int c = 0; c < TILE_CHANNELS; c++)
      mean[c] = channel(c) < a.pixels.channels ? a.mean[channel(c) * a.parameter_stride] : COMPUTE(0);
#pragma unroll
    for (int step = 0; step < STEPS; step++)
      if (exists(step * TILE_CHANNELS)) load_bits(step, bits[step]);
    for_each<SLOTS>([&](auto index) {
      constexpr int i = decltype(index)::value, c = i % TILE_CHANNELS, step = i / TILE_CHANNELS;
      cp_async_wait<SLOTS - 1 - i>();
      if (!exists(i)) return;
      const Packed x = *slot(i, 0);
      Packed dz = *slot(i, 1);
      mask_pack(dz, [&](int j) { return bits[step][j] >> c & 1; });
#pragma unroll
      for (int j = 0; j < WIDTH; j++) {
        const COMPUTE gradient = load<COMPUTE>(dz.item[j]);
        sums[c].sum += gradient;
        sums[c].product += gradient * (load<COMPUTE>(x.item[j]) - mean[c]);
      }
      *slot(i, 1) = dz;
      if (a.dz) store_pack(a.dz + offset(a.dz_strides, pixel(i), channel(i)), dz);
    });
  }
  // dx.
  __device__ __forceinline__ void second_pass(const Factors (&factors)[TILE_CHANNELS]) const {
    for_each<SLOTS>([&](auto index) {
      constexpr int i = decltype(index)::value;
      if (!exists(i)) return;
      const Factors of = factors[i % TILE_CHANNELS];
      const Packed dx = gradient_pack(*slot(i, 0), *slot(i, 1), [&](int) { return of; });
      store_pack(a.dx + offset(a.dx_strides, pixel(i), channel(i)), dx);
    });
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1) fused_ops_gradient_planes(const Arguments a) {
  griddepcontrol_wait();
  __shared__ TeamSums<TILE_CHANNELS> shared;
  const unsigned tile = blockIdx.x % a.tiles, member = blockIdx.x / a.tiles;
  const Slots mine(a, tile, member);
  mine.copy();
  Sums sums[PADDED] = {};
  mine.first_pass(sums);
  add_lanes<PADDED / 2>(sums);
#pragma unroll
  for (int distance = PADDED; distance < WARP; distance *= 2) sums[0].add(sums[0].from_lane(distance));
  if (threadIdx.x % WARP < TILE_CHANNELS) shared.warps[threadIdx.x / WARP][threadIdx.x % WARP] = sums[0];
  shared.exchange(a, tile, member);
  mine.second_pass(shared.factors);
}
