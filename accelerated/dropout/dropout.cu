// These kernels compute dropout, forward (3.2.34) and backward (4.1.7), and the states of its random numbers (3.2.80).
//
// An octet is eight elements that are neighbours in row-major order. Its mask is one byte of the reserve space, and its
// random words are one call of Philox. For packed tensors each thread has octets, in vectors of 16 bytes. With
// contiguous channels a block has a tile of pixels and channels, whose masks are in shared memory. For generic layouts
// a warp has ITEMS * 4 octets. Each lane holds the mask of one octet and takes elements with stride 32.
//
// Roofline bound: bytes, one element is read, one is written, and 1 bit: 0.95 ps for 16-bit types at 4.2 TB/s on an
// H200. Philox takes about 8 issue slots per element (multiplications run at half rate) and the comparisons take 4,
// which is 0.4 ps (calculated).
#include "primitives/geometry.cuh"
#include "primitives/packed.cuh"
#include "primitives/philox.cuh"
#include "primitives/types.cuh"

constexpr int OCTET = 8;                     // elements per byte of the mask
constexpr int WIDTH = 16 / sizeof(ELEMENT);  // elements per vector
constexpr int VECTORS = OCTET / WIDTH;       // per octet
using ElementVector = Packed<WIDTH>;

struct Drawn {  // It decides which elements the forward call keeps.
  unsigned threshold;
  int drops_all;  // whether the probability is 1, whose threshold exceeds a word
};

// Gets the masks of octets with `count` elements each. The forward call draws them, and the backward call reads them.
template <int N>
__device__ __forceinline__ void octet_bits(const PhiloxStates& states, const unsigned char* mask, const Drawn& drawn,
                                           const unsigned (&octet)[N], const unsigned (&count)[N],
                                           unsigned (&bits)[N]) {
  if (DRAWS) kept_octets<N>(states, octet, drawn.threshold, bits);
#pragma unroll
  for (int i = 0; i < N; i++) {
    if (DRAWS) bits[i] &= drawn.drops_all ? 0 : (1u << count[i]) - 1;
    else bits[i] = count[i] > 0 ? mask[octet[i]] : 0;
  }
}

__device__ __forceinline__ PhiloxStates read_states(const PhiloxStates* states) {
  PhiloxStates found = {};
  if (DRAWS) found = *states;
  return found;
}

__device__ __forceinline__ ELEMENT dropped(ELEMENT value, COMPUTE scale, bool kept) {
  return kept ? store<ELEMENT>(load<COMPUTE>(value) * scale) : store<ELEMENT>(COMPUTE(0));
}

// Drops elements of a vector and scales the others. Bit i of `kept` keeps element i.
template <int N> __device__ __forceinline__ void drop(Packed<N>& vector, COMPUTE scale, unsigned kept) {
  COMPUTE values[N];
  convert_packed<N>(vector, values);
#pragma unroll
  for (int i = 0; i < N; i++) values[i] = kept >> i & 1 ? values[i] * scale : COMPUTE(0);
  put_packed<N>(reinterpret_cast<ELEMENT*>(&vector), values);
}

struct PackedArguments {
  const ELEMENT* x;
  ELEMENT* y;
  unsigned char* mask;
  const PhiloxStates* states;  // null in backward calls
  COMPUTE scale;
  Drawn drawn;
  unsigned elements;
};

// PACKED_BLOCKS is the number of blocks per SM. Threads of backward calls need fewer registers, so more blocks fit.
constexpr int PACKED_BLOCKS = DRAWS ? 5 : OCTETS == 1 ? 8 : 6;

extern "C" __global__ void __launch_bounds__(256, PACKED_BLOCKS) dropout_packed(const PackedArguments a) {
  griddepcontrol_wait_deferred();
  const unsigned first = blockIdx.x * blockDim.x * OCTETS + threadIdx.x;
  griddepcontrol_wait_before_access(a.x + first * OCTET, a.y + first * OCTET);
  const PhiloxStates states = read_states(a.states);
  ElementVector values[OCTETS][VECTORS];
  unsigned octet[OCTETS], count[OCTETS], bits[OCTETS];
#pragma unroll
  for (int k = 0; k < OCTETS; k++) {
    octet[k] = first + k * blockDim.x;
    const unsigned start = octet[k] * OCTET;
    count[k] = start < a.elements ? min(a.elements - start, static_cast<unsigned>(OCTET)) : 0;
  }
  // A lane moves every 32nd vector of its warp's octets, so that the accesses of a warp are contiguous.
  const unsigned lane = threadIdx.x % 32;
  auto vector = [&](int k, int p) { return (first - lane + k * blockDim.x) * VECTORS + p * 32 + lane; };
  const unsigned vectors = a.elements / WIDTH;
#pragma unroll
  for (int k = 0; k < OCTETS; k++) {
#pragma unroll
    for (int p = 0; p < VECTORS; p++)
      if (vector(k, p) < vectors) values[k][p] = reinterpret_cast<const ElementVector*>(a.x)[vector(k, p)];
  }
  if (!DRAWS) octet_bits<OCTETS>(states, a.mask, a.drawn, octet, count, bits);
  griddepcontrol_launch_dependents();
  if (DRAWS) octet_bits<OCTETS>(states, a.mask, a.drawn, octet, count, bits);
#pragma unroll
  for (int k = 0; k < OCTETS; k++) {
    if (DRAWS && count[k] > 0) a.mask[octet[k]] = static_cast<unsigned char>(bits[k]);
#pragma unroll
    for (int p = 0; p < VECTORS; p++) {
      const unsigned of_octet = VECTORS == 1 ? bits[k] : __shfl_sync(0xFFFFFFFFu, bits[k], (p * 32 + lane) / VECTORS);
      const unsigned of_vector = of_octet >> lane % VECTORS * WIDTH;
      if (vector(k, p) >= vectors) continue;
      drop<WIDTH>(values[k][p], a.scale, of_vector);
      reinterpret_cast<ElementVector*>(a.y)[vector(k, p)] = values[k][p];
    }
    // The elements after the last vector belong to the last octet.
    if (count[k] > 0 && octet[k] * OCTET + OCTET > vectors * WIDTH) {
      for (unsigned i = vectors * WIDTH; i < a.elements; i++)
        a.y[i] = dropped(a.x[i], a.scale, bits[k] >> i % OCTET & 1);
    }
  }
}

struct StridedArguments {
  const ELEMENT* x;
  ELEMENT* y;
  unsigned char* mask;
  const PhiloxStates* states;  // null in backward calls
  COMPUTE scale;
  Drawn drawn;
  unsigned elements;
  int alike;            // whether both tensors have the same dimensions and strides
  Geometry<1> in, out;  // geometries in row-major order
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
  const PhiloxStates states = read_states(a.states);
  ELEMENT values[ITEMS];
#pragma unroll
  for (int i = 0; i < ITEMS; i++)
    if (first + i * 32 + lane < a.elements) values[i] = a.x[in[i][0]];
  griddepcontrol_launch_dependents();
  unsigned bits[1] = {0};
  if (lane < ITEMS * 4 && octet * OCTET < a.elements) {
    const unsigned count = min(a.elements - octet * OCTET, static_cast<unsigned>(OCTET));
    octet_bits<1>(states, a.mask, a.drawn, {octet}, {count}, bits);
    if (DRAWS) a.mask[octet] = static_cast<unsigned char>(bits[0]);
  }
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    const unsigned of_octet = __shfl_sync(0xFFFFFFFFu, bits[0], i * 4 + lane / 8);
    if (first + i * 32 + lane < a.elements) a.y[out[i][0]] = dropped(values[i], a.scale, of_octet >> lane % 8 & 1);
  }
}

struct TileArguments {
  const ELEMENT* x;
  ELEMENT* y;
  unsigned char* mask;
  const PhiloxStates* states;  // null in backward calls
  COMPUTE scale;
  Drawn drawn;
  unsigned elements, channels, pixels;           // `pixels` counts one image
  int in_image, in_pixel, out_image, out_pixel;  // strides in elements
  FastDivmod lanes, last_lanes;                  // channels per tile, and in the last tile
};

constexpr int TILE_BYTES = TILE_PIXELS / OCTET;      // bytes of the mask per channel of a tile
constexpr int TILE_OCTETS = TILE_BYTES + STRADDLES;  // Octets may begin at any pixel where STRADDLES is 1.
constexpr int READS = TILE_WIDTH == 1 ? 8 : 2;       // vectors in flight per thread

// Vectors have TILE_WIDTH contiguous elements: channels of one pixel, or also of consecutive pixels where a tile has
// all channels.
extern "C" __global__ void __launch_bounds__(256, 4) dropout_tiles(const TileArguments a) {
  griddepcontrol_wait();
  using TileVector = Vector<ELEMENT, TILE_WIDTH>;
  using Bytes = Vector<unsigned char, TILE_WIDTH>;
  const PhiloxStates states = read_states(a.states);
  __shared__ unsigned char octets[STRADDLES ? MAX_LANES * TILE_OCTETS : 1];
  __shared__ __align__(16) unsigned char bits[TILE_BYTES * MAX_LANES];  // mask bytes of each channel
  const unsigned image = blockIdx.z, channel = blockIdx.y * a.lanes.divisor, pixel = blockIdx.x * TILE_PIXELS;
  FastDivmod lanes = a.lanes;
  if (blockIdx.y + 1 == gridDim.y) lanes = a.last_lanes;
  const unsigned pixels = min(a.pixels - pixel, static_cast<unsigned>(TILE_PIXELS));
  // `first` is the row-major index of the tile's first element; channel k begins k planes after it.
  const unsigned first = (image * a.channels + channel) * a.pixels + pixel;
  const ELEMENT* x = a.x + (image * a.in_image + pixel * a.in_pixel + channel);
  ELEMENT* y = a.y + (image * a.out_image + pixel * a.out_pixel + channel);
  const unsigned elements = lanes.divisor * pixels;
  if (DRAWS && a.in_pixel == lanes.divisor) {  // L2 gets the contiguous tile while masks are drawn.
    constexpr unsigned LINE = 128 / sizeof(ELEMENT);
    for (unsigned i = threadIdx.x * LINE; i < elements; i += LINE * blockDim.x) prefetch_line_l2(x + i);
  }
  constexpr int AT_ONCE = DRAWS ? DRAWN_OCTETS : 8;  // mask bytes that a thread handles at once
  for (unsigned begin = threadIdx.x; begin < lanes.divisor * TILE_OCTETS; begin += AT_ONCE * blockDim.x) {
    unsigned octet[AT_ONCE], count[AT_ONCE], found[AT_ONCE], start[AT_ONCE];
#pragma unroll
    for (int u = 0; u < AT_ONCE; u++) {
      const unsigned i = begin + u * blockDim.x, k = i / TILE_OCTETS;
      start[u] = first + k * a.pixels;
      octet[u] = start[u] / OCTET + i % TILE_OCTETS;
      const bool exists = i < lanes.divisor * TILE_OCTETS && octet[u] * OCTET < start[u] + pixels;
      count[u] = exists ? OCTET : 0;
      if (DRAWS && exists) count[u] = min(a.elements - octet[u] * OCTET, count[u]);
    }
    octet_bits<AT_ONCE>(states, a.mask, a.drawn, octet, count, found);
    // An octet is stored by the block that has its first element.
#pragma unroll
    for (int u = 0; u < AT_ONCE; u++)
      if (DRAWS && count[u] > 0 && octet[u] * OCTET >= start[u])
        a.mask[octet[u]] = static_cast<unsigned char>(found[u]);
#pragma unroll
    for (int u = 0; u < AT_ONCE; u++) {
      const unsigned i = begin + u * blockDim.x;
      if (i >= lanes.divisor * TILE_OCTETS) break;
      (STRADDLES ? octets[i] : bits[i % TILE_OCTETS * MAX_LANES + i / TILE_OCTETS]) =
          static_cast<unsigned char>(found[u]);
    }
  }
  __syncthreads();
  for (unsigned i = threadIdx.x; STRADDLES && i < lanes.divisor * TILE_BYTES; i += blockDim.x) {
    unsigned k;
    const unsigned byte = lanes.divide(i, k), at = k * TILE_OCTETS + byte;
    const unsigned found = octets[at] | octets[at + 1] << 8;
    bits[byte * MAX_LANES + k] = static_cast<unsigned char>(found >> (first + k * a.pixels) % OCTET);
  }
  if (STRADDLES) __syncthreads();
  for (unsigned start = threadIdx.x * TILE_WIDTH; start < elements; start += READS * TILE_WIDTH * blockDim.x) {
    TileVector values[READS];
    unsigned down[READS], across[READS], have[READS];
#pragma unroll
    for (int u = 0; u < READS; u++) {
      const unsigned i = start + u * TILE_WIDTH * blockDim.x;
      have[u] = i < elements ? min(elements - i, static_cast<unsigned>(TILE_WIDTH)) : 0;
      down[u] = lanes.divide(i, across[u]);
      const ELEMENT* from = x + (down[u] * a.in_pixel + across[u]);
      if (have[u] == TILE_WIDTH) {
        values[u] = *reinterpret_cast<const TileVector*>(from);
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
      if (across[u] + TILE_WIDTH <= lanes.divisor) {  // The vector belongs to one pixel.
        const unsigned char* of_pixel = bits + (down[u] / OCTET * MAX_LANES + across[u]);
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
          const unsigned char of_channel = bits[down[u] / OCTET * MAX_LANES + across[u]];
          if (k < have[u]) values[u].item[k] = dropped(values[u].item[k], a.scale, of_channel >> down[u] % OCTET & 1);
          if (++across[u] == lanes.divisor) across[u] = 0, down[u]++;
        }
      }
      if (have[u] == TILE_WIDTH) {
        *reinterpret_cast<TileVector*>(to) = values[u];
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
  int advances;  // whether to advance the states by one call; else they are initialized
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
