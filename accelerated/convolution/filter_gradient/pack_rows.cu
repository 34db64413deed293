// Converts images of few channels to NHWC rows in which every window is contiguous. Channels are padded to CHANNELS.
// Rows include the padding on the left, and zeros on the right up to the last window. `together` rows are interleaved
// column by column. Filter gradients (6.2.2) read the columns of a window as channels.
//
// Tiling: a thread owns the channels of one column of a row. Roofline bound: bytes, x read once and CHANNELS for each
// column written; no flops.
#include "primitives/geometry.cuh"
#include "primitives/types.cuh"

struct Arguments {
  const ELEMENT* x;
  ELEMENT* packed;
  long long x_step[5];         // strides in elements between images, channels, planes, rows and columns
  int width, height, padding;  // extents and padding of x
  int together;                // interleaved rows
  int kept;                    // channels of x
  unsigned count;              // columns of all rows
  FastDivmod columns, rows;    // divisors: columns of interleaved rows, interleaved rows per plane
  FastDivmod planes;           // per image
};

extern "C" __global__ void __launch_bounds__(256) convolution_pack_rows(const Arguments a) {
  griddepcontrol_wait();
  const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= a.count) return;
  unsigned column, row, plane;
  const unsigned image = a.planes.divide(a.rows.divide(a.columns.divide(index, column), row), plane);
  row = row * a.together + column % a.together;
  const int at = static_cast<int>(column / a.together) - a.padding;
  const bool inside =
      static_cast<unsigned>(at) < static_cast<unsigned>(a.width) && row < static_cast<unsigned>(a.height);
  const ELEMENT* from = a.x + image * a.x_step[0] + plane * a.x_step[2] + row * a.x_step[3] + at * a.x_step[4];
  Vector<ELEMENT, CHANNELS> vector;
#pragma unroll
  for (int c = 0; c < CHANNELS; c++)
    vector.item[c] = inside && c < a.kept ? from[c * a.x_step[1]] : store<ELEMENT>(0.0f);
  reinterpret_cast<Vector<ELEMENT, CHANNELS>*>(a.packed)[index] = vector;
}
