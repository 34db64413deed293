// Stream-K divides the K-blocks of a product's tiles among blocks (stream_k.py), so that few tiles still occupy all
// SMs.
//
// The first tiles may have one block each, which needs no slot. Several blocks take equal parts of K of every other
// tile, in step, and further blocks share the rest. A block stores its sums of each shared tile in its own slot.
// Another kernel adds them in a fixed order.
#pragma once
#include "primitives/geometry.cuh"

// Describes the shares. Each tile has `parts` blocks with `share` K-blocks each; the first parts have one more. Further
// blocks share the rest of each tile.
struct Division {
  FastDivmod rest;                     // K-blocks per tile that the further blocks share
  FastDivmod row_tiles, column_tiles;  // tiles per group, in the order columns, rows, groups
  FastDivmod tiles;                    // tiles that several blocks share
  unsigned parts, share, longer_parts;
  unsigned rest_share, longer;  // K-blocks per further block; `longer` blocks have one more
  // The unsplit tiles come before the others and have one block each. A block takes every `blocks`-th of them.
  unsigned unsplit, blocks;
  unsigned k_blocks;  // per tile
};

// Describes the K-blocks of one tile that a block multiplies, and its slot for the sums. `unsplit` means that the block
// has all K-blocks of the tile.
struct Segment {
  unsigned tile, first, count, slot;
  bool unsplit;
};

// Tiles follow each other in the order of blocks, so that the blocks of one part walk the pixels together. Neighbouring
// further blocks share at most one tile: block i has slot i + t for tile t.
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

// Yields the slots with the sums of a tile, counted from the first shared tile. The slots of its parts come first. The
// slots of its further blocks follow, in the order of its K-blocks.
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
