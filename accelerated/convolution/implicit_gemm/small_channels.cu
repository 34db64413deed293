// This file computes convolutions (5.2.9, 5.2.10) of few channels per group, as in first layers, and of channels that
// do not fill rows of TMA, on tensor cores: half, bfloat16, TF32; sums in float.
//
// Tiling: a block has four teams of four warps. Each team computes its own tiles of output pixels, so that one team
// multiplies while another waits or writes. A team loads the rows of the image under its next tile into shared memory,
// with zeros for the padding. It gathers fragments by a table of the words of K (two 16-bit elements, or one float).
// Unused elements of a word may be NaN, so they are cleared, not multiplied by zero. Where the channels of a pixel are
// vectors of eight elements, a read takes a vector. The filters stay in shared memory.
//
// Roofline bound: bytes, the image read and the result written once: 30 us for 64x3x224x224, 64 filters of 7x7, stride
// 2, in half on an H200; measured: 66 us (docs/performance/convolution.md).
#include "convolution/problem.cuh"
#include "primitives/tma.cuh"

constexpr int TEAMS = 4;                      // per block
constexpr int TEAM = 128;                     // threads
constexpr int WARPS = TEAM / 32;              // per team
constexpr int THREADS = TEAMS * TEAM;         // per block
constexpr int VECTOR = 16 / sizeof(ELEMENT);  // elements
constexpr int WORD = 4 / sizeof(ELEMENT);     // elements
constexpr int ROW_BYTES = 128;                // bytes per row of the filters' tiles
constexpr int STEPS = 4;                      // steps of eight words per row

struct Arguments : Operands<ELEMENT> {
  Epilogue epilogue;
  int x_image, x_axis[3], x_channel, x_group;  // strides in elements; axes are depth, rows, columns
  int y_image, y_axis[3], y_channel;
  FastDivmod n_tiles, groups;                  // They divide the index of a block; the remainder is its first tile.
  FastDivmod column_tiles, row_tiles, depths;  // They divide the index of a tile; the quotient is the image.
  FastDivmod columns;                          // output columns per tile
  FastDivmod slot_rows, taps;                  // order of rows in shared memory: [channel][filter's depth][row]
  FastDivmod lanes;                            // contiguous channels per row
  FastDivmod term[3], run_words,
      words;  // order of terms: [rest][term[0]][term[1]][term[2]]; words per run of neighbours; all words
  int x_term[4], w_term[4], x_first, w_first;  // strides in elements: in shared memory and in the filter
  int terms, run, lead, steps;                 // terms per run, missing terms of its first word, steps of eight words
  // extents of x and y, stride between pixels, padding before the first depth and row
  int input[3], output[3], step[3], padding[2];
  int depth_step;                   // stride between taps
  int tiles, blocks, tile_rows;     // number of tiles; blocks whose teams share the tiles; rows per tile
  int slots, pitch, first_element;  // elements per slot and per row; first element of column tile 0
  int loaded, gap, pixel;           // elements of a row that are loaded; gap after a pixel's channels; stride of pixels
  // elements per row of x (channels and columns), bytes per copy, rows without gaps
  int row_elements, row_bytes, contiguous;
  int filters, row;                                   // filters per group; stride between filters in elements
  int y_vectors;                                      // neighbouring results that are written together
  int table_at, buffer_at, buffer_bytes, staging_at;  // offsets in shared memory
};

struct __align__(16) Words {
  unsigned item[4];
};
__device__ __forceinline__ Words read_words(const Words* from) {  // reads all words together
  const uint4 words = *reinterpret_cast<const uint4*>(from);
  return {{words.x, words.y, words.z, words.w}};
}

// Locates a tile in y, and counts its existing rows and columns.
struct Tile {
  int image, depth, first_row, first_column, rows, columns;
};
__device__ __forceinline__ Tile find_tile(const Arguments& a, unsigned index) {
  unsigned column_tile, row_tile, depth;
  const unsigned image =
      a.depths.divide(a.row_tiles.divide(a.column_tiles.divide(index, column_tile), row_tile), depth);
  Tile tile{static_cast<int>(image), static_cast<int>(depth), static_cast<int>(row_tile * a.tile_rows),
            static_cast<int>(column_tile * a.columns.divisor)};
  tile.rows = a.output[1] - tile.first_row;
  tile.columns = a.output[2] - tile.first_column;
  return tile;
}

// --- The image ---

// Reads eight or four elements at any address. It may read every aligned 16-byte vector that they touch.
__device__ __forceinline__ uint4 read_anywhere(const ELEMENT* from) {
  const unsigned shift = reinterpret_cast<uintptr_t>(from) % 16;
  const uint4* vectors = reinterpret_cast<const uint4*>(reinterpret_cast<const unsigned char*>(from) - shift);
  const uint4 low = vectors[0], high = shift ? vectors[1] : low;
  const bool two = shift & 8, one = shift & 4;
  const unsigned a = two ? low.z : low.x, b = two ? low.w : low.y, c = two ? high.x : low.z, d = two ? high.y : low.w,
                 e = two ? high.z : high.x, f = two ? high.w : high.y;
  const unsigned p = one ? b : a, q = one ? c : b, r = one ? d : c, s = one ? e : d, t = one ? f : e,
                 bits = shift % 4 * 8;
  return {__funnelshift_r(p, q, bits), __funnelshift_r(q, r, bits), __funnelshift_r(r, s, bits),
          __funnelshift_r(s, t, bits)};
}

// Names how a row is read: a number of aligned bytes at a time, or vectors at any address.
enum Reading { ELEMENTS = sizeof(ELEMENT), HALF_VECTORS = 8, FULL_VECTORS = 16, ANYWHERE = 0 };
__device__ __forceinline__ Reading reading_of(const Arguments& a, const ELEMENT* x) {
  const unsigned address = reinterpret_cast<uintptr_t>(x);
  if (a.row_bytes == 16 && address % 16 == 0) return FULL_VECTORS;
  if (a.row_bytes >= 8 && address % 8 == 0) return HALF_VECTORS;
  return a.contiguous ? ANYWHERE : ELEMENTS;
}
template <Reading READING> constexpr int elements_at_once() {
  return READING == ANYWHERE ? VECTOR : READING / sizeof(ELEMENT);
}

// Shares the rows of a tile among the warps of a team, or each row among all of its threads where there are few.
struct Shares {
  int slot, slots, thread, threads;  // first row and the step to the next; the same within a row
  __device__ __forceinline__ explicit Shares(const Arguments& a) {
    const bool few = a.slots < WARPS;
    slot = few ? 0 : threadIdx.x / 32 % WARPS, slots = few ? 1 : WARPS;
    thread = few ? threadIdx.x % TEAM : threadIdx.x % 32, threads = few ? TEAM : 32;
  }
};

template <Reading READING>
__device__ __forceinline__ void load_rows(const Arguments& a, const ELEMENT* x, const Tile& tile,
                                          unsigned char* buffer) {
  constexpr int COUNT = elements_at_once<READING>();
  const int depth = tile.depth * a.step[0] - a.padding[0], row = tile.first_row * a.step[1] - a.padding[1];
  const int first = tile.first_column * a.step[2] * static_cast<int>(a.lanes.divisor) + a.first_element;
  const Shares shares(a);
  for (int slot = shares.slot; slot < a.slots; slot += shares.slots) {
    unsigned tap, slot_row;
    const unsigned channel = a.taps.divide(a.slot_rows.divide(slot, slot_row), tap);
    const int plane = depth + static_cast<int>(tap) * a.depth_step, line = row + static_cast<int>(slot_row);
    const bool exists = static_cast<unsigned>(plane) < static_cast<unsigned>(a.input[0]) &&
                        static_cast<unsigned>(line) < static_cast<unsigned>(a.input[1]);
    const int at = tile.image * a.x_image + plane * a.x_axis[0] + line * a.x_axis[1] + channel * a.x_channel;
    ELEMENT* to = reinterpret_cast<ELEMENT*>(buffer) + slot * a.pitch;
#pragma unroll 2
    for (int i = shares.thread * COUNT; i < a.loaded; i += shares.threads * COUNT) {
      const int element = first + i;
      const bool inside = exists && static_cast<unsigned>(element) < static_cast<unsigned>(a.row_elements);
      ELEMENT* target = to + i;
      if (a.gap) {
        unsigned lane;
        target += static_cast<int>(a.lanes.divide(i, lane)) * a.gap;
      }
      if constexpr (READING == ANYWHERE) {
        if (exists && element >= VECTOR && element + 2 * VECTOR <= a.row_elements) {
          *reinterpret_cast<uint4*>(target) = read_anywhere(x + at + element);
        } else {
          Vector<ELEMENT, VECTOR> vector;
#pragma unroll
          for (int j = 0; j < VECTOR; j++)
            vector.item[j] = exists && static_cast<unsigned>(element + j) < static_cast<unsigned>(a.row_elements)
                                 ? x[at + element + j]
                                 : store<ELEMENT>(0.0f);
          *reinterpret_cast<Vector<ELEMENT, VECTOR>*>(target) = vector;
        }
      } else {
        int offset = inside ? at + element : 0;
        if (!a.contiguous && inside) {
          unsigned lane;
          const unsigned column = a.lanes.divide(element, lane);
          offset = at + column * a.x_axis[2] + lane * a.x_channel;
        }
        if constexpr (READING >= 4) cp_async<READING>(target, x + offset, inside);
        else *target = inside ? x[offset] : store<ELEMENT>(0.0f);
      }
    }
  }
}

__device__ __forceinline__ void load_image(const Arguments& a, const ELEMENT* x, Reading reading, unsigned index,
                                           unsigned char* buffer) {
  const Tile tile = find_tile(a, index);
  if (reading == FULL_VECTORS) load_rows<FULL_VECTORS>(a, x, tile, buffer);
  else if (reading == HALF_VECTORS) load_rows<HALF_VECTORS>(a, x, tile, buffer);
  else if (reading == ANYWHERE) load_rows<ANYWHERE>(a, x, tile, buffer);
  else load_rows<ELEMENTS>(a, x, tile, buffer);
  cp_async_commit();
}

// Rounds the elements that this thread loaded, for tensor cores.
template <Reading READING> __device__ __forceinline__ void round_rows(const Arguments& a, unsigned char* buffer) {
  constexpr int COUNT = elements_at_once<READING>();
  const Shares shares(a);
  for (int slot = shares.slot; slot < a.slots; slot += shares.slots)
    for (int i = shares.thread * COUNT; i < a.loaded; i += shares.threads * COUNT) {
      auto& vector =
          *reinterpret_cast<Vector<ELEMENT, COUNT>*>(reinterpret_cast<ELEMENT*>(buffer) + slot * a.pitch + i);
      Vector<ELEMENT, COUNT> rounded = vector;
#pragma unroll
      for (int j = 0; j < COUNT; j++) rounded.item[j] = round_to_tf32(rounded.item[j]);
      vector = rounded;
    }
}
__device__ __forceinline__ void round_image(const Arguments& a, Reading reading, unsigned char* buffer) {
  if constexpr (WORD == 1) {
    if (reading == HALF_VECTORS) round_rows<HALF_VECTORS>(a, buffer);
    else if (reading == ELEMENTS) round_rows<ELEMENTS>(a, buffer);
    else round_rows<FULL_VECTORS>(a, buffer);
  }
}

// --- The terms and filters ---

// Names how a warp reads terms from shared memory: one by one, by words, or by vectors of eight with ldmatrix.
enum class Read { ELEMENTS, WORDS, VECTORS };

// Locates a term of a word: whether it exists, its offset from a pixel in shared memory, and its offset in the filter.
struct Place {
  bool exists;
  int in_x, in_w;
};
__device__ __forceinline__ Place find_place(const Arguments& a, unsigned word, int i) {
  unsigned inner;
  const int run = a.run_words.divide(word, inner), element = static_cast<int>(inner) * WORD + i - a.lead;
  const int term = run * a.run + element;
  if (element < 0 || element >= a.run || term >= a.terms) return {false, 0, 0};
  unsigned at[4];
  unsigned rest = term;
#pragma unroll
  for (int d = 2; d >= 0; d--) rest = a.term[d].divide(rest, at[d + 1]);
  at[0] = rest;
  Place y_base{true, a.x_first, a.w_first};
#pragma unroll
  for (int d = 0; d < 4; d++) {
    y_base.in_x += static_cast<int>(at[d]) * a.x_term[d];
    y_base.in_w += static_cast<int>(at[d]) * a.w_term[d];
  }
  return y_base;
}

// Writes the filters and the table, [step][word % 4], each entry for two words.
template <Read READ, int FILTERS>
__device__ __forceinline__ void prepare(const Arguments& a, const ELEMENT* w, int filters, Words* table,
                                        unsigned char* fragments, int2* sources) {
  for (int word = threadIdx.x; word < 8 * a.steps; word += THREADS) {
    const Place first = find_place(a, word, 0), second = WORD == 2 ? find_place(a, word, 1) : Place{};
    sources[word] = {first.exists ? first.in_w : -1, second.exists ? second.in_w : -1};
    unsigned* entry = table[word / 8 * 4 + word % 4].item + word / 4 % 2 * 2;
    if (READ != Read::ELEMENTS) {
      entry[0] = (first.exists ? first.in_x : second.exists ? second.in_x - 1 : 0) * sizeof(ELEMENT);
      entry[1] = WORD == 1 ? 0u - first.exists : first.exists * 0xffffu + second.exists * 0xffff0000u;
    } else {
      entry[0] = first.in_x * sizeof(ELEMENT);
      entry[1] = second.in_x * sizeof(ELEMENT);
    }
  }
  __syncthreads();
  constexpr int BATCH = 4;  // reads in flight per thread
  for (unsigned first = threadIdx.x; first < FILTERS * a.words.divisor; first += BATCH * THREADS) {
    Vector<ELEMENT, WORD> values[BATCH];
    unsigned filter[BATCH], word[BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; i++) {
      const unsigned index = first + i * THREADS;
      // Neighbouring threads read neighbours of w: terms, or filters.
      if (a.row > 1) filter[i] = a.words.divide(index, word[i]);
      else word[i] = index / FILTERS, filter[i] = word[i] < a.words.divisor ? index % FILTERS : FILTERS;
      const bool exists = filter[i] < FILTERS && static_cast<int>(filter[i]) < filters;
      const int2 source = exists ? sources[word[i]] : make_int2(-1, -1);
      const ELEMENT* from = w + filter[i] * a.row;
      values[i].item[0] = source.x >= 0 ? from[source.x] : store<ELEMENT>(0.0f);
      if (WORD == 2) values[i].item[WORD - 1] = source.y >= 0 ? from[source.y] : store<ELEMENT>(0.0f);
    }
#pragma unroll
    for (int i = 0; i < BATCH; i++) {
      if (filter[i] >= FILTERS) break;
      if (WORD == 1) values[i].item[0] = round_to_tf32(values[i].item[0]);
      unsigned char* to =
          swizzled(fragments + word[i] / (8 * STEPS) * (FILTERS * ROW_BYTES), filter[i], word[i] / 4 % 8) +
          word[i] % 4 * 4;
      *reinterpret_cast<Vector<ELEMENT, WORD>*>(to) = values[i];
    }
  }
}

// --- The products ---

// Returns the terms of a word; `mask` marks the existing ones.
template <Read READ>
__device__ __forceinline__ unsigned read_word(const unsigned char* pixel, unsigned y_base, unsigned second_or_mask) {
  if constexpr (READ == Read::WORDS) {
    return *reinterpret_cast<const unsigned*>(pixel + y_base) & second_or_mask;
  } else {
    return *reinterpret_cast<const unsigned short*>(pixel + y_base) |
           unsigned(*reinterpret_cast<const unsigned short*>(pixel + second_or_mask)) << 16;
  }
}

// Counts the pixels at which a lane reads terms: one of 16 with ldmatrix, else two.
template <Read READ, int SIXTEENS> constexpr int PIXELS_OF_LANE = SIXTEENS * (READ == Read::VECTORS ? 1 : 2);

// Computes sums[h][4 * n + i]: pixel 16 * h + lane / 4 + i / 2 * 8, filter 8 * n + lane % 4 * 2 + i % 2.
template <Read READ, int FILTERS, int SIXTEENS>
__device__ __forceinline__ void multiply(const Arguments& a,
                                         const unsigned char* const (&pixel)[PIXELS_OF_LANE<READ, SIXTEENS>],
                                         const Words* table, const unsigned char* fragments,
                                         float (&sums)[SIXTEENS][FILTERS / 2]) {
  const int lane = threadIdx.x % 32, steps = a.steps;
#pragma unroll
  for (int h = 0; h < SIXTEENS; h++)
#pragma unroll
    for (int i = 0; i < FILTERS / 2; i++) sums[h][i] = 0;
  auto read_image = [&](int k, const Words entry, unsigned (&image)[SIXTEENS][4]) {
    if constexpr (READ == Read::VECTORS) {
      // The last step may lack its second vector.
      const unsigned mask = (2 * k + 1) * VECTOR < a.terms ? ~0u : 0u;
#pragma unroll
      for (int h = 0; h < SIXTEENS; h++) {
        ldmatrix(image[h], pixel[h] + (lane < 16 ? entry.item[0] : entry.item[2]));
        image[h][2] &= mask, image[h][3] &= mask;
      }
    } else {
      unsigned mask[2] = {~0u, ~0u};
      if (READ == Read::ELEMENTS && k == steps - 1) {  // Only the last words may lack terms.
#pragma unroll
        for (int i = 0; i < 2; i++) {
          const int left = a.terms - WORD * (8 * k + 4 * i + lane % 4);
          mask[i] = left >= 2 ? ~0u : left == 1 ? 0xffffu : 0u;
        }
      }
#pragma unroll
      for (int h = 0; h < SIXTEENS; h++)
#pragma unroll
        for (int i = 0; i < 4; i++)
          image[h][i] =
              read_word<READ>(pixel[2 * h + i % 2], entry.item[i / 2 * 2], entry.item[i / 2 * 2 + 1]) & mask[i / 2];
    }
  };
  const Words* entries = table + (READ == Read::VECTORS ? 0 : lane % 4);
  unsigned image[2][SIXTEENS][4];  // One fragment is read while the other is multiplied.
  read_image(0, read_words(entries), image[0]);
  for (int first = 0; first < steps; first += STEPS, entries += 4 * STEPS, fragments += FILTERS * ROW_BYTES) {
#pragma unroll
    for (int i = 0; i < STEPS; i++) {
      if (first + i >= steps) break;
      const Words next = read_words(entries + 4 * (i + 1));  // The table has one more entry after the last step.
      wgmma_fence();
#pragma unroll
      for (int h = 0; h < SIXTEENS; h++) wgmma_mma_async<ELEMENT, FILTERS>(sums[h], image[i % 2][h], fragments, i);
      wgmma_commit();
      wgmma_wait<1>();
      if (first + i + 1 < steps) read_image(first + i + 1, next, image[(i + 1) % 2]);
    }
  }
  wgmma_wait<0>();
#pragma unroll
  for (int h = 0; h < SIXTEENS; h++) wgmma_fence_accumulators(sums[h]);
}

// --- The results ---

// Transposes a warp's results in shared memory, some filters at a time, so that it writes 16-byte vectors to y.
template <bool ACROSS_FILTERS, int FILTERS, int SIXTEENS> struct Staging {
  static constexpr int MAX_COUNT = ACROSS_FILTERS && sizeof(ELEMENT) == 2 ? 64 : 32,
                       COUNT = FILTERS < MAX_COUNT ? FILTERS : MAX_COUNT;  // filters at a time
  static constexpr int ROWS = ACROSS_FILTERS ? 16 * SIXTEENS : COUNT, COLUMNS = ACROSS_FILTERS ? COUNT : 16 * SIXTEENS,
                       PITCH = COLUMNS + VECTOR;
};

template <bool ACROSS_FILTERS, int FILTERS, int SIXTEENS>
__device__ __forceinline__ void write_results(const Arguments& a, const Tile& tile, int first, int filters,
                                              unsigned first_channel, const ELEMENT* prior, ELEMENT* y, int y_vectors,
                                              ELEMENT* staging, const float (&sums)[SIXTEENS][FILTERS / 2]) {
  using Stage = Staging<ACROSS_FILTERS, FILTERS, SIXTEENS>;
  constexpr int STAGED = Stage::COUNT, ROWS = Stage::ROWS, PITCH = Stage::PITCH;
  const int lane = threadIdx.x % 32, y_channel = a.y_channel, rows = min(tile.rows, a.tile_rows);
  struct Spot {
    bool exists;
    int offset;
  };  // per pixel
  auto find_spot = [&](int pixel) {
    unsigned column;
    const unsigned row = a.columns.divide(first + pixel, column);
    const bool exists = static_cast<int>(row) < rows && static_cast<int>(column) < tile.columns;
    return Spot{exists, static_cast<int>(row * a.y_axis[1] + column * a.y_axis[2])};
  };
  const Epilogue& e = a.epilogue;
  auto stage = [&](int from, auto plain) {
#pragma unroll
    for (int h = 0; h < SIXTEENS; h++)
#pragma unroll
      for (int side = 0; side < 2; side++) {
        const int pixel = 16 * h + lane / 4 + side * 8;
        Spot spot;
        if constexpr (!decltype(plain)::value) spot = find_spot(pixel);
#pragma unroll
        for (int n = 0; n < STAGED / 8; n++) {
          const int column = 8 * n + lane % 4 * 2, filter = from + column;
          const float* sum = sums[h] + (from / 8 + n) * 4 + 2 * side;
          const float pair[2] = {sum[0], sum[1]};
          float values[2] = {pair[0], pair[1]};
          if constexpr (!decltype(plain)::value) {
            if (!spot.exists || filter >= filters) continue;
            find_results<2, float>(e, a.bias, prior, spot.offset + filter * y_channel, y_channel,
                                   filter + 1 < filters ? 2 : 1, first_channel + filter, 1, pair, values);
          }
          if constexpr (ACROSS_FILTERS) {
            const Vector<ELEMENT, 2> packed{{store<ELEMENT>(values[0]), store<ELEMENT>(values[1])}};
            *reinterpret_cast<Vector<ELEMENT, 2>*>(staging + pixel * PITCH + column) = packed;
          } else {
#pragma unroll
            for (int i = 0; i < 2; i++) staging[(column + i) * PITCH + pixel] = store<ELEMENT>(values[i]);
          }
        }
      }
  };
#pragma unroll
  for (int from = 0; from < FILTERS; from += STAGED) {
    __syncwarp();
    if (e.alpha == 1.0 && e.beta == 0.0 && !e.biased) stage(from, std::true_type{});
    else stage(from, std::false_type{});
    __syncwarp();
    // Each lane writes one vector of a row, every STRIDE rows.
    auto write_rows = [&](auto width) {
      constexpr int WIDTH = decltype(width)::value, VECTORS = Stage::COLUMNS / WIDTH, STRIDE = 32 / VECTORS;
      using Results = Vector<ELEMENT, WIDTH>;
      const int lane_row = lane / VECTORS, column = lane % VECTORS * WIDTH;
      const ELEMENT* results = staging + lane_row * PITCH + column;
      if constexpr (ACROSS_FILTERS) {
        unsigned y_column, y_row = a.columns.divide(first + lane_row, y_column);
        const bool filter_exists = from + column < filters;
#pragma unroll
        for (int row = 0; row < ROWS; row += STRIDE) {
          if (filter_exists && static_cast<int>(y_row) < rows && static_cast<int>(y_column) < tile.columns)
            *reinterpret_cast<Results*>(
                y + static_cast<int>(y_row * a.y_axis[1] + y_column * a.y_axis[2] + from + column)) =
                *reinterpret_cast<const Results*>(results + row * PITCH);
          y_column += STRIDE;
          const bool next = y_column >= a.columns.divisor;
          y_column -= next ? a.columns.divisor : 0;
          y_row += next;
        }
      } else {
        const Spot spot = find_spot(column);
#pragma unroll
        for (int row = 0; row < ROWS; row += STRIDE)
          if (spot.exists && from + lane_row + row < filters)
            *reinterpret_cast<Results*>(y + (spot.offset + (from + lane_row + row) * y_channel)) =
                *reinterpret_cast<const Results*>(results + row * PITCH);
      }
    };
    if (y_vectors == VECTOR) {
      write_rows(std::integral_constant<int, VECTOR>{});
    } else if (ACROSS_FILTERS && y_vectors == 4) {
      write_rows(std::integral_constant<int, 4>{});
    } else if (ACROSS_FILTERS && y_vectors == 2) {
      write_rows(std::integral_constant<int, 2>{});
    } else {
      for (int index = lane; index < ROWS * Stage::COLUMNS; index += 32) {
        const int row = index / Stage::COLUMNS, i = index % Stage::COLUMNS;
        const int filter = from + (ACROSS_FILTERS ? i : row);
        const Spot spot = find_spot(ACROSS_FILTERS ? row : i);
        if (spot.exists && filter < filters) y[spot.offset + filter * y_channel] = staging[row * PITCH + i];
      }
    }
  }
}

// A warp computes SIXTEENS groups of 16 pixels at a time.
template <bool ACROSS_FILTERS, Read READ, int FILTERS, int SIXTEENS>
__device__ __forceinline__ void convolve(const Arguments& a) {
  constexpr int STAGING = Staging<ACROSS_FILTERS, FILTERS, SIXTEENS>::ROWS *
                          Staging<ACROSS_FILTERS, FILTERS, SIXTEENS>::PITCH;  // results per warp
  const int team = threadIdx.x / TEAM, warp = threadIdx.x / 32 % WARPS, lane = threadIdx.x % 32;
  unsigned n_tile, group;
  const unsigned block = a.groups.divide(a.n_tiles.divide(blockIdx.x, n_tile), group);
  const int first_n = n_tile * FILTERS, filters = a.filters - first_n;
  const unsigned first_channel = group * a.filters + first_n;
  const ELEMENT* x = a.x + group * a.x_group;
  const Reading reading = reading_of(a, x);
  const int y_vectors = reinterpret_cast<uintptr_t>(a.y) % (a.y_vectors * sizeof(ELEMENT)) == 0 ? a.y_vectors : 1;
  const ELEMENT* w = a.w + first_channel * a.row;

  unsigned char* fragments = shared_memory + (-reinterpret_cast<uintptr_t>(shared_memory) & 1023);
  Words* table = reinterpret_cast<Words*>(fragments + a.table_at);
  Mbarrier* ready = reinterpret_cast<Mbarrier*>(table + 4 * (a.steps + 1)) + team;
  unsigned char* buffers = fragments + a.buffer_at + team * 2 * a.buffer_bytes;
  unsigned char* staging = fragments + a.staging_at;

  const unsigned start = block + team * a.blocks;
  if (start < a.tiles) load_image(a, x, reading, start, buffers);
  if (threadIdx.x % TEAM == 0) mbarrier_init(ready, TEAM);
  fence_mbarrier_init();
  prepare<READ, FILTERS>(a, w, filters, table, fragments, reinterpret_cast<int2*>(staging));
  fence_proxy_async();
  __syncthreads();
  int buffer = 0;
  const int pixels = a.tile_rows * a.columns.divisor;
  for (unsigned index = start; index < a.tiles; index += TEAMS * a.blocks, buffer ^= 1) {
    const unsigned next = index + TEAMS * a.blocks;
    cp_async_wait<0>();
    round_image(a, reading, buffers + buffer * a.buffer_bytes);
    mbarrier_arrive(ready);
    mbarrier_wait_parity(ready, buffer);  // The tile has arrived, and no warp still reads the other one.
    if (next < a.tiles) load_image(a, x, reading, next, buffers + (buffer ^ 1) * a.buffer_bytes);
    const Tile tile = find_tile(a, index);
    const int y_base = tile.image * a.y_image + tile.depth * a.y_axis[0] + tile.first_row * a.y_axis[1] +
                       tile.first_column * a.y_axis[2] + static_cast<int>(first_channel) * a.y_channel;
    for (int team_first = 0; team_first < pixels; team_first += WARPS * 16 * SIXTEENS) {
      const int first = team_first + warp * 16 * SIXTEENS;
      const unsigned char* pixel[PIXELS_OF_LANE<READ, SIXTEENS>];
#pragma unroll
      for (int i = 0; i < PIXELS_OF_LANE<READ, SIXTEENS>; i++) {
        unsigned column;
        const int at =
            first + 16 * SIXTEENS / PIXELS_OF_LANE<READ, SIXTEENS> * i + (READ == Read::VECTORS ? lane % 16 : lane / 4);
        const unsigned row = a.columns.divide(min(at, pixels - 1), column);
        pixel[i] = buffers + buffer * a.buffer_bytes +
                   (row * a.step[1] * a.pitch + column * a.step[2] * a.pixel) * sizeof(ELEMENT);
      }
      float sums[SIXTEENS][FILTERS / 2];
      multiply<READ, FILTERS, SIXTEENS>(a, pixel, table, fragments, sums);
      write_results<ACROSS_FILTERS, FILTERS, SIXTEENS>(
          a, tile, first, filters, first_channel, a.prior + y_base, a.y + y_base, y_vectors,
          reinterpret_cast<ELEMENT*>(staging) + threadIdx.x / 32 * STAGING, sums);
    }
  }
}

#define KERNEL(NAME, ...)                                                                                         \
  extern "C" __global__ void __launch_bounds__(THREADS, 1) convolution_small_channels_##NAME(const Arguments a) { \
    griddepcontrol_wait();                                                                                        \
    convolve<__VA_ARGS__>(a);                                                                                     \
  }
KERNEL(words_nhwc_32, true, Read::WORDS, 32, 2)
KERNEL(words_nhwc_64, true, Read::WORDS, 64, 2)
KERNEL(words_nchw_32, false, Read::WORDS, 32, 2)
KERNEL(words_nchw_64, false, Read::WORDS, 64, 2)
#define ONE_READ_float 1  // An element is a word.
#define JOIN(a, b) a##b
#define JOINED(a, b) JOIN(a, b)
#if !JOINED(ONE_READ_, ELEMENT)
KERNEL(elements_nhwc_32, true, Read::ELEMENTS, 32, 2)
KERNEL(elements_nhwc_64, true, Read::ELEMENTS, 64, 2)
KERNEL(elements_nchw_32, false, Read::ELEMENTS, 32, 2)
KERNEL(elements_nchw_64, false, Read::ELEMENTS, 64, 2)
KERNEL(vectors_nhwc_32, true, Read::VECTORS, 32, 2)
KERNEL(vectors_nhwc_64, true, Read::VECTORS, 64, 2)
KERNEL(words_nhwc_128, true, Read::WORDS, 128, 1)
KERNEL(words_nhwc_64_narrow, true, Read::WORDS, 64, 1)
KERNEL(vectors_nhwc_128, true, Read::VECTORS, 128, 1)
KERNEL(vectors_nhwc_64_narrow, true, Read::VECTORS, 64, 1)
#endif
