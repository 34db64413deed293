// Recurrent networks, dropout between two layers in training (7.2.49; docs/dropout.md).
//
// A thread has an octet: eight neighbours of (step, sequence, direction, unit), one byte of the mask, two calls of
// Philox. Forward it writes what the next layer gets beside what the layer put out, which its own later steps need;
// backward it works in place on the gradient of the next layer's input.
//
// Roofline bound: bytes, one element read, one written, 1 bit.
#include "rnn/dropout.cuh"
#include "primitives/philox.cuh"

// Offsets are in numbers of the arithmetic.
struct DrawArguments {
  COMPUTE* reserve;
  const PhiloxStates* states;
  long long source, target, mask, elements;  // a target of -1: the mask alone
  COMPUTE scale;
  unsigned threshold;
  int drops_all;      // a probability of 1, whose threshold no word has
  unsigned sequence;  // of the random words
};

struct GradientArguments {
  COMPUTE* workspace;
  const COMPUTE* reserve;
  long long target, mask, elements;
  COMPUTE scale;
};

extern "C" __global__ void __launch_bounds__(256) rnn_dropout_draw(const DrawArguments a) {
  griddepcontrol_wait();
  const unsigned octet = blockIdx.x * blockDim.x + threadIdx.x;
  const long long first = static_cast<long long>(octet) * OCTET;
  if (first >= a.elements) return;
  const ELEMENT* source = reinterpret_cast<const ELEMENT*>(a.reserve + a.source);
  ELEMENT* target = reinterpret_cast<ELEMENT*>(a.reserve + a.target);
  const unsigned bits = a.drops_all ? 0 : kept_octet(*a.states, octet, a.threshold, a.sequence);
  reinterpret_cast<unsigned char*>(a.reserve + a.mask)[octet] = static_cast<unsigned char>(bits);
  if (a.target < 0) return;
#pragma unroll
  for (int i = 0; i < OCTET; i++)
    if (first + i < a.elements) target[first + i] = dropped(source[first + i], a.scale, bits >> i & 1);
}

extern "C" __global__ void __launch_bounds__(256) rnn_dropout_gradient(const GradientArguments a) {
  griddepcontrol_wait();
  const unsigned octet = blockIdx.x * blockDim.x + threadIdx.x;
  const long long first = static_cast<long long>(octet) * OCTET;
  if (first >= a.elements) return;
  ELEMENT* target = reinterpret_cast<ELEMENT*>(a.workspace + a.target);
  const unsigned bits = reinterpret_cast<const unsigned char*>(a.reserve + a.mask)[octet];
#pragma unroll
  for (int i = 0; i < OCTET; i++)
    if (first + i < a.elements) target[first + i] = dropped(target[first + i], a.scale, bits >> i & 1);
}

struct AdvanceArguments {
  PhiloxStates* states;
};

extern "C" __global__ void rnn_dropout_advance(const AdvanceArguments a) {
  griddepcontrol_wait();
  if (threadIdx.x == 0 && ++a.states->calls[0] == 0) a.states->calls[1]++;
}
