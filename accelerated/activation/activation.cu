// These kernels compute activations, forward (3.2.1) and backward (4.1.1).
//
// Each thread takes one or more vectors of 16 bytes, or single elements of rows with gaps (primitives/elementwise.cuh).
//
// Roofline bound: bytes. Forward moves 2 elements and does 1 to about 20 operations per element (sigmoid, tanh).
// Backward moves 3, because no mode needs both x and y. At 4.2 TB/s a float element takes 1.9 ps forward and a half 1.0
// ps. In 1.0 ps an H200 issues about 28 instructions. CUDA's tanhf has two branches of about 20 instructions, and would
// come near that bound. On an H200, ReLU forward of 411 MB of floats takes 100.3 us (97 % of a copy's throughput).
// Backward of 617 MB takes 141.2 us.
#include "primitives/elementwise.cuh"

enum Mode { SIGMOID = 0, RELU = 1, TANH = 2, CLIPPED_RELU = 3, ELU = 4 };  // cudnnActivationMode_t

constexpr int WIDTH = 16 / sizeof(ELEMENT);
constexpr int BLOCKS =
    sizeof(COMPUTE) == 8 || sizeof(ELEMENT) == 1 ? 3 : 5;  // blocks of 256 threads per SM, limited by registers
constexpr int SHORT_BLOCKS = BLOCKS == 5 ? 6 : BLOCKS;
constexpr int BACKWARD_BLOCKS = same_type<ELEMENT, bfloat16> ? BLOCKS : SHORT_BLOCKS;  // bfloat16 takes more registers

template <int N> struct Of {
  static constexpr int INPUTS = N;
};

// Returns tanh(x) without a branch: 1 - 2 / (exp(2 x) + 1). Below 0.55, where that loses digits, it is an odd
// polynomial with a relative error of one unit in the last digit. Chebyshev interpolation of (tanh(x) / x - 1) / x^2
// over x^2 yields the polynomial. The approximate exponential and reciprocal leave a relative error of at most 4e-7, so
// float uses the library's tanh.
__device__ __forceinline__ float short_tanh(float x) {
#ifdef EMULATED_CUDA
  float power = exp2f(x * 2.88539008f), inverse = 1.0f / (power + 1.0f);
#else
  float power, inverse;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * 2.88539008f));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(power + 1.0f));
#endif
  float square = x * x, series = fmaf(-0.0066106436f, square, 0.0213092715f);
  series = fmaf(fmaf(fmaf(series, square, -0.0539092794f), square, 0.133331105f), square, -0.333333313f);
  return fabsf(x) < 0.55f ? fmaf(x, square * series, x) : fmaf(-2.0f, inverse, 1.0f);
}

struct Sigmoid : Of<1> {
  __device__ COMPUTE operator()(COMPUTE x) const { return COMPUTE(1) / (COMPUTE(1) + exp(-x)); }
};
struct Relu : Of<1> {
  bool propagate;
  __device__ COMPUTE operator()(COMPUTE x) const { return x > COMPUTE(0) || (propagate && x != x) ? x : COMPUTE(0); }
};
struct Tanh : Of<1> {
  __device__ COMPUTE operator()(COMPUTE x) const {
    if constexpr (sizeof(ELEMENT) == 2 && sizeof(COMPUTE) == 4) return short_tanh(x);
    else return tanh(x);
  }
};
struct ClippedRelu : Of<1> {
  bool propagate;
  COMPUTE limit;
  __device__ COMPUTE operator()(COMPUTE x) const {
    if (propagate && x != x) return x;
    COMPUTE positive = x > COMPUTE(0) ? x : COMPUTE(0);
    return positive > limit ? limit : positive;
  }
};
struct Elu : Of<1> {
  COMPUTE coefficient;
  __device__ COMPUTE operator()(COMPUTE x) const { return x >= COMPUTE(0) ? x : coefficient * expm1(x); }
};

// Computes alpha * function(in...) + beta * prior for every element of a vector.
template <bool BLENDS, int N, class Function>
__device__ __forceinline__ Vector<ELEMENT, N> blended(COMPUTE alpha, COMPUTE beta, Function function,
                                                      const Vector<ELEMENT, N>* in, const Vector<ELEMENT, N>& prior) {
  Vector<ELEMENT, N> result;
#pragma unroll
  for (int i = 0; i < N; i++) {
    COMPUTE value;
    if constexpr (Function::INPUTS == 1) value = alpha * function(load<COMPUTE>(in[0].item[i]));
    else value = alpha * function(load<COMPUTE>(in[0].item[i]), load<COMPUTE>(in[1].item[i]));
    if (BLENDS && beta != COMPUTE(0)) value += beta * load<COMPUTE>(prior.item[i]);
    result.item[i] = store<ELEMENT>(value);
  }
  return result;
}

struct ForwardArguments {
  const ELEMENT* x;
  ELEMENT* y;
  COMPUTE alpha, beta, coefficient;
  int mode, propagate;
  Geometry<2> geometry;
  unsigned prefetching_blocks;  // blocks that prefetch to L2
};

// One switch per vector selects the mode after the loads have begun, so that all modes share the loads.
template <bool RECTIFIED> struct Forward {
  COMPUTE alpha, beta, coefficient;
  int mode;
  bool propagate;
  template <bool BLENDS, int N>
  __device__ __forceinline__ Vector<ELEMENT, N> operator()(const Vector<ELEMENT, N>* in,
                                                           const Vector<ELEMENT, N>& prior) const {
    auto by = [&](auto function) { return blended<BLENDS, N>(alpha, beta, function, in, prior); };
    if (RECTIFIED) return mode == RELU ? by(Relu{{}, propagate}) : by(ClippedRelu{{}, propagate, coefficient});
    switch (mode) {
      case SIGMOID:
        return by(Sigmoid{});
      case RELU:
        return by(Relu{{}, propagate});
      case TANH:
        return by(Tanh{});
      case CLIPPED_RELU:
        return by(ClippedRelu{{}, propagate, coefficient});
      default:
        return by(Elu{{}, coefficient});
    }
  }
};

template <> constexpr bool LONG_FUNCTION<Forward<false>> = true;

template <bool RECTIFIED = false>
__device__ __forceinline__ Elementwise<ELEMENT, 1, ELEMENT, Forward<RECTIFIED>> forward(const ForwardArguments& a) {
  return {{a.x},
          a.y,
          a.beta != COMPUTE(0),
          {a.alpha, a.beta, a.coefficient, a.mode, static_cast<bool>(a.propagate)},
          1,
          a.prefetching_blocks};
}
extern "C" __global__ void __launch_bounds__(256, BLOCKS) activation_forward(const ForwardArguments a) {
  griddepcontrol_wait_deferred();
  forward(a).run<WIDTH>(a.geometry);
}
// Rectified functions have a kernel with fewer registers. ReLU of 51 MB of half then takes 26.6 us instead of 27.3, and
// 6 MB take 2.4 us instead of 2.9.
extern "C" __global__ void __launch_bounds__(256, SHORT_BLOCKS) activation_forward_rectified(const ForwardArguments a) {
  griddepcontrol_wait_deferred();
  forward<true>(a).run<WIDTH>(a.geometry);
}

struct SigmoidGradient : Of<2> {
  __device__ COMPUTE operator()(COMPUTE y, COMPUTE dy) const { return dy * y * (COMPUTE(1) - y); }
};
struct TanhGradient : Of<2> {
  __device__ COMPUTE operator()(COMPUTE y, COMPUTE dy) const { return dy * (COMPUTE(1) - y * y); }
};
struct EluGradient : Of<2> {
  COMPUTE coefficient;
  __device__ COMPUTE operator()(COMPUTE y, COMPUTE dy) const { return y >= COMPUTE(0) ? dy : dy * (y + coefficient); }
};
struct ReluGradient : Of<2> {
  COMPUTE limit;
  __device__ COMPUTE operator()(COMPUTE x, COMPUTE dy) const { return x > COMPUTE(0) && x <= limit ? dy : COMPUTE(0); }
};

struct BackwardArguments {
  const ELEMENT* operand;  // x for rectified functions, y for others
  const ELEMENT* dy;
  ELEMENT* dx;
  COMPUTE alpha, beta, coefficient;
  int mode;
  Geometry<3> geometry;
  unsigned prefetching_blocks;
};

struct Backward {
  COMPUTE alpha, beta, coefficient;
  int mode;
  template <bool BLENDS, int N>
  __device__ __forceinline__ Vector<ELEMENT, N> operator()(const Vector<ELEMENT, N>* in,
                                                           const Vector<ELEMENT, N>& prior) const {
    auto by = [&](auto function) { return blended<BLENDS, N>(alpha, beta, function, in, prior); };
    switch (mode) {
      case SIGMOID:
        return by(SigmoidGradient{});
      case TANH:
        return by(TanhGradient{});
      case ELU:
        return by(EluGradient{{}, coefficient});
      case RELU:
        return by(ReluGradient{{}, COMPUTE(INFINITY)});
      default:
        return by(ReluGradient{{}, coefficient});
    }
  }
};

__device__ __forceinline__ Elementwise<ELEMENT, 2, ELEMENT, Backward> backward(const BackwardArguments& a) {
  return {{a.operand, a.dy},   a.dx, a.beta != COMPUTE(0), {a.alpha, a.beta, a.coefficient, a.mode}, 2,
          a.prefetching_blocks};
}
extern "C" __global__ void __launch_bounds__(256, BACKWARD_BLOCKS) activation_backward(const BackwardArguments a) {
  griddepcontrol_wait_deferred();
  backward(a).run<WIDTH>(a.geometry);
}
