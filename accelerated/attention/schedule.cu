// This kernel stores the windows and lengths of an attention call (7.2.35), from host arguments and device memory, for
// the call's other kernels.
//
// A piece covers time-steps along which both ends of the window rise evenly. A launch takes up to PIECES of them,
// because kernel arguments are limited. Each thread computes one value. The first launch also clamps the lengths to the
// existing time-steps, and clears the counters of work. Roofline bound: latency; 8 bytes a time-step, no flops.
#include "attention/vectors.cuh"

struct Piece {
  int first, low;  // time-step; its window, and the increments to the next one, modulo 2**32
  unsigned low_step;
  int high;
  unsigned high_step;
};

struct ScheduleArguments {
  const int* q_lengths;
  const int* k_lengths;
  void* space;
  Schedule schedule;
  long long counters_offset;  // bytes
  int q_steps, k_steps, k_sequences;
  int first, count;  // time-steps per launch
  int pieces;
  Piece piece[PIECES];
};

extern "C" __global__ void __launch_bounds__(256) attention_schedule(const __grid_constant__ ScheduleArguments a) {
  griddepcontrol_wait();
  const int n = blockIdx.x * blockDim.x + threadIdx.x;
  int* const table = at_byte<int>(a.space, a.schedule.offset);
  if (n < a.count) {
    const int time = a.first + n;
    int low = 0, high = a.pieces - 1;  // search range for the last piece that begins here or before
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (a.piece[middle].first <= time) low = middle;
      else high = middle - 1;
    }
    const Piece& piece = a.piece[low];
    table[time] = piece.low + (time - piece.first) * piece.low_step;
    table[a.schedule.windows + time] = piece.high + (time - piece.first) * piece.high_step;
  }
  int* const lengths = table + 2 * a.schedule.windows;
  if (a.first != 0) return;
  if (n < COUNTERS) at_byte<int>(a.space, a.counters_offset)[n] = 0;
  if (n < a.schedule.q_sequences) lengths[n] = min(max(a.q_lengths[n], 0), a.q_steps);
  if (n < a.k_sequences) lengths[a.schedule.q_sequences + n] = min(max(a.k_lengths[n], 0), a.k_steps);
}
