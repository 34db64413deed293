// Stream-K: how blocks share the K-blocks of the tiles of a product (stream_k.py), so that all multiprocessors multiply
// however few tiles there are.
//
// The first tiles may have one block each, which needs no slot. All others have equal parts of K, which their blocks
// walk together, and what is left is shared by the other blocks. A block stores its sums of every such tile that it
// meets in a slot of its own; whoever adds those of a tile does so in one order.
#pragma once
#include "primitives/geometry.cuh"

// Each tile has `parts` blocks, with `share` K-blocks of it each, the first with one more; further blocks share the
// rest of each tile.
struct Division {
  FastDivmod rest;                     // K-blocks of a tile that the further blocks share
  FastDivmod row_tiles, column_tiles;  // of a group; columns first, then rows, then groups
  FastDivmod tiles;                    // that several blocks share
  unsigned parts, share, longer_parts;
  unsigned rest_share, longer;  // K-blocks of a further block; so many of them have one more
  unsigned unsplit, blocks;     // tiles of one block each, before the others: a block has every `blocks`-th
  unsigned k_blocks;            // of a tile
};

// The K-blocks of one tile that a block multiplies, and where it stores its sums; unsplit: these are all sums of the
// tile.
struct Segment {
  unsigned tile, first, count, slot;
  bool unsplit;
};

// Tiles lie next to each other in the order of blocks, so that those of one part walk the pixels together. Neighbouring
// further blocks have at most one tile in common: block i of them has slot i + t for tile t.
struct Walk {
  unsigned next, end, index, alone;
  bool shares;
  __device__ __forceinline__ Walk(const Division& d, unsigned block) : alone(block) {
    const unsigned first = d.parts * d.tiles.divisor;
    shares = block >= first;
    index = shares ? block - first : block;
    next = index * d.rest_share + min(index, d.longer);
    end = next + d.rest_share + (index < d.longer);
    if (!shares) next = 0, end = d.parts > 0;
  }
  __device__ __forceinline__ bool advance(const Division& d, Segment& segment) {
    segment.unsplit = alone < d.unsplit;
    if (segment.unsplit) {
      segment.tile = alone, segment.first = segment.slot = 0, segment.count = d.k_blocks;
      alone += d.blocks;
      return true;
    }
    if (next >= end) return false;
    if (shares) {
      segment.tile = d.rest.divide(next, segment.first);
      segment.count = min(d.rest.divisor - segment.first, end - next);
      next += segment.count;
      segment.first += d.parts * d.share;
      segment.slot = d.parts * d.tiles.divisor + index + segment.tile;
    } else {
      const unsigned part = d.tiles.divide(index, segment.tile);
      segment.first = part * d.share + min(part, d.longer_parts);
      segment.count = d.share + (part < d.longer_parts), segment.slot = index;
      next = end;
    }
    segment.tile += d.unsplit;
    return true;
  }
};

__device__ __forceinline__ unsigned find_tile(const Division& d, unsigned tile, unsigned& row, unsigned& column) {
  return d.row_tiles.divide(d.column_tiles.divide(tile, column), row);
}

// The slots with the sums of a tile, counted from the first that is shared: those of its parts, then of the further
// blocks that met it, from that of its first K-block to that of its last one.
struct Slots {
  unsigned count;

  __device__ __forceinline__ Slots(const Division& d, unsigned tile)
      : count(d.parts), parts(d.parts), tiles(d.tiles.divisor), tile(tile), first(0) {
    if (!d.rest_share) return;
    const auto block_of = [&](unsigned unit) {
      const unsigned many = d.longer * (d.rest_share + 1);
      return unit < many ? unit / (d.rest_share + 1) : d.longer + (unit - many) / d.rest_share;
    };
    first = block_of(tile * d.rest.divisor);
    count += block_of((tile + 1) * d.rest.divisor - 1) - first + 1;
  }
  __device__ __forceinline__ unsigned operator[](unsigned i) const {
    return i < parts ? i * tiles + tile : parts * tiles + first + (i - parts) + tile;
  }

 private:
  unsigned parts, tiles, tile, first;
};
