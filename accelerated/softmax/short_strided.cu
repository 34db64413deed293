// Softmax over strided rows of up to four single elements, of which a thread has all, forward (3.2.96) and backward
// (4.1.19).
//
// A thread takes a row into its registers; neighbouring threads take neighbouring rows. Packs of such rows are served
// by softmax/register_resident.cu.
//
// Roofline: bytes, each moves once; some 12 flops an element forward, 10 backward. Measured (H200): 64x3x224x224
// float with gaps over channels 25.1 us forward, 73 % of the copy's throughput.
#include "softmax/online.cuh"

template <class Rule, int LENGTH>
__device__ __forceinline__ void softmax_of_short_strided_row(const Arguments<Rule::INPUTS>& a) {
  constexpr int INPUTS = Rule::INPUTS;
  const Rule rule{Algorithm(a.algorithm), a.alpha};
  const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= a.rows.packs) return;
  unsigned offset[INPUTS + 1];
  a.rows.locate(index, offset);

  griddepcontrol_wait_before_access(a.input[0] + offset[0], a.output + offset[INPUTS]);
  ELEMENT held[INPUTS][LENGTH];
#pragma unroll
  for (int k = 0; k < LENGTH; k++)
#pragma unroll
    for (int n = 0; n < INPUTS; n++) held[n][k] = (a.input[n] + offset[n])[k * a.along.row_stride[n]];
  griddepcontrol_launch_dependents_medium_grid();  // with the other, 4 % longer
  COMPUTE values[INPUTS][LENGTH], result[LENGTH];
#pragma unroll
  for (int n = 0; n < INPUTS; n++)
#pragma unroll
    for (int k = 0; k < LENGTH; k++) values[n][k] = load<COMPUTE>(held[n][k]);
  OnlineState state[1] = {rule.empty()};
  rule.template cover<true>(state, values);
  rule.template add_covered<true>(state, values);
  rule.finish(state[0]);
  rule.template results<true>(state, values, result);
#pragma unroll
  for (int k = 0; k < LENGTH; k++) {
    ELEMENT* target = a.output + offset[INPUTS] + k * a.along.row_stride[INPUTS];
    *target = store<ELEMENT>(a.beta != COMPUTE(0) ? result[k] + a.beta * load<COMPUTE>(*target) : result[k]);
  }
}
template <class Rule> __device__ __forceinline__ void softmax_of_short_strided(const Arguments<Rule::INPUTS>& a) {
  switch (a.kept) {
    case 1:
      return softmax_of_short_strided_row<Rule, 1>(a);
    case 2:
      return softmax_of_short_strided_row<Rule, 2>(a);
    case 3:
      return softmax_of_short_strided_row<Rule, 3>(a);
    default:
      return softmax_of_short_strided_row<Rule, 4>(a);
  }
}

// Blocks of a multiprocessor for which the registers of a kernel should suffice.
constexpr int BLOCKS = sizeof(COMPUTE) == 8 ? 8 : 16;

extern "C" __global__ void __launch_bounds__(128, BLOCKS) softmax_short_strided_forward(const Arguments<1> a) {
  griddepcontrol_wait_deferred();
  softmax_of_short_strided<Forward>(a);
}
extern "C" __global__ void __launch_bounds__(128, BLOCKS) softmax_short_strided_backward(const Arguments<2> a) {
  griddepcontrol_wait_deferred();
  softmax_of_short_strided<Backward>(a);
}
