// These kernels convert a layer's inputs and outputs: sequence lengths, vectors between containers and the order (step,
// sequence), and the vectors of a layer without input matrices.
//
// One warp copies one vector, 16 bytes per thread where both ends are aligned. gemm/matrix.cu multiplies the vectors by
// matrices.
//
// Roofline bound: bytes; each element is read once and written once (0.9 of 3.5 TB/s for vectors of 512 elements or
// more).
#include "rnn/copy_vector.cuh"
#include "rnn/network.cuh"

struct Arguments {
  ELEMENT* data;  // the operand x or dx
  COMPUTE *workspace, *reserve;
  COMPUTE fill;
  Layer layer;
  Regions regions;
  Shape shape;
};

struct Preparation {
  COMPUTE* workspace;
  unsigned* filled;
  long long offsets, start, words, stride;  // filled regions: length and stride in 32-bit words
  int regions, steps, batch, first, count;
  int layout;  // 0: steps outermost, 1: packed, 2: sequences outermost
  int length[LENGTHS];
};

// Stores the lengths of some sequences. The last launch also stores the offset of each step's vectors in the
// containers. Filled regions get bits that no cell can produce (persistent.cuh).
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

constexpr int VECTORS = 8;  // per block

__device__ __forceinline__ int vector_of_warp() { return blockIdx.x * VECTORS + threadIdx.x / 32; }

// Gathers the vectors of x by (step, sequence), and writes zeros where a sequence has no such step.
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

// Scatters vectors into dx. Padding is left alone or gets the fill.
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

// Writes zeros to the padding of a layer's input. The reverse direction keeps states there, and a state that is
// infinite times the zero gradient of the padding is NaN.
extern "C" __global__ void rnn_inputs_clear(const Arguments a) {
  griddepcontrol_wait();
  const Shape& s = a.shape;
  const int vector = vector_of_warp(), step = vector / s.batch, sequence = vector % s.batch, width = a.layer.width;
  if (step >= s.steps || step < length_of(offsets_of(a.workspace, a.regions), s, sequence)) return;
  copy_vector(elements_at(a.reserve, a.regions.kept_below) + static_cast<long long>(vector) * width, nullptr, width,
              store<ELEMENT>(COMPUTE(0)));
}

// Copies the input to every gate, because a layer without input matrices uses it as the product.
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

// Sums the gradients of all gates, for a layer without input matrices.
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
