// This header holds the race detector's state: accesses, and which of them precede each thread (races.h).
#pragma once
#include "races.h"

namespace emulated::races {

// Agents perform accesses. They are barrier objects (for TMA), warps (for asynchronous products) and threads.
constexpr unsigned maximum_objects = 512;                                     // barriers
constexpr unsigned first_warp = maximum_objects;                              // index of the first agent that is a warp
constexpr unsigned first_thread = first_warp + maximum_threads / warp_lanes;  // index of the first thread
constexpr unsigned agents = first_thread + maximum_threads;                   // number of agents
constexpr unsigned cell_bytes = 4;                                            // bytes of memory per cell

enum class Kind : unsigned char { read, write, atomic };
struct Access {
  unsigned time, instruction;  // The instruction is an offset into this library.
  unsigned short agent;
  unsigned char bytes;  // bit mask of the accessed bytes of the cell
  Kind kind;
};
struct List {  // Accesses are in order of time, oldest first.
  Access* accesses;
  unsigned count, capacity;
};
struct Cell {          // A cell holds the accesses that later ones may race with.
  List reads, writes;  // The writes include atomic accesses.
};
struct Region {  // A region is shared memory, or an allocation that an argument points into.
  const char* first;
  size_t bytes;
  Cell* cells;
  bool is_shared;
};
struct Clock {
  unsigned until[agents];
};
struct Object {  // An object is a barrier with the joined clocks of the threads that arrived.
  const void* address;
  Clock arrived, completed;  // `arrived` covers all arrivals so far, `completed` the arrivals of ended phases.
};
struct Past {  // A past lists a block's accesses that may precede other blocks: all up to `floor`, later ones
               // by the clock.
  unsigned begin, end, floor;
  const Clock* clock;
};
struct Gate {  // A gate is an atomic variable in global memory.
  const void* address;
  unsigned count, capacity;
  unsigned* pasts;  // indices of the pasts of blocks that accessed the variable
};
struct Acting {  // It names the agent for which a thread accesses memory.
  unsigned agent, since;
  bool engine;
};

constexpr unsigned shared_regions = 2;        // static and dynamic shared memory
constexpr unsigned maximum_regions = 64;      // shared memory and allocations
constexpr unsigned gate_slots = 1u << 14;     // slots of the hash table of gates
constexpr unsigned maximum_pasts = 1u << 16;  // per launch
constexpr size_t max_tracked_bytes = size_t(64) << 20;
constexpr size_t arena_bytes = size_t(16) << 30;

inline Region regions[maximum_regions];  // The first two are static and dynamic shared memory.
inline unsigned region_count;
inline char* arena;  // memory for lists, reused by each launch
inline size_t arena_used;
inline unsigned now = 1, block_begin, block_floor;  // All accesses up to block_floor precede every thread.
inline Gate gates[gate_slots];
inline Past pasts[maximum_pasts];
struct Ordered {
  unsigned past, gate;
};
inline Ordered ordered_pasts[maximum_pasts];  // They precede the block's next accesses.
inline unsigned past_count, ordered_count, fenced[maximum_threads];
inline unsigned lane_floor[maximum_threads / warp_lanes];  // time of the last synchronization of all lanes of a warp
inline Clock of_warp[maximum_threads / warp_lanes], of_thread[maximum_threads];
inline unsigned apart[maximum_threads / warp_lanes];  // mask of lanes with a separate clock
inline Object objects[maximum_objects];
inline unsigned object_count, unseen;
inline Acting acting[maximum_threads];       // `since` is 0 where a thread acts for itself.
inline unsigned published[maximum_threads];  // time up to which TMA and products see the thread's writes

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
// Joins everything that precedes the thread's next access, except what atomic variables order before the block.
inline void join_past(Clock& into, const Thread& thread) {
  join(into, known(thread));
  const unsigned warp = thread.rank / warp_lanes, first = first_thread + warp * warp_lanes;
  for (unsigned u = first; u < first + warp_lanes; u++)
    into.until[u] = into.until[u] < lane_floor[warp] ? lane_floor[warp] : into.until[u];
  into.until[first_thread + thread.rank] = now;
}

const Region* region_of(const void* address);  // It returns null where the address is not tracked.
void touch(const void* address, size_t bytes, Kind kind, const void* instruction);
void* from_arena(size_t bytes);  // The memory is valid until the end of the launch.
}  // namespace emulated::races
