// Dropout, forward (3.2.34) and backward (4.1.7), and the states of its random numbers (3.2.80).
//
// A thread has an octet: eight elements that are neighbours in row-major order, whose bits are one byte of the reserve
// space and whose random words are two calls of Philox. Packed tensors move in packs of 16 bytes; others element by
// element, where neighbouring threads take neighbouring channels if these lie side by side in memory.
//
// Roofline bound: bytes, one element read, one written and 1 bit. Philox takes about 15 issue slots an element
// (multiplications run at half rate): as long as the bytes of 16-bit types, 0.95 ps at 4.2 TB/s on an H200 (calculated,
// not measured), half as long as those of float.
#include "primitives/geometry.cuh"
#include "primitives/philox.cuh"
#include "primitives/types.cuh"

constexpr int OCTET = 8, WIDTH = 16 / sizeof(ELEMENT), PACKS = OCTET / WIDTH;
using ElementPack = Pack<ELEMENT, WIDTH>;

struct Drawn {  // how the forward call finds the elements that it keeps
  unsigned threshold;
  int drops_all;  // a probability of 1, whose threshold no word has
};

// The bits of an octet; the forward call draws and stores them.
__device__ __forceinline__ unsigned octet_bits(const PhiloxStates* states, unsigned char* mask, const Drawn& drawn,
                                               unsigned octet, unsigned count) {
  if (states == nullptr) return mask[octet];
  unsigned bits = kept_octet(*states, octet, drawn.threshold);
  if (drawn.drops_all) bits = 0;
  bits &= (1u << count) - 1;
  mask[octet] = static_cast<unsigned char>(bits);
  return bits;
}

__device__ __forceinline__ ELEMENT dropped(ELEMENT value, COMPUTE scale, bool kept) {
  return kept ? store<ELEMENT>(load<COMPUTE>(value) * scale) : store<ELEMENT>(COMPUTE(0));
}

struct PackedArguments {
  const ELEMENT* x;
  ELEMENT* y;
  unsigned char* mask;
  const PhiloxStates* states;  // null backward
  COMPUTE scale;
  Drawn drawn;
  unsigned elements;
};

extern "C" __global__ void __launch_bounds__(256) dropout_packed(const PackedArguments a) {
  griddepcontrol_wait_deferred();
  const unsigned octet = blockIdx.x * blockDim.x + threadIdx.x, first = octet * OCTET;
  griddepcontrol_wait_before_access(a.x + first, a.y + first);
  if (first >= a.elements) return;
  const unsigned count = min(a.elements - first, static_cast<unsigned>(OCTET));
  const ElementPack* in = reinterpret_cast<const ElementPack*>(a.x + first);
  ElementPack* out = reinterpret_cast<ElementPack*>(a.y + first);
  if (count == OCTET) {
    ElementPack values[PACKS];
#pragma unroll
    for (int p = 0; p < PACKS; p++) values[p] = in[p];
    const unsigned bits = octet_bits(a.states, a.mask, a.drawn, octet, count);
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
#pragma unroll
      for (int i = 0; i < WIDTH; i++)
        values[p].item[i] = dropped(values[p].item[i], a.scale, bits >> (p * WIDTH + i) & 1);
      out[p] = values[p];
    }
  } else {
    const unsigned bits = octet_bits(a.states, a.mask, a.drawn, octet, count);
    for (unsigned i = 0; i < count; i++) a.y[first + i] = dropped(a.x[first + i], a.scale, bits >> i & 1);
  }
}

struct StridedArguments {
  const ELEMENT* x;
  ELEMENT* y;
  unsigned char* mask;
  const PhiloxStates* states;  // null backward
  COMPUTE scale;
  Drawn drawn;
  unsigned elements;
  FastDivmod channels, octets;  // neighbouring threads take so many groups of channels, of so many octets; else 1
  Geometry<1> in, out;          // in row-major order
};

// The offsets of the elements from `first` on.
__device__ __forceinline__ void locate_octet(const Geometry<1>& geometry, unsigned first, unsigned count,
                                             unsigned (&offset)[OCTET]) {
  unsigned column, start[1];
  geometry.packs_per_row.divide(first, column);
  geometry.locate(first, start);
  const bool in_one_row = column + OCTET <= geometry.row;
#pragma unroll
  for (unsigned i = 0; i < OCTET; i++) {
    if (in_one_row) start[0] += i == 0 ? 0 : geometry.row_stride[0];
    else if (i < count) geometry.locate(first + i, start);
    offset[i] = start[0];
  }
}

extern "C" __global__ void __launch_bounds__(256) dropout_strided(const StridedArguments a) {
  griddepcontrol_wait_deferred();
  unsigned channel, of_plane;
  const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned image = a.octets.divide(a.channels.divide(thread, channel), of_plane);
  const unsigned octet = (image * a.channels.divisor + channel) * a.octets.divisor + of_plane, first = octet * OCTET;
  const bool exists = first < a.elements;
  const unsigned count = exists ? min(a.elements - first, static_cast<unsigned>(OCTET)) : 0;
  unsigned in[OCTET], out[OCTET];
  locate_octet(a.in, exists ? first : 0, count, in);
  locate_octet(a.out, exists ? first : 0, count, out);
  griddepcontrol_wait_before_access(a.x + in[0], a.y + out[0]);
  if (!exists) return;
  ELEMENT values[OCTET];
#pragma unroll
  for (unsigned i = 0; i < OCTET; i++)
    if (i < count) values[i] = a.x[in[i]];
  const unsigned bits = octet_bits(a.states, a.mask, a.drawn, octet, count);
#pragma unroll
  for (unsigned i = 0; i < OCTET; i++)
    if (i < count) a.y[out[i]] = dropped(values[i], a.scale, bits >> i & 1);
}

struct StatesArguments {
  PhiloxStates* states;
  unsigned seed[2];
  int advances;  // counts a call; else the states of a new generator
};

extern "C" __global__ void dropout_states(const StatesArguments a) {
  griddepcontrol_wait();
  if (threadIdx.x != 0) return;
  if (a.advances) {
    if (++a.states->calls[0] == 0) a.states->calls[1]++;
  } else {
    *a.states = {{a.seed[0], a.seed[1]}, {0, 0}};
  }
}
