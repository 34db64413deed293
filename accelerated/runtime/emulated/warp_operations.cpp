// The last lane of a warp operation runs these functions for all lanes (warp.h). They are compiled once, with
// optimisation, because products take most of the emulated time of kernels on tensor cores.
#include <immintrin.h>

#include "warp.h"

namespace emulated {

void exchange_values(Thread* warp, unsigned lanes) {
  for_each_lane(lanes, [=](int lane) {
    Thread& thread = warp[lane];
    if (lanes >> thread.source & 1) memcpy(thread.result, warp[thread.source].value, sizeof thread.result);
    else fill_with_poison(thread.result, sizeof thread.result);  // undefined on a GPU
  });
}

void exchange_votes(Thread* warp, unsigned lanes) {
  unsigned votes = 0;
  for_each_lane(lanes, [&](int lane) { votes |= unsigned(warp[lane].value[0]) << lane; });
  for_each_lane(lanes, [=](int lane) { memcpy(warp[lane].result, &votes, sizeof votes); });
}

// --- products of tensor cores ---

// A word holds two elements, or one in TF32.
template <class Element, int words> static void widen(float (&values)[2 * words], const unsigned* from) {
  Element elements[2 * words];
  memcpy(static_cast<void*>(elements), from, sizeof elements);
  for (int i = 0; i < 2 * words; i++) values[i] = float(elements[i]);
}
#ifdef __F16C__
template <> void widen<__half, 4>(float (&values)[8], const unsigned* from) {
  _mm256_storeu_ps(values, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
}
template <> void widen<__half, 2>(float (&values)[4], const unsigned* from) {
  _mm_storeu_ps(values, _mm_cvtph_ps(_mm_loadu_si64(from)));
}
#endif
static float drop_lower_bits(unsigned bits) {
  float value;
  bits &= ~0x1fffu;
  memcpy(&value, &bits, sizeof value);
  return value;
}

using Row = float __attribute__((vector_size(32)));  // Scalars would take 3 times as long.
template <class Element> constexpr int terms = std::is_same_v<Element, Tf32> ? 8 : 16;

template <class Element> static void read_left(float (&left)[16][terms<Element>], int lane, const unsigned* from) {
  if constexpr (std::is_same_v<Element, Tf32>) {
    for (int i = 0; i < 4; i++) left[lane / 4 + i % 2 * 8][lane % 4 + i / 2 * 4] = drop_lower_bits(from[i]);
  } else {
    float values[8];
    widen<Element, 4>(values, from);
    for (int i = 0; i < 8; i++) left[lane / 4 + i / 2 % 2 * 8][lane % 4 * 2 + i % 2 + i / 4 * 8] = values[i];
  }
}
template <class Element> static void read_right(float (&right)[terms<Element>][8], int lane, const unsigned* from) {
  if constexpr (std::is_same_v<Element, Tf32>) {
    for (int i = 0; i < 2; i++) right[lane % 4 + i * 4][lane / 4] = drop_lower_bits(from[i]);
  } else {
    float values[4];
    widen<Element, 2>(values, from);
    for (int i = 0; i < 4; i++) right[lane % 4 * 2 + i % 2 + i / 2 * 8][lane / 4] = values[i];
  }
}

// The products are added in the order of k.
template <class Element> void multiply(Thread* warp, unsigned) {
  Factors of[warp_lanes];
  float left[16][terms<Element>];
  for (int lane = 0; lane < warp_lanes; lane++) {
    memcpy(&of[lane], warp[lane].value, sizeof of[lane]);
    read_left<Element>(left, lane, of[lane].left);
  }
  for (int tile = 0; tile < of[0].tiles; tile++) {
    alignas(Row) float right[terms<Element>][8];
    alignas(Row) float sums[16][8];
    for (int lane = 0; lane < warp_lanes; lane++) {
      read_right<Element>(right, lane, of[lane].right + 2 * tile);
      for (int half = 0; half < 2; half++)
        memcpy(&sums[lane / 4 + 8 * half][lane % 4 * 2], of[lane].sums + 4 * tile + 2 * half, 8);
    }
    for (int row = 0; row < 16; row++) {
      Row sum = *reinterpret_cast<Row*>(sums[row]);
      for (int k = 0; k < terms<Element>; k++) sum += left[row][k] * *reinterpret_cast<const Row*>(right[k]);
      *reinterpret_cast<Row*>(sums[row]) = sum;
    }
    for (int lane = 0; lane < warp_lanes; lane++)
      for (int half = 0; half < 2; half++)
        memcpy(of[lane].sums + 4 * tile + 2 * half, &sums[lane / 4 + 8 * half][lane % 4 * 2], 8);
  }
}
template void multiply<__half>(Thread*, unsigned);
template void multiply<__nv_bfloat16>(Thread*, unsigned);
template void multiply<Tf32>(Thread*, unsigned);

// --- matrices of 8 x 8 elements of 16 bits: lane 8 * m + r points at row r of matrix m ---

template <int matrices, bool transposed> void load_matrices(Thread* warp, unsigned) {
  const races::Unseen unseen;
  for (int matrix = 0; matrix < matrices; matrix++)
    for (int row = 0; row < 8; row++) {
      const unsigned char* from;
      memcpy(&from, warp[matrix * 8 + row].value, sizeof from);
      require_arrived(from, 16, warp->site);
      for (int column = 0; column < 8; column++) {
        const int major = transposed ? column : row, minor = transposed ? row : column;
        memcpy(warp[major * 4 + minor / 2].result + 4 * matrix + minor % 2 * 2, from + 2 * column, 2);
      }
    }
}
template void load_matrices<1, false>(Thread*, unsigned);
template void load_matrices<2, false>(Thread*, unsigned);
template void load_matrices<4, false>(Thread*, unsigned);
template void load_matrices<4, true>(Thread*, unsigned);

void store_matrices(Thread* warp, unsigned) {
  const races::Unseen unseen;
  for (int lane = 0; lane < warp_lanes; lane++)
    for (int matrix = 0; matrix < 4; matrix++) {
      unsigned char* to;
      memcpy(&to, warp[matrix * 8 + lane / 4].value, sizeof to);
      memcpy(to + lane % 4 * 4, warp[lane].value + sizeof to + 4 * matrix, 4);
    }
}

}  // namespace emulated
