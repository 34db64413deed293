// The gradient behind an activation, and that of the batch normalisation before it (6.1.3.1,
// DACTIVATION_FORK_DBATCHNORM), with channels innermost, in one cooperative launch.
//
// A block for each multiprocessor: it has a tile of LANES packs of channels and a segment of the pixels, a thread every
// THREADS / LANES-th of these. The first KEPT pixels of a thread stay in shared memory while the blocks of a tile
// exchange their sums, the others pass through a ring of RING places (cp.async) and are read again, the last ones
// first, from what L2 still has.
//
// Roofline bound: bytes, x and dy read once, what is not kept once more, dx and dz written; 14 flops an element: 0.13 ms
// for 64 x 256 x 56 x 56 HALF at 4.2 TB/s.
#include "fused_ops/gradient_team.cuh"

constexpr int COLUMNS = LANES * WIDTH, ROWS = THREADS / LANES;

// The rows (pixels) of a thread.
struct Rows {
  const Arguments& a;
  const unsigned first;
  const int channel, count;
  Packed* slots;

  __device__ __forceinline__ Rows(const Arguments& a, unsigned tile, unsigned member)
      : a(a),
        first(member * a.items + threadIdx.x / LANES),
        channel(tile * COLUMNS + threadIdx.x % LANES * WIDTH),
        count(rows(min((member + 1) * a.items, a.pixels.count))),
        slots(reinterpret_cast<Packed*>(shared_memory) + threadIdx.x) {
    // In a register: ptxas of CUDA 13.0 encoded a copy to an address with a uniform part as an instruction that there is
    // not.
    keep_shared_pointer(slots);
  }
  __device__ __forceinline__ int rows(unsigned end) const {
    return channel < a.pixels.channels && first < end ? (end - first - 1) / ROWS + 1 : 0;
  }
  __device__ __forceinline__ Packed* slot(int row, int tensor) const {
    return slots + ((row < KEPT ? row : KEPT + (row - KEPT) % RING) * 2 + tensor) * THREADS;
  }
  __device__ __forceinline__ Pixel pixel(int row) const { return locate(a.pixels, first + row * ROWS); }
  __device__ __forceinline__ unsigned bits(int row) const {
    return mask_word(a.pixels, a.mask, first + row * ROWS, channel / WARP) >> channel % WARP;
  }
  // Begins to copy a row, where there is one, to its place; one group of copies.
  __device__ __forceinline__ void copy(int row, bool exists, unsigned& bits_of_row) const {
    if (exists) {
      const Pixel at = pixel(row);
      cp_async<sizeof(Packed)>(slot(row, 0), a.x + offset(a.x_strides, at, channel), true);
      cp_async<sizeof(Packed)>(slot(row, 1), a.dy + offset(a.dy_strides, at, channel), true);
      bits_of_row = bits(row);
    }
    cp_async_commit();
  }

  // dz of every row, and the sums of the thread.
  __device__ __forceinline__ void first_pass(Sums (&sums)[WIDTH]) const {
    COMPUTE mean[WIDTH];
    unsigned ahead[RING];  // bits of the next rows
    if (count > 0) {
#pragma unroll
      for (int k = 0; k < WIDTH; k++) mean[k] = a.mean[(channel + k) * a.parameter_stride];
    }
#pragma unroll
    for (int u = 0; u < RING; u++) copy(u, u < count, ahead[u]);
    for (int begin = 0; begin < count; begin += RING)
#pragma unroll
      for (int u = 0; u < RING; u++) {
        const int row = begin + u;
        if (row >= count) break;
        cp_async_wait<RING - 1>();
        const Packed x = *slot(row, 0);
        Packed dz = *slot(row, 1);
        mask_pack(dz, [&](int j) { return ahead[u] >> j & 1; });
#pragma unroll
        for (int j = 0; j < WIDTH; j++) {
          const COMPUTE gradient = load<COMPUTE>(dz.item[j]);
          sums[j].sum += gradient;
          sums[j].product += gradient * (load<COMPUTE>(x.item[j]) - mean[j]);
        }
        if (row < KEPT) *slot(row, 1) = dz;
        if (a.dz) store_pack(a.dz + offset(a.dz_strides, pixel(row), channel), dz);
        copy(row + RING, row + RING < count, ahead[u]);
      }
  }

  // dx of every row. The last RING rows are in the ring, as they were read.
  __device__ __forceinline__ void second_pass(const Factors (&factors)[WIDTH]) const {
    const auto finish = [&](int row, const Packed& x, const Packed& dz) {
      const Packed dx = gradient_pack(x, dz, [&](int j) { return factors[j]; });
      store_pack(a.dx + offset(a.dx_strides, pixel(row), channel), dx);
    };
    unsigned ahead[RING];
#pragma unroll
    for (int u = 0; u < RING; u++)
      if (count - 1 - u >= KEPT) ahead[u] = bits(count - 1 - u);
    for (int begin = count - 1; begin >= KEPT; begin -= RING)
#pragma unroll
      for (int u = 0; u < RING; u++) {
        const int row = begin - u;
        if (row < KEPT) break;
        cp_async_wait<RING - 1>();
        const Packed x = *slot(row, 0);
        Packed dz = *slot(row, 1);
        mask_pack(dz, [&](int j) { return ahead[u] >> j & 1; });
        finish(row, x, dz);
        copy(row - RING, row - RING >= KEPT, ahead[u]);
      }
#pragma unroll 2
    for (int row = min(count, KEPT) - 1; row >= 0; row--) finish(row, *slot(row, 0), *slot(row, 1));
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1) fused_ops_gradient_columns(const Arguments a) {
  griddepcontrol_wait();
  __shared__ TeamSums<COLUMNS> shared;
  const unsigned tile = blockIdx.x % a.teams, member = blockIdx.x / a.teams;
  const Rows rows(a, tile, member);
  Sums sums[WIDTH] = {};
  rows.first_pass(sums);
  const int lane = threadIdx.x % LANES;
#pragma unroll
  for (int k = 0; k < WIDTH; k++) {
#pragma unroll
    for (int distance = LANES; distance < WARP; distance *= 2) sums[k].add(sums[k].from_lane(distance));
    if (threadIdx.x % WARP < LANES) shared.warps[threadIdx.x / WARP][lane * WIDTH + k] = sums[k];
  }
  const unsigned word = shared.publish(a, tile, member);
  shared.merge(a, tile, member, word);
  Factors factors[WIDTH];
#pragma unroll
  for (int k = 0; k < WIDTH; k++) factors[k] = shared.factors[lane * WIDTH + k];
  rows.second_pass(factors);
}
