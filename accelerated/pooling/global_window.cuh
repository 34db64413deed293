// Global pooling, where one window covers a plane: how threads share planes. x (dx) has planes, y (dy) one element for
// each.
//
// Rows are contiguous: a team of threads takes a plane, in 16-byte accesses. Channels are contiguous: threads take
// vectors of up to 16 bytes of channels; the threads of a vector share its positions.
#pragma once
#include "primitives/geometry.cuh"
#include "primitives/types.cuh"

constexpr int WIDTH = PACK_WIDTH;  // elements of a vector access
constexpr int MIN_TEAM = 8;        // threads of a plane, as in global_window.py
constexpr int FLIGHT = 8;          // accesses of a thread in flight together
using Wide = Pack<ELEMENT, WIDTH>;

struct GlobalPlanes {
  unsigned count;          // or packs of channels of all images
  unsigned rows, columns;  // of a plane; positions of a pack: lines
  unsigned row_stride;
  unsigned team_bits;    // threads of a plane; packs of a block
  unsigned column_bits;  // threads along a line that is written
  unsigned over_gaps;    // whether planes are read as one row, gaps and all, or written as one without them
  FastDivmod pitch;      // of lines in that row
  int outer_rank;        // what is not pooled: the fastest first
  FastDivmod packs;      // packs of a position
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
  // The first elements of a pack.
  __device__ __forceinline__ void pack_offsets(unsigned index, long long& x, long long& y) const {
    unsigned pack, image = packs.divide(index, pack);
    x = y = (long long)pack * WIDTH;
    offsets(image, x, y);
  }
};

// Neighbours: elements [0, head) and [tail, count) one by one, packs between them.
struct Stretch {
  unsigned head, packs, tail, count;
  __device__ __forceinline__ Stretch(const ELEMENT* first, unsigned count) : count(count) {
    head = min((WIDTH - unsigned(reinterpret_cast<uintptr_t>(first) / sizeof(ELEMENT) % WIDTH)) % WIDTH, count);
    packs = (count - head) / WIDTH;
    tail = head + packs * WIDTH;
  }
  // Calls visit(k) for the elements that are not in packs, as the member of a team.
  template <class Visit> __device__ __forceinline__ void visit_ends(unsigned member, unsigned team, Visit visit) const {
    for (unsigned k = member; k < head; k += team) visit(k);
    for (unsigned k = tail + member; k < count; k += team) visit(k);
  }
  // The same in two parts, for who reads them with the packs: the elements of a member, ENDS of them; `count` where
  // there is none.
  static constexpr int ENDS = 2 * WIDTH / MIN_TEAM > 1 ? 2 * WIDTH / MIN_TEAM : 1;
  __device__ __forceinline__ unsigned end(unsigned member, unsigned team, int which) const {
    unsigned k = member + which * team;
    return k < head ? k : min(k - head + tail, count);
  }
};
