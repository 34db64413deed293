// The main loop of matrix products that TMA feeds. One producer thread fills stages of shared memory, each with a
// K-block of both operands in rows of 128 bytes. Warpgroups multiply them on the tensor cores (primitives/mma.cuh) and
// release them. Only the producer knows the layout of an operand in memory: it loads the contents of a K-block.
//
// Stages are aligned to 1024 bytes. Both roles walk the same sequence of K-blocks, over all tiles of a block.
#pragma once
#include "primitives/tma.cuh"

constexpr int ROW_BYTES = 128;  // bytes per row of a box
constexpr int WARPGROUP = 128;  // threads
constexpr int MAX_STAGES = 12;
// The warps of a producer, the first warpgroup of a block, may share the boxes of a K-block. One thread of each loads
// its part. A single thread takes 200 clocks for each box, which may be longer than the products.
constexpr int LOADERS = WARPGROUP / 32;
__device__ __forceinline__ int loader() { return threadIdx.x / 32; }

// Returns whether warpgroups that take every `step`-th K-block have separate stages. Otherwise a warpgroup could wait
// for a stage while another warpgroup's load is in flight, and mistake the previous phase of equal parity for its own.
constexpr bool has_own_stages(int stages, int step) { return stages % step == 0; }

template <int STAGES, int BYTES> struct TmaPipeline {
  static_assert(STAGES <= MAX_STAGES);
  static constexpr int DEPTH = STAGES, STAGE_BYTES = BYTES;

  unsigned char* stages;
  Mbarrier *full, *empty;
  unsigned stage = 0, parity = 0;  // state of the next K-block

  // One thread calls this before a __syncthreads(). `consumers` counts the threads of the warps that read a stage.
  static __device__ __forceinline__ void initialise(Mbarrier* full, Mbarrier* empty, int consumers) {
    for (int i = 0; i < STAGES; i++) mbarrier_init(&full[i], 1), mbarrier_init(&empty[i], consumers);
  }

  __device__ __forceinline__ void advance(unsigned count) {
    stage += count;
    parity ^= stage / STAGES & 1;
    stage %= STAGES;
  }

  // The producer waits until the next stage is free and returns it. It must then load `bytes`. If `bytes` is 0,
  // another thread expects them.
  __device__ __forceinline__ unsigned char* open_stage(int bytes = STAGE_BYTES) {
    unsigned char* to = stages + stage * STAGE_BYTES;
    mbarrier_wait_parity(&empty[stage], parity ^ 1);
    if (bytes) mbarrier_arrive_expect_tx(&full[stage], bytes);
    return to;
  }

  // A consumer warp releases a stage after the tensor cores have read it.
  __device__ __forceinline__ void release(unsigned used) const {
    if (threadIdx.x % 32 == 0) mbarrier_arrive(&empty[used], 32);
  }

  // Begins the products of `count` K-blocks, every STEP-th of the sequence: sums[b] += left * right. The blocks of 64
  // rows are left_bytes apart. The last products are still in flight on return; the result is the stage that they read.
  template <class E, int COLUMNS, int BLOCKS, bool RIGHT_MN_MAJOR, bool LEFT_MN_MAJOR, int STEP>
  __device__ __forceinline__ unsigned multiply(float (&sums)[BLOCKS][COLUMNS / 2], int left, int left_bytes, int right,
                                               int count) {
    unsigned previous = 0;
    for (int k_block = 0; k_block < count; k_block++) {
      const unsigned char* operands = stages + stage * STAGE_BYTES;
      mbarrier_wait_parity(&full[stage], parity);
#pragma unroll
      for (int b = 0; b < BLOCKS; b++)
        wgmma_mma_async<E, COLUMNS, RIGHT_MN_MAJOR, LEFT_MN_MAJOR>(sums[b], operands + left + b * left_bytes,
                                                                   operands + right);
      wgmma_commit();
      wgmma_wait<1>();
      if (k_block > 0) release(previous);
      previous = stage;
      advance(STEP);
    }
    return previous;
  }

  // Does the same with an MN-major left operand of 32 bits, which tensor cores do not transpose. Lanes read it from
  // `left` on. It has boxes of 32 rows of a warp, each with 32 rows of 128 bytes, one per k. A box belongs to two
  // blocks of the sums. EVERY, `shift`: see read_left().
  template <class E, int COLUMNS, int STEP, int EVERY = 1>
  __device__ __forceinline__ unsigned multiply_from_registers(float (&sums)[2][COLUMNS / 2], int left, int right,
                                                              int count, int shift = 0) {
    constexpr int STEPS = 4;                    // steps per stage
    unsigned previous = 0, fragments[2][2][4];  // One fragment is read while the other is multiplied.
    if (STEP > 1 && count == 0) return previous;
    mbarrier_wait_parity(&full[stage], parity);
    read_left<EVERY>(0, left, fragments[0], shift);
    for (int k_block = 0; k_block < count; k_block++) {
      const unsigned used = stage;
      const unsigned char* columns = stages + used * STAGE_BYTES + right;
#pragma unroll
      for (int step = 0; step < STEPS; step++) {
        wgmma_fence();
#pragma unroll
        for (int b = 0; b < 2; b++) wgmma_mma_async<E, COLUMNS>(sums[b], fragments[step % 2][b], columns, step);
        wgmma_commit();
        wgmma_wait<1>();
        if (step == 0 && k_block > 0) release_by_lane(previous);
        if (step < STEPS - 1) {
          read_left<EVERY>(step + 1, left, fragments[(step + 1) % 2], shift);
        } else {
          advance(STEP);
          if (k_block + 1 < count) {
            mbarrier_wait_parity(&full[stage], parity);
            read_left<EVERY>(0, left, fragments[0], shift);
          }
        }
      }
      previous = used;
    }
    return previous;
  }

  // Each lane of the consumers releases a stage that it has read itself.
  __device__ __forceinline__ void release_by_lane(unsigned used) const { mbarrier_arrive(&empty[used]); }

  // Row 8 * part + lane / 4 of a warp in block b is row 16 * (lane / 16) + 8 * b + 4 * part + lane / 4 % 4 of its box.
  // No two lanes share a bank, because neighbouring lanes read neighbouring k.
  //
  // EVERY > 1: the box has every EVERY-th k first, then those after them, and so on. The rows of a lane's k begin
  // `shift` values later. Row 8 * part + lane / 4 in block b is row 4 * (lane / 4) + 2 * b + part of the box. No two
  // lanes share a bank if their k differ in their shift.
  template <int EVERY = 1>
  __device__ __forceinline__ void read_left(int step, int left, unsigned (&fragments)[2][4], int shift = 0) const {
    const unsigned char* box = stages + stage * STAGE_BYTES + left;
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int b = 0; b < 2; b++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int k = step * 8 + i / 2 * 4 + lane % 4;
        int row = k, value = (lane / 16 * 4 + b * 2 + i % 2) * 4 + lane / 4 % 4;
        if (EVERY > 1) row = k % EVERY * (32 / EVERY) + k / EVERY, value = lane / 4 * 4 + b * 2 + i % 2 + shift;
        fragments[b][i] = *reinterpret_cast<const unsigned*>(swizzled(box, row, value / 4 % 8) + value % 4 * 4);
      }
  }
};
