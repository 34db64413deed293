// These kernels compute CTC costs and gradients of activations (8.2.3, 8.2.4), in logarithms and in a fixed order.
//
// normalizers: one warp per row of activations computes the logarithm of its sum of exponentials. alignments: one block
// per sequence and direction, one thread per state (the labels, and blanks around them). The states of the last time
// step are in shared memory, so that a step takes a barrier, three exponentials and a logarithm. Probabilities are read
// AHEAD steps early. Each step also goes to the workspace. gradients: one block per sequence and time step. The thread
// of a label's first occurrence adds all occurrences in order.
//
// Roofline bound: latency, `times` dependent steps of about 0.2 us. In bytes, probs are read and gradients written
// once. The workspace has 2 * states words per time step and sequence, written and read mostly in L2, at 8 flops a
// word.
#include "primitives/types.cuh"

constexpr int STATES = 2 * MAX_LABEL + 1;  // labels, and blanks around them
constexpr int WARPS = (STATES + 31) / 32;  // warps with a thread per state
constexpr int AHEAD = 4;                   // steps of time that are fetched early
constexpr int LINK = 0xffff;               // mask of a link to the next equal label
constexpr int LATER = 0x10000;             // marks a label that is not the first of its equals

struct Sequence {  // one entry of the workspace
  int times;       // the input length; negative without an alignment
  int labels, start;
  float total;  // logarithm of the probability of its labels
};

struct Arguments {
  const float* probs;
  const int* label_lengths;
  const int* input_lengths;
  const int* labels;
  float* costs;
  float* gradients;
  float* workspace;
  long long sequences_at, links_at, normalizers_at, forward_at, backward_at;  // areas of the workspace, in words
  long long label_lengths_at, input_lengths_at, labels_at;                    // offsets of the lists, in words
  int probs_time, probs_sequence, probs_class;                                // strides
  int gradients_time, gradients_sequence, gradients_class;
  int times, count, classes, max_labels, states;
  int normalizes, keeps, wants_gradients;

  __device__ __forceinline__ Sequence* sequence(int n) const {
    return reinterpret_cast<Sequence*>(workspace + sequences_at) + n;
  }
  __device__ __forceinline__ int* links(int n) const {
    return reinterpret_cast<int*>(workspace + links_at) + static_cast<long long>(n) * max_labels;
  }
  __device__ __forceinline__ const float* row(int t, int n) const {
    return probs + static_cast<long long>(t) * probs_time + static_cast<long long>(n) * probs_sequence;
  }
  __device__ __forceinline__ float* normalizer(int t, int n) const {
    return workspace + normalizers_at + static_cast<long long>(t) * count + n;
  }
  // Returns a row of the states of one direction.
  __device__ __forceinline__ float* table(long long at, int t, int n) const {
    return workspace + at + (static_cast<long long>(n) * times + t) * states;
  }
};

__device__ __forceinline__ float sum_of_warp(float value) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(~0u, value, lanes);
  return value;
}

extern "C" __global__ void __launch_bounds__(256) ctc_loss_normalizers(const Arguments a) {
  griddepcontrol_wait();
  const long long index = static_cast<long long>(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
  if (index >= static_cast<long long>(a.times) * a.count) return;
  const int t = index / a.count, n = index % a.count, lane = threadIdx.x & 31;
  const float* x = a.row(t, n);
  float maximum = -INFINITY, sum = 0;
  for (int k = lane; k < a.classes; k += 32) maximum = fmaxf(maximum, x[static_cast<long long>(k) * a.probs_class]);
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) maximum = fmaxf(maximum, __shfl_xor_sync(~0u, maximum, lanes));
  for (int k = lane; k < a.classes; k += 32) sum += expf(x[static_cast<long long>(k) * a.probs_class] - maximum);
  sum = sum_of_warp(sum);
  if (lane == 0) *a.normalizer(t, n) = maximum + logf(sum);
}

// Returns the logarithm of the sum of three exponentials: -infinity where all are zero, NaN where one is NaN.
__device__ __forceinline__ float log_sum(float a, float b, float c) {
  const float maximum = fmaxf(fmaxf(a, b), c);
  if (!(maximum > -INFINITY)) return a + b + c;
  return maximum + logf(expf(a - maximum) + expf(b - maximum) + expf(c - maximum));
}

extern "C" __global__ void __launch_bounds__(WARPS * 32) ctc_loss_alignments(const Arguments a) {
  griddepcontrol_wait();
  // prefixes of alignments, by their last state; the entries before the first state are empty
  __shared__ float reached[2][STATES + 2];
  __shared__ int labels[MAX_LABEL];
  __shared__ int of_warps[WARPS];
  const int n = blockIdx.x, s = threadIdx.x;
  const bool backward = blockIdx.y == 1;

  // The labels of a sequence follow the labels of the sequences before it.
  int start = 0;
  for (int i = s; i < n; i += blockDim.x) start += min(max(a.label_lengths[a.label_lengths_at + i], 0), a.max_labels);
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) start += __shfl_xor_sync(~0u, start, lanes);
  if ((s & 31) == 0) of_warps[s / 32] = start;
  const int length = a.label_lengths[a.label_lengths_at + n], times = a.input_lengths[a.input_lengths_at + n];
  const int count = min(max(length, 0), a.max_labels), states = 2 * count + 1;
  __syncthreads();
  start = 0;
  for (unsigned w = 0; w < blockDim.x / 32; w++) start += of_warps[w];
  int label = 0;
  if (s < count) label = labels[s] = a.labels[a.labels_at + start + s];
  __syncthreads();
  const bool repeated = s > 0 && s < count && labels[s - 1] == label;
  const int repetitions = __syncthreads_count(repeated);
  const int wrong = __syncthreads_or(s < count && (label <= 0 || label >= a.classes));
  const bool possible = !wrong && length == count && times >= 0 && times <= a.times && count + repetitions <= times;
  if (!possible || times == 0) {  // All threads take this branch together.
    if (s == 0 && !backward) {
      a.costs[n] = 0;
      *a.sequence(n) = {possible ? 0 : -1, count, start, 0};
    }
    return;
  }

  // Backward, thread s owns the state s from the end, so that both directions go from lower to higher threads.
  const int state = backward ? states - 1 - s : s;
  const bool active = s < states, odd = active && (state & 1);
  const int own = odd ? labels[state / 2] : 0;
  const bool skips = odd && s >= 2 && own != labels[backward ? state / 2 + 1 : state / 2 - 1];
  const float* x = a.row(0, n) + static_cast<long long>(own) * a.probs_class;
  const float* normalizer = a.normalizer(0, n);
  const auto time = [&](int step) { return backward ? times - 1 - step : step; };
  float value[AHEAD], sum[AHEAD];
  const auto fetch = [&](int i, int step) {
    const long long t = time(min(step, times - 1));
    value[i] = x[t * a.probs_time];
    sum[i] = a.normalizes ? normalizer[t * a.count] : 0;
  };
#pragma unroll
  for (int i = 0; i < AHEAD; i++) fetch(i, i);
  if (s < 2) reached[0][s] = reached[1][s] = -INFINITY;
  for (int first = 0; first < times; first += AHEAD) {
#pragma unroll
    for (int i = 0; i < AHEAD; i++) {
      const int step = first + i;
      if (step >= times) break;
      const float logarithm = a.normalizes ? value[i] - sum[i] : logf(value[i]);
      fetch(i, step + AHEAD);
      if (active) {
        float before = s < 2 ? 0 : -INFINITY;
        if (step > 0) {
          const float* last = reached[(step + 1) & 1] + s;
          before = log_sum(last[2], last[1], skips ? last[0] : -INFINITY);
        }
        // A state that no alignment reaches stays unreached, whatever its probability.
        const float with = before == -INFINITY ? before : before + logarithm;
        reached[step & 1][s + 2] = with;
        if (a.wants_gradients)
          a.table(backward ? a.backward_at : a.forward_at, time(step), n)[state] = backward ? before : with;
      }
      __syncthreads();
    }
  }
  if (backward) return;

  const float* last = reached[(times + 1) & 1] + states;
  const float total = log_sum(last[1], last[0], -INFINITY);
  if (s == 0) {
    a.costs[n] = -total;
    *a.sequence(n) = {total == -INFINITY ? -1 : times, count, start, total};
  }
  if (a.wants_gradients && s < count) {
    int link = LINK;
    for (int i = count - 1; i > s; i--) link = labels[i] == label ? i : link;
    for (int i = 0; i < s; i++) link |= labels[i] == label ? LATER : 0;
    a.links(n)[s] = link;
  }
}

extern "C" __global__ void __launch_bounds__(128) ctc_loss_gradients(const Arguments a) {
  griddepcontrol_wait();
  __shared__ float share[STATES];  // share of the alignments, by their state at this time step
  __shared__ float of_warps[4];
  const int t = blockIdx.x / a.count, n = blockIdx.x % a.count, threads = blockDim.x;
  const Sequence sequence = *a.sequence(n);
  if (sequence.times < 0 && a.keeps) return;
  float* gradient =
      a.gradients + static_cast<long long>(t) * a.gradients_time + static_cast<long long>(n) * a.gradients_sequence;
  const auto of_class = [&](int k) { return gradient + static_cast<long long>(k) * a.gradients_class; };
  if (t >= sequence.times) {
    for (int k = threadIdx.x; k < a.classes; k += threads) *of_class(k) = 0;
    return;
  }

  const float *x = a.row(t, n), normalizer = a.normalizes ? *a.normalizer(t, n) : 0;
  const auto probability = [&](int k) {
    const float value = x[static_cast<long long>(k) * a.probs_class];
    return a.normalizes ? expf(value - normalizer) : value;
  };
  for (int k = threadIdx.x; k < a.classes; k += threads) *of_class(k) = probability(k);
  const float *forward = a.table(a.forward_at, t, n), *backward = a.table(a.backward_at, t, n);
  float blank = 0;
  for (int s = threadIdx.x; s < 2 * sequence.labels + 1; s += threads) {
    const float beginning = forward[s], ending = backward[s];
    const bool possible = !(beginning == -INFINITY || ending == -INFINITY);
    share[s] = possible ? expf(beginning + ending - sequence.total) : 0;
    if (s % 2 == 0) blank += share[s];
  }
  blank = sum_of_warp(blank);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = blank;
  __syncthreads();  // The gradients must be complete, too, because the classes of labels are written again.

  if (threadIdx.x == 0) *of_class(0) = probability(0) - (of_warps[0] + of_warps[1] + of_warps[2] + of_warps[3]);
  const int* links = a.links(n);
  for (int i = threadIdx.x; i < sequence.labels; i += threads) {
    int link = links[i];
    if (link & LATER) continue;
    float sum = share[2 * i + 1];
    for (; (link & LINK) != LINK; link = links[link & LINK]) sum += share[2 * (link & LINK) + 1];
    const int label = a.labels[a.labels_at + sequence.start + i];
    *of_class(label) = probability(label) - sum;
  }
}
