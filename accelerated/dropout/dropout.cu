// Dropout, forward (3.2.34) and backward (4.1.7), and the states of its random numbers (3.2.80).
//
// An octet is eight elements that are neighbours in row-major order, whose bits are one byte of the reserve space and
// whose random words are one call of Philox. Packed tensors: a thread has octets, in packs of 16 bytes. Channels
// innermost: a block has a tile of pixels and channels; its octets' bits lie in shared memory while its elements are
// read in the order of memory. Any other layout: a warp has ITEMS * 4 octets, a lane the bits of one, and elements that
// are 32 apart.
//
// Roofline bound: bytes, one element read, one written and 1 bit: 0.95 ps of 16-bit types at 4.2 TB/s on an H200.
// Philox takes about 8 issue slots an element (multiplications run at half rate) and the comparisons 4: 0.4 ps
// (calculated).
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
  if (!DRAWS) return mask[octet];
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

// Of a multiprocessor: backward a thread needs few registers.
constexpr int PACKED_BLOCKS = DRAWS ? 4 : OCTETS == 1 ? 8 : 6;

extern "C" __global__ void __launch_bounds__(256, PACKED_BLOCKS) dropout_packed(const PackedArguments a) {
  griddepcontrol_wait_deferred();
  const unsigned first = blockIdx.x * blockDim.x * OCTETS + threadIdx.x;
  griddepcontrol_wait_before_access(a.x + first * OCTET, a.y + first * OCTET);
  ElementPack values[OCTETS][PACKS];
  unsigned bits[OCTETS];
  auto count = [&](int k) {
    const unsigned start = (first + k * blockDim.x) * OCTET;
    return start < a.elements ? min(a.elements - start, static_cast<unsigned>(OCTET)) : 0;
  };
  // A lane moves every 32nd pack of its warp's octets, so that the accesses of a warp are contiguous.
  const unsigned lane = threadIdx.x % 32;
  auto pack = [&](int k, int p) { return (first - lane + k * blockDim.x) * PACKS + p * 32 + lane; };
  const unsigned packs = a.elements / WIDTH;
#pragma unroll
  for (int k = 0; k < OCTETS; k++) {
#pragma unroll
    for (int p = 0; p < PACKS; p++)
      if (pack(k, p) < packs) values[k][p] = reinterpret_cast<const ElementPack*>(a.x)[pack(k, p)];
    bits[k] = !DRAWS && count(k) > 0 ? a.mask[first + k * blockDim.x] : 0;
  }
  griddepcontrol_launch_dependents();
#pragma unroll
  for (int k = 0; k < OCTETS; k++) {
    const unsigned octet = first + k * blockDim.x;
    if (DRAWS && count(k) > 0) {
      bits[k] = octet_bits(a.states, a.mask, a.drawn, octet, count(k));
      a.mask[octet] = static_cast<unsigned char>(bits[k]);
    }
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
      const unsigned of_octet = PACKS == 1 ? bits[k] : __shfl_sync(0xFFFFFFFFu, bits[k], (p * 32 + lane) / PACKS);
      const unsigned of_pack = of_octet >> lane % PACKS * WIDTH;
      if (pack(k, p) >= packs) continue;
#pragma unroll
      for (int i = 0; i < WIDTH; i++) values[k][p].item[i] = dropped(values[k][p].item[i], a.scale, of_pack >> i & 1);
      reinterpret_cast<ElementPack*>(a.y)[pack(k, p)] = values[k][p];
    }
    // The elements behind the last pack are of the last octet.
    if (count(k) > 0 && octet * OCTET + OCTET > packs * WIDTH) {
      for (unsigned i = packs * WIDTH; i < a.elements; i++) a.y[i] = dropped(a.x[i], a.scale, bits[k] >> i % OCTET & 1);
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
  griddepcontrol_launch_dependents();
  unsigned bits = 0;
  if (lane < ITEMS * 4 && octet * OCTET < a.elements) {
    bits = octet_bits(a.states, a.mask, a.drawn, octet, min(a.elements - octet * OCTET, static_cast<unsigned>(OCTET)));
    if (DRAWS) a.mask[octet] = static_cast<unsigned char>(bits);
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

constexpr int TILE_BYTES = TILE_PIXELS / OCTET, TILE_OCTETS = TILE_BYTES + 1;  // of a channel: octets begin anywhere
constexpr int READS = TILE_WIDTH == 1 ? 8 : 2;                                 // packs of a thread at a time

// Packs: of TILE_WIDTH elements that are neighbours in memory: of channels, which end with a pack, or of consecutive
// pixels too, where a tile has all channels.
extern "C" __global__ void __launch_bounds__(256, 4) dropout_tiles(const TileArguments a) {
  griddepcontrol_wait();
  using Packed = Pack<ELEMENT, TILE_WIDTH>;
  using Bytes = Pack<unsigned char, TILE_WIDTH>;
  __shared__ unsigned char octets[MOST_LANES * TILE_OCTETS];
  __shared__ __align__(16) unsigned char bits[TILE_BYTES * MOST_LANES];  // of 8 pixels of each channel
  const unsigned image = blockIdx.z, channel = blockIdx.y * a.lanes.divisor, pixel = blockIdx.x * TILE_PIXELS;
  FastDivmod lanes = a.lanes;
  if (blockIdx.y + 1 == gridDim.y) lanes = a.last_lanes;
  const unsigned pixels = min(a.pixels - pixel, static_cast<unsigned>(TILE_PIXELS));
  // In row-major order, the first element of the tile; of its channel k: k planes behind it.
  const unsigned first = (image * a.channels + channel) * a.pixels + pixel;
  constexpr int AT_ONCE = DRAWS ? 1 : 8;  // bytes of a thread in flight
  for (unsigned begin = threadIdx.x; begin < lanes.divisor * TILE_OCTETS; begin += AT_ONCE * blockDim.x) {
    unsigned found[AT_ONCE];
#pragma unroll
    for (int u = 0; u < AT_ONCE; u++) {
      const unsigned i = begin + u * blockDim.x, k = i / TILE_OCTETS, start = first + k * a.pixels;
      const unsigned octet = start / OCTET + i % TILE_OCTETS;
      found[u] = 0;
      if (i >= lanes.divisor * TILE_OCTETS || octet * OCTET >= start + pixels) continue;
      const unsigned count = min(a.elements - octet * OCTET, static_cast<unsigned>(OCTET));
      found[u] = octet_bits(a.states, a.mask, a.drawn, octet, count);
      // Who has its first element stores an octet.
      if (DRAWS && octet * OCTET >= start) a.mask[octet] = static_cast<unsigned char>(found[u]);
    }
#pragma unroll
    for (int u = 0; u < AT_ONCE; u++)
      if (begin + u * blockDim.x < lanes.divisor * TILE_OCTETS)
        octets[begin + u * blockDim.x] = static_cast<unsigned char>(found[u]);
  }
  __syncthreads();
  for (unsigned i = threadIdx.x; i < lanes.divisor * TILE_BYTES; i += blockDim.x) {
    unsigned k;
    const unsigned byte = lanes.divide(i, k), at = k * TILE_OCTETS + byte;
    const unsigned found = octets[at] | octets[at + 1] << 8;
    bits[byte * MOST_LANES + k] = static_cast<unsigned char>(found >> (first + k * a.pixels) % OCTET);
  }
  __syncthreads();
  const ELEMENT* x = a.x + (image * a.in_image + pixel * a.in_pixel + channel);
  ELEMENT* y = a.y + (image * a.out_image + pixel * a.out_pixel + channel);
  const unsigned count = lanes.divisor * pixels;
  for (unsigned start = threadIdx.x * TILE_WIDTH; start < count; start += READS * TILE_WIDTH * blockDim.x) {
    Packed values[READS];
    unsigned down[READS], across[READS], have[READS];
#pragma unroll
    for (int u = 0; u < READS; u++) {
      const unsigned i = start + u * TILE_WIDTH * blockDim.x;
      have[u] = i < count ? min(count - i, static_cast<unsigned>(TILE_WIDTH)) : 0;
      down[u] = lanes.divide(i, across[u]);
      const ELEMENT* from = x + (down[u] * a.in_pixel + across[u]);
      if (have[u] == TILE_WIDTH) {
        values[u] = *reinterpret_cast<const Packed*>(from);
      } else {
#pragma unroll
        for (int k = 0; k < TILE_WIDTH; k++)
          if (k < have[u]) values[u].item[k] = from[k];
      }
    }
    griddepcontrol_launch_dependents();
#pragma unroll
    for (int u = 0; u < READS; u++) {
      ELEMENT* to = y + (down[u] * a.out_pixel + across[u]);
      if (have[u] == 0) continue;
      if (across[u] + TILE_WIDTH <= lanes.divisor) {  // of one pixel
        const unsigned char* of_pixel = bits + (down[u] / OCTET * MOST_LANES + across[u]);
        Bytes of_channels;
        if (across[u] % TILE_WIDTH == 0) {
          of_channels = *reinterpret_cast<const Bytes*>(of_pixel);
        } else {
#pragma unroll
          for (int k = 0; k < TILE_WIDTH; k++) of_channels.item[k] = of_pixel[k];
        }
#pragma unroll
        for (int k = 0; k < TILE_WIDTH; k++)
          values[u].item[k] = dropped(values[u].item[k], a.scale, of_channels.item[k] >> down[u] % OCTET & 1);
      } else {
#pragma unroll
        for (int k = 0; k < TILE_WIDTH; k++) {
          const unsigned char of_channel = bits[down[u] / OCTET * MOST_LANES + across[u]];
          if (k < have[u]) values[u].item[k] = dropped(values[u].item[k], a.scale, of_channel >> down[u] % OCTET & 1);
          if (++across[u] == lanes.divisor) across[u] = 0, down[u]++;
        }
      }
      if (have[u] == TILE_WIDTH) {
        *reinterpret_cast<Packed*>(to) = values[u];
      } else {
#pragma unroll
        for (int k = 0; k < TILE_WIDTH; k++)
          if (k < have[u]) to[k] = values[u].item[k];
      }
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
