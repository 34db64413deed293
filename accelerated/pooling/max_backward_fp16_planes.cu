// Pooling backward (4.1.18) of maxima of images and volumes of half whose rows are read in packs, with a known window: see
// pooling/max_backward_fp16.cuh.
//
// Floor: bytes; x and dy are read, dx written (y is not needed: it is the maximum of x). A block takes rows of planes, from one plane to
// the next: along the depth of volumes, or from image to image, so that what is read and written at a time lies close together. A
// thread has a strip of columns of one row of windows, and of the lines that begin there. A plane's maxima under the windows of a plane
// are found once, and what they get is summed before it goes on to lines and columns. Of the line that two rows of windows share,
// threads tell each other the maxima, and what the windows give. Where lines follow each other without gaps (DENSE), those of a warp
// come to shared memory STAGES steps ahead, and go from there in packs of 16 bytes in the order of memory: half a sector of 32 bytes
// costs about as much as a whole one.
// Measured on an H200: images of 64x256x56x56 57.7 us (by lines 66 to 76), 94 % of the copy. 32x128x28x28 4.2 us
// by lines, 4.9 DENSE: half-written sectors meet in the cache. Volumes of 8x64x16x56x56 29.9 us, 86 % (31.2 without the first two steps fetched ahead):
// 16.5 million warp instructions are issued in 56 % of the cycles, arithmetic on integers is busy 57 %, L2 79 %, with 25 warps of a multiprocessor; they
// wait for each other (barriers 2.1 of 12 cycles), for arithmetic (1.6), shared memory (1.3) and what they read (1.2). Slower: 42 warps, which spill (46 us); strips
// of 8 columns, which take a fifth fewer instructions but 119 registers (35 us); the depth in two segments (36 us); more stages; later steps fetched ahead, too (31 us);
// stores that do not stay in the cache.
#include "primitives/cp_async.cuh"
#include "pooling/max_backward_fp16.cuh"

constexpr int CARRIED = K0 - S0;               // planes of a window that the next one has, too
constexpr int UP = P1, DOWN = K1 - S1 - P1;    // lines of a window beside those of its thread
constexpr bool TELLS = UP + DOWN > 0;
static_assert(S1 == 2 && K1 == K2 && UP >= 0 && DOWN >= 0 && UP + DOWN <= 1 && (K0 == 1 ? S0 == 1 : S0 == 2 && K0 == K2), "images, volumes");

struct Planes : Place {
  FastDivmod strips, row_parts, segments;    // of a row; blocks along axis 1, axis 0
  int warp_rows, block_rows, rows_before, rows;  // rows of windows: of a warp, those that a block writes, that it looks at before those, that it has
  int before, block_steps, steps;         // planes of windows: those that a block only looks at, and its own; all
  int spacing, advance;                   // between the first ones of blocks; between those of a block
};

struct MaximumArguments {
  const ELEMENT* dy;
  const ELEMENT* x;
  ELEMENT* dx;
  Planes planes;
  COMPUTE alpha, beta;
  int propagate;
};

template <int BYTES, bool DENSE, bool PROPAGATES, bool PLAIN> __device__ __forceinline__ void march(const MaximumArguments& a) {
  using H = Halves<BYTES>;
  using Line = FirstMaxima<BYTES>;
  constexpr int PAIRS = H::PAIRS, WINDOWS = H::WINDOWS;
  const Planes& v = a.planes;
  unsigned segment, part, lane_row, strip;
  const unsigned volume = v.segments.divide(v.row_parts.divide(blockIdx.x, part), segment);
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  lane_row = v.strips.divide(lane, strip);
  const int block_row = warp * v.warp_rows + int(lane_row), row = int(part) * v.block_rows - v.rows_before + block_row;
  const bool exists = int(lane_row) < v.warp_rows && block_row < v.rows && row >= 0;
  const int i1 = row * S1, i2 = int(strip) * H::COLUMNS, o2 = int(strip) * WINDOWS;  // of the lines and columns of the thread
  int plane_x = 0, y_at = 0;  // where the first plane of a step is
  v.go_to(volume, plane_x, y_at);
  const int line_distance = v.x_stride[1], plane_distance = v.x_stride[0], y_distance = v.y_stride[0];
  const int own = int(segment) * v.spacing, end = min(own + v.block_steps, v.steps);
  const int windows_end = CARRIED ? min(end, v.output[0]) : end;
  int step = max(own - v.before, 0);
  plane_x += (step * S0 - P0) * plane_distance + i1 * line_distance, y_at += row * v.y_stride[1] + o2 * v.y_stride[2] + step * y_distance;
  int reads[S1], writes[S1];  // columns of the thread's lines
#pragma unroll
  for (int k = 0; k < S1; k++) {
    reads[k] = exists && i1 + k < v.input[1] ? v.input[2] - i2 : 0;
    writes[k] = unsigned(block_row - v.rows_before) < unsigned(v.block_rows) ? reads[k] : 0;
  }
  const int gives = exists && row < v.output[1] ? v.output[2] - o2 : 0;
  const Ends ends = {i2 == 0, i2 + H::COLUMNS >= v.input[2]};

  // What threads tell each other: maxima of a line of the planes that are new, and what windows give to one of those that are written.
  using Values = Words<S0 * PAIRS>;
  using Gifts = Words<(CARRIED ? 4 : S0) * PAIRS>;  // after the numbers for the first plane the halves
  const int strips = int(v.strips.divisor), threads = v.rows * strips, mine = block_row * strips + int(strip);
  Gifts* const told = reinterpret_cast<Gifts*>(shared_memory);
  Values* const values = reinterpret_cast<Values*>(told + threads);
  const int above = mine >= strips ? mine - strips : mine, below = block_row + 1 < v.rows ? mine + strips : mine;
  const bool is_first = row <= 0, is_last = i1 + S1 >= v.input[1];

  // DENSE: what a warp has in shared memory; of a plane PACKS of 16 bytes for each lane, which are the lines of its rows.
  constexpr int PACK_BYTES = 16, PACKS = H::COLUMNS * S1 * int(sizeof(ELEMENT)) / PACK_BYTES, GIFT_BYTES = WINDOWS * int(sizeof(ELEMENT));
  constexpr int PLANE_BYTES = WARP * PACKS * PACK_BYTES, STAGE_BYTES = S0 * PLANE_BYTES + WARP * GIFT_BYTES;
  unsigned char* const stages = shared_memory + (TELLS ? (threads * int(sizeof(Gifts) + sizeof(Values)) + 15) & ~15 : 0) + warp * (STAGES * STAGE_BYTES + S0 * PLANE_BYTES);
  unsigned char* const written = stages + STAGES * STAGE_BYTES;
  const int line_at = exists ? (int(lane_row) * S1 * strips + int(strip)) * H::COLUMNS * int(sizeof(ELEMENT)) : 0, line_bytes = strips * H::COLUMNS * int(sizeof(ELEMENT));
  const int first_pack = int(lane_row) * PACKS * strips + int(strip);  // and every `strips` further ones
  auto pack_x = [&](int j) { return (int(strip) + j * strips) * (PACK_BYTES / int(sizeof(ELEMENT))); };  // from the line on
  auto pack_at = [&](int j) { return (first_pack + j * strips) * PACK_BYTES; };

  // A plane under the windows of the thread.
  struct Plane {
    Line line[S1];
    unsigned value[PAIRS];
    Choice choice[PAIRS];
  };
  auto has = [&](int i0) { return K0 == 1 || unsigned(i0) < unsigned(v.input[0]); };  // of the planes of a step
  auto read_plane = [&](bool exists, int deep, unsigned (&words)[S1][H::WORDS]) {
#pragma unroll
    for (int k = 0; k < S1; k++)
      read_line<BYTES, PROPAGATES>(a.x + (plane_x + deep * plane_distance + k * line_distance + i2), exists ? reads[k] : 0, words[k]);
  };
  auto look = [&](const unsigned (&words)[S1][H::WORDS], Plane& plane) {
#pragma unroll
    for (int k = 0; k < S1; k++) plane.line[k].template look<PROPAGATES>(words[k], ends);
  };
  // The maxima of the line of another thread, which are told by all.
  auto tell_values = [&](const Plane (&planes)[S0]) {
    Values tells;
#pragma unroll
    for (int n = 0; n < S0 * PAIRS; n++) tells.word[n] = planes[n / PAIRS].line[UP ? S1 - 1 : 0].value[n % PAIRS];
    if (TELLS && exists) values[mine] = tells;
    if (TELLS) __syncthreads();
  };
  auto choose_lines = [&](Plane (&planes)[S0]) {
    Values heard;
    if (TELLS) heard = values[!exists ? 0 : UP ? above : below];
#pragma unroll
    for (int n = 0; n < S0 * PAIRS; n++) {
      Plane& plane = planes[n / PAIRS];
      const int g = n % PAIRS;
      const unsigned other = (UP ? is_first : is_last) ? NOTHING<PROPAGATES> : heard.word[n];
      plane.value[g] = UP ? other : plane.line[0].value[g];
      plane.choice[g] = choose<K1, PROPAGATES>(plane.value[g], plane.line[UP ? 0 : 1].value[g], UP ? plane.line[1].value[g] : other, UP && is_first ? 0 : ALL);
    }
  };

  constexpr int AHEAD = DENSE ? 1 : STAGES;  // in registers
  unsigned coming[AHEAD][S0][S1][H::WORDS], coming_gifts[AHEAD][PAIRS], late[PAIRS];
  auto read_step = [&](int ahead, int s) {
    const int far = ahead * v.advance;
    const bool some = step + far < windows_end, gift = some && (K0 == 1 || unsigned(step + far) < unsigned(v.output[0]));
    if (DENSE) {
      unsigned char* const stage = stages + s * STAGE_BYTES;
#pragma unroll
      for (int k = 0; k < S0; k++)
        if (some && reads[0] > 0)
#pragma unroll
          for (int j = 0; j < PACKS; j++)
            cp_async<PACK_BYTES>(stage + k * PLANE_BYTES + pack_at(j), a.x + (plane_x + (far * S0 + CARRIED + k) * plane_distance + pack_x(j)), true);
      if (some && gives > 0) cp_async<GIFT_BYTES>(stage + S0 * PLANE_BYTES + lane * GIFT_BYTES, a.dy + (y_at + far * y_distance), true);
      cp_async_commit();
    } else {
#pragma unroll
      for (int k = 0; k < S0; k++) read_plane(some && has((step + far) * S0 - P0 + CARRIED + k), far * S0 + CARRIED + k, coming[s][k]);
      read_gifts<BYTES>(a.dy + (y_at + far * y_distance), v.y_stride[2], gift ? gives : 0, v.y_packed, coming_gifts[s]);
    }
  };
  // What came for a step.
  auto take_step = [&](int s, unsigned (&words)[S0][S1][H::WORDS], unsigned (&gifts)[PAIRS]) {
    const unsigned char* const stage = stages + s * STAGE_BYTES;
    if (DENSE) {
      cp_async_wait<STAGES - 1>();
      __syncwarp();
    }
#pragma unroll
    for (int k = 0; k < S0; k++)
#pragma unroll
      for (int l = 0; l < S1; l++) {
        Words<H::WORDS> line;
#pragma unroll
        for (int j = 0; j < H::WORDS; j++) line.word[j] = coming[DENSE ? 0 : s][k][l][j];
        if (DENSE) line = *reinterpret_cast<const Words<H::WORDS>*>(stage + k * PLANE_BYTES + l * line_bytes + line_at);
#pragma unroll
        for (int j = 0; j < H::WORDS; j++) words[k][l][j] = line.word[j];
      }
    Words<PAIRS> gift;
#pragma unroll
    for (int g = 0; g < PAIRS; g++) gift.word[g] = DENSE ? 0 : coming_gifts[DENSE ? 0 : s][g];
    if (DENSE && gives > 0) gift = *reinterpret_cast<const Words<PAIRS>*>(stage + S0 * PLANE_BYTES + lane * GIFT_BYTES);
#pragma unroll
    for (int g = 0; g < PAIRS; g++) gifts[g] = gift.word[g];
  };
  // Writes a line of the thread.
  auto write = [&](int k0, int k, const unsigned (&words)[H::WORDS]) {
    if (DENSE) {
      Words<H::WORDS> line;
#pragma unroll
      for (int j = 0; j < H::WORDS; j++) line.word[j] = words[j];
      if (exists) *reinterpret_cast<Words<H::WORDS>*>(written + k0 * PLANE_BYTES + k * line_bytes + line_at) = line;
    } else {
      write_line<BYTES>(a.dx + (plane_x + k0 * plane_distance + k * line_distance + i2), has(step * S0 - P0 + k0) ? writes[k] : 0, words);
    }
  };
  auto write_numbers = [&](int k0, int k, const float (&numbers)[H::COLUMNS]) {
    unsigned words[H::WORDS];
    blend<BYTES>(a.dx + (plane_x + k0 * plane_distance + k * line_distance + i2), has(step * S0 - P0 + k0) ? writes[k] : 0, numbers, a.alpha, a.beta, PLAIN, words);
    write(k0, k, words);
  };

  if (DENSE) {  // of two steps
#pragma unroll
    for (int k = 0; k < CARRIED + 2 * S0; k++)
#pragma unroll
      for (int l = 0; l < S1; l++)
        if (reads[l] > 0 && has(step * S0 - P0 + k)) prefetch_l2(a.x + (plane_x + k * plane_distance + l * line_distance + i2));
#pragma unroll
    for (int k = 0; k < 2; k++)
      if (gives > 0 && step + k < windows_end) prefetch_l2(a.dy + (y_at + k * y_distance));
  }
  griddepcontrol_wait_before_access(a.x + plane_x, a.dy + y_at);
  Plane carried;
#pragma unroll
  for (int g = 0; g < PAIRS; g++) late[g] = 0;
  if (CARRIED) {
    unsigned words[S1][H::WORDS];
    Plane planes[S0];
    read_plane(has(step * S0 - P0), 0, words);
    look(words, planes[0]);
    planes[S0 - 1] = planes[0];
    tell_values(planes);
    choose_lines(planes);
    if (TELLS) __syncthreads();
    carried = planes[0];
  }
  // Gives what windows of a plane gave to planes that no later window reaches: numbers to the first one, if another step gave to
  // it, too, and halves. That to a line of another thread is told.
  constexpr int OTHER = UP ? 0 : 2, OWN = UP;
  auto give = [&](const Plane& first, const Plane& second, const float (&sum)[WINDOWS], const unsigned (&gift)[S0][PAIRS]) {
    unsigned once[S0][3][PAIRS], heard[S0][PAIRS] = {};
    float twice[3][WINDOWS], heard_twice[WINDOWS] = {};
#pragma unroll
    for (int w = 0; w < WINDOWS; w++)
      if (CARRIED) {
        const Choice one = w % 2 ? first.choice[w / 2].template one<1>() : first.choice[w / 2].template one<0>();
        twice[0][w] = part_of<0>(sum[w], one), twice[1][w] = part_of<1>(sum[w], one), twice[2][w] = part_of<2>(sum[w], one);
      }
#pragma unroll
    for (int k0 = CARRIED; k0 < S0; k0++)
#pragma unroll
      for (int g = 0; g < PAIRS; g++) {
        const Choice& choice = (k0 ? second : first).choice[g];
        once[k0][0][g] = choice.template part<0>(gift[k0][g]), once[k0][1][g] = choice.template part<1>(gift[k0][g]);
        once[k0][2][g] = choice.template part<2>(gift[k0][g]);
      }
    if (TELLS) {
      Gifts tells = {}, hears = {};
#pragma unroll
      for (int w = 0; w < WINDOWS; w++)
        if (CARRIED) tells.word[w] = __float_as_uint(twice[OTHER][w]);
#pragma unroll
      for (int k0 = CARRIED; k0 < S0; k0++)
#pragma unroll
        for (int g = 0; g < PAIRS; g++) tells.word[CARRIED * WINDOWS + (k0 - CARRIED) * PAIRS + g] = once[k0][OTHER][g];
      if (exists) told[mine] = tells;
      __syncthreads();
      if (exists && !(UP ? is_last : is_first)) hears = told[UP ? below : above];
#pragma unroll
      for (int w = 0; w < WINDOWS; w++)
        if (CARRIED) heard_twice[w] = __uint_as_float(hears.word[w]);
#pragma unroll
      for (int k0 = CARRIED; k0 < S0; k0++)
#pragma unroll
        for (int g = 0; g < PAIRS; g++) heard[k0][g] = hears.word[CARRIED * WINDOWS + (k0 - CARRIED) * PAIRS + g];
    }
    if (step < own) return;
#pragma unroll
    for (int k0 = 0; k0 < S0; k0++)
#pragma unroll
      for (int k = 0; k < S1; k++) {
        const bool shared = TELLS && k == (UP ? S1 - 1 : 0);
        const Line& line = (k0 ? second : first).line[k];
        float numbers[H::COLUMNS], given[WINDOWS];
        if (k0 < CARRIED) {
#pragma unroll
          for (int w = 0; w < WINDOWS; w++) given[w] = shared ? twice[OWN + k][w] + heard_twice[w] : twice[OWN + k][w];
        } else if (PLAIN) {
          unsigned words[H::WORDS];
          if (shared) line.give_both(once[k0][OWN + k], heard[k0], ends, words);
          else line.give(once[k0][OWN + k], ends, words);
          write(k0, k, words);
          continue;
        } else {
#pragma unroll
          for (int w = 0; w < WINDOWS; w++) {
            const unsigned own_gift = once[k0][OWN + k][w / 2], other = shared ? heard[k0][w / 2] : 0;
            given[w] = w % 2 ? high_of(own_gift) + high_of(other) : low_of(own_gift) + low_of(other);
          }
        }
        line.template give_numbers<true>(given, ends, numbers);
        write_numbers(k0, k, numbers);
      }
    if (!DENSE) return;
    __syncwarp();
#pragma unroll
    for (int k0 = 0; k0 < S0; k0++)
      if (writes[0] > 0 && has(step * S0 - P0 + k0))
#pragma unroll
        for (int j = 0; j < PACKS; j++)
          *reinterpret_cast<Words<4>*>(a.dx + (plane_x + k0 * plane_distance + pack_x(j))) = *reinterpret_cast<const Words<4>*>(written + k0 * PLANE_BYTES + pack_at(j));
  };

#pragma unroll
  for (int s = 0; s < STAGES; s++) read_step(s, s);
  if (DENSE) griddepcontrol_launch_dependents();
  int slot = 0;
#pragma unroll 1
  while (step < windows_end)
#pragma unroll
    for (int s = 0; s < AHEAD; s++) {
      if (step >= windows_end) break;
      Plane plane[S0];
      unsigned gift[PAIRS], early[K0][PAIRS], once[S0][PAIRS];
      {
        unsigned words[S0][S1][H::WORDS];
        take_step(DENSE ? slot : s, words, gift);
#pragma unroll
        for (int k = 0; k < S0; k++) look(words[k], plane[k]);
      }
      if (DENSE) __syncwarp();
      read_step(STAGES, DENSE ? slot : s);
      tell_values(plane);
      slot = slot + 1 == STAGES ? 0 : slot + 1;
      choose_lines(plane);
      const Plane &first = CARRIED ? carried : plane[0], &second = plane[K0 > 1 ? 1 - CARRIED : 0], &third = plane[S0 - 1];
#pragma unroll
      for (int g = 0; g < PAIRS; g++) {
        unsigned value = first.value[g];
        const Choice choice = K0 > 1 ? choose<K0, PROPAGATES>(value, second.value[g], third.value[g], has(step * S0 - P0) ? ALL : 0) : Choice{ALL, ALL};
        if (!PROPAGATES) gift[g] &= ~not_numbers(value);
        early[0][g] = choice.template part<0>(gift[g]);
        if (K0 > 1) early[K0 > 1 ? 1 : 0][g] = choice.template part<1>(gift[g]);
        if (K0 > 2) early[K0 - 1][g] = choice.template part<2>(gift[g]);
#pragma unroll
        for (int k0 = 0; k0 < S0; k0++) once[k0][g] = early[k0][g];
      }
      float sum[WINDOWS];
      if (CARRIED) Line::add(late, early[0], sum);
      give(first, second, sum, once);
      if (CARRIED) {
        carried = third;
#pragma unroll
        for (int g = 0; g < PAIRS; g++) late[g] = early[K0 - 1][g];
      }
      step += v.advance, plane_x += v.advance * S0 * plane_distance, y_at += v.advance * y_distance;
    }
  if (CARRIED && step < end) {  // behind the last windows
    const unsigned nothing[S0][PAIRS] = {};
    float sum[WINDOWS];
    Line::add(late, nothing[0], sum);
    if (TELLS) __syncthreads();
    give(carried, carried, sum, nothing);
  }
}

template <int BYTES, bool DENSE> __device__ __forceinline__ void march(const MaximumArguments& a) {
  const bool plain = a.alpha == COMPUTE(1) && a.beta == COMPUTE(0);
  if (a.propagate) plain ? march<BYTES, DENSE, true, true>(a) : march<BYTES, DENSE, true, false>(a);
  else plain ? march<BYTES, DENSE, false, true>(a) : march<BYTES, DENSE, false, false>(a);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) pooling_max_backward_fp16_planes_dense(const MaximumArguments a) {
  griddepcontrol_wait_deferred();
  march<8, true>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) pooling_max_backward_fp16_planes_narrow(const MaximumArguments a) {
  griddepcontrol_wait_deferred();
  march<8, false>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) pooling_max_backward_fp16_planes_word(const MaximumArguments a) {
  griddepcontrol_wait_deferred();
  march<4, false>(a);
}
