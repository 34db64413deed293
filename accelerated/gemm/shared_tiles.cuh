// Blocks that share the K of a tile (stream_k.cuh) add their sums inside the launch. Each warp stores the sums of its
// rows in the slot of its block, and counts. The warp that comes last adds the slots of all blocks in the order of K,
// so that the bits do not depend on which comes last. The counters are zeros before and after the launch.
//
// No block waits for another. The bytes of a tile's slots pass through one SM, or as many SMs as have last warps.
#pragma once
#include "gemm/stream_k.cuh"

// Describes the part of a warp in a tile that several blocks share. `slots` holds [slot][warp][four sums][lane].
struct SharedTile {
  static constexpr int AT_ONCE = 8;  // reads in flight per lane

  const Slots parts;
  float* slots;
  unsigned* counter;
  unsigned slot;
  int warp, warps;

  __device__ __forceinline__ SharedTile(const Division& d, const Segment& segment, float* slots, unsigned* counters,
                                        int warp, int warps)
      : parts(d, segment.tile - d.unsplit),
        slots(slots),
        counter(counters + (segment.tile - d.unsplit) * warps + warp),
        slot(segment.slot),
        warp(warp),
        warps(warps) {}

  // Stores the sums. Returns whether the warps of all other blocks had stored theirs; then `sums` holds the sums of
  // all.
  template <int BLOCKS, int COUNT> __device__ __forceinline__ bool add_parts(float (&sums)[BLOCKS][COUNT]) const {
    constexpr int QUADS = BLOCKS * COUNT / 4;
    static_assert(QUADS % AT_ONCE == 0);
    const int lane = threadIdx.x % 32;
    float4* to = quads<QUADS>(slot);
#pragma unroll
    for (int i = 0; i < QUADS; i++) {
      const float* four = sums[i / (COUNT / 4)] + i % (COUNT / 4) * 4;
      to[i * 32] = make_float4(four[0], four[1], four[2], four[3]);
    }
    __syncwarp();
    unsigned before = 0;
    if (lane == 0) {
      __threadfence();
      before = atomicInc(counter, parts.count - 1);  // The last one makes it 0 again.
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
  template <int QUADS> __device__ __forceinline__ float4* quads(unsigned of) const {
    return reinterpret_cast<float4*>(slots) + (static_cast<long long>(of) * warps + warp) * (QUADS * 32) +
           threadIdx.x % 32;
  }
};
