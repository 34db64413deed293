// Softmax over long lines and columns, forward (3.2.96) and backward (4.1.19), in a stream, wherever they begin.
// Floor: bytes, each moves once. softmax/persistent.cuh says how it works, what limits and what was reached.
#include "softmax/persistent.cuh"

#define SOFTMAX_STREAM(name, rule, columns)                                                                         \
  extern "C" __global__ void __launch_bounds__(STREAM_THREADS, 1) name(const Arguments<rule::INPUTS> a) {           \
    griddepcontrol_wait();                                                                                     \
    Stream<rule, columns>(a, a.kept * STREAM_PACKS * a.workers * 16).run();                                         \
  }

SOFTMAX_STREAM(softmax_forward_lines_stream, Forward, false)
SOFTMAX_STREAM(softmax_backward_lines_stream, Backward, false)
SOFTMAX_STREAM(softmax_forward_columns_stream, Forward, true)
SOFTMAX_STREAM(softmax_backward_columns_stream, Backward, true)
