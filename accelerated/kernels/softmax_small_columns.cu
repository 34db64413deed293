// Softmax over columns of small tensors (3.2.96, 4.1.19) in registers: a block takes some lines side by side.
//
// Floor: a launch and one way to the memory and back; bytes hardly matter. Every thread tells its block what it has of a line, and merges
// what all have: one barrier, no exchange between lanes.
#include "softmax_small.cuh"

constexpr unsigned MOST_THREADS = 512;

template <class Rule, int N> __device__ __forceinline__ void softmax_of_columns(const Arguments<Rule::INPUTS>& a) {
  constexpr int INPUTS = Rule::INPUTS, BATCH = 8;
  struct alignas(sizeof(Statistic) * WIDTH) Part { Statistic line[WIDTH]; };
  const Rule rule{Algorithm(a.algorithm), a.alpha};
  const unsigned log_across = exponent_of(a.team), inner = threadIdx.x & (a.team - 1), group = threadIdx.x >> log_across, groups = blockDim.x >> log_across;
  const unsigned index = (blockIdx.x << log_across) + inner;
  Part* const parts = reinterpret_cast<Part*>(shared_memory) + inner;

  Share<Rule, N> share{a};
  a.lines.locate(min(index, a.lines.packs - 1), share.offset);
#pragma unroll
  for (int n = 0; n <= INPUTS; n++) share.offset[n] += group * a.along.row_stride[n], share.step[n] = groups * a.along.row_stride[n];
  share.count = index < a.lines.packs && group < a.along.row ? ((a.along.row - group - 1) >> exponent_of(groups)) + 1 : 0;
  share.wait();
  share.read();

  Part own;
#pragma unroll
  for (int i = 0; i < WIDTH; i++) own.line[i] = rule.empty();
  rule.template cover<true>(own.line, share.values);
  rule.template add_covered<true>(own.line, share.values);
  parts[threadIdx.x - inner] = own;
  __syncthreads();
  Part total;
#pragma unroll
  for (int i = 0; i < WIDTH; i++) total.line[i] = rule.empty();
  for (unsigned first = 0; first < groups; first += BATCH) {
    Part part[BATCH];
#pragma unroll
    for (int j = 0; j < BATCH; j++) {
      if (first + j < groups) part[j] = parts[(first + j) << log_across];
      else
#pragma unroll
        for (int i = 0; i < WIDTH; i++) part[j].line[i] = rule.empty();
    }
#pragma unroll
    for (int i = 0; i < WIDTH; i++) {
      Statistic of_line[BATCH];
#pragma unroll
      for (int j = 0; j < BATCH; j++) of_line[j] = part[j].line[i];
      merge(rule, total.line[i], of_line);
    }
  }
#pragma unroll
  for (int i = 0; i < WIDTH; i++) {
    rule.finish(total.line[i]);
    rule.scale(total.line[i], own.line[i].top);
  }
  share.write(rule, total.line);
}

#define SMALL_COLUMNS(packs)                                                                                               \
  extern "C" __global__ void __launch_bounds__(MOST_THREADS) softmax_forward_columns_of_##packs(const Arguments<1> a) {  \
    find_place_before_waiting();                                                                                           \
    softmax_of_columns<Forward, packs>(a);                                                                                 \
  }                                                                                                                        \
  extern "C" __global__ void __launch_bounds__(MOST_THREADS) softmax_backward_columns_of_##packs(const Arguments<2> a) { \
    find_place_before_waiting();                                                                                           \
    softmax_of_columns<Backward, packs>(a);                                                                                \
  }
SMALL_COLUMNS(2)
SMALL_COLUMNS(4)
SMALL_COLUMNS(8)
SMALL_COLUMNS(16)
