// These kernels compute softmax of few rows, forward (3.2.96) and backward (4.1.19), in the registers of clusters.
//
// A thread's vectors (16 bytes, or single elements) are equidistant along one dimension, so that all loads are in
// flight at once. The blocks of a cluster exchange states once: every warp sends its state to all blocks. Addresses of
// operands and of other blocks are computed before the wait.
//
// Roofline: the latency of a launch and of one round trip to memory. Bytes (2 or 3 elements moved per element) and
// flops (about 12) hardly matter. On an H200, 8 rows of 12544 floats take 1.38 us in a graph, where an empty kernel
// takes 0.52. Values arrive after 410 to 460 cycles. A warp's maximum and sum take 340 cycles, the exchange 300 to 400.
// Merging takes 470 cycles and the stores 100 to 180. See docs/performance/softmax.md.
#include "softmax/reduce.cuh"

// Forces the compiler to compute an address here, before the wait for earlier kernels.
template <class T> __device__ __forceinline__ void compute_now(T*& address) {
#ifndef EMULATED_CUDA
  auto bytes = reinterpret_cast<std::conditional_t<std::is_const_v<T>, const char*, char*>>(address);
  asm volatile("" : "+l"(bytes));
  __builtin_assume(__isGlobal(bytes));
  address = reinterpret_cast<T*>(bytes);
#endif
}

// Locates a thread's vectors, which are equidistant along the slowest of up to four dimensions (softmax/small_rows.py).
// It uses few arguments and instructions and no jumps, because an instruction cache miss takes longer than the
// computation.
template <int N> struct Offsets {
  static constexpr int FASTER = 3;
  unsigned count;  // number of first vectors, one per thread
  unsigned items, apart,
      limit;  // vectors per thread, their distance in positions, and the number of positions
  int item_step[N];
  FastDivmod extent[FASTER];
  int step[N][FASTER + 1];  // strides, fastest dimension first

  // Sets the offsets of a thread's first vector, and returns its number of vectors; only the last one may be missing.
  __device__ __forceinline__ unsigned locate(unsigned index, unsigned (&offset)[N]) const {
    unsigned rest = index, position[FASTER + 1];
#pragma unroll
    for (int d = 0; d < FASTER; d++) rest = extent[d].divide(rest, position[d]);
    position[FASTER] = rest;
#pragma unroll
    for (int n = 0; n < N; n++) {
      offset[n] = 0;
#pragma unroll
      for (int d = 0; d <= FASTER; d++) offset[n] += position[d] * step[n][d];
    }
    return index >= count ? 0 : items - (rest + (items - 1) * apart >= limit);
  }
};

template <int INPUTS> struct SmallArguments {
  const ELEMENT* input[INPUTS];
  ELEMENT* output;
  COMPUTE alpha, beta;
  int algorithm;
  Offsets<INPUTS + 1> rows, along;
};

// Holds a thread's N vectors per input and their values; the first `count` vectors exist.
template <class Rule, int N> struct LocatedVectors {
  static constexpr int INPUTS = Rule::INPUTS;
  using Held = Elements<WIDTH>;
  const SmallArguments<INPUTS>& a;
  const Held* source[INPUTS][N];
  Held* target[N];
  unsigned count;
  Held held[N][INPUTS];
  COMPUTE values[INPUTS][N * WIDTH];

  // Locates the vectors of thread `number` along a row.
  __device__ __forceinline__ LocatedVectors(const SmallArguments<INPUTS>& arguments, unsigned row, unsigned number)
      : a(arguments) {
    unsigned offset[INPUTS + 1], row_offset[INPUTS + 1];
    a.rows.locate(row, row_offset);
    count = a.along.locate(number, offset);
    const int (&step)[INPUTS + 1] = a.along.item_step;
#pragma unroll
    for (int n = 0; n <= INPUTS; n++) offset[n] += row_offset[n];
#pragma unroll
    for (int k = 0; k < N; k++) {
#pragma unroll
      for (int n = 0; n < INPUTS; n++) {
        source[n][k] = reinterpret_cast<const Held*>(a.input[n] + (offset[n] + k * step[n]));
        compute_now(source[n][k]);
      }
      target[k] = reinterpret_cast<Held*>(a.output + (offset[INPUTS] + k * step[INPUTS]));
      compute_now(target[k]);
    }
  }
  __device__ __forceinline__ void wait() const { griddepcontrol_wait_only(source[0][0], target[0]); }
  // Starts all loads before the first value is used.
  __device__ __forceinline__ void start_loads() {
#pragma unroll
    for (int k = 0; k < N; k++)
#pragma unroll
      for (int n = 0; n < INPUTS; n++) {
        if constexpr (NEUTRAL_ELEMENT)
#pragma unroll
          for (int i = 0; i < WIDTH; i++) held[k][n].item[i] = store<ELEMENT>(Rule::neutral());
        if (k < count) held[k][n] = *source[n][k];
      }
  }
  __device__ __forceinline__ void take() {
#pragma unroll
    for (int k = 0; k < N; k++)
#pragma unroll
      for (int n = 0; n < INPUTS; n++) {
        unpack(&held[k][n], &values[n][k * WIDTH]);
        if constexpr (!NEUTRAL_ELEMENT)
          if (k >= count) values[n][k] = Rule::neutral();
      }
  }
  template <bool BLENDS> __device__ __forceinline__ void write(const Rule& rule, const OnlineState (&state)[1]) const {
    COMPUTE result[N * WIDTH];
    rule.template results<true>(state, values, result);
    if (BLENDS && a.beta != COMPUTE(0))
#pragma unroll
      for (int k = 0; k < N; k++) {
        if (k >= count) continue;
        COMPUTE prior[WIDTH];
        unpack(target[k], prior);
#pragma unroll
        for (int i = 0; i < WIDTH; i++) result[k * WIDTH + i] += a.beta * prior[i];
      }
#pragma unroll
    for (int k = 0; k < N; k++) {
      COMPUTE of_vector[WIDTH];
#pragma unroll
      for (int i = 0; i < WIDTH; i++) of_vector[i] = result[k * WIDTH + i];
      if (k < count) pack(of_vector, target[k]);
    }
  }
};

// Launches dependents when a value has arrived. A dependent launch evicts this kernel's instructions from the cache.
// Launching at the wait makes the last instructions 0.15 us slower, and launching at the end costs 0.3 us.
__device__ __forceinline__ void griddepcontrol_launch_dependents_with(COMPUTE value) {
  // This value is unlikely; a thread that has it leaves the launch to others.
  constexpr COMPUTE NEVER = COMPUTE(1.2345e-30);
  griddepcontrol_launch_dependents_if(value != NEVER);
}

// Selects code for the usual cases without jumps from the wait to the end, because a jump to uncached code takes 0.15
// us. It calls with(rule, whether results are blended).
template <class Rule, class With>
__device__ __forceinline__ void without_jumps(const SmallArguments<Rule::INPUTS>& a, With with) {
  const Algorithm algorithm =
      Rule::INPUTS > 1 && a.algorithm == FAST ? ACCURATE : Algorithm(a.algorithm);  // Both have the same gradient.
  if (a.beta != COMPUTE(0) || algorithm == FAST) with(Rule{algorithm, a.alpha}, std::true_type());
  else if (algorithm == LOG) with(Rule{LOG, a.alpha}, std::false_type());
  else with(Rule{ACCURATE, a.alpha}, std::false_type());
}

// Returns the maximum of a warp's values, which must not be NaN. One instruction compares all of them as integers.
template <class T> __device__ __forceinline__ T maximum_of_warp(T value) {
  for (unsigned lanes = 1; lanes < 32; lanes *= 2) value = max(value, __shfl_xor_sync(~0u, value, lanes));
  return value;
}
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
template <> __device__ __forceinline__ float maximum_of_warp(float value) {
  auto ordered = [](int bits) { return bits ^ (bits >> 31 & 0x7fffffff); };  // It is its own inverse.
  return __int_as_float(ordered(__reduce_max_sync(~0u, ordered(__float_as_int(value)))));
}
#endif
template <class Rule> __device__ __forceinline__ COMPUTE row_maximum_of_warp(const Rule& rule, COMPUTE maximum) {
  return rule.has_maximum() ? maximum_of_warp(maximum) : maximum;
}

// Return the maximum of N parts (a power of two) and `maximum`, and the sum of the parts relative to a maximum. Merging
// in pairs has the shortest dependency chain.
template <class Rule, int N>
__device__ __forceinline__ COMPUTE maximum_of(const Rule& rule, COMPUTE maximum, const OnlineState (&part)[N]) {
  if (!rule.has_maximum()) return maximum;
  COMPUTE maxima[N];
#pragma unroll
  for (int j = 0; j < N; j++) maxima[j] = part[j].maximum;
#pragma unroll
  for (int n = N / 2; n > 0; n /= 2)
#pragma unroll
    for (int j = 0; j < n; j++) maxima[j] = max(maxima[j], maxima[j + n]);
  return max(maximum, maxima[0]);
}
template <class Rule, int N>
__device__ __forceinline__ COMPUTE sum_below(const Rule& rule, COMPUTE maximum, OnlineState (&part)[N]) {
#pragma unroll
  for (int j = 0; j < N; j++)
    if (rule.has_maximum()) rule.raise(part[j], maximum);
#pragma unroll
  for (int n = N / 2; n > 0; n /= 2)
#pragma unroll
    for (int j = 0; j < n; j++) part[j].sum += part[j + n].sum;
  return part[0].sum;
}

constexpr unsigned MAX_THREADS = 512, WARP = 32;
constexpr int PARTS = (CLUSTER_SIZE * MAX_THREADS / WARP + WARP - 1) / WARP;  // states per lane

// Holds a warp's addresses for sending its state to the other blocks of its cluster.
struct Sending {
  const ClusterExchange* exchange;
  const OnlineState* parts;                    // states of the cluster's warps, padded with neutral ones
  ClusterExchange::RemoteAddress destination;  // address in the block with the lane's number
};

template <bool BLENDS, class Rule, int N>
__device__ __forceinline__ void softmax_of_row(const Rule rule, LocatedVectors<Rule, N>& vectors,
                                               const Sending& sending) {
  const unsigned lane = threadIdx.x % WARP;
  vectors.wait();
  vectors.start_loads();
  sending.exchange->wait_for_peers();  // The loads are in flight meanwhile.
  vectors.take();

  OnlineState state[1] = {rule.empty()};
  rule.template cover<true>(state, vectors.values);
  const COMPUTE own_maximum = state[0].maximum = row_maximum_of_warp(rule, state[0].maximum);
  rule.template add_covered<true>(state, vectors.values);
  griddepcontrol_launch_dependents_with(state[0].sum);
  merge_sums(state, 1, WARP);
  sending.exchange->send(lane < CLUSTER_SIZE, sending.destination, state[0].maximum, state[0].sum);
  sending.exchange->wait();

  OnlineState part[PARTS];
#pragma unroll
  for (int j = 0; j < PARTS; j++) part[j] = sending.parts[lane + j * WARP];
  state[0].maximum = row_maximum_of_warp(rule, maximum_of(rule, rule.empty().maximum, part));
  state[0].sum = sum_below(rule, state[0].maximum, part);
  merge_sums(state, 1, WARP);
  rule.template finish<true>(state[0]);
  rule.scale(state[0], own_maximum);
  vectors.template write<BLENDS>(rule, state);
}

template <class Rule, int N> __device__ __forceinline__ void softmax_of_row(const SmallArguments<Rule::INPUTS>& a) {
  const unsigned warps = blockDim.x / WARP, number = cluster_rank() * blockDim.x + threadIdx.x,
                 parts_of_row = CLUSTER_SIZE * warps;
  OnlineState* const parts = reinterpret_cast<OnlineState*>(shared_memory);
  ClusterExchange* const exchange = reinterpret_cast<ClusterExchange*>(parts + WARP * PARTS);
  exchange->init();
  for (unsigned i = parts_of_row + threadIdx.x; i < WARP * PARTS; i += blockDim.x)
    parts[i] = Rule{Algorithm(a.algorithm), a.alpha}.empty();
  exchange->expect(parts_of_row * sizeof(OnlineState));
  LocatedVectors<Rule, N> vectors(a, blockIdx.x / CLUSTER_SIZE, number);
  const Sending sending{exchange, parts,
                        exchange->remote_address(&parts[number / WARP].maximum, threadIdx.x % WARP % CLUSTER_SIZE)};
  without_jumps<Rule>(
      a, [&](const Rule rule, auto blends) { softmax_of_row<decltype(blends)::value>(rule, vectors, sending); });
}

#define SOFTMAX_SMALL_ROWS(vectors)                                        \
  extern "C" __global__ void CLUSTER_DIMS_X __launch_bounds__(MAX_THREADS) \
      softmax_small_rows_forward_##vectors(const SmallArguments<1> a) {    \
    griddepcontrol_wait_deferred();                                        \
    softmax_of_row<Forward, vectors>(a);                                   \
  }                                                                        \
  extern "C" __global__ void CLUSTER_DIMS_X __launch_bounds__(MAX_THREADS) \
      softmax_small_rows_backward_##vectors(const SmallArguments<2> a) {   \
    griddepcontrol_wait_deferred();                                        \
    softmax_of_row<Backward, vectors>(a);                                  \
  }
SOFTMAX_SMALL_ROWS(1)
SOFTMAX_SMALL_ROWS(2)
SOFTMAX_SMALL_ROWS(4)
#if VECTOR_BYTES < 16  // single elements
SOFTMAX_SMALL_ROWS(8)
#endif
