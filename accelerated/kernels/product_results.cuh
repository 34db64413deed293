// Writes the sums of a block of filters x positions (convolution_gemm.cu, convolution_float.cu).
#pragma once
#include "convolution.cuh"

// Where a thread's sums begin.
struct Place {
  const Convolution& convolution;
  unsigned group;
  int filter, position;
};

// A thread has ROWS x COLUMNS sums in groups of 4 x 4; groups are FILTERS / (ROWS / 4) filters, POSITIONS / (COLUMNS / 4)
// positions apart.
template <int FILTERS, int POSITIONS, int ROWS, int COLUMNS, class Sum, class Result, class Bias>
__device__ __forceinline__ void finish_sums(const Sum (&sums)[ROWS][COLUMNS], const Place& place, const Epilogue& epilogue, Result* y, const Result* prior,
                                            const Bias* bias) {
  constexpr int ROW_GROUPS = ROWS / 4, COLUMN_GROUPS = COLUMNS / 4;
  const Convolution& c = place.convolution;
  // Four neighbours of y at a time: filters where channels lie innermost, else positions.
  const bool across_filters = c.y_vector > 1 || c.y_channel == 1;
#pragma unroll
  for (int h = 0; h < COLUMN_GROUPS; h++) {
    long long offset[4];
    const int first = place.position + h * (POSITIONS / COLUMN_GROUPS);
    int count = c.positions - first;
    if (count > 4) count = 4;
#pragma unroll
    for (int j = 0; j < 4; j++) offset[j] = j < count ? place.group * c.y_group + y_offset(c, first + j) : 0;
    const bool neighbours = count == 4 && offset[3] == offset[0] + 3 && offset[2] == offset[0] + 2 && offset[1] == offset[0] + 1;
#pragma unroll
    for (int g = 0; g < ROW_GROUPS; g++) {
      const int filter = place.filter + g * (FILTERS / ROW_GROUPS);
      const unsigned channel = place.group * c.y_filters + filter;
      if (across_filters) {
        const bool whole = filter + 3 < c.filters && (c.y_vector < 2 ? c.y_channel == 1 : channel % 4 == 0);
#pragma unroll
        for (int j = 0; j < 4; j++) {
          if (j >= count) continue;
          Sum four[4];
#pragma unroll
          for (int i = 0; i < 4; i++) four[i] = sums[4 * g + i][4 * h + j];
          if (whole) {
            finish<4, COMPUTE>(epilogue, bias, prior, y, offset[j] + y_channel_offset(c, channel), 1, 4, channel, 1, four);
          } else {
#pragma unroll
            for (int i = 0; i < 4; i++) {
              Sum one[1] = {four[i]};
              if (filter + i < c.filters)
                finish<1, COMPUTE>(epilogue, bias, prior, y, offset[j] + y_channel_offset(c, channel + i), 1, 1, channel + i, 0, one);
            }
          }
        }
      } else {
#pragma unroll
        for (int i = 0; i < 4; i++) {
          if (filter + i >= c.filters) continue;
          const long long start = y_channel_offset(c, channel + i);
          Sum four[4];
#pragma unroll
          for (int j = 0; j < 4; j++) four[j] = sums[4 * g + i][4 * h + j];
          if (neighbours) {
            finish<4, COMPUTE>(epilogue, bias, prior, y, offset[0] + start, 1, 4, channel + i, 0, four);
          } else {
#pragma unroll
            for (int j = 0; j < 4; j++) {
              Sum one[1] = {four[j]};
              if (j < count) finish<1, COMPUTE>(epilogue, bias, prior, y, offset[j] + start, 1, 1, channel + i, 0, one);
            }
          }
        }
      }
    }
  }
}
