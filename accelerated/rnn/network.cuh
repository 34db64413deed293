// What the kernels of recurrent networks are given, and where the vectors of a step lie.
#pragma once
#include "primitives/types.cuh"

enum Cell { RELU = 0, TANH = 1, LSTM = 2, GRU = 3 };
constexpr int GATES = CELL == LSTM ? 4 : CELL == GRU ? 3 : 1;
constexpr int KEPT = CELL == LSTM || CELL == GRU ? 4 : 1;  // numbers of a cell in the reserve space, beside its states

// A part of the weight space: its first element for the first direction, and how much further that of the second is.
struct Weights {
  long long start, step;
};

struct Layer {
  Weights input, recurrent, input_bias, recurrent_bias, projection;  // a start of -1: there is none
  int width, pseudo_layer;                                           // of its input vectors; of its first direction
  int first, last;
};

// Where the parts of the work space and, of this layer, of the reserve space begin, in numbers of the arithmetic; -1:
// nothing is kept. Of the data type are: what passes between layers, what layers put out, gradients of gates. Vectors
// of both directions lie beside each other in what a layer puts out.
struct Regions {
  long long offsets, products, input, output, hidden, cell, before;
  long long kept, gradients, kept_cell, kept_hidden;  // of the first direction, kept_step before that of the second
  long long kept_gradient, kept_output, kept_step;
  long long kept_below;  // what the layer below put out
};

struct Clip {
  COMPUTE lower, upper;
  int on, propagates;
};

struct Shape {
  int steps, batch, hidden, projected, directions;
  int sequence_step;  // from one sequence to the next of one step of x and y, in vectors
  int fills;          // whether the padding of y gets the fill
};

// Vectors of a step begin at offsets[step]; lengths of the sequences are behind the offsets of all steps.
__device__ __forceinline__ const int* offsets_of(const COMPUTE* workspace, const Regions& regions) {
  return reinterpret_cast<const int*>(workspace + regions.offsets);
}
__device__ __forceinline__ int length_of(const int* offsets, const Shape& shape, int sequence) {
  return offsets[shape.steps + sequence];
}
__device__ __forceinline__ long long vector_at(const int* offsets, const Shape& shape, int step, int sequence) {
  return offsets[step] + static_cast<long long>(sequence) * shape.sequence_step;
}

// Elements of the data type in a space.
__device__ __forceinline__ ELEMENT* elements_at(COMPUTE* space, long long start) {
  return reinterpret_cast<ELEMENT*>(space + start);
}
// What a layer puts out: (step, sequence, direction, unit). The reserve space has it in training.
__device__ __forceinline__ ELEMENT* outputs_of(COMPUTE* workspace, COMPUTE* reserve, const Regions& regions) {
  return regions.kept_output >= 0 ? elements_at(reserve, regions.kept_output) : elements_at(workspace, regions.output);
}
__device__ __forceinline__ const ELEMENT* below_of(COMPUTE* workspace, COMPUTE* reserve, const Regions& regions) {
  return regions.kept_below >= 0 ? elements_at(reserve, regions.kept_below) : elements_at(workspace, regions.input);
}

// The state of a sequence before a step: what the cell kept in the step before it, in its direction, or the initial
// state. stride: from one kept vector to the next.
template <class T>
__device__ __forceinline__ COMPUTE before_step(const T* kept, long long stride, const ELEMENT* initial,
                                               const Shape& shape, int direction, int step, int sequence, int length,
                                               int width, int unit) {
  const int previous = direction ? step + 1 : step - 1;
  if (previous >= 0 && previous < length)
    return load<COMPUTE>(kept[(static_cast<long long>(previous) * shape.batch + sequence) * stride + unit]);
  return initial ? load<COMPUTE>(initial[static_cast<long long>(sequence) * width + unit]) : COMPUTE(0);
}

// Whether a sequence's state is kept in the padding of what a layer puts out: the reverse direction meets it first.
__device__ __forceinline__ bool passes_state(int direction, int length) { return direction == 1 && length > 0; }

__device__ __forceinline__ COMPUTE sigmoid(COMPUTE x) { return COMPUTE(1) / (COMPUTE(1) + exp(-x)); }

// The state of an LSTM within its range; a NaN that does not propagate becomes the lower bound.
__device__ __forceinline__ COMPUTE clipped(COMPUTE state, const Clip& clip) {
  if (!clip.on) return state;
  if (!(state == state)) return clip.propagates ? state : clip.lower;
  return state < clip.lower ? clip.lower : state > clip.upper ? clip.upper : state;
}
