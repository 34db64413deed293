// The gradient behind an activation, and that of the batch normalisation before it (6.1.3.1,
// DACTIVATION_FORK_DBATCHNORM), of planes, in one cooperative launch that reads x and dy once.
//
// A block for each multiprocessor; a team of them takes every `teams`-th tile of TILE_CHANNELS channels, all pixels of
// which fit its shared memory, BUFFERS tiles at a time. A thread has packs of pixels, THREADS packs apart, in each of the
// channels, and keeps to what it has copied (cp.async): the first pass writes dz and adds up a tile, the second one,
// once the blocks have exchanged their sums, writes dx and copies the next tile into the same places. Teams do not wait
// for each other: some read and write while others exchange.
//
// Roofline bound: bytes, x and dy read, dx and dz written once, 14 flops an element: 0.2 ms for 64 x 256 x 56 x 56 FLOAT
// at 4.2 TB/s. Each tile reads the words of the mask of all pixels, of which L2 has most.
#include "fused_ops/gradient_team.cuh"

constexpr int SLOTS = STEPS * TILE_CHANNELS, PADDED = TILE_CHANNELS > 8 ? 16 : TILE_CHANNELS > 4 ? 8 : 4;

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

// What a thread has of its team's tiles: slot STEP * TILE_CHANNELS + c is a pack of channel c of the tile.
struct Tiles {
  const Arguments& a;
  TeamSums<TILE_CHANNELS>& shared;
  const unsigned group, member, first, end;
  Packed* slots;

  __device__ __forceinline__ Tiles(const Arguments& a, TeamSums<TILE_CHANNELS>& shared)
      : a(a),
        shared(shared),
        group(blockIdx.x / a.team),
        member(blockIdx.x - group * a.team),
        first(member * a.items + threadIdx.x),
        end(min((member + 1) * a.items, a.pixels.count / WIDTH)),
        slots(reinterpret_cast<Packed*>(shared_memory) + threadIdx.x) {
    // In a register: ptxas of CUDA 13.0 encoded a copy to an address with a uniform part as an instruction that there is
    // not.
    keep_shared_pointer(slots);
  }
  __device__ __forceinline__ Packed* slot(unsigned buffer, int index, int tensor) const {
    return slots + ((buffer * SLOTS + index) * 2 + tensor) * THREADS;
  }
  __device__ __forceinline__ unsigned pack(int index) const { return first + index / TILE_CHANNELS * THREADS; }
  __device__ __forceinline__ Pixel pixel(int index) const { return locate(a.pixels, pack(index) * WIDTH); }
  static __device__ __forceinline__ int channel(unsigned tile, int index) {
    return tile * TILE_CHANNELS + index % TILE_CHANNELS;
  }
  __device__ __forceinline__ bool exists(unsigned tile, int index) const {
    return pack(index) < end && channel(tile, index) < a.pixels.channels;
  }

  // Begins to copy a pack, where there is one; one group of copies.
  __device__ __forceinline__ void copy(unsigned tile, unsigned buffer, int index) const {
    if (exists(tile, index)) {
      const Pixel at = pixel(index);
      cp_async<sizeof(Packed)>(slot(buffer, index, 0), a.x + offset(a.x_strides, at, channel(tile, index)), true);
      cp_async<sizeof(Packed)>(slot(buffer, index, 1), a.dy + offset(a.dy_strides, at, channel(tile, index)), true);
    }
    cp_async_commit();
  }
  // Of each pixel of a step, the bits of the channels of the tile, from bit 0 on.
  __device__ __forceinline__ void load_bits(unsigned tile, int step, unsigned (&bits)[WIDTH]) const {
    const int begin = tile * TILE_CHANNELS, last = min(begin + TILE_CHANNELS, a.pixels.channels) - 1;
#pragma unroll
    for (int j = 0; j < WIDTH; j++) {
      const unsigned at = pack(step * TILE_CHANNELS) * WIDTH + j;
      const unsigned word = mask_word(a.pixels, a.mask, at, begin / WARP);
      const bool one = WARP % TILE_CHANNELS == 0 || begin / WARP == last / WARP;
      const unsigned next = one ? 0 : mask_word(a.pixels, a.mask, at, last / WARP);
      bits[j] = (static_cast<unsigned long long>(next) << WARP | word) >> begin % WARP;
    }
  }

  // dz, which stays in the place of dy, and the sums of the block. The copies of the tile are the oldest of BUFFERS
  // tiles. Returns the word of the tile.
  __device__ __forceinline__ unsigned first_pass(unsigned tile, unsigned buffer) const {
    Sums sums[PADDED] = {};
    COMPUTE mean[TILE_CHANNELS];
    unsigned bits[STEPS][WIDTH];
#pragma unroll
    for (int c = 0; c < TILE_CHANNELS; c++)
      mean[c] = channel(tile, c) < a.pixels.channels ? a.mean[channel(tile, c) * a.parameter_stride] : COMPUTE(0);
#pragma unroll
    for (int step = 0; step < STEPS; step++)
      if (exists(tile, step * TILE_CHANNELS)) load_bits(tile, step, bits[step]);
    for_each<SLOTS>([&](auto index) {
      constexpr int i = decltype(index)::value, c = i % TILE_CHANNELS, step = i / TILE_CHANNELS;
      cp_async_wait<BUFFERS * SLOTS - 1 - i>();
      if (!exists(tile, i)) return;
      const Packed x = *slot(buffer, i, 0);
      Packed dz = *slot(buffer, i, 1);
      mask_pack(dz, [&](int j) { return bits[step][j] >> c & 1; });
#pragma unroll
      for (int j = 0; j < WIDTH; j++) {
        const COMPUTE gradient = load<COMPUTE>(dz.item[j]);
        sums[c].sum += gradient;
        sums[c].product += gradient * (load<COMPUTE>(x.item[j]) - mean[c]);
      }
      *slot(buffer, i, 1) = dz;
      if (a.dz) store_pack(a.dz + offset(a.dz_strides, pixel(i), channel(tile, i)), dz);
    });
    add_lanes<PADDED / 2>(sums);
#pragma unroll
    for (int distance = PADDED; distance < WARP; distance *= 2) sums[0].add(sums[0].from_lane(distance));
    if (threadIdx.x % WARP < TILE_CHANNELS) shared.warps[threadIdx.x / WARP][threadIdx.x % WARP] = sums[0];
    return shared.publish(a, tile, member);
  }
  // dx, and the copies of a tile into the places that become free.
  __device__ __forceinline__ void second_pass(unsigned tile, unsigned buffer, unsigned word, unsigned next) const {
    shared.merge(a, tile, member, word);
    for_each<SLOTS>([&](auto index) {
      constexpr int i = decltype(index)::value;
      if (exists(tile, i)) {
        const Factors factors = shared.factors[i % TILE_CHANNELS];
        const Packed dx = gradient_pack(*slot(buffer, i, 0), *slot(buffer, i, 1), [&](int) { return factors; });
        store_pack(a.dx + offset(a.dx_strides, pixel(i), channel(tile, i)), dx);
      }
      copy(next, buffer, i);
    });
  }

  __device__ __forceinline__ void run() const {
#pragma unroll
    for (unsigned buffer = 0; buffer < BUFFERS; buffer++)
      for_each<SLOTS>([&](auto index) { copy(group + buffer * a.teams, buffer, decltype(index)::value); });
    unsigned word = first_pass(group, 0), buffer = 0;
    for (unsigned tile = group; tile < a.tiles; tile += a.teams) {
      second_pass(tile, buffer, word, tile + BUFFERS * a.teams);
      buffer = (buffer + 1) % BUFFERS;
      if (tile + a.teams < a.tiles) word = first_pass(tile + a.teams, buffer);
    }
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1) fused_ops_gradient_planes(const Arguments a) {
  griddepcontrol_wait();
  __shared__ TeamSums<TILE_CHANNELS> shared;
  Tiles(a, shared).run();
}
