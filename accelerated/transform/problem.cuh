// This header defines walks, affine maps between the elements of two tensors (the host side is problem.py).
//
// A walk has up to DIMENSIONS virtual dimensions. Every position has an element in the source and one in the
// destination. Where layouts fold, crop or pad, checks find positions outside the source, which read as zero. They also
// find positions outside the destination, which are skipped. A thread takes a vector along dimension 0.
//
// Offsets and coordinates are computed modulo 2**32. Outside a tensor they wrap and are unused; inside they are below
// 2**31.
#pragma once
#include "primitives/geometry.cuh"
#include "primitives/types.cuh"

constexpr int DIMENSIONS = 10;         // dimensions of a walk at most
constexpr int SOURCE_CHECKS = 7;       // checked source coordinates per walk
constexpr int DESTINATION_CHECKS = 4;  // checked destination coordinates per walk

struct Dimension {
  FastDivmod extent;
  int source, destination;  // strides in elements
};

// A checked coordinate is linear in the positions and must be in [0, limit).
struct Check {
  int base;
  unsigned limit;
  int step[DIMENSIONS];
};

struct Walk {
  int rank, source_checks, destination_checks;
  int source_base, destination_base;
  Dimension dimension[DIMENSIONS];
  Check source_check[SOURCE_CHECKS], destination_check[DESTINATION_CHECKS];

  // Splits `index` over the dimensions from `FIRST` on, the fastest first.
  template <int FIRST> __device__ __forceinline__ void split(unsigned index, unsigned (&position)[DIMENSIONS]) const {
#pragma unroll
    for (int d = FIRST; d < DIMENSIONS; d++) position[d] = 0;
#pragma unroll
    for (int d = FIRST; d < DIMENSIONS; d++) {
      if (d >= rank) break;
      index = dimension[d].extent.divide(index, position[d]);
    }
  }
  // Computes the offsets of the dimensions from `FIRST` on.
  template <int FIRST>
  __device__ __forceinline__ void offsets(const unsigned (&position)[DIMENSIONS], unsigned& source,
                                          unsigned& destination) const {
    source = source_base, destination = destination_base;
#pragma unroll
    for (int d = FIRST; d < DIMENSIONS; d++) {
      if (d >= rank) break;
      source += position[d] * dimension[d].source;
      destination += position[d] * dimension[d].destination;
    }
  }
};

// Returns a mask. Bit i says that the i-th of `count` positions, with stride `spread` along dimension 0, passes all
// checks.
template <int WIDTH, int N>
__device__ __forceinline__ unsigned passing(const Check (&checks)[N], int checked, int rank,
                                            const unsigned (&position)[DIMENSIONS], unsigned count,
                                            unsigned spread = 1) {
  unsigned mask = (1u << count) - 1;
#pragma unroll
  for (int c = 0; c < N; c++) {
    if (c >= checked) break;
    unsigned coordinate = checks[c].base;
#pragma unroll
    for (int d = 0; d < DIMENSIONS; d++) {
      if (d >= rank) break;
      coordinate += position[d] * checks[c].step[d];
    }
#pragma unroll
    for (int i = 0; i < WIDTH; i++)
      if (coordinate + i * spread * checks[c].step[0] >= checks[c].limit) mask &= ~(1u << i);
  }
  return mask;
}

// Loads the elements of `mask` out of WIDTH with stride `step`, and zeros for the others. It uses one access if
// possible.
template <class T, int WIDTH>
__device__ __forceinline__ Vector<T, WIDTH> gather(const T* tensor, unsigned first, unsigned step, unsigned mask) {
  Vector<T, WIDTH> vector;
  if (mask == (1u << WIDTH) - 1 && step == 1 && reinterpret_cast<uintptr_t>(tensor + first) % sizeof vector == 0)
    return *reinterpret_cast<const Vector<T, WIDTH>*>(tensor + first);
#pragma unroll
  for (int i = 0; i < WIDTH; i++) vector.item[i] = mask >> i & 1 ? tensor[first + i * step] : T();
  return vector;
}

// Packs the bits of the first `count` elements of 4 or 2 bytes into registers.
template <int WORDS, class T>
__device__ __forceinline__ Vector<unsigned, WORDS> gather_words(const T* pointer, unsigned count) {
  Vector<unsigned, WORDS> words = {};
#pragma unroll
  for (unsigned i = 0; i < sizeof words / sizeof(T); i++) {
    if (i >= count) continue;
    if constexpr (sizeof(T) == 4) words.item[i] = reinterpret_cast<const unsigned*>(pointer)[i];
    else words.item[i / 2] |= static_cast<unsigned>(reinterpret_cast<const unsigned short*>(pointer)[i]) << i % 2 * 16;
  }
  return words;
}

template <class T, int WIDTH>
__device__ __forceinline__ void scatter(T* tensor, unsigned first, unsigned step, unsigned mask,
                                        const Vector<T, WIDTH>& vector) {
  if (mask == (1u << WIDTH) - 1 && step == 1 && reinterpret_cast<uintptr_t>(tensor + first) % sizeof vector == 0) {
    *reinterpret_cast<Vector<T, WIDTH>*>(tensor + first) = vector;
    return;
  }
#pragma unroll
  for (int i = 0; i < WIDTH; i++)
    if (mask >> i & 1) tensor[first + i * step] = vector.item[i];
}

// Stores vectors unchanged (MOVE), or as alpha * value + beta * prior.
template <bool MOVE, class C, class S, class D> struct Writer {
  C alpha, beta;
  template <int WIDTH>
  __device__ __forceinline__ void operator()(D* tensor, unsigned first, unsigned step, unsigned mask,
                                             const Vector<S, WIDTH>& values) const {
    if constexpr (MOVE) {
      scatter(tensor, first, step, mask, values);
    } else {
      Vector<D, WIDTH> prior, blended;
      if (beta != C(0)) prior = gather<D, WIDTH>(tensor, first, step, mask);
#pragma unroll
      for (int i = 0; i < WIDTH; i++) {
        C value = alpha * load<C>(values.item[i]);
        blended.item[i] = store<D>(beta != C(0) ? value + beta * load<C>(prior.item[i]) : value);
      }
      scatter(tensor, first, step, mask, blended);
    }
  }
};

using Move = Writer<true, COMPUTE, SOURCE, ELEMENT>;
using Blend = Writer<false, COMPUTE, SOURCE, ELEMENT>;
