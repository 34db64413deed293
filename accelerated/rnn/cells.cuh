// This header computes one step of one unit of a recurrent network (3.1.2.20), and its gradients.
#pragma once
#include "rnn/network.cuh"

#ifndef FAST_CELLS
#define FAST_CELLS 0
#endif

// FAST_CELLS computes in float with the special function unit. Its errors of 2e-7 are small compared with the errors of
// products of 11-bit mantissas.
__device__ __forceinline__ COMPUTE cell_sigmoid(COMPUTE x) {
#if FAST_CELLS
  return __fdividef(1.0f, 1.0f + __expf(-x));
#else
  return sigmoid(x);
#endif
}
__device__ __forceinline__ COMPUTE cell_tanh(COMPUTE x) {
#if FAST_CELLS
  const float square = x * x;
  const float series = x + x * square * (-0.33333334f + square * (0.13333334f + square * -0.05396825f));
  float large = copysignf(1.0f - __fdividef(2.0f, __expf(2.0f * fabsf(x)) + 1.0f), x);
#ifndef EMULATED_CUDA
  asm volatile("" : "+f"(large));  // The compiler must not branch around this instruction.
#endif
  return square < 0.03f ? series : large;
#else
  return tanh(x);
#endif
}

// Holds the results of one cell. `kept` holds its gates; a GRU also keeps the term that its reset gate multiplies.
struct CellOutput {
  COMPUTE kept[KEPT];
  COMPUTE value, state;
};

// Holds the biases of a unit's gates. A GRU adds `recurrent` to the term that its reset gate multiplies; other cells
// include it in `gate`.
struct CellBias {
  COMPUTE gate[GATES];
  COMPUTE recurrent;
};

__device__ __forceinline__ CellBias bias_of(const ELEMENT* weights, const Layer& layer, const Shape& s, int direction,
                                            int unit) {
  const auto of = [&](const Weights& bias, int gate) {
    return bias.start >= 0 ? load<COMPUTE>(weights[bias.start + direction * bias.step + gate * s.hidden + unit])
                           : COMPUTE(0);
  };
  CellBias bias;
  bias.recurrent = CELL == GRU ? of(layer.recurrent_bias, 2) : COMPUTE(0);
#pragma unroll
  for (int gate = 0; gate < GATES; gate++)
    bias.gate[gate] =
        of(layer.input_bias, gate) + (CELL == GRU && gate == 2 ? COMPUTE(0) : of(layer.recurrent_bias, gate));
  return bias;
}

// `products` are the input matrices times the input. `sums` are the recurrent matrices times the previous output.
__device__ __forceinline__ CellOutput cell_output(const COMPUTE (&products)[GATES], const COMPUTE (&sums)[GATES],
                                                  const CellBias& bias, COMPUTE before, COMPUTE state_before,
                                                  const Clip& clip) {
  CellOutput out;
  out.state = COMPUTE(0);
  if constexpr (CELL == LSTM) {
#pragma unroll
    for (int gate = 0; gate < 4; gate++) {
      const COMPUTE sum = products[gate] + bias.gate[gate] + sums[gate];
      out.kept[gate] = gate == 2 ? cell_tanh(sum) : cell_sigmoid(sum);
    }
    out.state = clipped(out.kept[1] * state_before + out.kept[0] * out.kept[2], clip);
    out.value = out.kept[3] * cell_tanh(out.state);
  } else if constexpr (CELL == GRU) {
    const COMPUTE recurrent = sums[2] + bias.recurrent;
    const COMPUTE reset = cell_sigmoid(products[0] + bias.gate[0] + sums[0]);
    const COMPUTE update = cell_sigmoid(products[1] + bias.gate[1] + sums[1]);
    const COMPUTE fresh = cell_tanh(products[2] + bias.gate[2] + reset * recurrent);
    out.value = (COMPUTE(1) - update) * fresh + update * before;
    out.kept[0] = reset, out.kept[1] = update, out.kept[2] = fresh, out.kept[3] = recurrent;
  } else {
    const COMPUTE sum = products[0] + bias.gate[0] + sums[0];
    out.value = CELL == TANH ? cell_tanh(sum) : sum < COMPUTE(0) ? COMPUTE(0) : sum;
    out.kept[0] = out.value;
  }
  return out;
}

// Holds the gradients of a cell's sums, in the order of `kept`. `carried` is the gradient of an LSTM's cell state, or
// the part that a GRU passes directly to its previous output.
struct CellGradient {
  COMPUTE sum[KEPT];
  COMPUTE carried;
};

// `incoming` is the gradient of the cell's output. Only an LSTM reads `state` and `state_before`; only a GRU reads
// `before`, its previous output.
__device__ __forceinline__ CellGradient cell_gradient(const COMPUTE (&kept)[KEPT], COMPUTE incoming, COMPUTE carried,
                                                      COMPUTE state, COMPUTE before, const Clip& clip) {
  CellGradient gradient;
  const COMPUTE one = COMPUTE(1);
  if constexpr (CELL == LSTM) {
    const COMPUTE i = kept[0], f = kept[1], fresh = kept[2], o = kept[3];
    const COMPUTE shown = cell_tanh(state), raw = f * before + i * fresh;
    COMPUTE of_state = carried + incoming * o * (one - shown * shown);
    if (clip.on && !(raw >= clip.lower && raw <= clip.upper)) of_state = COMPUTE(0);
    gradient.sum[0] = of_state * fresh * (i * (one - i));
    gradient.sum[1] = of_state * before * (f * (one - f));
    gradient.sum[2] = of_state * i * (one - fresh * fresh);
    gradient.sum[3] = incoming * shown * (o * (one - o));
    gradient.carried = of_state * f;
  } else if constexpr (CELL == GRU) {
    const COMPUTE reset = kept[0], update = kept[1], fresh = kept[2], recurrent = kept[3];
    const COMPUTE sum = incoming * (one - update) * (one - fresh * fresh);
    gradient.sum[0] = sum * recurrent * (reset * (one - reset));
    gradient.sum[1] = incoming * (before - fresh) * (update * (one - update));
    gradient.sum[2] = sum;
    gradient.sum[3] = sum * reset;
    gradient.carried = incoming * update;
  } else {
    const COMPUTE value = kept[0];
    gradient.sum[0] = CELL == TANH ? incoming * (one - value * value) : value > COMPUTE(0) ? incoming : COMPUTE(0);
    gradient.carried = COMPUTE(0);
  }
  return gradient;
}

// Returns the slot of the reserve space whose gate gradient reaches the states. A GRU uses the term that its reset gate
// multiplies.
__device__ __forceinline__ int recurrent_slot(int gate) { return CELL == GRU && gate == 2 ? 3 : gate; }
