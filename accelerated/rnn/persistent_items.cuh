// This header gives a block of the persistent kernels its work and the order of its items, and locates the cells of
// each item.
//
// A work item is one step of a slice of UNITS hidden units, for one direction or layer and one group of SEQUENCES
// sequences. A block has one slice and group, or several groups of a slice in turn, whose matrix rows stay on chip.
// Where the device has fewer SMs than slices, a block takes several slices too.
//
// The layers of one launch are a wavefront. A layer runs `skew` waves after the layer before it, whose vectors it
// needs. All blocks run at once and wait only for vectors of earlier waves, so that no order of blocks can deadlock.
// Where each block has one layer, waves are only numbers. The emulated device takes the waves one after another.
#pragma once
#include "rnn/dropout.cuh"
#include "rnn/persistent.cuh"

constexpr bool STACKED = MAX_LAYERS > 1;
// Reads of another layer's output start during the step before only if they are few, because more would delay that
// step.
constexpr bool READS_AHEAD = LOADED_PAIRS * N_TILES <= 2;

// `part` is the direction or the layer, and `t` is its step.
struct Item {
  int wave, slice, group, part, t;
};

// Enumerates the items of a block, in the order that all blocks share. `slices` counts the slices of a part; `parts`
// counts directions or layers.
struct Items {
  const int of_part;  // slices per part
  const int slices, groups, steps, skew, waves, blocks;
  const bool keeps_rows;  // The block has one slice.
  const int first_slice, first_group;
  const int apart;  // distance between the groups of the block

  __device__ __forceinline__ Items(int of_part, int parts, int groups, int steps, int skew)
      : of_part(of_part),
        slices(of_part * parts),
        groups(groups),
        steps(steps),
        skew(skew),
        waves(STACKED ? steps + (parts - 1) * skew : steps),
        blocks(gridDim.x / PARTS),
        keeps_rows(slices <= blocks),
        first_slice(keeps_rows ? blockIdx.x / PARTS % slices : blockIdx.x / PARTS),
        first_group(keeps_rows ? blockIdx.x / PARTS / slices : 0),
        apart(keeps_rows ? blocks / slices : 1) {}

  __device__ __forceinline__ bool is_single() const { return keeps_rows && first_group + apart >= groups; }
  // Returns whether an item continues the item before it, so that the states are in registers.
  __device__ __forceinline__ bool goes_on(const Item& before, const Item& item) const {
    return is_single() || (before.slice == item.slice && before.group == item.group);
  }
  __device__ __forceinline__ bool needs_rows(const Item& item) const {
    return !keeps_rows || (item.t == 0 && item.group == first_group);
  }
  __device__ __forceinline__ bool has(const Item& item) const { return item.wave < waves; }
  __device__ __forceinline__ Item first() const {
    const int part = STACKED ? first_slice / of_part : first_slice >= of_part;
    const Item item{0, first_slice, first_group, part, STACKED ? -part * skew : 0};
    return item.t < 0 ? behind(item) : item;
  }
  __device__ __forceinline__ Item behind(Item item) const {
    do {
      item.group += apart;
      if (item.group >= groups) {
        item.group = first_group;
        if (!keeps_rows) item.slice += blocks;
        if (keeps_rows || item.slice >= slices) item.slice = first_slice, item.wave++;
      }
      if (!keeps_rows) item.part = STACKED ? item.slice / of_part : item.slice >= of_part;
      item.t = STACKED ? item.wave - item.part * skew : item.wave;
    } while (STACKED && has(item) && (item.t < 0 || item.t >= steps));
    return item;
  }
};

// Locates the cells of a block in a step. AGAINST reverses the direction of the forward call. `part` is a part of K.
template <int UNITS, bool AGAINST> struct CellsOf {
  static constexpr int COUNT = UNITS * SEQUENCES, PER_THREAD = (COUNT + THREADS - 1) / THREADS;
  int step, direction, layer, slice_unit, first_unit, first_sequence;

  __device__ __forceinline__ CellsOf(const Shape& s, const Items& items, const Item& item, int part) {
    direction = STACKED ? 0 : item.part, layer = STACKED ? item.part : 0;
    step = direction == AGAINST ? item.t : s.steps - 1 - item.t;
    slice_unit = (item.slice - item.part * items.of_part) * (PARTS * UNITS), first_unit = slice_unit + part * UNITS;
    first_sequence = item.group * SEQUENCES;
  }
  static __device__ __forceinline__ int own_unit(int i) { return static_cast<int>(threadIdx.x + i * THREADS) % UNITS; }
  static __device__ __forceinline__ int own_sequence(int i) {
    return static_cast<int>(threadIdx.x + i * THREADS) / UNITS;
  }
  __device__ __forceinline__ int unit(int i) const { return first_unit + own_unit(i); }
  __device__ __forceinline__ int sequence(int i) const { return first_sequence + own_sequence(i); }
  __device__ __forceinline__ bool has(const Shape& s, int i) const {
    return threadIdx.x + i * THREADS < COUNT && unit(i) < s.hidden && sequence(i) < s.batch;
  }
};

// Other blocks' output arrives some time after the barrier of the block. A block that reads at once reads twice, and
// its traffic delays the writers. A reader waits this many clocks after begin(); 0 means no wait.
struct ReadDelay {
  unsigned clocks, begun = 0;

  __device__ __forceinline__ void begin() {
#ifndef EMULATED_CUDA
    if (clocks) begun = static_cast<unsigned>(clock());
#endif
  }
  __device__ __forceinline__ void wait() const {
#ifndef EMULATED_CUDA
    if (clocks)
      while (static_cast<unsigned>(clock()) - begun < clocks) continue;
#endif
  }
};

// Fibers of the emulated device do not run while another one polls, so a barrier replaces the waits.
__device__ __forceinline__ void end_step() {
#ifdef EMULATED_CUDA
  __syncthreads();
#endif
}
