// The gradient behind an activation, and that of the batch normalisation before it (6.1.3.1,
// DACTIVATION_FORK_DBATCHNORM), with channels innermost, in one cooperative launch.
//
// All that is read fits the shared memory of all multiprocessors. A block for each has a tile of LANES packs of
// channels and a segment of the pixels, a thread every THREADS / LANES-th of these, which it copies (cp.async), AHEAD
// at a time: the first pass writes dz and adds up, the second one, once the blocks of a tile have exchanged their sums,
// writes dx.
//
// Roofline bound: bytes, x and dy read, dx and dz written once, 14 flops an element: 12 us for 32 x 128 x 28 x 28 FLOAT
// at 4.2 TB/s, of which an H200 takes 18.
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
    // In a register: ptxas of CUDA 13.0 encoded a copy to an address with a uniform part as an instruction that there
    // is not.
    keep_shared_pointer(slots);
  }
  __device__ __forceinline__ int rows(unsigned end) const {
    return channel < a.pixels.channels && first < end ? (end - first - 1) / ROWS + 1 : 0;
  }
  __device__ __forceinline__ Packed* slot(int row, int tensor) const { return slots + (row * 2 + tensor) * THREADS; }
  __device__ __forceinline__ Pixel pixel(int row) const { return locate(a.pixels, first + row * ROWS); }
  __device__ __forceinline__ unsigned bits(int row) const {
    return mask_word(a.pixels, a.mask, first + row * ROWS, channel / WARP) >> channel % WARP;
  }
  // Begins to copy a row, where there is one; one group of copies.
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
    unsigned next[AHEAD];  // bits of the next rows
    if (count > 0) {
#pragma unroll
      for (int k = 0; k < WIDTH; k++) mean[k] = a.mean[(channel + k) * a.parameter_stride];
    }
#pragma unroll
    for (int u = 0; u < AHEAD; u++) copy(u, u < count, next[u]);
    for (int begin = 0; begin < count; begin += AHEAD)
#pragma unroll
      for (int u = 0; u < AHEAD; u++) {
        const int row = begin + u;
        if (row >= count) break;
        cp_async_wait<AHEAD - 1>();
        const Packed x = *slot(row, 0);
        Packed dz = *slot(row, 1);
        keep_bits(next[u], dz);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) sums[j].add(load<COMPUTE>(dz.item[j]), load<COMPUTE>(x.item[j]), mean[j]);
        *slot(row, 1) = dz;
        if (a.dz) store_pack(a.dz + offset(a.dz_strides, pixel(row), channel), dz);
        copy(row + AHEAD, row + AHEAD < count, next[u]);
      }
  }

  // dx of every row.
  __device__ __forceinline__ void second_pass(const Factors (&factors)[WIDTH]) const {
#pragma unroll 2
    for (int row = 0; row < count; row++) {
      const Packed dx = gradient_pack(*slot(row, 0), *slot(row, 1), [&](int j) { return factors[j]; });
      store_pack(a.dx + offset(a.dx_strides, pixel(row), channel), dx);
    }
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1) fused_ops_gradient_columns(const Arguments a) {
  griddepcontrol_wait();
  __shared__ TeamSums<COLUMNS> shared;
  const unsigned tile = blockIdx.x % a.tiles, member = blockIdx.x / a.tiles;
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
  shared.collect(a, tile, member, shared.publish(a, tile, member));
  Factors factors[WIDTH];
#pragma unroll
  for (int k = 0; k < WIDTH; k++) factors[k] = shared.factors[lane * WIDTH + k];
  rows.second_pass(factors);
}
