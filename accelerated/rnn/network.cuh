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

// Where the parts of the work space and, of this layer, of the reserve space begin; -1: nothing is kept.
struct Regions {
  long long offsets, products, input, output, hidden, cell, before;
  long long kept, kept_cell, kept_hidden, kept_output, kept_step;  // the last: from one direction to the next
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

__device__ __forceinline__ COMPUTE sigmoid(COMPUTE x) { return COMPUTE(1) / (COMPUTE(1) + exp(-x)); }

// The state of an LSTM within its range; a NaN that does not propagate becomes the lower bound.
__device__ __forceinline__ COMPUTE clipped(COMPUTE state, const Clip& clip) {
  if (!clip.on) return state;
  if (!(state == state)) return clip.propagates ? state : clip.lower;
  return state < clip.lower ? clip.lower : state > clip.upper ? clip.upper : state;
}
