// The gradient behind an activation, and that of the batch normalisation before it (6.1.3.1,
// DACTIVATION_FORK_DBATCHNORM), of packed planes that begin anywhere, in one cooperative launch that reads x and dy
// once.
//
// All that is read fits the shared memory of all multiprocessors. A block for each has TILE_CHANNELS channels of
// `items` images, a warp a part of a plane at a time, whose packs, wherever the plane begins, its lanes copy
// (cp.async). Meanwhile warps transpose the words of the mask, a bit of 32 channels for a pixel, into rows of channels.
// The first pass adds up, the second one writes dz while the blocks of a tile exchange their sums, the third one dx.
// Elements at the edges of planes, whose packs belong to two, move by themselves.
//
// Roofline bound: bytes, x and dy read, dx and dz written once, 14 flops an element: 6 us for 31 x 67 x 37 x 41 HALF at
// 4.2 TB/s, of which an H200 takes 12.
#include "fused_ops/gradient_team.cuh"

constexpr unsigned WORDS = TILE_CHANNELS % WARP == 0   ? TILE_CHANNELS / WARP
                           : WARP % TILE_CHANNELS == 0 ? 1
                                                       : (TILE_CHANNELS + 2 * WARP - 2) / WARP;  // of a pixel, at most
constexpr unsigned EDGES = 2 * WIDTH;  // elements of a plane outside of its packs, at most

struct Shared {
  TeamSums<TILE_CHANNELS> sums;
  COMPUTE mean[TILE_CHANNELS];
};

// What shared memory has of a plane.
struct Slots {
  Packed *x, *dy;
  ELEMENT *edge_x, *edge_dy;
  const unsigned* bits;

  // The bits from a pixel on.
  __device__ __forceinline__ unsigned window(unsigned pixel) const {
    return __funnelshift_r(bits[pixel / WARP], bits[pixel / WARP + 1], pixel % WARP);
  }
};

// What a block has of the planes.
struct Planes {
  const Arguments& a;
  Shared& shared;
  const unsigned plane, channel, channels, image, images;  // elements of a plane; the block's first ones and how many
  const unsigned all, packs, row;                          // planes; packs of one, at most; words of a row of bits

  __device__ __forceinline__ Planes(const Arguments& a, Shared& shared, unsigned tile, unsigned member)
      : a(a),
        shared(shared),
        plane(RANK > 1 ? a.pixels.extent[2].divisor : a.pixels.count),
        channel(tile * TILE_CHANNELS),
        channels(min(unsigned(TILE_CHANNELS), a.pixels.channels - channel)),
        image(member * a.items),
        images(min(a.items, (RANK > 1 ? a.pixels.extent[2].divide(a.pixels.count) : 1) - image)),
        all(a.items * TILE_CHANNELS),
        packs(plane / WIDTH),
        row((plane + WARP - 1) / WARP + 1) {}
  __device__ __forceinline__ ELEMENT* edges(unsigned at, unsigned tensor) const {
    return reinterpret_cast<ELEMENT*>(reinterpret_cast<Packed*>(shared_memory) + 2 * all * packs) +
           (tensor * all + at) * EDGES;
  }
  __device__ __forceinline__ unsigned* words(unsigned i, unsigned word) const {
    return reinterpret_cast<unsigned*>(edges(0, 2)) + (i * WORDS + word) * plane;
  }
  // The bits of a plane, behind which there is room for a word that windows read and do not need.
  __device__ __forceinline__ unsigned* bits(unsigned at) const { return words(a.items, 0) + at * row; }

  // use(i, word, group): words of WARP pixels of the i-th image, every WARPS-th of them all.
  template <class Use> __device__ __forceinline__ void visit_words(const Use& use) const {
    const unsigned groups = row - 1, count = (channel + channels - 1) / WARP + 1 - channel / WARP;
    unsigned group = threadIdx.x / WARP, word = 0;
    for (unsigned i = 0; i < images;) {
      if (group >= groups) {
        group -= groups;
        if (++word == count) word = 0, i++;
      } else {
        use(i, word, group);
        group += WARPS;
      }
    }
  }
  // Begins to copy the words of the mask.
  __device__ __forceinline__ void copy_words() const {
    visit_words([&](unsigned i, unsigned word, unsigned group) {
      const unsigned at = group * WARP + threadIdx.x % WARP, pixel = (image + i) * plane + at;
      if (at >= plane) return;
      if (a.mask)
        cp_async<4>(words(i, word) + at,
                    a.mask + pixel * a.pixels.mask_row + (channel / WARP + word) * a.pixels.mask_word, true);
      else words(i, word)[at] = ~0u;
    });
    cp_async_commit();
  }
  // The bits of all planes, of words that the warp has copied.
  __device__ __forceinline__ void transpose_words() const {
    const unsigned lane = threadIdx.x % WARP;
    visit_words([&](unsigned i, unsigned word, unsigned group) {
      const unsigned at = group * WARP + lane;
      const unsigned column = (channel / WARP + word) * WARP + lane - channel;  // of the lane; large if it has none
      const unsigned of_channel = transposed_bits<WARP>(at < plane ? words(i, word)[at] : 0);
      if (column < channels) bits(i * TILE_CHANNELS + column)[group] = of_channel;
    });
  }

  // All parts of planes of the warp: begin(column); edge(slots, at, pixel) for an element outside of the packs, `at`
  // being its offset; use(slots, i, at, pixel) for the i-th pack, those of its first element; end(slots, column).
  template <class Begin, class Edge, class Use, class End>
  __device__ __forceinline__ void visit(const Begin& begin, const Edge& edge, const Use& use, const End& end) const {
    const unsigned lane = threadIdx.x % WARP;
    for (unsigned item = threadIdx.x / WARP; item < all * PARTS; item += WARPS) {
      const unsigned at = item / PARTS, part = item % PARTS, i = at / TILE_CHANNELS, column = at % TILE_CHANNELS;
      if (column >= channels || i >= images) continue;
      const unsigned first = ((image + i) * a.pixels.channels + channel + column) * plane, last = first + plane;
      const unsigned begin_pack = (first + WIDTH - 1) / WIDTH, end_pack = max(last / WIDTH, begin_pack);
      const unsigned of_part = (end_pack - begin_pack + PARTS - 1) / PARTS;
      const unsigned end_part = min((part + 1) * of_part, end_pack - begin_pack);
      Packed* const of_plane = reinterpret_cast<Packed*>(shared_memory) + at * packs;
      const Slots slots{of_plane, of_plane + all * packs, edges(at, 0) + lane, edges(at, 1) + lane, bits(at)};
      begin(column);
      if (part == 0 && (first % WIDTH > 0 || last % WIDTH > 0)) {
        const unsigned behind = min(begin_pack * WIDTH, last), before = max(end_pack * WIDTH, behind);
        const unsigned element = lane < WIDTH ? first + lane : before + lane - WIDTH;
        if (lane < EDGES && element < (lane < WIDTH ? behind : last)) edge(slots, element, element - first);
      }
#pragma unroll 2
      for (unsigned k = part * of_part + lane; k < end_part; k += WARP)
        use(slots, k, (begin_pack + k) * WIDTH, (begin_pack + k) * WIDTH - first);
      end(slots, column);
    }
  }

  // Begins to copy x and dy.
  __device__ __forceinline__ void copy() const {
    ELEMENT x, dy;  // at an edge: stored when the copies have begun
    bool exists = false;
    visit([](unsigned) {}, [&](const Slots&, unsigned at, unsigned) { exists = true, x = a.x[at], dy = a.dy[at]; },
          [&](const Slots& slots, unsigned k, unsigned at, unsigned) {
            cp_async<sizeof(Packed)>(slots.x + k, a.x + at, true);
            cp_async<sizeof(Packed)>(slots.dy + k, a.dy + at, true);
          },
          [&](const Slots& slots, unsigned) {
            if (exists) *slots.edge_x = x, *slots.edge_dy = dy;
            exists = false;
          });
    cp_async_commit();
  }
  // The sums of the warps, and dz, which overwrites dy in shared memory.
  __device__ __forceinline__ void first_pass() const {
    const unsigned warp = threadIdx.x / WARP;
    for (unsigned column = threadIdx.x % WARP; column < TILE_CHANNELS; column += WARP)
      shared.sums.warps[warp][column] = {};
    __syncwarp();
    COMPUTE mean = 0;
    Sums sums = {};
    auto add = [&](ELEMENT dz, ELEMENT x) { sums.add(load<COMPUTE>(dz), load<COMPUTE>(x), mean); };
    visit([&](unsigned column) { mean = shared.mean[column], sums = {}; },
          [&](const Slots& slots, unsigned, unsigned pixel) {
            if (!(slots.window(pixel) & 1)) *slots.edge_dy = store<ELEMENT>(COMPUTE(0));
            add(*slots.edge_dy, *slots.edge_x);
          },
          [&](const Slots& slots, unsigned k, unsigned, unsigned pixel) {
            const Packed x = slots.x[k];
            Packed dz = slots.dy[k];
            keep_bits(slots.window(pixel), dz);
#pragma unroll
            for (int j = 0; j < WIDTH; j++) add(dz.item[j], x.item[j]);
            slots.dy[k] = dz;
          },
          [&](const Slots&, unsigned column) {
            add_all_lanes(sums);
            if (threadIdx.x % WARP == 0) shared.sums.warps[warp][column].add(sums);
          });
  }
  // dz.
  __device__ __forceinline__ void second_pass() const {
    if (!a.dz) return;
    visit([](unsigned) {}, [&](const Slots& slots, unsigned at, unsigned) { a.dz[at] = *slots.edge_dy; },
          [&](const Slots& slots, unsigned k, unsigned at, unsigned) { store_pack(a.dz + at, slots.dy[k]); },
          [](const Slots&, unsigned) {});
  }
  // dx.
  __device__ __forceinline__ void third_pass() const {
    Factors of = {};
    visit([&](unsigned column) { of = shared.sums.factors[column]; },
          [&](const Slots& slots, unsigned at, unsigned) {
            a.dx[at] = store<ELEMENT>(of.gradient(load<COMPUTE>(*slots.edge_dy), load<COMPUTE>(*slots.edge_x)));
          },
          [&](const Slots& slots, unsigned k, unsigned at, unsigned) {
            store_pack(a.dx + at, gradient_pack(slots.x[k], slots.dy[k], [&](int) { return of; }));
          },
          [](const Slots&, unsigned) {});
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1) fused_ops_gradient_planes_unaligned(const Arguments a) {
  griddepcontrol_wait();
  __shared__ Shared shared;
  const unsigned tile = blockIdx.x % a.tiles, member = blockIdx.x / a.tiles;
  const Planes planes(a, shared, tile, member);
  planes.copy_words();
  planes.copy();
  for (unsigned column = threadIdx.x; column < planes.channels; column += THREADS)
    shared.mean[column] = a.mean[(planes.channel + column) * a.parameter_stride];
  cp_async_wait<1>();
  planes.transpose_words();
  __syncthreads();
  cp_async_wait<0>();
  planes.first_pass();
  const unsigned word = shared.sums.publish(a, tile, member);
  planes.second_pass();
  shared.sums.collect(a, tile, member, word);
  planes.third_pass();
}
