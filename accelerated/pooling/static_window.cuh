// This header holds the shared parts of forward and backward kernels with a static window.
//
// Tiling: each thread owns TILE1 rows of TILE2 windows (forward), or the inputs between the starts of these windows
// (backward), of CHANNELS contiguous channels. All its loads can be in flight together. Overlapping windows share
// loads, comparisons and sums. The element in each register is known at compile time.
//
// Macros: K0 S0 P0, K1 S1 P1, K2 S2 P2 (window, stride, padding of each axis; axis 0 of an image has one position),
// THREADS per block, BLOCKS per SM, TILE1, ROW_CHANNELS (channels per position of rows in vectors), CHANNEL_BYTES per
// thread.
#pragma once
#include <cstring>
#include <type_traits>

#include "primitives/elementwise.cuh"
#include "pooling/functors.cuh"

// Lets the dependents of a large grid launch. Measurements favour doing so before the loads.
__device__ __forceinline__ void griddepcontrol_launch_dependents_if_many() {
  griddepcontrol_launch_dependents_if(gridDim.x > MANY_BLOCKS && blockIdx.x + MANY_BLOCKS >= gridDim.x);
}

constexpr int floor_divided(int n, int by) { return n >= 0 ? n / by : -((by - 1 - n) / by); }

// Describes one axis of a tile. Inputs are counted from the tile's first input, and windows from its first window.
template <int K, int S, int P, int TILE> struct StaticAxis {
  static constexpr int WINDOW = K, STRIDE = S, PADDING = P, OUTPUTS = TILE, INPUTS = TILE * S;
  static constexpr int BEGIN = -P, COUNT = (TILE - 1) * S + K;  // inputs of the tile's windows
  static constexpr int FIRST = floor_divided(P - K, S) + 1,
                       WINDOWS = (INPUTS - 1 + P) / S + 1 - FIRST;            // windows that cover the tile's inputs
  static constexpr int AROUND = FIRST * S - P, READ = (WINDOWS - 1) * S + K;  // inputs of those windows
  // Returns whether window `w`, counted from FIRST, covers input `i` of the tile.
  static constexpr __host__ __device__ bool covers(int w, int i) {
    int start = AROUND + w * S;
    return start <= i && i < start + K;
  }
};
using Axis0 = StaticAxis<K0, S0, P0, 1>;

// Describes accesses to memory: along rows (ROWS) in vectors, where a position may have a few CHANNELS, or in vectors
// of channels. TILE2 is the number of windows per thread along axis 2.
template <bool ROWS_, int TILE2_, int CHANNELS_, int X_VECTOR_> struct Access {
  static constexpr bool ROWS = ROWS_;
  static constexpr int TILE2 = TILE2_, CHANNELS = CHANNELS_, X_VECTOR = X_VECTOR_;
  // Returns the elements from one position along axis 2 to the next.
  static __device__ __forceinline__ int along(int stride) { return ROWS ? CHANNELS : stride; }
  using Axis1 = StaticAxis<K1, S1, P1, TILE1>;
  using Axis2 = StaticAxis<K2, S2, P2, TILE2>;
};
constexpr int MAX_VECTOR = 8;  // elements per access along a row
constexpr int MAX_TILE = 4;    // windows per thread along a row
constexpr int row_vector(int bytes) {
  return bytes / int(sizeof(ELEMENT)) < MAX_VECTOR ? bytes / int(sizeof(ELEMENT)) : MAX_VECTOR;
}
constexpr int divisor_of(int a, int b) { return b == 0 ? a : divisor_of(b, a % b); }  // greatest common divisor
// Returns the number of windows after which a window begins at a vector again; 1 where it exceeds MAX_TILE.
constexpr int row_tile(int bytes) {
  int windows = row_vector(bytes) / divisor_of(row_vector(bytes), S2);
  return windows <= MAX_TILE ? windows : 1;
}
constexpr int CHANNELS_OF_BYTES = CHANNEL_BYTES / sizeof(ELEMENT);
using Wide = Access<true, row_tile(16), ROW_CHANNELS, row_vector(16)>;  // rows in vectors of 16 bytes
using Narrow = Access<true, row_tile(8), ROW_CHANNELS, row_vector(8)>;  // rows in vectors of 8 bytes
using Loose = Access<true, 1, 1, 1>;                                    // rows element by element
using Channels = Access<false, 1, CHANNELS_OF_BYTES ? CHANNELS_OF_BYTES : 1, 1>;
using Scattered = Access<false, 1, 1, 1>;  // channels, one by one
// Defines a kernel for each kind of access by KERNEL(name, type).
#define FOR_EVERY_ACCESS(KERNEL) \
  KERNEL(wide, Wide) KERNEL(narrow, Narrow) KERNEL(loose, Loose) KERNEL(channels, Channels) KERNEL(scattered, Scattered)

// Holds extents and strides of all dimensions.
struct Layout {
  int outer_rank;  // number of dimensions that are not pooled, fastest first
  FastDivmod outer[3];
  int x_outer[3], y_outer[3];
  int input[3], output[3];
  int x_stride[3], y_stride[3];
  int y_packed;  // whether a thread's windows along a row of y are one access

  // Adds the offsets of a plane to x and y.
  __device__ __forceinline__ void add_plane(unsigned plane, int& x, int& y) const {
    for (int d = 0; d < outer_rank - 1; d++) {
      unsigned here;
      plane = outer[d].divide(plane, here);
      x += int(here) * x_outer[d];
      y += int(here) * y_outer[d];
    }
    x += int(plane) * x_outer[outer_rank - 1];
    y += int(plane) * y_outer[outer_rank - 1];
  }
};

struct Box : Layout {
  unsigned threads;              // threads with work
  FastDivmod vectors, tiles[3];  // numbers of channel vectors, and of tiles along each axis
};

// Locates the tile of a thread along each axis, and the offsets of its channels.
struct Tile {
  bool exists;
  int tile[3];
  int x, y;
  __device__ __forceinline__ Tile(const Box& box, int channels)
      : Tile(box, channels, blockIdx.x * THREADS + threadIdx.x) {}
  __device__ __forceinline__ Tile(const Box& box, int channels, unsigned rest) {
    unsigned here;
    exists = rest < box.threads;
    if (!exists) return;
    rest = box.vectors.divide(rest, here);
    x = y = here * channels;
    rest = box.tiles[2].divide(rest, here), tile[2] = here;
    rest = box.tiles[1].divide(rest, here), tile[1] = here;
    tile[0] = 0;
    if (K0 > 1) rest = box.tiles[0].divide(rest, here), tile[0] = here;
    box.add_plane(rest, x, y);
  }
};

// Holds positions [BEGIN, BEGIN + COUNT) along axis 2 with CHANNELS channels, counted from a tile's first position.
template <int CHANNELS, int BEGIN, int COUNT> struct Line {
  ELEMENT item[COUNT][CHANNELS];

  // Reads the positions of a row. line: address of the tile's first position. at: index of that position in a row of
  // `extent`. Positions outside of the row get `nothing`. INSIDE: positions of the tile.
  template <int INSIDE, int VECTOR>
  __device__ __forceinline__ void read(const ELEMENT* line, int stride, int at, int extent, bool present,
                                       ELEMENT nothing) {
#pragma unroll
    for (int k = 0; k < COUNT; k++) {
      int c = BEGIN + k;
      bool packed = CHANNELS == 1 && VECTOR > 1 && c >= 0 && c / VECTOR * VECTOR >= BEGIN &&
                    c / VECTOR * VECTOR + VECTOR <= min(INSIDE, BEGIN + COUNT);
      if (packed && c % VECTOR != 0) continue;
      if (packed) {
        Vector<ELEMENT, VECTOR> vector = taken<VECTOR>(line + c, present && at + c < extent, nothing);
#pragma unroll
        for (int i = 0; i < VECTOR; i++) item[k + i][0] = vector.item[i];
        continue;
      }
      Vector<ELEMENT, CHANNELS> vector =
          taken<CHANNELS>(line + c * stride, present && unsigned(at + c) < unsigned(extent), nothing);
#pragma unroll
      for (int i = 0; i < CHANNELS; i++) item[k][i] = vector.item[i];
    }
  }

 private:
  // Returns a vector, or `nothing` if not present. It is selected as words, so that the compiler unpacks elements once.
  template <int N>
  static __device__ __forceinline__ Vector<ELEMENT, N> taken(const ELEMENT* from, bool present, ELEMENT nothing) {
    constexpr int BYTES = N * sizeof(ELEMENT), WORD = sizeof(ELEMENT) >= 4 ? sizeof(ELEMENT) : BYTES < 4 ? BYTES : 4;
    using Small = typename std::conditional<WORD == 1, unsigned char, unsigned short>::type;
    using Word = typename std::conditional<sizeof(ELEMENT) >= 4, ELEMENT,
                                           typename std::conditional<WORD == 4, unsigned, Small>::type>::type;
    Vector<ELEMENT, N> vector;
    Vector<Word, BYTES / WORD> words;
#pragma unroll
    for (int i = 0; i < N; i++) vector.item[i] = nothing;
    memcpy(&words, &vector, BYTES);
    if (present) words = *reinterpret_cast<const Vector<Word, BYTES / WORD>*>(from);
    memcpy(&vector, &words, BYTES);
    return vector;
  }
};

// Writes alpha * values, blended, to the first `left` of COUNT positions along axis 2. PLAIN: alpha is 1 and beta 0.
template <bool PLAIN, int VECTOR, int COUNT, int CHANNELS>
__device__ __forceinline__ void write_vectors(ELEMENT* line, int stride, int left,
                                              const COMPUTE (&values)[COUNT][CHANNELS], COMPUTE alpha, COMPUTE beta) {
  constexpr int N = CHANNELS == 1 ? VECTOR : CHANNELS, STEP = CHANNELS == 1 ? VECTOR : 1;
#pragma unroll
  for (int k = 0; k < COUNT; k += STEP) {
    if (k >= left) continue;
    Vector<ELEMENT, N>* target =
        reinterpret_cast<Vector<ELEMENT, N>*>(line + (CHANNELS == 1 && VECTOR > 1 ? k : k * stride));
    Vector<ELEMENT, N> vector;
    COMPUTE result[N];
#pragma unroll
    for (int i = 0; i < N; i++) result[i] = CHANNELS == 1 ? values[k + i][0] : values[k][i];
    if (!PLAIN) {
#pragma unroll
      for (int i = 0; i < N; i++) result[i] *= alpha;
      if (beta != COMPUTE(0)) {
        vector = *target;
#pragma unroll
        for (int i = 0; i < N; i++) result[i] += beta * load<COMPUTE>(vector.item[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < N; i++) vector.item[i] = store<ELEMENT>(result[i]);
    *target = vector;
  }
}
// Writes a row. The plain case has its own code, because the compiler would compute unused blended values for it.
template <int VECTOR, int COUNT, int CHANNELS>
__device__ __forceinline__ void write_row(ELEMENT* line, int stride, int left, const COMPUTE (&values)[COUNT][CHANNELS],
                                          COMPUTE alpha, COMPUTE beta) {
  alpha == COMPUTE(1) && beta == COMPUTE(0) ? write_vectors<true, VECTOR>(line, stride, left, values, alpha, beta)
                                            : write_vectors<false, VECTOR>(line, stride, left, values, alpha, beta);
}

// Returns the number of positions of a window that an average counts along one axis.
template <class Axis> __device__ __forceinline__ int counted(int output, int input, bool exclude) {
  int start = output * Axis::STRIDE - Axis::PADDING, end = start + Axis::WINDOW;
  return exclude ? min(end, input) - max(start, 0) : min(end, input + Axis::PADDING) - start;
}

// ---- maxima ----

template <class Held> __device__ __forceinline__ Held held(ELEMENT value) {
  if constexpr (std::is_same<Held, ELEMENT>::value) return value;
  else return load<Held>(value);
}

// Pools a row into the partial results of the rows above it, column by column.
template <class Pool, int CHANNELS, int BEGIN, int COUNT>
__device__ __forceinline__ void pool_row(typename Pool::Held (&pooled)[COUNT][CHANNELS],
                                         const Line<CHANNELS, BEGIN, COUNT>& line, bool first) {
  using Held = typename Pool::Held;
  constexpr int N = COUNT * CHANNELS, ODD = CHANNELS == 1 ? (BEGIN & 1) : 0;  // index of the first pair as it was read
#pragma unroll
  for (int k = 0; k < N; k++) {
    Held &one = pooled[k / CHANNELS][k % CHANNELS], value = held<Held>(line.item[k / CHANNELS][k % CHANNELS]);
    if (first) {
      one = value;
      continue;
    }
    if constexpr (Pool::IN_PAIRS) {
      if (k >= ODD && k - (k - ODD) % 2 + 1 < N) {
        if ((k - ODD) % 2) continue;
        Held& other = pooled[(k + 1) / CHANNELS][(k + 1) % CHANNELS];
        half2 pair = Pool::both(__halves2half2(one, other),
                                __halves2half2(value, line.item[(k + 1) / CHANNELS][(k + 1) % CHANNELS]));
        one = __low2half(pair), other = __high2half(pair);
        continue;
      }
    }
    one = Pool::both(one, value);
  }
}
