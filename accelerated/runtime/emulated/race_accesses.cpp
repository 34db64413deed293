// This file compares each access with earlier ones (races.h).
#include <algorithm>
#include <cstdlib>
#include <sys/mman.h>

#include "race_state.h"

namespace emulated::races {
static bool is_ordered(const Access& earlier, const Acting& self, const Thread& thread, const Clock& past) {
  if (self.agent < maximum_objects)
    return earlier.time <= self.since || earlier.agent == self.agent;  // The request checked accesses before it.
  if (self.since && earlier.time > self.since) return false;
  if (earlier.time <= block_floor || earlier.agent == self.agent || earlier.time <= past.until[earlier.agent])
    return true;
  const unsigned warp = thread.rank / warp_lanes;
  return earlier.agent >= first_thread && (earlier.agent - first_thread) / warp_lanes == warp &&
         earlier.time <= lane_floor[warp];
}

// Returns whether an atomic variable (gate) orders an access of another block before this block.
static bool is_known(const Access& earlier) {
  for (unsigned i = ordered_count; i-- > 0;) {
    const Past& past = pasts[ordered_pasts[i].past];
    if (past.begin < earlier.time && earlier.time <= past.end &&
        (earlier.time <= past.floor || earlier.time <= past.clock->until[earlier.agent]))
      return true;
  }
  return false;
}

constexpr const char* names[] = {"read", "write", "atomic access"};

[[noreturn]] static void report(const char* problem, const Region& region, const Access& earlier, Kind kind,
                                const char* address, const void* instruction) {
  char who[64] = "of TMA", where[64] = "in global memory";
  if (earlier.agent >= first_thread) snprintf(who, sizeof who, "by thread %u", earlier.agent - first_thread);
  else if (earlier.agent >= first_warp)
    snprintf(who, sizeof who, "by a product of warp %u", earlier.agent - first_warp);
  if (earlier.time <= block_begin) strcat(who, " of another block");
  if (region.is_shared)
    snprintf(where, sizeof where, "at byte %td of the %s shared memory", address - region.first,
             &region == regions ? "static" : "dynamic");
  block.launch->other_instruction = earlier.instruction;
  fail_at(instruction, region.is_shared ? nullptr : address, "race %s: %s this %s behind the %s %s", where, problem,
          names[int(kind)], names[int(earlier.kind)], who);
}

// Keeps the last access of each agent to each byte. Threads of equal rank in different blocks count as one agent. In
// global memory, a race with only the earlier of two such threads is therefore missed.
static void compact(List& list) {
  static unsigned char later[agents];
  memset(later, 0, sizeof later);
  for (unsigned i = list.count; i-- > 0;) {
    Access& access = list.accesses[i];
    const unsigned char bytes = access.bytes & ~later[access.agent];
    later[access.agent] |= access.bytes;
    access.bytes = bytes;
  }
  unsigned kept = 0;
  for (unsigned i = 0; i < list.count; i++)
    if (list.accesses[i].bytes) list.accesses[kept++] = list.accesses[i];
  list.count = kept;
}
void* from_arena(size_t bytes) {
  if (!arena)
    arena = static_cast<char*>(
        mmap(nullptr, arena_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  bytes = (bytes + 15) / 16 * 16;
  if (arena == MAP_FAILED || arena_used + bytes > arena_bytes) fail("no memory to look for races");
  return arena + (arena_used += bytes) - bytes;
}
static void remember(const Region& region, List& list, const Access& access) {
  if (list.count == list.capacity) {
    if (list.capacity > 16) compact(list);
    if (list.count * 2 >= list.capacity) {
      const size_t bytes = list.capacity * sizeof(Access);
      list.capacity = list.capacity ? 2 * list.capacity : region.is_shared ? 2 : 1;
      if (region.is_shared)
        list.accesses = static_cast<Access*>(realloc(list.accesses, list.capacity * sizeof(Access)));
      else
        list.accesses = static_cast<Access*>(memcpy(from_arena(list.capacity * sizeof(Access)), list.accesses, bytes));
    }
  }
  list.accesses[list.count++] = access;
}

struct Actor {
  const Region& region;
  const Thread& thread;
  const Clock& past;
  Acting self;
  const void* instruction;
};

// Compares an access with earlier ones. It drops accesses that happen before a new write, and atomics before a new
// atomic. Accesses after the new one are then after them, too.
static void compare(List& list, const Access& access, const Actor& actor, const char* address) {
  unsigned kept = 0;
  for (unsigned i = 0; i < list.count; i++) {
    Access& earlier = list.accesses[i];
    if (actor.region.is_shared && earlier.time <= block_begin) continue;
    const bool ordered = earlier.time <= block_begin ? is_known(earlier)
                                                     : is_ordered(earlier, actor.self, actor.thread, actor.past),
               both_atomic = access.kind == Kind::atomic && earlier.kind == Kind::atomic;
    if (!both_atomic && earlier.bytes & access.bytes) {
      if (!ordered) report("nothing orders", actor.region, earlier, access.kind, address, actor.instruction);
      if (actor.self.engine && actor.region.is_shared && earlier.agent >= first_thread &&
          published[earlier.agent - first_thread] < earlier.time)
        report("fence_proxy_async() has to stand between", actor.region, earlier, access.kind, address,
               actor.instruction);
    }
    if (ordered && (access.kind == Kind::write || both_atomic)) earlier.bytes &= ~access.bytes;
    if (earlier.bytes) list.accesses[kept++] = earlier;
  }
  list.count = kept;
}

const Region* region_of(const void* address) {
  for (unsigned i = 0; i < region_count; i++)
    if (size_t(static_cast<const char*>(address) - regions[i].first) < regions[i].bytes) return &regions[i];
  return nullptr;
}
void touch(const void* address, size_t bytes, Kind kind, const void* instruction) {
  if (!current || unseen) return;
  const Region* const region = region_of(address);
  if (!region) return;
  Actor actor{*region, *current, known(*current), acting[current->rank], instruction};
  if (!actor.self.since) actor.self.agent = first_thread + current->rank;
  else if (!region->is_shared && actor.self.agent < maximum_objects) return;  // TMA in global memory is not tracked.
  Access access{now, unsigned(static_cast<const char*>(instruction) - image.base),
                static_cast<unsigned short>(actor.self.agent), 0, kind};
  const size_t begin = static_cast<const char*>(address) - region->first, end = std::min(begin + bytes, region->bytes);
  for (size_t first = begin - begin % cell_bytes; first < end; first += cell_bytes) {
    access.bytes = 0xf;
    if (first < begin) access.bytes &= 0xf << (begin - first);
    if (first + cell_bytes > end) access.bytes &= 0xf >> (first + cell_bytes - end);
    Cell& cell = region->cells[first / cell_bytes];
    List& reads = cell.reads;
    compare(cell.writes, access, actor, region->first + first);
    if (kind == Kind::read) {
      // These reads precede all later accesses of this block; other blocks may still race with older ones.
      if (reads.count && reads.accesses[reads.count - 1].time <= block_floor &&
          (region->is_shared || reads.accesses[0].time > block_begin))
        reads.count = 0;
      remember(*region, reads, access);
    } else {
      compare(reads, access, actor, region->first + first);
      remember(*region, cell.writes, access);
    }
  }
}

void read(const void* address, size_t bytes) { touch(address, bytes, Kind::read, EMULATED_HERE); }
void write(const void* address, size_t bytes) { touch(address, bytes, Kind::write, EMULATED_HERE); }
}  // namespace emulated::races
