// What is known of accesses, and of what each thread knows (races.h).
#pragma once
#include "races.h"

namespace emulated::races {

// Agents: barrier objects, for TMA; warps, for their asynchronous products; threads.
constexpr unsigned maximum_objects = 512, first_warp = maximum_objects,
                   first_thread = first_warp + maximum_threads / warp_lanes;
constexpr unsigned agents = first_thread + maximum_threads, cell_bytes = 4;

enum class Kind : unsigned char { read, write, atomic };
struct Access {
  unsigned time, instruction;  // an offset into this library
  unsigned short agent;
  unsigned char bytes;  // of the cell, a bit each
  Kind kind;
};
struct List {  // the oldest first
  Access* accesses;
  unsigned count, capacity;
};
struct Cell {          // what later accesses may be in a race with
  List reads, writes;  // writes and atomic accesses
};
struct Region {  // of memory: the shared memory, or what an argument points into
  const char* first;
  size_t bytes;
  Cell* cells;
  bool is_shared;
};
struct Clock {
  unsigned until[agents];
};
struct Object {  // a barrier object: what those who arrived knew
  const void* address;
  Clock arrived, completed;  // until now; at the end of the last phase
};
struct Past {  // what other blocks may know of a block, from the time when it began: until the floor all, else what the
               // clock says
  unsigned begin, end, floor;
  const Clock* clock;
};
struct Gate {  // an atomic variable in global memory
  const void* address;
  unsigned count, capacity;
  unsigned* pasts;  // of those who came through
};
struct Acting {  // for whom a thread accesses memory
  unsigned agent, since;
  bool engine;
};

constexpr unsigned shared_regions = 2, maximum_regions = 64, gate_slots = 1u << 14, maximum_pasts = 1u << 16;
constexpr size_t most_tracked_bytes = size_t(64) << 20, arena_bytes = size_t(16) << 30;

inline Region regions[maximum_regions];  // the first two are the shared memory, that of variables and dynamic
inline unsigned region_count;
inline char* arena;  // of the launch
inline size_t arena_used;
inline unsigned now = 1, block_begin, block_floor;  // all threads know of everything until the floor
inline Gate gates[gate_slots];
inline Past pasts[maximum_pasts];
struct Ordered {
  unsigned past, gate;
};
inline Ordered ordered_pasts[maximum_pasts];  // before what the block does next
inline unsigned past_count, ordered_count, fenced[maximum_threads];
inline unsigned lane_floor[maximum_threads / warp_lanes];  // the lanes of a warp know of each other
inline Clock of_warp[maximum_threads / warp_lanes], of_thread[maximum_threads];
inline unsigned apart[maximum_threads / warp_lanes];  // lanes that know more than their warp
inline Object objects[maximum_objects];
inline unsigned object_count, unseen;
inline Acting acting[maximum_threads];       // since 0: for itself
inline unsigned published[maximum_threads];  // TMA and products see the thread's writes until then

inline void join(Clock& into, const Clock& from) {
  for (unsigned u = 0; u < object_count; u++)
    into.until[u] = into.until[u] < from.until[u] ? from.until[u] : into.until[u];
  for (unsigned u = first_warp, end = first_thread + block.threads; u < end; u++)
    into.until[u] = into.until[u] < from.until[u] ? from.until[u] : into.until[u];
}
inline const Clock& known(const Thread& thread) {
  const unsigned warp = thread.rank / warp_lanes;
  return apart[warp] >> thread.lane() & 1 ? of_thread[thread.rank] : of_warp[warp];
}
inline Clock& own(const Thread& thread) {
  const unsigned warp = thread.rank / warp_lanes, bit = 1u << thread.lane();
  if (!(apart[warp] & bit)) memcpy(&of_thread[thread.rank], &of_warp[warp], sizeof(Clock)), apart[warp] |= bit;
  return of_thread[thread.rank];
}
// All that happens before what a thread does next, but for what the block is ordered behind.
inline void join_past(Clock& into, const Thread& thread) {
  join(into, known(thread));
  const unsigned warp = thread.rank / warp_lanes, first = first_thread + warp * warp_lanes;
  for (unsigned u = first; u < first + warp_lanes; u++)
    into.until[u] = into.until[u] < lane_floor[warp] ? lane_floor[warp] : into.until[u];
  into.until[first_thread + thread.rank] = now;
}

const Region* region_of(const void* address);  // null where it is not followed
void touch(const void* address, size_t bytes, Kind kind, const void* instruction);
void* from_arena(size_t bytes);  // memory until the end of the launch
}  // namespace emulated::races
