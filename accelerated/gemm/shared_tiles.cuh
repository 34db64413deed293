// Blocks that share the K of a tile in equal parts (stream_k.cuh) add their sums inside the launch. Each warp stores
// the sums of its rows in the slot of its block, and counts. The warp that comes last adds the slots of all blocks in
// the order of K, so the bits do not depend on which comes last. Counters are zeros before and after the launch.
//
// No block waits for another. The SMs of the last warps read all slots of the tile, often a single SM.
#pragma once
#include "gemm/stream_k.cuh"

// Enumerates the segments of a block: the tiles that it has alone, then its part of one tile. It needs few registers.
struct PartsWalk {
  static constexpr unsigned ENDED = ~0u;
  unsigned next, block;  // the next tile, and the index of the block

  __device__ __forceinline__ bool advance(const Division& d, Segment& segment) {
    segment = {next, 0, d.k_blocks, block, next < d.unsplit};
    if (segment.unsplit) {
      next += d.blocks;
      return true;
    }
    if (next == ENDED || block >= d.parts * d.tiles.divisor) return false;
    next = ENDED;
    const unsigned part = d.tiles.divide(block, segment.tile);
    segment.tile += d.unsplit;
    segment.first = part * d.share + min(part, d.longer_parts);
    segment.count = d.share + (part < d.longer_parts);
    return true;
  }
};

// Describes the part of a warp in a tile that several blocks share. `slots` holds [block][warp][four sums][lane], and
// blocks are [part][tile].
struct SharedTile {
  static constexpr int AT_ONCE = 8;  // reads in flight per lane

  const Division& division;
  unsigned tile;  // index among the shared tiles
  float* slots;
  unsigned* counters;  // one per tile and warp
  unsigned warp, warps;

  // Stores the sums of the block. Returns whether the warps of all other blocks had stored theirs; then `sums` holds
  // the sums of all.
  template <int BLOCKS, int COUNT>
  __device__ __forceinline__ bool add(unsigned block, float (&sums)[BLOCKS][COUNT]) const {
    constexpr int QUADS = BLOCKS * COUNT / 4;
    static_assert(QUADS % AT_ONCE == 0);
    float4* to = quads<QUADS>(block);
#pragma unroll
    for (int i = 0; i < QUADS; i++) {
      const float* four = sums[i / (COUNT / 4)] + i % (COUNT / 4) * 4;
      to[i * 32] = make_float4(four[0], four[1], four[2], four[3]);
    }
    __syncwarp();
    unsigned before = 0;
    if (threadIdx.x % 32 == 0) {
      __threadfence();
      before = atomicInc(counters + tile * warps + warp, division.parts - 1);  // The last one makes it 0 again.
      __threadfence();
    }
    before = __shfl_sync(~0u, before, 0);
    if (before + 1 < division.parts) return false;
    __syncwarp();
#pragma unroll
    for (int b = 0; b < BLOCKS; b++)
#pragma unroll
      for (int i = 0; i < COUNT; i++) sums[b][i] = 0;
    for (unsigned part = 0; part < division.parts; part++) {
      const float4* from = quads<QUADS>(part * division.tiles.divisor + tile);
#pragma unroll
      for (int first = 0; first < QUADS; first += AT_ONCE) {
        float4 found[AT_ONCE];
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) found[u] = __ldcg(from + (first + u) * 32);
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
          float* four = sums[(first + u) / (COUNT / 4)] + (first + u) % (COUNT / 4) * 4;
          four[0] += found[u].x, four[1] += found[u].y, four[2] += found[u].z, four[3] += found[u].w;
        }
      }
    }
    return true;
  }

 private:
  template <int QUADS> __device__ __forceinline__ float4* quads(unsigned block) const {
    return reinterpret_cast<float4*>(slots) + (static_cast<long long>(block) * warps + warp) * (QUADS * 32) +
           threadIdx.x % 32;
  }
};
