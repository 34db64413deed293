// Softmax, forward (3.2.96) and backward (4.1.19).
//
// A line is what one softmax runs over: C, H, W of an image or C at a position. A team of threads takes a line (or,
// where neighbours in memory belong to different lines, a pack of neighbouring lines). Every thread brings its packs to
// places of its own in shared memory, many in flight at once (cp.async: no registers, no barriers), takes their part
// of the statistic, agrees on it with its team, computes and writes. Only the part of a line that exceeds shared memory
// is read again, what was read last first, while L2 has it.
//
// Teams: "lines" are some lanes of a warp or a block; "columns" are blocks over packs of lines (a C that is not
// innermost); both exist for clusters of blocks (few or very long lines: all multiprocessors work, and no workspace is
// needed). Packs are 16 bytes (wide) or, where rows start anywhere, single elements (narrow). Short lines of any length
// that lie one after the other are "tiles": a block moves many of them in whole accesses, all of them at once where they
// fit the device; of the shortest a thread takes so many that they fill packs, of elements
// of two bytes a few lanes walk along a line, pair by pair. Single elements of lines that some lanes
// of a warp hold stay in "registers", "short columns" in those of one thread, "blocks" are lines in those of a block, where all run at
// once, "many" are more lines of one input in those of clusters that follow each other; packs that some lanes hold are in
// softmax/register_resident.cu, small tensors in softmax/small_rows.cu and softmax/small_strided.cu, long lines of large ones in softmax/persistent.cu and
// softmax/persistent_tma.cu, long columns in softmax/persistent_resident_strided.cu and softmax/persistent_tma_strided.cu.
//
// Floor: bytes. Forward moves 2 elements, backward 3; at 4.2 TB/s a float costs 1.9 ps forward, a half 1.0 ps. The
// arithmetic is near: two exponentials and some 12 instructions an element are 0.4 ps on 132 multiprocessors. What limits
// lines that clusters share is that all blocks read, agree and write at the same time, and that sixteen multiprocessors
// hold no more than 3.6 MB. Through shared memory an element takes 45 instructions (warps issue in 57 % of all cycles), of which lines
// in registers save half: 256 lines of 32000 halves take 9.2 us instead of 13.5, of floats, whose next kernel's first packs are asked
// for early, 18.0 instead of 19.5; there warps wait for reads for a quarter of the time and for each other as long. Gradients took
// longer so. Tiles: 191 KB of a multiprocessor arrive, are read twice and written, which keeps its shared memory busy for 2.9 of 6.8 us.
// The fraction that each operation reaches on an H200 is in reports/README.md.
#include "softmax/online.cuh"

// Gradients in float of many single elements took 1.2 times as long with blocks of the next kernel beside theirs (H200); others take
// less with them.
template <class Rule> constexpr bool SLOW_BESIDE = Rule::INPUTS == 2 && sizeof(ELEMENT) >= 4;
constexpr unsigned MANY_BESIDE = 1024;  // blocks, of single elements

template <class Rule, template <class, bool> class Line, bool COLUMNS, bool CLUSTERED>
__device__ __forceinline__ void softmax(const Arguments<Rule::INPUTS>& a) {
  using Place = typename Line<Rule, COLUMNS>::Place;
  constexpr int INPUTS = Rule::INPUTS, HELD = Line<Rule, COLUMNS>::HELD, LANES = Line<Rule, COLUMNS>::LANES;
  constexpr int VALUES = HELD * sizeof(Place) / sizeof(ELEMENT);
  const Rule rule{Algorithm(a.algorithm), a.alpha};
  const unsigned thread = threadIdx.x, threads = blockDim.x;
  if (CLUSTERED) cluster_arrive_relaxed();

  // The line, this thread's number in its team, and the size of that.
  const unsigned block = CLUSTERED ? blockIdx.x / CLUSTER_SIZE : blockIdx.x, log_team = exponent_of(a.team);
  unsigned index, rank, size;
  if (COLUMNS) index = (block << log_team) + (thread & (a.team - 1)), rank = thread >> log_team, size = threads >> log_team;
  else index = CLUSTERED ? block : (block * threads + thread) >> log_team, rank = thread & (a.team - 1), size = a.team;
  if (CLUSTERED) rank += cluster_rank() * size, size *= CLUSTER_SIZE;
  const Line<Rule, COLUMNS> line(a, min(index, a.lines.packs - 1));
  const unsigned packs = index < a.lines.packs ? line.packs : 0;
  // Of gradients, and of more than one group, that took as long or longer.
  if constexpr (CLUSTERED && !COLUMNS && INPUTS == 1 && sizeof(Place) > sizeof(ELEMENT)) line.ask_ahead(rank, size);
  if constexpr (COLUMNS) griddepcontrol_wait_before_access(a.input[0]);  // their places would take registers that another block needs
  else griddepcontrol_wait_before_access(line.input[0], line.output);

  // Of the groups of this thread shared memory keeps all, or the first and, in turn, DEPTH others.
  const unsigned round = size * HELD, groups = packs == 0 ? 0 : ((packs - 1) >> exponent_of(round)) + 1;
  const unsigned fixed = groups <= a.kept ? groups : a.kept - DEPTH, distance = threads;
  Place* places = reinterpret_cast<Place*>(shared_memory) + thread;
  auto place = [=](unsigned group) {
    return places + (group < fixed ? group : fixed + (group - fixed) % DEPTH) * (HELD * INPUTS * distance);
  };

  Statistic statistic[LANES];
#pragma unroll
  for (int lane = 0; lane < LANES; lane++) statistic[lane] = rule.empty();
#pragma unroll 1
  for (unsigned step = 0; step < groups + DEPTH; step++) {
    if (step >= DEPTH) {
      COMPUTE values[INPUTS][VALUES];
      const unsigned group = step - DEPTH;
      arrived<DEPTH - 1>();
      line.take(group * round + rank, size, place(group), distance, values);
      rule.add(statistic, values);
    }
    if (step < groups) line.fetch(step * round + rank, size, place(step), distance);
    commit();
  }
  // Of single elements, whose gradients take five more registers otherwise, and 13 % longer, only where blocks are not many.
  if (COLUMNS || sizeof(Place) > sizeof(ELEMENT)) griddepcontrol_launch_dependents();
  else if (!SLOW_BESIDE<Rule> || grid_blocks() <= MANY_BESIDE) griddepcontrol_launch_dependents_medium_grid();

  Statistic* parts = reinterpret_cast<Statistic*>(shared_memory + a.kept * HELD * INPUTS * threads * sizeof(Place));
  if constexpr (COLUMNS) merge_columns<CLUSTERED, false>(rule, statistic, a.team, parts);
  else merge_lines<CLUSTERED>(rule, statistic, a.team, parts);

#pragma unroll 1
  for (unsigned group = groups; group-- > 0;) {
    arrived<DEPTH - 1>();
    line.write(rule, statistic, group * round + rank, size, place(group), distance);
    if (group >= fixed + DEPTH) line.fetch((group - DEPTH) * round + rank, size, place(group), distance);
    commit();
  }
}

// --- tiles: lines of one length that follow each other without gaps, in all operands ---

// The line that a thread takes first. The lines of a warp lie so far apart that its lanes find their elements in different banks: beside
// each other, odd ones took up to three times as many accesses, gradients of 67 floats 20 % longer (H200).
__device__ __forceinline__ unsigned first_line_of_tile(unsigned log_team, unsigned length) {
  constexpr unsigned LOG_WARPS = 3;  // of a block
  const unsigned most = min(log_team, LOG_WARPS), log_apart = most - min(most, unsigned(__ffs(length) - 1)), log_lines = 5 - log_team;
  const unsigned warp = threadIdx.x >> 5, of_warp = (threadIdx.x & 31) >> log_team;
  return (warp >> log_apart << (log_lines + log_apart)) + (of_warp << log_apart) + (warp & ((1u << log_apart) - 1));
}

// The lines of a tile in shared memory (the inputs lie `pitch` apart), N elements a lane; results replace the first input.
template <class Rule, int N>
__device__ __forceinline__ void softmax_in_tile(const Arguments<Rule::INPUTS>& a, ELEMENT* tile, unsigned pitch, unsigned first_line, unsigned lines, const ELEMENT* prior) {
  const Rule rule{Algorithm(a.algorithm), a.alpha};
  const unsigned log_team = exponent_of(a.team), rank = threadIdx.x & (a.team - 1), length = a.along.row;
  const bool last_exists = rank + ((N - 1) << log_team) < length;
  for (unsigned line = first_line; line < a.kept; line += blockDim.x >> log_team) {
    const unsigned first = line * length + rank;
    COMPUTE values[Rule::INPUTS][N], result[N];
#pragma unroll
    for (int n = 0; n < Rule::INPUTS; n++)
#pragma unroll
      for (int j = 0; j < N; j++)
        values[n][j] = j < N - 1 || last_exists ? load<COMPUTE>(tile[n * pitch + first + (j << log_team)]) : Rule::neutral();
    Statistic statistic[1] = {rule.empty()};
    rule.template add<true>(statistic, values);
    merge_lanes(rule, statistic, 1, a.team);
    rule.finish(statistic[0]);
    rule.results(statistic, values, result);
    if (line >= lines) continue;
    if (a.beta != COMPUTE(0))
#pragma unroll
      for (int j = 0; j < N; j++)
        if (j < N - 1 || last_exists) result[j] += a.beta * load<COMPUTE>(prior[first + (j << log_team)]);
#pragma unroll
    for (int j = 0; j < N; j++)
      if (j < N - 1 || last_exists) tile[first + (j << log_team)] = store<ELEMENT>(result[j]);
  }
}

// The same for lines of LENGTH elements: a thread takes so many neighbours that they fill packs.
template <class Rule, int LENGTH>
__device__ __forceinline__ void short_lines_in_tile(const Arguments<Rule::INPUTS>& a, ELEMENT* tile, unsigned pitch, unsigned lines, const ELEMENT* prior) {
  constexpr int WIDE = 16 / sizeof(ELEMENT), INPUTS = Rule::INPUTS;
  using Held = Elements<WIDE>;
  const Rule rule{Algorithm(a.algorithm), a.alpha};
  for (unsigned first = threadIdx.x * WIDE; first < lines; first += blockDim.x * WIDE) {
    COMPUTE values[INPUTS][LENGTH * WIDE], result[LENGTH * WIDE];  // number k * WIDE + i: element k of line i
#pragma unroll
    for (int n = 0; n < INPUTS; n++)
#pragma unroll
      for (int k = 0; k < LENGTH; k++) {
        COMPUTE of_pack[WIDE];
        unpack(reinterpret_cast<const Held*>(tile + n * pitch + first * LENGTH) + k, of_pack);
#pragma unroll
        for (int i = 0; i < WIDE; i++) values[n][(k * WIDE + i) % LENGTH * WIDE + (k * WIDE + i) / LENGTH] = of_pack[i];
      }
    Statistic statistic[WIDE];
#pragma unroll
    for (int i = 0; i < WIDE; i++) statistic[i] = rule.empty();
    rule.template cover<true>(statistic, values);
    rule.template add_covered<true>(statistic, values);
#pragma unroll
    for (int i = 0; i < WIDE; i++) rule.finish(statistic[i]);
    rule.template results<true>(statistic, values, result);
#pragma unroll
    for (int k = 0; k < LENGTH; k++) {
      COMPUTE of_pack[WIDE];
#pragma unroll
      for (int i = 0; i < WIDE; i++) {
        const int element = k * WIDE + i;
        of_pack[i] = result[element % LENGTH * WIDE + element / LENGTH];
        if (a.beta != COMPUTE(0) && first + element / LENGTH < lines) of_pack[i] += a.beta * load<COMPUTE>(prior[first * LENGTH + element]);
      }
      pack(of_pack, reinterpret_cast<Held*>(tile + first * LENGTH) + k);
    }
  }
}

// A few lanes take a line of the tile in shared memory, chunk after chunk: first its statistic, then the results, which replace the
// first input. Elements move in pairs; a lane takes what of a line is no whole pair, too. With elements one by one and more lanes the
// tile was issue-bound (80 % of all cycles on an H200): lines of 67 halves take 10 % less so. Floats took 15 % longer than results that
// go straight to memory. Lines as packs of the block in registers, whatever lines they belong to, took 4 % less for floats backward, and
// up to 30 % longer otherwise.
template <class Rule>
__device__ __forceinline__ void pairs_in_tile(const Arguments<Rule::INPUTS>& a, const Rule rule, ELEMENT* tile, unsigned pitch, unsigned lines, const ELEMENT* prior) {
  constexpr int INPUTS = Rule::INPUTS, PAIR = 2, CHUNK = 4, VALUES = CHUNK * PAIR, REST = VALUES + 2;
  using Item = Elements<PAIR>;
  const unsigned log_team = exponent_of(a.team), rank = threadIdx.x & (a.team - 1), length = a.along.row, stride = CHUNK << log_team;
  for (unsigned line = threadIdx.x >> log_team; (line & ~(31u >> log_team)) < lines; line += blockDim.x >> log_team) {
    const unsigned begin = min(line, lines - 1) * length, end = begin + length;
    const unsigned first = (begin + PAIR - 1) / PAIR + rank, beyond = end / PAIR;  // items
    const unsigned full = first + ((beyond > first ? beyond - first - 1 + a.team : 0) >> log_team) / CHUNK * stride;
    auto item = [&](int n, unsigned i) { return reinterpret_cast<Item*>(tile + n * pitch) + i; };
    auto take = [&](unsigned i, COMPUTE (&values)[INPUTS][VALUES]) {
#pragma unroll
      for (int n = 0; n < INPUTS; n++)
#pragma unroll
        for (int k = 0; k < CHUNK; k++) unpack(item(n, i + (k << log_team)), &values[n][k * PAIR]);
    };
    // What is left of the line for this lane.
    const bool ends[2] = {rank == 0 && begin % 2 != 0, rank == 0 && end % 2 != 0};
    COMPUTE rest[INPUTS][REST];
#pragma unroll
    for (int n = 0; n < INPUTS; n++) {
#pragma unroll
      for (int j = 0; j < REST; j++) rest[n][j] = Rule::neutral();
#pragma unroll
      for (int k = 0; k < CHUNK; k++)
        if (full + (k << log_team) < beyond) unpack(item(n, full + (k << log_team)), &rest[n][k * PAIR]);
      if (ends[0]) rest[n][VALUES] = load<COMPUTE>(tile[n * pitch + begin]);
      if (ends[1]) rest[n][VALUES + 1] = load<COMPUTE>(tile[n * pitch + end - 1]);
    }
    Statistic statistic[1] = {rule.empty()};
    rule.template add<true>(statistic, rest);
#pragma unroll 1
    for (unsigned i = first; i != full; i += stride) {
      COMPUTE values[INPUTS][VALUES];
      take(i, values);
      rule.add(statistic, values);
    }
    merge_lanes(rule, statistic, 1, a.team);
    rule.finish(statistic[0]);
    __syncwarp();  // lanes without a line have read the last one
    if (line >= lines) continue;
#pragma unroll 1
    for (unsigned i = first; i != full; i += stride) {
      COMPUTE values[INPUTS][VALUES], result[VALUES];
      take(i, values);
      rule.results(statistic, values, result);
      if (a.beta != COMPUTE(0))
#pragma unroll
        for (int j = 0; j < VALUES; j++) result[j] += a.beta * load<COMPUTE>(prior[(i + (j / PAIR << log_team)) * PAIR + j % PAIR]);
#pragma unroll
      for (int k = 0; k < CHUNK; k++) {
        COMPUTE of_item[PAIR];
#pragma unroll
        for (int j = 0; j < PAIR; j++) of_item[j] = result[k * PAIR + j];
        pack(of_item, item(0, i + (k << log_team)));
      }
    }
    COMPUTE result[REST];
    rule.results(statistic, rest, result);
#pragma unroll
    for (int k = 0; k < CHUNK; k++) {
      const unsigned i = full + (k << log_team);
      if (i >= beyond) break;
      COMPUTE of_item[PAIR];
#pragma unroll
      for (int j = 0; j < PAIR; j++) {
        of_item[j] = result[k * PAIR + j];
        if (a.beta != COMPUTE(0)) of_item[j] += a.beta * load<COMPUTE>(prior[i * PAIR + j]);
      }
      pack(of_item, item(0, i));
    }
#pragma unroll
    for (int side = 0; side < 2; side++)
      if (ends[side]) {
        const unsigned i = side ? end - 1 : begin;
        tile[i] = store<ELEMENT>(a.beta != COMPUTE(0) ? result[REST - 2 + side] + a.beta * load<COMPUTE>(prior[i]) : result[REST - 2 + side]);
      }
  }
}
// The algorithm is known to the loops.
template <class Rule>
__device__ __forceinline__ void softmax_of_pairs(const Arguments<Rule::INPUTS>& a, ELEMENT* tile, unsigned pitch, unsigned lines, const ELEMENT* prior) {
  if (a.algorithm == LOG) pairs_in_tile(a, Rule{LOG, a.alpha}, tile, pitch, lines, prior);
  else if (a.algorithm == FAST && Rule::INPUTS == 1) pairs_in_tile(a, Rule{FAST, a.alpha}, tile, pitch, lines, prior);
  else pairs_in_tile(a, Rule{ACCURATE, a.alpha}, tile, pitch, lines, prior);
}

enum class Tile { LANES, SHORT_LINES, PAIRS };

template <class Rule, Tile KIND> __device__ __forceinline__ void softmax_of_tile(const Arguments<Rule::INPUTS>& a) {
  constexpr int INPUTS = Rule::INPUTS;
  constexpr unsigned PACK = 16 / sizeof(ELEMENT);
  using Whole = Pack<unsigned, 4>;
  const unsigned thread = threadIdx.x, threads = blockDim.x, length = a.along.row;
  const unsigned lines = min(a.kept, a.lines.packs - blockIdx.x * a.kept), elements = lines * length;
  const unsigned start = blockIdx.x * a.kept * length, pitch = (a.kept * length + PACK - 1) / PACK * PACK;
  ELEMENT* tile = reinterpret_cast<ELEMENT*>(shared_memory);

  griddepcontrol_wait_before_access(a.input[0] + start, a.output + start);
#pragma unroll
  for (int n = 0; n < INPUTS; n++) {
    const ELEMENT* source = a.input[n] + start;
    ELEMENT* target = tile + n * pitch;
    const unsigned whole = aligned<ELEMENT, PACK>(source) ? elements / PACK : 0;
    for (unsigned i = thread; i < whole; i += threads)
      copy(reinterpret_cast<Whole*>(target) + i, reinterpret_cast<const Whole*>(source) + i);
    for (unsigned i = whole * PACK + thread; i < elements; i += threads) target[i] = source[i];
  }
  commit();
  const unsigned first_line = KIND == Tile::LANES ? first_line_of_tile(exponent_of(a.team), length) : 0;  // while they come
  arrived<0>();
  griddepcontrol_launch_dependents_medium_grid();
  __syncthreads();

  ELEMENT* target = a.output + start;
  if constexpr (KIND == Tile::PAIRS) {
    if constexpr (PAIRED) softmax_of_pairs<Rule>(a, tile, pitch, lines, target);
  } else if constexpr (KIND == Tile::SHORT_LINES) {
    switch (length) {
      case 1: short_lines_in_tile<Rule, 1>(a, tile, pitch, lines, target); break;
      case 2: short_lines_in_tile<Rule, 2>(a, tile, pitch, lines, target); break;
      case 3: short_lines_in_tile<Rule, 3>(a, tile, pitch, lines, target); break;
      default: short_lines_in_tile<Rule, 4>(a, tile, pitch, lines, target);
    }
  } else {
    switch ((length + a.team - 1) >> exponent_of(a.team)) {
      case 1: softmax_in_tile<Rule, 1>(a, tile, pitch, first_line, lines, target); break;
      case 2: softmax_in_tile<Rule, 2>(a, tile, pitch, first_line, lines, target); break;
      case 3: softmax_in_tile<Rule, 3>(a, tile, pitch, first_line, lines, target); break;
      case 4: softmax_in_tile<Rule, 4>(a, tile, pitch, first_line, lines, target); break;
      case 5: softmax_in_tile<Rule, 5>(a, tile, pitch, first_line, lines, target); break;
      case 6: softmax_in_tile<Rule, 6>(a, tile, pitch, first_line, lines, target); break;
      case 7: softmax_in_tile<Rule, 7>(a, tile, pitch, first_line, lines, target); break;
      case 8: softmax_in_tile<Rule, 8>(a, tile, pitch, first_line, lines, target); break;
      default:
        if (INPUTS == 2 || length <= 9 * a.team) softmax_in_tile<Rule, 9>(a, tile, pitch, first_line, lines, target);
        else if constexpr (INPUTS == 1) softmax_in_tile<Rule, 10>(a, tile, pitch, first_line, lines, target);  // two inputs take too many registers
    }
  }
  __syncthreads();

  const unsigned whole = aligned<ELEMENT, PACK>(target) ? elements / PACK : 0;
  for (unsigned i = thread; i < whole; i += threads) reinterpret_cast<Whole*>(target)[i] = reinterpret_cast<const Whole*>(tile)[i];
  for (unsigned i = whole * PACK + thread; i < elements; i += threads) target[i] = tile[i];
}

// --- registers: lines of a few elements, anywhere, for each lane of a warp; packs are in softmax/register_resident.cu ---

// All elements are read before the first is used. Values stay in registers, so that every exponential is taken once.
template <class Rule, int COUNT> __device__ __forceinline__ void softmax_in_registers(const Arguments<Rule::INPUTS>& a) {
  constexpr int INPUTS = Rule::INPUTS;
  const Rule rule{Algorithm(a.algorithm), a.alpha};
  const unsigned log_team = exponent_of(a.team), rank = threadIdx.x & (a.team - 1);
  const unsigned index = (blockIdx.x * blockDim.x + threadIdx.x) >> log_team;
  unsigned offset[INPUTS + 1];
  a.lines.locate(min(index, a.lines.packs - 1), offset);
  auto step = [&](int k, int operand) { return int(rank + (k << log_team)) * a.along.row_stride[operand]; };
  // Only the last of a lane's elements may lie behind the line.
  const bool last = rank + ((COUNT - 1) << log_team) < a.along.row;
  auto exists = [&](int k) { return k < COUNT - 1 || last; };

  griddepcontrol_wait_before_access(a.input[0] + offset[0], a.output + offset[INPUTS]);
  COMPUTE values[INPUTS][COUNT], result[COUNT];
  ELEMENT held[INPUTS][COUNT];
  {
    const DroppedReads dropped(index >= a.lines.packs);  // of the last line, which in place may have been written already
#pragma unroll
    for (int k = 0; k < COUNT; k++)
#pragma unroll
      for (int n = 0; n < INPUTS; n++)
        if (exists(k)) held[n][k] = a.input[n][offset[n] + step(k, n)];
  }
  griddepcontrol_launch_dependents_medium_grid();
#pragma unroll
  for (int n = 0; n < INPUTS; n++)
#pragma unroll
    for (int k = 0; k < COUNT; k++) values[n][k] = exists(k) ? load<COMPUTE>(held[n][k]) : Rule::neutral();
  Statistic statistic[1] = {rule.empty()};
  rule.template cover<true>(statistic, values);
  merge_tops(rule, statistic, 1, a.team);
  rule.template add_covered<true>(statistic, values);
  merge_sums(statistic, 1, a.team);
  rule.finish(statistic[0]);
  rule.template results<true>(statistic, values, result);

  if (index >= a.lines.packs) return;
#pragma unroll
  for (int k = 0; k < COUNT; k++) {
    if (!exists(k)) continue;
    ELEMENT* target = a.output + offset[INPUTS] + step(k, INPUTS);
    *target = store<ELEMENT>(a.beta != COMPUTE(0) ? result[k] + a.beta * load<COMPUTE>(*target) : result[k]);
  }
}

template <class Rule> __device__ __forceinline__ void softmax_of_elements(const Arguments<Rule::INPUTS>& a) {
  switch (a.kept) {
    case 1: return softmax_in_registers<Rule, 1>(a);
    case 2: return softmax_in_registers<Rule, 2>(a);
    case 3: return softmax_in_registers<Rule, 3>(a);
    case 4: return softmax_in_registers<Rule, 4>(a);
    case 5: return softmax_in_registers<Rule, 5>(a);
    case 6: return softmax_in_registers<Rule, 6>(a);
    case 7: return softmax_in_registers<Rule, 7>(a);
    default: return softmax_in_registers<Rule, 8>(a);
  }
}

// --- blocks: lines that the registers of a block, or of a cluster, hold ---

// Packs of neighbours, PACKS of each thread and input, all read before the first is used; a line takes packs of all threads.
// The first exponentials are relative to the maximum of a warp, whose statistic takes part in one exchange. They stay in
// registers; one factor for each thread makes results of them.
template <class Rule, int PACKS, bool CLUSTERED>
__device__ __forceinline__ void softmax_in_block(const Arguments<Rule::INPUTS>& a) {
  constexpr int INPUTS = Rule::INPUTS, VALUES = PACKS * WIDTH;
  using Held = Elements<WIDTH>;
  if (CLUSTERED) cluster_arrive_relaxed();
  const Rule rule{Algorithm(a.algorithm), a.alpha};
  const unsigned blocks = CLUSTERED ? CLUSTER_SIZE : 1, threads = blockDim.x, lane = threadIdx.x & 31, warps = threads / 32;
  const unsigned packs = a.along.row / WIDTH, first = (CLUSTERED ? cluster_rank() : 0) * PACKS * threads + threadIdx.x;
  unsigned offset[INPUTS + 1];
  a.lines.locate(CLUSTERED ? blockIdx.x / blocks : blockIdx.x, offset);
  if constexpr (PASSING) {  // half of the packs: fewer and more took up to 6 % longer; of tensors that the cache keeps any do
#pragma unroll
    for (int k = 0; k < PACKS / 2; k++)
#pragma unroll
      for (int n = 0; n < INPUTS; n++)
        if (first + k * threads < packs) prefetch_l2(reinterpret_cast<const Held*>(a.input[n] + offset[n]) + first + k * threads);
  }
  griddepcontrol_wait_before_access(a.input[0] + offset[0]);

  Held held[INPUTS][PACKS];
#pragma unroll
  for (int k = 0; k < PACKS; k++)
#pragma unroll
    for (int n = 0; n < INPUTS; n++) {
#pragma unroll
      for (int i = 0; i < WIDTH; i++) held[n][k].item[i] = store<ELEMENT>(Rule::neutral());
      if (first + k * threads < packs) held[n][k] = read_passing(reinterpret_cast<const Held*>(a.input[n] + offset[n]) + first + k * threads);
    }
  griddepcontrol_launch_dependents();

  COMPUTE values[INPUTS][VALUES], result[VALUES];
#pragma unroll
  for (int n = 0; n < INPUTS; n++)
#pragma unroll
    for (int k = 0; k < PACKS; k++) unpack(&held[n][k], &values[n][k * WIDTH]);
  Statistic line[1] = {rule.empty()};
  rule.template cover<true>(line, values);
  merge_tops(rule, line, 1, 32);
  rule.template add_covered<true>(line, values);
  merge_sums(line, 1, 32);

  const COMPUTE own_top = line[0].top;
  Statistic* const parts = reinterpret_cast<Statistic*>(shared_memory);  // of every warp of the block, or of every block
  if (lane == 0) parts[threadIdx.x / 32] = line[0];
  __syncthreads();
  line[0] = lane < warps ? parts[lane] : rule.empty();
  merge_lanes(rule, line, 1, 32);
  if (CLUSTERED) {
    Statistic* const of_blocks = parts + 32;
    cluster_wait();
    if (threadIdx.x < blocks) store_to_cluster_rank(&of_blocks[cluster_rank()], threadIdx.x, line[0]);
    cluster_arrive();
    cluster_wait();
    line[0] = of_blocks[lane & (blocks - 1)];
    merge_lanes(rule, line, 1, blocks);
  }
  rule.finish(line[0]);
  rule.scale(line[0], own_top);
  rule.template results<true>(line, values, result);

#pragma unroll
  for (int k = 0; k < PACKS; k++) {
    if (first + k * threads >= packs) continue;
    Held* const target = reinterpret_cast<Held*>(a.output + offset[INPUTS]) + first + k * threads;
    COMPUTE of_pack[WIDTH];
#pragma unroll
    for (int i = 0; i < WIDTH; i++) of_pack[i] = result[k * WIDTH + i];
    if (a.beta != COMPUTE(0)) {
      COMPUTE prior[WIDTH];
      unpack(target, prior);
#pragma unroll
      for (int i = 0; i < WIDTH; i++) of_pack[i] += a.beta * prior[i];
    }
    pack(of_pack, target);
  }
}
template <class Rule, bool CLUSTERED> __device__ __forceinline__ void softmax_of_block(const Arguments<Rule::INPUTS>& a) {
  constexpr int MOST = MOST_BLOCK_VALUES / WIDTH / Rule::INPUTS;
  if (a.kept == 1) softmax_in_block<Rule, 1, CLUSTERED>(a);
  else if (MOST == 2 || a.kept == 2) softmax_in_block<Rule, 2, CLUSTERED>(a);
  else if constexpr (MOST > 2) {
    if (MOST == 4 || a.kept <= 4) softmax_in_block<Rule, 4, CLUSTERED>(a);
    else if constexpr (MOST > 4) softmax_in_block<Rule, 8, CLUSTERED>(a);
  }
}

// --- columns of a few positions: a thread has all of a line in registers ---

template <class Rule, int LENGTH> __device__ __forceinline__ void softmax_of_short_column(const Arguments<Rule::INPUTS>& a) {
  constexpr int INPUTS = Rule::INPUTS;
  const Rule rule{Algorithm(a.algorithm), a.alpha};
  const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= a.lines.packs) return;
  unsigned offset[INPUTS + 1];
  a.lines.locate(index, offset);

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
  Statistic statistic[1] = {rule.empty()};
  rule.template cover<true>(statistic, values);
  rule.template add_covered<true>(statistic, values);
  rule.finish(statistic[0]);
  rule.template results<true>(statistic, values, result);
#pragma unroll
  for (int k = 0; k < LENGTH; k++) {
    ELEMENT* target = a.output + offset[INPUTS] + k * a.along.row_stride[INPUTS];
    *target = store<ELEMENT>(a.beta != COMPUTE(0) ? result[k] + a.beta * load<COMPUTE>(*target) : result[k]);
  }
}
template <class Rule> __device__ __forceinline__ void softmax_of_short_columns(const Arguments<Rule::INPUTS>& a) {
  switch (a.kept) {
    case 1: return softmax_of_short_column<Rule, 1>(a);
    case 2: return softmax_of_short_column<Rule, 2>(a);
    case 3: return softmax_of_short_column<Rule, 3>(a);
    default: return softmax_of_short_column<Rule, 4>(a);
  }
}

// --- kernels ---

// Blocks of a multiprocessor for which the registers of a kernel should suffice.
constexpr bool DOUBLE = sizeof(COMPUTE) == 8;
constexpr int LINE_BLOCKS = DOUBLE ? 1 : 2, COLUMN_BLOCKS = DOUBLE ? 1 : 4, TILE_BLOCKS = DOUBLE ? 2 : 6, SHORT_BLOCKS = DOUBLE ? 2 : 4, REGISTER_BLOCKS = DOUBLE ? 4 : 8;

#define SOFTMAX(name, rule, line)                                                                                                                \
  extern "C" __global__ void __launch_bounds__(512, LINE_BLOCKS) name##_lines(const Arguments<rule::INPUTS> a) {                                 \
    griddepcontrol_wait_deferred();                                                                                                                 \
    softmax<rule, line, false, false>(a);                                                                                                        \
  }                                                                                                                                              \
  extern "C" __global__ void CLUSTER_DIMS_X __launch_bounds__(512, LINE_BLOCKS) name##_lines_cluster(const Arguments<rule::INPUTS> a) {     \
    griddepcontrol_wait_deferred();                                                                                                                 \
    softmax<rule, line, false, true>(a);                                                                                                         \
  }                                                                                                                                              \
  extern "C" __global__ void __launch_bounds__(256, COLUMN_BLOCKS) name##_columns(const Arguments<rule::INPUTS> a) {                             \
    griddepcontrol_wait_deferred();                                                                                                                 \
    softmax<rule, line, true, false>(a);                                                                                                         \
  }                                                                                                                                              \
  extern "C" __global__ void CLUSTER_DIMS_X __launch_bounds__(256, COLUMN_BLOCKS) name##_columns_cluster(const Arguments<rule::INPUTS> a) { \
    griddepcontrol_wait_deferred();                                                                                                                 \
    softmax<rule, line, true, true>(a);                                                                                                          \
  }

SOFTMAX(softmax_forward_wide, Forward, WideLine)
SOFTMAX(softmax_forward_narrow, Forward, NarrowLine)
SOFTMAX(softmax_backward_wide, Backward, WideLine)
SOFTMAX(softmax_backward_narrow, Backward, NarrowLine)

#define SOFTMAX_TILE(name, rule, kind, blocks)                                                               \
  extern "C" __global__ void __launch_bounds__(256, blocks) name(const Arguments<rule::INPUTS> a) { \
    griddepcontrol_wait_deferred();                                                                     \
    softmax_of_tile<rule, Tile::kind>(a);                                                             \
  }
SOFTMAX_TILE(softmax_forward_tile, Forward, LANES, TILE_BLOCKS)
SOFTMAX_TILE(softmax_backward_tile, Backward, LANES, TILE_BLOCKS)
SOFTMAX_TILE(softmax_forward_short_tile, Forward, SHORT_LINES, SHORT_BLOCKS)
SOFTMAX_TILE(softmax_backward_short_tile, Backward, SHORT_LINES, SHORT_BLOCKS - 1)
SOFTMAX_TILE(softmax_forward_pair_tile, Forward, PAIRS, SHORT_BLOCKS)
SOFTMAX_TILE(softmax_backward_pair_tile, Backward, PAIRS, SHORT_BLOCKS)

extern "C" __global__ void __launch_bounds__(128, REGISTER_BLOCKS) softmax_forward_narrow_registers(const Arguments<1> a) {
  griddepcontrol_wait_deferred();
  softmax_of_elements<Forward>(a);
}
extern "C" __global__ void __launch_bounds__(128, REGISTER_BLOCKS) softmax_backward_narrow_registers(const Arguments<2> a) {
  griddepcontrol_wait_deferred();
  softmax_of_elements<Backward>(a);
}

extern "C" __global__ void __launch_bounds__(128, 2 * REGISTER_BLOCKS) softmax_forward_narrow_short_columns(const Arguments<1> a) {
  griddepcontrol_wait_deferred();
  softmax_of_short_columns<Forward>(a);
}
extern "C" __global__ void __launch_bounds__(128, 2 * REGISTER_BLOCKS) softmax_backward_narrow_short_columns(const Arguments<2> a) {
  griddepcontrol_wait_deferred();
  softmax_of_short_columns<Backward>(a);
}

#define SOFTMAX_BLOCK(name, rule)                                                                                     \
  extern "C" __global__ void __launch_bounds__(MOST_BLOCK_THREADS, 1) name##_block(const Arguments<rule::INPUTS> a) { \
    griddepcontrol_wait_deferred();                                                                                      \
    softmax_of_block<rule, false>(a);                                                                                 \
  }

SOFTMAX_BLOCK(softmax_forward_wide, Forward)
SOFTMAX_BLOCK(softmax_backward_wide, Backward)

extern "C" __global__ void CLUSTER_DIMS_X __launch_bounds__(MANY_THREADS, DOUBLE ? 1 : 2) softmax_forward_wide_many_cluster(const Arguments<1> a) {
  griddepcontrol_wait_deferred();
  softmax_of_block<Forward, true>(a);
}
