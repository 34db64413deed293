// Activations, forward (3.2.1) and backward (4.1.1).
//
// Floor: bytes. Forward moves 2 elements and does 1 to ~20 operations an element (sigmoid, tanh); backward moves 3
// (one of x and y is not needed by any mode). At 4.2 TB/s a float element costs 1.9 ps forward, far above the arithmetic.
#include "elementwise.cuh"

enum Mode { SIGMOID = 0, RELU = 1, TANH = 2, CLIPPED_RELU = 3, ELU = 4 };  // cudnnActivationMode_t

constexpr int WIDTH = 16 / sizeof(ELEMENT);

struct Sigmoid {
  __device__ COMPUTE operator()(COMPUTE x) const { return COMPUTE(1) / (COMPUTE(1) + exp(-x)); }
};
struct Relu {
  bool propagate;
  __device__ COMPUTE operator()(COMPUTE x) const { return x > COMPUTE(0) || (propagate && x != x) ? x : COMPUTE(0); }
};
struct Tanh {
  __device__ COMPUTE operator()(COMPUTE x) const { return tanh(x); }
};
struct ClippedRelu {
  bool propagate;
  COMPUTE limit;
  __device__ COMPUTE operator()(COMPUTE x) const {
    if (x != x) return propagate ? x : COMPUTE(0);
    COMPUTE positive = x > COMPUTE(0) ? x : COMPUTE(0);
    return positive > limit ? limit : positive;
  }
};
struct Elu {
  COMPUTE coefficient;
  __device__ COMPUTE operator()(COMPUTE x) const { return x >= COMPUTE(0) ? x : coefficient * expm1(x); }
};

struct ForwardArguments {
  const ELEMENT* x;
  ELEMENT* y;
  Geometry<2> geometry;
  COMPUTE alpha, beta, coefficient;
  int mode, propagate;
};

extern "C" __global__ void activation_forward(const ForwardArguments a) {
  COMPUTE alpha = a.alpha, beta = a.beta, coefficient = a.coefficient;
  bool propagate = a.propagate;
  switch (a.mode) {
    case SIGMOID: return map<WIDTH>(a.geometry, a.x, a.y, alpha, beta, Sigmoid{});
    case RELU: return map<WIDTH>(a.geometry, a.x, a.y, alpha, beta, Relu{propagate});
    case TANH: return map<WIDTH>(a.geometry, a.x, a.y, alpha, beta, Tanh{});
    case CLIPPED_RELU: return map<WIDTH>(a.geometry, a.x, a.y, alpha, beta, ClippedRelu{propagate, coefficient});
    case ELU: return map<WIDTH>(a.geometry, a.x, a.y, alpha, beta, Elu{coefficient});
  }
}

struct SigmoidGradient {
  __device__ COMPUTE operator()(COMPUTE y, COMPUTE dy) const { return dy * y * (COMPUTE(1) - y); }
};
struct TanhGradient {
  __device__ COMPUTE operator()(COMPUTE y, COMPUTE dy) const { return dy * (COMPUTE(1) - y * y); }
};
struct EluGradient {
  COMPUTE coefficient;
  __device__ COMPUTE operator()(COMPUTE y, COMPUTE dy) const { return y >= COMPUTE(0) ? dy : dy * (y + coefficient); }
};
struct ReluGradient {
  COMPUTE limit;
  __device__ COMPUTE operator()(COMPUTE x, COMPUTE dy) const { return x > COMPUTE(0) && x <= limit ? dy : COMPUTE(0); }
};

struct BackwardArguments {
  const ELEMENT* operand;  // x for the rectified functions, y for the others
  const ELEMENT* dy;
  ELEMENT* dx;
  Geometry<3> geometry;
  COMPUTE alpha, beta, coefficient;
  int mode;
};

extern "C" __global__ void activation_backward(const BackwardArguments a) {
  COMPUTE alpha = a.alpha, beta = a.beta, coefficient = a.coefficient;
  switch (a.mode) {
    case SIGMOID: return map<WIDTH>(a.geometry, a.operand, a.dy, a.dx, alpha, beta, SigmoidGradient{});
    case TANH: return map<WIDTH>(a.geometry, a.operand, a.dy, a.dx, alpha, beta, TanhGradient{});
    case ELU: return map<WIDTH>(a.geometry, a.operand, a.dy, a.dx, alpha, beta, EluGradient{coefficient});
    case RELU: return map<WIDTH>(a.geometry, a.operand, a.dy, a.dx, alpha, beta, ReluGradient{COMPUTE(INFINITY)});
    case CLIPPED_RELU: return map<WIDTH>(a.geometry, a.operand, a.dy, a.dx, alpha, beta, ReluGradient{coefficient});
  }
}
