// The windows and lengths of an attention call (7.2.35), from host arguments and device memory, for its other kernels.
//
// One launch for each WINDOWS time-steps, as arguments of kernels are limited; a thread per number. The first launch
// copies the lengths, limited to the time-steps that there are. Roofline bound: latency; 8 bytes a time-step, no flops.
#include "attention/vectors.cuh"

struct ScheduleArguments {
  const int* q_lengths;
  const int* k_lengths;
  void* space;
  Schedule schedule;
  int q_steps, k_steps, k_sequences;
  int first, count;  // time-steps of this launch
  int low[WINDOWS], high[WINDOWS];
};

extern "C" __global__ void __launch_bounds__(256) attention_schedule(const ScheduleArguments a) {
  griddepcontrol_wait();
  const int n = blockIdx.x * blockDim.x + threadIdx.x;
  int* const table = at_byte<int>(a.space, a.schedule.offset);
  if (n < a.count) {
    table[a.first + n] = a.low[n];
    table[a.schedule.windows + a.first + n] = a.high[n];
  }
  int* const lengths = table + 2 * a.schedule.windows;
  if (a.first != 0) return;
  if (n < a.schedule.q_sequences) lengths[n] = min(max(a.q_lengths[n], 0), a.q_steps);
  if (n < a.k_sequences) lengths[a.schedule.q_sequences + n] = min(max(a.k_lengths[n], 0), a.k_steps);
}
