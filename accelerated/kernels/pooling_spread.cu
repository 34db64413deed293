// Backward of an average over everything (4.1.18, global pooling): dx = alpha * dy / divisor + beta * dx.
//
// Floor: bytes, dx written once; dy is smaller by the size of a plane. A thread writes 16 bytes, about 50 instructions, of
// the 110 that an H200 issues in the time of their bytes (not measured yet); where dx has no packs, neighbouring threads write neighbours.
#include "elementwise.cuh"

constexpr int WIDTH = 16 / sizeof(ELEMENT);

struct SpreadArguments {
  const ELEMENT* dy;
  ELEMENT* dx;
  Geometry<2> geometry;
  COMPUTE alpha, beta, reciprocal;
};

extern "C" __global__ void pooling_spread(const SpreadArguments a) {
  COMPUTE reciprocal = a.reciprocal;
  auto part = [reciprocal](COMPUTE value) { return value * reciprocal; };
  if (a.geometry.width == 1)
    map<1>(a.geometry, a.dy, a.dx, a.alpha, a.beta, part);
  else
    map<WIDTH>(a.geometry, a.dy, a.dx, a.alpha, a.beta, part);
}
