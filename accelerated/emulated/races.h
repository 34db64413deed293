// Races between threads of a block in shared memory: two accesses of the same bytes, one of them a write, that nothing orders.
//
// Compiled with -fsanitize=thread, kernels report each access by a call; the functions that the compiler calls are here, not those of its
// library. What orders accesses is what the PTX manual says does, whatever the order in which the fibers run: barriers of the block,
// __syncwarp (no other warp operation), and an arrival at a barrier object before the end of the wait for its phase; an arrival speaks
// for its own thread alone. So a race is found although the numbers are right, in any order of the threads. What the copy engine
// and asynchronous products read must also have been published by those who wrote it. Not followed: what atomic accesses order,
// and global memory.
//
// Time counts what may order something. An access has the time at which it happened; a thread knows of each other one up to which time
// its accesses come before what the thread does next (a vector clock). Those of the copy engine belong to an agent for each
// barrier object, those of asynchronous products to one for each warp; they may happen at any time from the request on.
#pragma once
#include "scheduler.h"

namespace emulated::races {
struct Request {  // of accesses that happen later
  unsigned time = 0;
  bool engine = false;  // which sees only what was published
};
}  // namespace emulated::races

#ifndef __SANITIZE_THREAD__

namespace emulated::races {
inline void begin_block() {}
inline void order_block() {}
inline void order_lanes(Thread*, unsigned) {}
inline void begin_object(const void*, const void*) {}
inline void release(const void*, const void*) {}
inline void complete(const void*) {}
inline void acquire(const void*, const void*) {}
inline void read(const void*, size_t) {}
inline void write(const void*, size_t) {}
inline void atomic(const void*, size_t) {}
inline void publish() {}
inline void acquire_products() {}
inline Request request_engine_read() { return {}; }
inline Request request_write(const void*, size_t, const void*) { return {}; }
struct Unseen {
  Unseen() {}
};
struct Later {
  Later(Request) {}
};
struct ByWarp {
  ByWarp(Request) {}
};
struct ByAgent {
  ByAgent(const void*, Request) {}
};
}  // namespace emulated::races

#else

#include <cstdlib>

#define EMULATED_UNCHECKED __attribute__((no_sanitize("thread"), optimize("O2")))

namespace emulated::races {

// Agents: barrier objects, for the copy engine; warps, for their asynchronous products; threads.
constexpr unsigned maximum_objects = 512, first_warp = maximum_objects, first_thread = first_warp + maximum_threads / warp_lanes;
constexpr unsigned agents = first_thread + maximum_threads, cell_bytes = 4;

enum class Kind : unsigned char { read, write, atomic };
struct Access {
  unsigned time, instruction;  // an offset into this library
  unsigned short agent;
  unsigned char bytes;         // of the cell, a bit each
  Kind kind;
};
struct List {  // the oldest first
  Access* accesses;
  unsigned count, capacity;
};
struct Cell {  // what later accesses may be in a race with
  List reads, writes;  // writes and atomic accesses
};
struct Clock {
  unsigned until[agents];
};
struct Object {  // a barrier object: what those who arrived knew
  const void* address;
  Clock arrived, completed;  // until now; at the end of the last phase
};
struct Acting {  // for whom a thread accesses memory
  unsigned agent, since;
  bool engine;
};

inline Cell* cells;
inline size_t cell_count;
inline unsigned now = 1, block_begin, block_floor;  // all threads know of everything until the floor
inline unsigned lane_floor[maximum_threads / warp_lanes];  // the lanes of a warp know of each other
inline Clock of_warp[maximum_threads / warp_lanes], of_thread[maximum_threads];
inline unsigned apart[maximum_threads / warp_lanes];  // lanes that know more than their warp
inline Object objects[maximum_objects];
inline unsigned object_count, unseen;
inline Acting acting[maximum_threads];  // since 0: for itself
inline unsigned published[maximum_threads];  // the copy engine and products see the thread's writes until then

EMULATED_UNCHECKED inline void join(Clock& into, const Clock& from) {
  for (unsigned u = 0; u < object_count; u++) into.until[u] = into.until[u] < from.until[u] ? from.until[u] : into.until[u];
  for (unsigned u = first_warp, end = first_thread + block.threads; u < end; u++)
    into.until[u] = into.until[u] < from.until[u] ? from.until[u] : into.until[u];
}
EMULATED_UNCHECKED inline const Clock& known(const Thread& thread) {
  const unsigned warp = thread.rank / warp_lanes;
  return apart[warp] >> thread.lane() & 1 ? of_thread[thread.rank] : of_warp[warp];
}
EMULATED_UNCHECKED inline Clock& own(const Thread& thread) {
  const unsigned warp = thread.rank / warp_lanes, bit = 1u << thread.lane();
  if (!(apart[warp] & bit)) memcpy(&of_thread[thread.rank], &of_warp[warp], sizeof(Clock)), apart[warp] |= bit;
  return of_thread[thread.rank];
}
// All that happens before what a thread does next, but for what the whole block knows.
EMULATED_UNCHECKED inline void join_past(Clock& into, const Thread& thread) {
  join(into, known(thread));
  const unsigned warp = thread.rank / warp_lanes, first = first_thread + warp * warp_lanes;
  for (unsigned u = first; u < first + warp_lanes; u++) into.until[u] = into.until[u] < lane_floor[warp] ? lane_floor[warp] : into.until[u];
  into.until[first_thread + thread.rank] = now;
}

// --- accesses ---

EMULATED_UNCHECKED inline bool is_ordered(const Access& earlier, const Acting& self, const Thread& thread, const Clock& past) {
  if (self.agent < maximum_objects) return earlier.time <= self.since || earlier.agent == self.agent;  // until then: seen at the request
  if (self.since && earlier.time > self.since) return false;
  if (earlier.time <= block_floor || earlier.agent == self.agent || earlier.time <= past.until[earlier.agent]) return true;
  const unsigned warp = thread.rank / warp_lanes;
  return earlier.agent >= first_thread && (earlier.agent - first_thread) / warp_lanes == warp && earlier.time <= lane_floor[warp];
}

constexpr const char* names[] = {"read", "write", "atomic access"};

[[noreturn]] EMULATED_UNCHECKED inline void report(const char* problem, const Access& earlier, Kind kind, const char* address, const void* instruction) {
  char who[32] = "of the copy engine";
  if (earlier.agent >= first_thread) snprintf(who, sizeof who, "by thread %u", earlier.agent - first_thread);
  else if (earlier.agent >= first_warp) snprintf(who, sizeof who, "by a product of warp %u", earlier.agent - first_warp);
  const ptrdiff_t dynamic = address - reinterpret_cast<const char*>(shared_memory);
  const bool is_dynamic = dynamic >= 0 && size_t(dynamic) < dynamic_shared_bytes;
  block.launch->other_instruction = earlier.instruction;
  fail_at(instruction, nullptr, "race at byte %td of the %s shared memory: %s this %s behind the %s %s", is_dynamic ? dynamic : address - image.shared,
          is_dynamic ? "dynamic" : "static", problem, names[int(kind)], names[int(earlier.kind)], who);
}

// Keeps the last of each agent, for each byte.
EMULATED_UNCHECKED inline void compact(List& list) {
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
EMULATED_UNCHECKED inline void remember(List& list, const Access& access) {
  if (list.count == list.capacity) {
    if (list.capacity > 16) compact(list);
    if (list.count * 2 >= list.capacity) {
      list.capacity = list.capacity ? 2 * list.capacity : 2;
      list.accesses = static_cast<Access*>(realloc(list.accesses, list.capacity * sizeof(Access)));
    }
  }
  list.accesses[list.count++] = access;
}

struct Actor {
  const Thread& thread;
  const Clock& past;
  Acting self;
  const void* instruction;
};

// Compares an access with earlier ones, and forgets those that it stands for: what comes behind it comes behind them, too.
EMULATED_UNCHECKED inline void compare(List& list, const Access& access, const Actor& actor, const char* address) {
  unsigned kept = 0;
  for (unsigned i = 0; i < list.count; i++) {
    Access& earlier = list.accesses[i];
    if (earlier.time <= block_begin) continue;
    const bool ordered = is_ordered(earlier, actor.self, actor.thread, actor.past), both_atomic = access.kind == Kind::atomic && earlier.kind == Kind::atomic;
    if (!both_atomic && earlier.bytes & access.bytes) {
      if (!ordered) report("nothing orders", earlier, access.kind, address, actor.instruction);
      if (actor.self.engine && earlier.agent >= first_thread && published[earlier.agent - first_thread] < earlier.time)
        report("publish_writes() has to stand between", earlier, access.kind, address, actor.instruction);
    }
    if (ordered && (access.kind == Kind::write || both_atomic)) earlier.bytes &= ~access.bytes;
    if (earlier.bytes) list.accesses[kept++] = earlier;
  }
  list.count = kept;
}

EMULATED_UNCHECKED inline void touch(const void* address, size_t bytes, Kind kind, const void* instruction) {
  const size_t begin = static_cast<const char*>(address) - image.shared, end = begin + bytes;
  if (begin >= image.shared_bytes || !current || unseen) return;
  Actor actor{*current, known(*current), acting[current->rank], instruction};
  if (!actor.self.since) actor.self.agent = first_thread + current->rank;
  Access access{now, unsigned(static_cast<const char*>(instruction) - image.base), static_cast<unsigned short>(actor.self.agent), 0, kind};
  for (size_t first = begin - begin % cell_bytes; first < end; first += cell_bytes) {
    access.bytes = 0xf;
    if (first < begin) access.bytes &= 0xf << (begin - first);
    if (first + cell_bytes > end) access.bytes &= 0xf >> (first + cell_bytes - end);
    Cell& cell = cells[first / cell_bytes];
    List& reads = cell.reads;
    compare(cell.writes, access, actor, image.shared + first);
    if (kind == Kind::read) {
      if (reads.count && reads.accesses[reads.count - 1].time <= block_floor) reads.count = 0;  // before all that come
      remember(reads, access);
    } else {
      compare(reads, access, actor, image.shared + first);
      remember(cell.writes, access);
    }
  }
}

__attribute__((noinline)) EMULATED_UNCHECKED inline void read(const void* address, size_t bytes) { touch(address, bytes, Kind::read, EMULATED_HERE); }
__attribute__((noinline)) EMULATED_UNCHECKED inline void write(const void* address, size_t bytes) { touch(address, bytes, Kind::write, EMULATED_HERE); }
__attribute__((noinline)) EMULATED_UNCHECKED inline void atomic(const void* address, size_t bytes) { touch(address, bytes, Kind::atomic, EMULATED_HERE); }

// A thread's writes so far can be seen by the copy engine and by products, by those who come behind it.
EMULATED_UNCHECKED inline void publish() { published[current->rank] = now++; }
EMULATED_UNCHECKED inline Request request_engine_read() { return {now++, true}; }
// It may be written from now on.
EMULATED_UNCHECKED inline Request request_write(const void* address, size_t bytes, const void* instruction) {
  touch(address, bytes, Kind::write, instruction);
  return {now++};
}
// Behind the wait for products.
EMULATED_UNCHECKED inline void acquire_products() { own(*current).until[first_warp + current->rank / warp_lanes] = now++; }
// In its scope: accesses that are no kernel's.
struct Unseen {
  EMULATED_UNCHECKED Unseen() { unseen++; }
  EMULATED_UNCHECKED ~Unseen() { unseen--; }
};
// In its scope: the accesses that this thread requested.
struct Later {
  const unsigned rank;
  EMULATED_UNCHECKED Later(Request request) : rank(current->rank) { acting[rank] = {first_thread + rank, request.time, request.engine}; }
  EMULATED_UNCHECKED ~Later() { acting[rank] = {}; }
};

// --- what orders them ---

EMULATED_UNCHECKED inline void begin_block() {
  if (!cells || now > 1u << 31) {
    cell_count = image.shared_bytes / cell_bytes + 2;
    if (!cells) cells = static_cast<Cell*>(calloc(cell_count, sizeof(Cell)));
    for (size_t i = 0; i < cell_count; i++) cells[i].reads.count = cells[i].writes.count = 0;
    memset(of_warp, 0, sizeof of_warp);
    memset(lane_floor, 0, sizeof lane_floor);
    now = 1;
  }
  memset(acting, 0, sizeof acting);
  memset(published, 0, sizeof published);
  object_count = unseen = 0;
  block_begin = block_floor = now++;
  memset(apart, 0, sizeof apart);
}
EMULATED_UNCHECKED inline void order_block() {
  block_floor = now++;
  memset(apart, 0, sizeof apart);
}
// Some lanes of a warp wait for each other.
EMULATED_UNCHECKED inline void order_lanes(Thread* warp_threads, unsigned lanes) {
  const unsigned warp = warp_threads->rank / warp_lanes, size = block.threads - warp_threads->rank;
  const bool all = lanes == (size >= warp_lanes ? ~0u : (1u << size) - 1);
  if (all) {
    for (unsigned rest = apart[warp]; rest; rest &= rest - 1) join(of_warp[warp], of_thread[warp_threads->rank + __builtin_ctz(rest)]);
    apart[warp] = 0;
    lane_floor[warp] = now++;
    return;
  }
  static Clock past;
  memset(&past, 0, sizeof past);
  for (unsigned rest = lanes; rest; rest &= rest - 1) join_past(past, warp_threads[__builtin_ctz(rest)]);
  for (unsigned rest = lanes; rest; rest &= rest - 1) memcpy(&own(warp_threads[__builtin_ctz(rest)]), &past, sizeof past);
  now++;
}

// --- barrier objects ---

EMULATED_UNCHECKED inline unsigned number_of(const void* object) {
  for (unsigned i = 0; i < object_count; i++)
    if (objects[i].address == object) return i;
  if (object_count == maximum_objects) fail("more than %u barrier objects", maximum_objects);
  Object& fresh = objects[object_count];
  memset(&fresh, 0, sizeof fresh);
  fresh.address = object;
  return object_count++;
}
// A phase ends.
EMULATED_UNCHECKED inline void complete(const void* object) {
  Object& of = objects[number_of(object)];
  memcpy(&of.completed, &of.arrived, sizeof of.arrived);
}

// A barrier object is set up.
EMULATED_UNCHECKED inline void begin_object(const void* object, const void* instruction) {
  touch(object, 8, Kind::write, instruction);
  Object& of = objects[number_of(object)];
  memset(&of.arrived, 0, 2 * sizeof(Clock));
}
EMULATED_UNCHECKED inline void release(const void* object, const void* instruction) {
  touch(object, 8, Kind::atomic, instruction);
  join_past(objects[number_of(object)].arrived, *current);
  now++;
}
// Behind the wait.
EMULATED_UNCHECKED inline void acquire(const void* object, const void* instruction) {
  touch(object, 8, Kind::atomic, instruction);
  join(own(*current), objects[number_of(object)].completed);
}
// In its scope: accesses of asynchronous products, which a warp requests and waits for together.
struct ByWarp {
  const unsigned rank;
  EMULATED_UNCHECKED ByWarp(Request request) : rank(current->rank) { acting[rank] = {first_warp + rank / warp_lanes, request.time, request.engine}; }
  EMULATED_UNCHECKED ~ByWarp() { acting[rank] = {}; }
};
// In its scope: accesses of the copy engine; those who wait for the object come behind them.
struct ByAgent {
  const unsigned rank, number;
  EMULATED_UNCHECKED ByAgent(const void* object, Request request) : rank(current->rank), number(number_of(object)) { acting[rank] = {number, request.time, false}; }
  EMULATED_UNCHECKED ~ByAgent() {
    acting[rank] = {};
    objects[number].arrived.until[number] = now++;
  }
};
}  // namespace emulated::races

// --- the calls that the compiler makes ---

#define EMULATED_ACCESS(name, bytes, kind) \
  [[gnu::used]] EMULATED_UNCHECKED inline void __tsan_##name(void* address) { emulated::races::touch(address, bytes, emulated::races::Kind::kind, EMULATED_HERE); }
#define EMULATED_ACCESSES(bytes) EMULATED_ACCESS(read##bytes, bytes, read) EMULATED_ACCESS(write##bytes, bytes, write)
#define EMULATED_UNALIGNED(bytes) EMULATED_ACCESS(unaligned_read##bytes, bytes, read) EMULATED_ACCESS(unaligned_write##bytes, bytes, write)
extern "C" {
[[gnu::used]] EMULATED_UNCHECKED inline void __tsan_init() {}
[[gnu::used]] EMULATED_UNCHECKED inline void __tsan_func_entry(void*) {}
[[gnu::used]] EMULATED_UNCHECKED inline void __tsan_func_exit(void*) {}
EMULATED_ACCESSES(1) EMULATED_ACCESSES(2) EMULATED_ACCESSES(4) EMULATED_ACCESSES(8) EMULATED_ACCESSES(16)
EMULATED_UNALIGNED(2) EMULATED_UNALIGNED(4) EMULATED_UNALIGNED(8) EMULATED_UNALIGNED(16)
[[gnu::used]] EMULATED_UNCHECKED inline void __tsan_read_range(void* address, size_t bytes) { emulated::races::touch(address, bytes, emulated::races::Kind::read, EMULATED_HERE); }
[[gnu::used]] EMULATED_UNCHECKED inline void __tsan_write_range(void* address, size_t bytes) { emulated::races::touch(address, bytes, emulated::races::Kind::write, EMULATED_HERE); }
[[gnu::used]] EMULATED_UNCHECKED __attribute__((visibility("hidden"))) inline void* memcpy(void* to, const void* from, size_t bytes) noexcept {
  emulated::races::touch(from, bytes, emulated::races::Kind::read, EMULATED_HERE);
  emulated::races::touch(to, bytes, emulated::races::Kind::write, EMULATED_HERE);
  void* const first = to;
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes)::"memory");
  return first;
}
[[gnu::used]] EMULATED_UNCHECKED __attribute__((visibility("hidden"))) inline void* memset(void* to, int byte, size_t bytes) noexcept {
  emulated::races::touch(to, bytes, emulated::races::Kind::write, EMULATED_HERE);
  void* const first = to;
  asm volatile("rep stosb" : "+D"(to), "+c"(bytes) : "a"(byte) : "memory");
  return first;
}
}
#undef EMULATED_ACCESS
#undef EMULATED_ACCESSES
#undef EMULATED_UNALIGNED

#endif
