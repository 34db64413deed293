// Dropout, forward (3.2.34) and backward (4.1.7), and the states of its random numbers (3.2.80).
//
// An octet is eight elements that are neighbours in row-major order, whose bits are one byte of the reserve space and
// whose random words are two calls of Philox. Packed tensors: a thread has octets, in packs of 16 bytes. Channels
// innermost: a block has a tile of pixels and channels; its octets' bits lie in shared memory while its elements are
// read in the order of memory. Any other layout: a warp has ITEMS * 4 octets, a lane the bits of one, and elements that
// are 32 apart.
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

// The bits of an octet: drawn by the forward call, where there are states.
__device__ __forceinline__ unsigned octet_bits(const PhiloxStates* states, const unsigned char* mask,
                                               const Drawn& drawn, unsigned octet, unsigned count) {
  if (states == nullptr) return mask[octet];
  const unsigned bits = drawn.drops_all ? 0 : kept_octet(*states, octet, drawn.threshold);
  return bits & ((1u << count) - 1);
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

extern "C" __global__ void __launch_bounds__(256, 4) dropout_packed(const PackedArguments a) {
  griddepcontrol_wait_deferred();
  const unsigned first = blockIdx.x * blockDim.x * OCTETS + threadIdx.x;
  griddepcontrol_wait_before_access(a.x + first * OCTET, a.y + first * OCTET);
  ElementPack values[OCTETS][PACKS];
  unsigned char bits[OCTETS];
  auto count = [&](int k) {
    const unsigned start = (first + k * blockDim.x) * OCTET;
    return start < a.elements ? min(a.elements - start, static_cast<unsigned>(OCTET)) : 0;
  };
#pragma unroll
  for (int k = 0; k < OCTETS; k++) {
    const unsigned octet = first + k * blockDim.x;
    const ElementPack* in = reinterpret_cast<const ElementPack*>(a.x + octet * OCTET);
    if (count(k) == OCTET) {
#pragma unroll
      for (int p = 0; p < PACKS; p++) values[k][p] = in[p];
    }
    if (count(k) > 0 && a.states == nullptr) bits[k] = a.mask[octet];
  }
#pragma unroll
  for (int k = 0; k < OCTETS; k++) {
    const unsigned octet = first + k * blockDim.x;
    if (count(k) == 0) continue;
    if (a.states != nullptr) a.mask[octet] = bits[k] = octet_bits(a.states, a.mask, a.drawn, octet, count(k));
    if (count(k) == OCTET) {
      ElementPack* out = reinterpret_cast<ElementPack*>(a.y + octet * OCTET);
#pragma unroll
      for (int p = 0; p < PACKS; p++) {
#pragma unroll
        for (int i = 0; i < WIDTH; i++)
          values[k][p].item[i] = dropped(values[k][p].item[i], a.scale, bits[k] >> (p * WIDTH + i) & 1);
        out[p] = values[k][p];
      }
    } else {
      for (unsigned i = 0; i < count(k); i++)
        a.y[octet * OCTET + i] = dropped(a.x[octet * OCTET + i], a.scale, bits[k] >> i & 1);
    }
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
  int alike;            // both tensors have the same strides
  Geometry<1> in, out;  // in row-major order
};

extern "C" __global__ void __launch_bounds__(256) dropout_strided(const StridedArguments a) {
  griddepcontrol_wait_deferred();
  const unsigned lane = threadIdx.x % 32, warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  const unsigned first = warp * (ITEMS * 32), octet = warp * (ITEMS * 4) + lane;
  unsigned in[ITEMS][1], out[ITEMS][1];
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    const unsigned element = min(first + i * 32 + lane, a.elements - 1);
    a.in.locate(element, in[i]);
    if (a.alike) out[i][0] = in[i][0];
    else a.out.locate(element, out[i]);
  }
  griddepcontrol_wait_before_access(a.x + in[0][0], a.y + out[0][0]);
  ELEMENT values[ITEMS];
#pragma unroll
  for (int i = 0; i < ITEMS; i++)
    if (first + i * 32 + lane < a.elements) values[i] = a.x[in[i][0]];
  unsigned bits = 0;
  if (lane < ITEMS * 4 && octet * OCTET < a.elements) {
    bits = octet_bits(a.states, a.mask, a.drawn, octet, min(a.elements - octet * OCTET, static_cast<unsigned>(OCTET)));
    if (a.states != nullptr) a.mask[octet] = static_cast<unsigned char>(bits);
  }
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    const unsigned of_octet = __shfl_sync(0xFFFFFFFFu, bits, i * 4 + lane / 8);
    if (first + i * 32 + lane < a.elements) a.y[out[i][0]] = dropped(values[i], a.scale, of_octet >> lane % 8 & 1);
  }
}

struct TileArguments {
  const ELEMENT* x;
  ELEMENT* y;
  unsigned char* mask;
  const PhiloxStates* states;  // null backward
  COMPUTE scale;
  Drawn drawn;
  unsigned elements, channels, pixels;           // pixels: of an image
  int in_image, in_pixel, out_image, out_pixel;  // strides
  FastDivmod lanes, last_lanes;                  // channels of a tile; of the last one
};

constexpr int READS = 8, TILE_OCTETS = TILE_PIXELS / OCTET + 1;  // of a channel that may begin within an octet
constexpr int TILE_ROW = TILE_PIXELS / OCTET + 4;                // bytes: neighbouring channels lie in other banks

extern "C" __global__ void __launch_bounds__(256) dropout_tiles(const TileArguments a) {
  griddepcontrol_wait();
  __shared__ unsigned char bits[MOST_LANES * TILE_ROW];
  const unsigned image = blockIdx.z, channel = blockIdx.y * a.lanes.divisor, pixel = blockIdx.x * TILE_PIXELS;
  FastDivmod lanes = a.lanes;
  if (blockIdx.y + 1 == gridDim.y) lanes = a.last_lanes;
  const unsigned pixels = min(a.pixels - pixel, static_cast<unsigned>(TILE_PIXELS));
  // In row-major order, the first element of the tile; of its channel k: k planes behind it.
  const unsigned first = (image * a.channels + channel) * a.pixels + pixel;
  for (unsigned i = threadIdx.x; i < lanes.divisor * TILE_OCTETS; i += blockDim.x) {
    const unsigned k = i / TILE_OCTETS, start = first + k * a.pixels, octet = start / OCTET + i % TILE_OCTETS;
    if (octet * OCTET >= start + pixels) continue;
    const unsigned count = min(a.elements - octet * OCTET, static_cast<unsigned>(OCTET));
    const unsigned found = octet_bits(a.states, a.mask, a.drawn, octet, count);
    bits[k * TILE_ROW + i % TILE_OCTETS] = static_cast<unsigned char>(found);
    // Who has its first element stores an octet.
    if (a.states != nullptr && octet * OCTET >= start) a.mask[octet] = static_cast<unsigned char>(found);
  }
  __syncthreads();
  const ELEMENT* x = a.x + (image * a.in_image + pixel * a.in_pixel + channel);
  ELEMENT* y = a.y + (image * a.out_image + pixel * a.out_pixel + channel);
  const unsigned count = lanes.divisor * pixels;
  for (unsigned start = threadIdx.x; start < count; start += READS * blockDim.x) {
    ELEMENT values[READS];
    unsigned down[READS], across[READS];
#pragma unroll
    for (int u = 0; u < READS; u++) {
      const unsigned i = start + u * blockDim.x;
      down[u] = lanes.divide(i, across[u]);
      if (i < count) values[u] = x[down[u] * a.in_pixel + across[u]];
    }
#pragma unroll
    for (int u = 0; u < READS; u++) {
      if (start + u * blockDim.x >= count) continue;
      const unsigned bit = (first + across[u] * a.pixels) % OCTET + down[u];
      const bool kept = bits[across[u] * TILE_ROW + bit / OCTET] >> bit % OCTET & 1;
      y[down[u] * a.out_pixel + across[u]] = dropped(values[u], a.scale, kept);
    }
  }
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
