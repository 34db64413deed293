// These kernels compute dropout between two recurrent layers in training (7.2.49; docs/dropout.md).
//
// Each thread owns an octet: eight neighbours of (step, sequence, direction, unit). It draws one byte of the mask by
// two calls of Philox. The forward kernel writes the next layer's input to separate memory, because later steps of this
// layer need its output. The backward kernel scales the gradient of the next layer's input in place.
//
// Roofline bound: bytes; each element is read once and written once, with 1 bit of mask.
#include "rnn/dropout.cuh"
#include "primitives/philox.cuh"

// Offsets count elements of the compute type.
struct DrawArguments {
  COMPUTE* reserve;
  const PhiloxStates* states;
  long long source, target, mask, elements;  // target = -1: the kernel writes only the mask
  COMPUTE scale;
  unsigned threshold;
  int drops_all;      // whether the probability is 1, whose threshold no random word reaches
  unsigned sequence;  // number of the random sequence
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
