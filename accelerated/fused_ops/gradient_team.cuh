// Gradients of activated batch normalisations in one cooperative launch: the blocks of a tile of channels, a team, keep
// what they have read while they exchange their sums.
#pragma once
#include "fused_ops/gradient.cuh"
#include "primitives/cp_async.cuh"
#include "primitives/grid_exchange.cuh"

struct Arguments {
  const ELEMENT *x, *dy;
  const unsigned* mask;
  const COMPUTE *mean, *inverse, *scale;
  unsigned char* workspace;  // sums of blocks, [tile][column][block]
  ELEMENT *dx, *dz;          // dz: NULL where it is not wanted
  COMPUTE *product, *sum;    // dScale, dBias: the same
  Pixels pixels;
  TensorStrides x_strides, dy_strides, dx_strides, dz_strides;
  int parameter_stride, scale_stride, result_stride;
  unsigned team, tiles;  // blocks of a team; teams
  unsigned items;        // pixels of a block, or packs of them
  COMPUTE share;         // 1 / m
};

// The blocks of a team wait for each other: the launch is cooperative, and has a multiprocessor for each.
__device__ unsigned tile_words[MOST_TILES];

// What the threads of a block share: sums, then factors, of the COLUMNS channels of a tile.
template <int COLUMNS> struct TeamSums {
  Sums warps[WARPS][COLUMNS];
  Factors factors[COLUMNS];

  static __device__ __forceinline__ Sums* partials(const Arguments& a, unsigned tile, int column) {
    return reinterpret_cast<Sums*>(a.workspace) + (tile * COLUMNS + column) * a.team;
  }
  // Writes what the warps of the block have left in `warps` for the others of the team.
  __device__ __forceinline__ void write_sums(const Arguments& a, unsigned tile, unsigned member) const {
    __syncthreads();
    for (int column = threadIdx.x; column < COLUMNS; column += THREADS) {
      Sums sums = warps[0][column];
#pragma unroll
      for (int warp = 1; warp < WARPS; warp++) sums.add(warps[warp][column]);
      partials(a, tile, column)[member] = sums;
    }
    __syncthreads();
  }
  // The factors of the tile, from the sums of all blocks of the team. A warp for each column.
  __device__ __forceinline__ void read_sums(const Arguments& a, unsigned tile, unsigned member) {
    __syncthreads();
    for (int column = threadIdx.x / WARP; column < COLUMNS; column += WARPS) {
      const int channel = tile * COLUMNS + column;
      if (channel >= a.pixels.channels) break;
      const COMPUTE inverse = a.inverse[channel * a.parameter_stride], mean = a.mean[channel * a.parameter_stride];
      const COMPUTE scale = a.scale[channel * a.scale_stride];
      Sums sums = {};
#pragma unroll 4
      for (unsigned block = threadIdx.x % WARP; block < a.team; block += WARP)
        sums.add(partials(a, tile, column)[block]);
#pragma unroll
      for (int distance = WARP / 2; distance > 0; distance /= 2) sums.add(sums.from_lane(distance));
      if (threadIdx.x % WARP > 0) continue;
      sums.product *= inverse;
      if (member == 0 && a.sum) a.sum[channel * a.result_stride] = sums.sum;
      if (member == 0 && a.product) a.product[channel * a.result_stride] = sums.product;
      factors[column] = Factors::of(sums.sum * a.share, sums.product * a.share, scale, mean, inverse);
    }
    __syncthreads();
  }
  // In two steps, between which the block may do something else: what the first one returns is for the second.
  __device__ __forceinline__ unsigned publish(const Arguments& a, unsigned tile, unsigned member) const {
    write_sums(a, tile, member);
    return a.team > 1 && threadIdx.x == 0 ? come_of_blocks(tile_words + tile, member == 0, a.team) : 0;
  }
  __device__ __forceinline__ void collect(const Arguments& a, unsigned tile, unsigned member, unsigned word) {
    if (a.team > 1 && threadIdx.x == 0) wait_until_all_came(tile_words + tile, word);
    read_sums(a, tile, member);
  }
};
