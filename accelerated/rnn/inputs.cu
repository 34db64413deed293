// What a layer of a recurrent network takes and gives: lengths of sequences, vectors between containers and the order
// (step, sequence), the vectors that a layer without input matrices takes.
//
// A warp copies a vector, in packs of 16 bytes where both ends are aligned; products of vectors with matrices are those
// of gemm/matrix.cu.
//
// Roofline bound: bytes, one element read, one written (0.9 of 3.5 TB/s for vectors of 512 elements or more).
#include "rnn/copy_vector.cuh"
#include "rnn/network.cuh"

struct Arguments {
  ELEMENT* data;  // x, or dx
  COMPUTE *workspace, *reserve;
  COMPUTE fill;
  Layer layer;
  Regions regions;
  Shape shape;
};

struct Preparation {
  COMPUTE* workspace;
  unsigned* filled;
  long long offsets, start, words, stride;  // of 32 bits, that are filled: of a region, from a region to the next
  int regions, steps, batch, first, count;
  int layout;  // 0: steps outermost, 1: packed, 2: sequences outermost
  int length[LENGTHS];
};

// Stores the lengths of some sequences and, with those of the last ones, where the vectors of each step begin in
// containers. What is filled gets bits that no cell puts out (persistent.cuh).
extern "C" __global__ void rnn_inputs_prepare(const Preparation a) {
  griddepcontrol_wait();
  const int thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
  int *offsets = reinterpret_cast<int*>(a.workspace + a.offsets), *lengths = offsets + a.steps;
  for (int i = thread; i < a.count; i += threads) lengths[a.first + i] = a.length[i];
  if (a.count && a.first + a.count == a.batch)
    for (int step = thread; step < a.steps; step += threads) {
      int begin = a.layout == 0 ? step * a.batch : step;
      if (a.layout == 1) {
        begin = 0;
        for (int i = 0; i < a.first; i++) begin += min(lengths[i], step);
        for (int i = 0; i < a.count; i++) begin += min(a.length[i], step);
      }
      offsets[step] = begin;
    }
  constexpr unsigned NOTHING = 0xffffffffu;
  for (int region = 0; region < a.regions; region++) {
    unsigned* to = a.filled + a.start + region * a.stride;
    const long long packed = reinterpret_cast<uintptr_t>(to) % 16 == 0 ? a.words / 4 : 0;
    for (long long i = thread; i < packed; i += threads)
      reinterpret_cast<uint4*>(to)[i] = make_uint4(NOTHING, NOTHING, NOTHING, NOTHING);
    for (long long i = 4 * packed + thread; i < a.words; i += threads) to[i] = NOTHING;
  }
}

constexpr int VECTORS = 8;  // of a block

__device__ __forceinline__ int vector_of_warp() { return blockIdx.x * VECTORS + threadIdx.x / 32; }

// The vectors of x by (step, sequence), zeros where a sequence has none.
extern "C" __global__ void rnn_inputs_gather(const Arguments a) {
  griddepcontrol_wait();
  const Shape& s = a.shape;
  const int vector = vector_of_warp(), step = vector / s.batch, sequence = vector % s.batch, width = a.layer.width;
  if (step >= s.steps) return;
  const int* offsets = offsets_of(a.workspace, a.regions);
  const ELEMENT* from =
      step < length_of(offsets, s, sequence) ? a.data + vector_at(offsets, s, step, sequence) * width : nullptr;
  copy_vector(elements_at(a.workspace, a.regions.input) + static_cast<long long>(vector) * width, from, width,
              store<ELEMENT>(COMPUTE(0)));
}

// The reverse, for dx: what lies in the padding is left alone or gets the fill.
extern "C" __global__ void rnn_inputs_scatter(const Arguments a) {
  griddepcontrol_wait();
  const Shape& s = a.shape;
  const int vector = vector_of_warp(), step = vector / s.batch, sequence = vector % s.batch, width = a.layer.width;
  if (step >= s.steps) return;
  const int* offsets = offsets_of(a.workspace, a.regions);
  const bool exists = step < length_of(offsets, s, sequence);
  if (!exists && !s.fills) return;
  const ELEMENT* from = elements_at(a.workspace, a.regions.input) + static_cast<long long>(vector) * width;
  copy_vector(a.data + vector_at(offsets, s, step, sequence) * width, exists ? from : nullptr, width,
              store<ELEMENT>(a.fill));
}

// Without input matrices: the input itself is the product, of every gate.
extern "C" __global__ void rnn_inputs_skip(const Arguments a) {
  griddepcontrol_wait();
  const Shape& s = a.shape;
  const int step = blockIdx.x / s.batch, sequence = blockIdx.x % s.batch;
  const int* offsets = offsets_of(a.workspace, a.regions);
  if (step >= length_of(offsets, s, sequence)) return;
  const ELEMENT* from = a.data + vector_at(offsets, s, step, sequence) * s.hidden;
  for (int direction = 0; direction < s.directions; direction++) {
    COMPUTE* to = a.workspace + a.regions.products +
                  (static_cast<long long>(direction) * s.steps * s.batch + blockIdx.x) * GATES * s.hidden;
    for (int i = threadIdx.x; i < GATES * s.hidden; i += blockDim.x) to[i] = load<COMPUTE>(from[i % s.hidden]);
  }
}

// And its gradient the sum of those of all gates.
extern "C" __global__ void rnn_inputs_skip_gradient(const Arguments a) {
  griddepcontrol_wait();
  const Shape& s = a.shape;
  ELEMENT* to = elements_at(a.workspace, a.regions.input) + static_cast<long long>(blockIdx.x) * s.hidden;
  for (int i = threadIdx.x; i < s.hidden; i += blockDim.x) {
    COMPUTE sum = 0;
    for (int direction = 0; direction < s.directions; direction++) {
      const ELEMENT* gradients = elements_at(a.reserve, a.regions.gradients + direction * a.regions.kept_step) +
                                 static_cast<long long>(blockIdx.x) * KEPT * s.hidden + i;
      for (int gate = 0; gate < GATES; gate++) sum += load<COMPUTE>(gradients[gate * s.hidden]);
    }
    to[i] = store<ELEMENT>(sum);
  }
}
