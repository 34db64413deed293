// This header declares the arguments of recurrent kernels, and locates the vectors of a step.
#pragma once
#include "primitives/types.cuh"

enum Cell { RELU = 0, TANH = 1, LSTM = 2, GRU = 3 };
constexpr int GATES = CELL == LSTM ? 4 : CELL == GRU ? 3 : 1;  // per cell
constexpr int KEPT = CELL == LSTM || CELL == GRU ? 4 : 1;  // values per cell in the reserve space, without its states

// Locates a part of the weight space: its first element for the first direction, and the stride to the second
// direction.
struct Weights {
  long long start, step;
};

struct Layer {
  Weights input, recurrent, input_bias, recurrent_bias, projection;  // start = -1: the part does not exist
  int width, pseudo_layer;  // elements per input vector; index of the first direction
  int first, last;
};

// Holds the offsets of the parts of the work space and of this layer's reserve space, in elements of the compute type.
// An offset of -1 means that nothing is kept. Layer inputs, layer outputs and gate gradients have the data type. A
// layer's output has the order (step, sequence, direction, unit).
struct Regions {
  long long offsets, products, input, output, hidden, cell, before;
  // offsets for the first direction; kept_step is the stride to the second
  long long kept, gradients, kept_cell, kept_hidden;
  long long kept_gradient, kept_output, kept_step;
  long long kept_below;  // output of the layer below
};

struct Clip {
  COMPUTE lower, upper;
  int on, propagates;
};

struct Shape {
  int steps, batch, hidden, projected, directions;
  int sequence_step;  // stride between two sequences of the same step of x and y, in vectors
  int fills;          // whether the padding of y gets the fill
};

// Locates what a step's product reads and writes in the scratch memory: the parts of its sums, and copies of the
// vectors that it multiplies.
struct StepCopies {
  long long sums, vectors;  // bytes; vectors = -1: the product reads them where they are kept
  int pitch;                // elements between two sequences of a copy

  __device__ __forceinline__ const COMPUTE* sums_in(const unsigned char* scratch) const {
    return reinterpret_cast<const COMPUTE*>(scratch + sums);
  }
  // Writes an element of a copied vector.
  __device__ __forceinline__ void put(unsigned char* scratch, long long vector, int element, ELEMENT value) const {
    if (vectors >= 0) reinterpret_cast<ELEMENT*>(scratch + vectors)[vector * pitch + element] = value;
  }
};

// The vectors of a step begin at offsets[step]. The lengths of the sequences follow the offsets of all steps.
__device__ __forceinline__ const int* offsets_of(const COMPUTE* workspace, const Regions& regions) {
  return reinterpret_cast<const int*>(workspace + regions.offsets);
}
__device__ __forceinline__ int length_of(const int* offsets, const Shape& shape, int sequence) {
  return offsets[shape.steps + sequence];
}
__device__ __forceinline__ long long vector_at(const int* offsets, const Shape& shape, int step, int sequence) {
  return offsets[step] + static_cast<long long>(sequence) * shape.sequence_step;
}

// Returns a pointer to elements of the data type in a space.
__device__ __forceinline__ ELEMENT* elements_at(COMPUTE* space, long long start) {
  return reinterpret_cast<ELEMENT*>(space + start);
}
// Returns the output of a layer, (step, sequence, direction, unit). In training it is in the reserve space.
__device__ __forceinline__ ELEMENT* outputs_of(COMPUTE* workspace, COMPUTE* reserve, const Regions& regions) {
  return regions.kept_output >= 0 ? elements_at(reserve, regions.kept_output) : elements_at(workspace, regions.output);
}
__device__ __forceinline__ const ELEMENT* below_of(COMPUTE* workspace, COMPUTE* reserve, const Regions& regions) {
  return regions.kept_below >= 0 ? elements_at(reserve, regions.kept_below) : elements_at(workspace, regions.input);
}

// Returns the state of a sequence before a step: the state that the previous step kept, or the initial state. `stride`
// separates two kept vectors.
template <class T>
__device__ __forceinline__ COMPUTE before_step(const T* kept, long long stride, const ELEMENT* initial,
                                               const Shape& shape, int direction, int step, int sequence, int length,
                                               int width, int unit) {
  const int previous = direction ? step + 1 : step - 1;
  if (previous >= 0 && previous < length)
    return load<COMPUTE>(kept[(static_cast<long long>(previous) * shape.batch + sequence) * stride + unit]);
  return initial ? load<COMPUTE>(initial[static_cast<long long>(sequence) * width + unit]) : COMPUTE(0);
}

// Returns whether the padding of a layer's output holds a sequence's state. The reverse direction meets the padding
// first.
__device__ __forceinline__ bool passes_state(int direction, int length) { return direction == 1 && length > 0; }

__device__ __forceinline__ COMPUTE sigmoid(COMPUTE x) { return COMPUTE(1) / (COMPUTE(1) + exp(-x)); }

// Clips the state of an LSTM to its range. A NaN that does not propagate becomes the lower bound.
__device__ __forceinline__ COMPUTE clipped(COMPUTE state, const Clip& clip) {
  if (!clip.on) return state;
  if (!(state == state)) return clip.propagates ? state : clip.lower;
  return state < clip.lower ? clip.lower : state > clip.upper ? clip.upper : state;
}
