// Blocks that share the K of a tile (stream_k.cuh) add their sums inside the launch. Each warp stores the sums of its
// rows in the slot of its block, and counts. The warp that comes last adds the slots of all blocks in the order of K,
// so that the bits do not depend on which comes last. The counters are zeros before and after the launch.
//
// No block waits for another. The bytes of a tile's slots pass through one SM, or as many SMs as have last warps.
#pragma once
#include "gemm/stream_k.cuh"

// Describes the part of a warp in a tile that several blocks share. `slots` holds [slot][warpgroup][four sums][thread].
struct SharedTile {
  static constexpr int THREADS = 128, AT_ONCE = 8;  // threads of a warpgroup; reads in flight per lane

  const Division& division;
  unsigned tile, slot;
  float* slots;
  unsigned* counters;  // one per tile and warp
  unsigned warp, warps;

  __device__ __forceinline__ SharedTile(const Division& d, const Segment& segment, float* slots, unsigned* counters,
                                        unsigned warp, unsigned warps)
      : division(d),
        tile(segment.tile - d.unsplit),
        slot(segment.slot),
        slots(slots),
        counters(counters),
        warp(warp),
        warps(warps) {}

  template <int BLOCKS, int COUNT> __device__ __forceinline__ void store(const float (&sums)[BLOCKS][COUNT]) const {
    constexpr int QUADS = BLOCKS * COUNT / 4;
    float4* to = quads<QUADS>(slot);
#pragma unroll
    for (int i = 0; i < QUADS; i++) {
      const float* four = sums[i / (COUNT / 4)] + i % (COUNT / 4) * 4;
      to[i * THREADS] = make_float4(four[0], four[1], four[2], four[3]);
    }
  }

  // Counts the stored sums. Returns whether the warps of all other blocks had counted theirs; then `sums` holds the
  // sums of all.
  template <int BLOCKS, int COUNT> __device__ __forceinline__ bool add(float (&sums)[BLOCKS][COUNT]) const {
    constexpr int QUADS = BLOCKS * COUNT / 4;
    static_assert(QUADS % AT_ONCE == 0);
    const Slots parts(division, tile);
    unsigned before = 0;
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
      __threadfence();
      before = atomicInc(counters + tile * warps + warp, parts.count - 1);  // The last one makes it 0 again.
      __threadfence();
    }
    before = __shfl_sync(~0u, before, 0);
    if (before + 1 < parts.count) return false;
    __syncwarp();
#pragma unroll
    for (int b = 0; b < BLOCKS; b++)
#pragma unroll
      for (int i = 0; i < COUNT; i++) sums[b][i] = 0;
    for (unsigned part = 0; part < parts.count; part++) {
      const float4* from = quads<QUADS>(parts[part]);
#pragma unroll
      for (int first = 0; first < QUADS; first += AT_ONCE) {
        float4 found[AT_ONCE];
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) found[u] = __ldcg(from + (first + u) * THREADS);
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
  template <int QUADS> __device__ __forceinline__ float4* quads(unsigned of) const {
    const unsigned thread = warp % (THREADS / 32) * 32 + threadIdx.x % 32, group = warp / (THREADS / 32);
    return reinterpret_cast<float4*>(slots) +
           (static_cast<long long>(of) * (warps / (THREADS / 32)) + group) * (QUADS * THREADS) + thread;
  }
};
