// What a layer of a recurrent network takes and gives: lengths of sequences, vectors between containers and the order
// (step, sequence), previous outputs, the vectors that a layer without input matrices takes.
//
// A block has one vector; products of vectors with matrices are those of gemm/matrix.cu.
//
// Roofline bound: bytes, one element read, one written (0.9 of 3.5 TB/s for vectors of 512 elements or more).
#include "rnn/network.cuh"

struct Arguments {
  ELEMENT* data;  // x, or dx
  const ELEMENT* hx;
  COMPUTE *workspace, *reserve;
  COMPUTE fill;
  Layer layer;
  Regions regions;
  Shape shape;
};

extern "C" __global__ void rnn_inputs_lengths(const Lengths a) {
  griddepcontrol_wait();
  store_lengths(a);
}

// Where the vectors of each step begin in containers.
extern "C" __global__ void rnn_inputs_offsets(const Lengths a) {
  griddepcontrol_wait();
  store_offsets(a);
}

// The vectors of x by (step, sequence), zeros where a sequence has none.
extern "C" __global__ void rnn_inputs_gather(const Arguments a) {
  griddepcontrol_wait();
  const Shape& s = a.shape;
  const int step = blockIdx.x / s.batch, sequence = blockIdx.x % s.batch, width = a.layer.width;
  const int* offsets = offsets_of(a.workspace, a.regions);
  const bool exists = step < length_of(offsets, s, sequence);
  const ELEMENT* from = a.data + (exists ? vector_at(offsets, s, step, sequence) * width : 0);
  ELEMENT* to = elements_at(a.workspace, a.regions.input) + static_cast<long long>(blockIdx.x) * width;
  for (int i = threadIdx.x; i < width; i += blockDim.x) to[i] = exists ? from[i] : store<ELEMENT>(COMPUTE(0));
}

// The reverse, for dx: what lies in the padding is left alone or gets the fill.
extern "C" __global__ void rnn_inputs_scatter(const Arguments a) {
  griddepcontrol_wait();
  const Shape& s = a.shape;
  const int step = blockIdx.x / s.batch, sequence = blockIdx.x % s.batch, width = a.layer.width;
  const int* offsets = offsets_of(a.workspace, a.regions);
  const bool exists = step < length_of(offsets, s, sequence);
  if (!exists && !s.fills) return;
  const ELEMENT* from = elements_at(a.workspace, a.regions.input) + static_cast<long long>(blockIdx.x) * width;
  ELEMENT* to = a.data + vector_at(offsets, s, step, sequence) * width;
  for (int i = threadIdx.x; i < width; i += blockDim.x) to[i] = exists ? from[i] : store<ELEMENT>(a.fill);
}

// What the cells of a layer put out in the step before, in their direction, by (direction, step, sequence): states of
// the beginning among them, zeros where a sequence has no step.
extern "C" __global__ void rnn_inputs_previous(const Arguments a) {
  griddepcontrol_wait();
  const Shape& s = a.shape;
  const int vectors = s.steps * s.batch, direction = blockIdx.x / vectors, vector = blockIdx.x % vectors;
  const int step = vector / s.batch, sequence = vector % s.batch;
  const int length = length_of(offsets_of(a.workspace, a.regions), s, sequence);
  const long long initial = static_cast<long long>(a.layer.pseudo_layer + direction) * s.batch * s.projected;
  const ELEMENT* outputs = elements_at(a.reserve, a.regions.kept_output) + direction * s.projected;
  ELEMENT* to = elements_at(a.workspace, a.regions.output) + static_cast<long long>(blockIdx.x) * s.projected;
  for (int i = threadIdx.x; i < s.projected; i += blockDim.x)
    to[i] =
        store<ELEMENT>(step < length ? before_step(outputs, s.directions * s.projected, a.hx ? a.hx + initial : nullptr,
                                                   s, direction, step, sequence, length, s.projected, i)
                                     : COMPUTE(0));
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

struct FillArguments {
  unsigned* to;
  long long start, words;  // of 32 bits
};

// Bits that no cell puts out (persistent.cuh).
extern "C" __global__ void rnn_inputs_fill(const FillArguments a) {
  griddepcontrol_wait();
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = blockIdx.x * blockDim.x + threadIdx.x; i < a.words; i += stride) a.to[a.start + i] = 0xffffffffu;
}
