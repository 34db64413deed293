// This header divides planes among threads in global pooling, where one window covers a plane. x (dx) has planes, and y
// (dy) has one element per plane.
//
// Where rows are contiguous, a team of threads takes a plane, in 16-byte accesses. Where channels are contiguous,
// threads take vectors of up to 16 bytes of channels, and several threads share the positions of a vector.
#pragma once
#include "primitives/geometry.cuh"
#include "primitives/types.cuh"

constexpr int WIDTH = VECTOR_WIDTH;  // elements per vector access
constexpr int MIN_TEAM = 8;          // minimum threads per plane, as in global_window.py
constexpr int FLIGHT = 8;            // loads in flight per thread
using Wide = Vector<ELEMENT, WIDTH>;

struct GlobalPlanes {
  unsigned count;          // planes, or vectors of channels of all images
  unsigned rows, columns;  // extents of a plane; `rows` are the positions of a vector of channels
  unsigned row_stride;
  unsigned team_bits;    // log2 of the threads per plane, or of the vectors per block
  unsigned column_bits;  // log2 of the threads along a row that is written
  unsigned over_gaps;    // whether a plane is read as one row with its gaps, or written element by element
  FastDivmod pitch;      // elements from one row to the next
  int outer_rank;        // number of dimensions that are not pooled, fastest first
  FastDivmod vectors;    // vectors per position
  FastDivmod extent[3];
  long long x_step[3], y_step[3];

  __device__ __forceinline__ void offsets(unsigned plane, long long& x, long long& y) const {
#pragma unroll 1
    for (int d = 0; d < outer_rank; d++) {
      unsigned here;
      plane = extent[d].divide(plane, here);
      x += here * x_step[d];
      y += here * y_step[d];
    }
  }
  // Computes the offsets of the first elements of a vector of channels.
  __device__ __forceinline__ void vector_offsets(unsigned index, long long& x, long long& y) const {
    unsigned vector, image = vectors.divide(index, vector);
    x = y = (long long)vector * WIDTH;
    offsets(image, x, y);
  }
};

// Divides contiguous elements into single elements [0, head) and [tail, count), and aligned vectors between them.
struct Stretch {
  unsigned head, vectors, tail, count;
  __device__ __forceinline__ Stretch(const ELEMENT* first, unsigned count) : count(count) {
    head = min((WIDTH - unsigned(reinterpret_cast<uintptr_t>(first) / sizeof(ELEMENT) % WIDTH)) % WIDTH, count);
    vectors = (count - head) / WIDTH;
    tail = head + vectors * WIDTH;
  }
  // Calls visit(k) for this team member's elements outside of vectors.
  template <class Visit> __device__ __forceinline__ void visit_ends(unsigned member, unsigned team, Visit visit) const {
    for (unsigned k = member; k < head; k += team) visit(k);
    for (unsigned k = tail + member; k < count; k += team) visit(k);
  }
  // Returns the index of a member's element `which` (below ENDS) outside of vectors, or `count` if it does not exist.
  static constexpr int ENDS = 2 * WIDTH / MIN_TEAM > 1 ? 2 * WIDTH / MIN_TEAM : 1;
  __device__ __forceinline__ unsigned end(unsigned member, unsigned team, int which) const {
    unsigned k = member + which * team;
    return k < head ? k : min(k - head + tail, count);
  }
};
