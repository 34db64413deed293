// This file tracks the order of accesses, and asynchronous accesses, which happen later than their instruction
// (races.h).
#include <cstdlib>
#include <sys/mman.h>

#include "race_state.h"

namespace emulated::races {

// --- launches, blocks and warps ---

static void follow_shared(Region& region, const char* first, size_t bytes, size_t max_bytes, bool starts) {
  const size_t count = max_bytes / cell_bytes + 2;
  if (!region.cells) region.cells = static_cast<Cell*>(calloc(count, sizeof(Cell)));
  for (size_t i = 0; starts && i < count; i++) region.cells[i].reads.count = region.cells[i].writes.count = 0;
  region.first = first, region.bytes = bytes, region.is_shared = true;
}
void begin_launch() {
  const bool starts = now > 1u << 30;
  follow_shared(regions[0], image.shared, image.shared_bytes, image.shared_bytes, starts);
  follow_shared(regions[1], reinterpret_cast<char*>(shared_memory), block.launch->shared_bytes, dynamic_shared_bytes,
                starts);
  if (starts || now == 1) {
    memset(of_warp, 0, sizeof of_warp);
    memset(lane_floor, 0, sizeof lane_floor);
    now = 1;
  }
  region_count = shared_regions;
  for (size_t i = 0; i < block.launch->memory_count && region_count < maximum_regions; i++) {
    const Pages& pages = block.launch->memory[i];
    if (pages.bytes > max_tracked_bytes) continue;
    const size_t bytes = pages.bytes / cell_bytes * sizeof(Cell);
    void* const fresh =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (fresh != MAP_FAILED)
      regions[region_count++] = {static_cast<const char*>(pages.first), pages.bytes, static_cast<Cell*>(fresh), false};
  }
  memset(gates, 0, sizeof gates);
  past_count = 0;
}
void end_launch() {
  for (unsigned i = shared_regions; i < region_count; i++)
    munmap(regions[i].cells, regions[i].bytes / cell_bytes * sizeof(Cell));
  if (arena_used) madvise(arena, arena_used, MADV_DONTNEED);
  region_count = arena_used = 0;
}
void begin_block() {
  memset(acting, 0, sizeof acting);
  memset(published, 0, sizeof published);
  memset(fenced, 0, sizeof fenced);
  object_count = unseen = ordered_count = 0;
  block_begin = block_floor = now++;
  memset(apart, 0, sizeof apart);
}
void order_block() {
  block_floor = now++;
  memset(apart, 0, sizeof apart);
}
// Orders the given lanes of a warp, which have waited for each other.
void order_lanes(Thread* warp_threads, unsigned lanes) {
  const unsigned warp = warp_threads->rank / warp_lanes, size = block.threads - warp_threads->rank;
  const bool all = lanes == (size >= warp_lanes ? ~0u : (1u << size) - 1);
  if (all) {
    for (unsigned rest = apart[warp]; rest; rest &= rest - 1)
      join(of_warp[warp], of_thread[warp_threads->rank + __builtin_ctz(rest)]);
    apart[warp] = 0;
    lane_floor[warp] = now++;
    return;
  }
  static Clock past;
  memset(&past, 0, sizeof past);
  for (unsigned rest = lanes; rest; rest &= rest - 1) join_past(past, warp_threads[__builtin_ctz(rest)]);
  for (unsigned rest = lanes; rest; rest &= rest - 1)
    memcpy(&own(warp_threads[__builtin_ctz(rest)]), &past, sizeof past);
  now++;
}

// --- barrier objects ---

static unsigned number_of(const void* object) {
  for (unsigned i = 0; i < object_count; i++)
    if (objects[i].address == object) return i;
  if (object_count == maximum_objects) fail("more than %u barrier objects", maximum_objects);
  Object& fresh = objects[object_count];
  memset(&fresh, 0, sizeof fresh);
  fresh.address = object;
  return object_count++;
}
// Ends a phase of a barrier object.
void complete(const void* object) {
  Object& of = objects[number_of(object)];
  memcpy(&of.completed, &of.arrived, sizeof of.arrived);
}

// Sets up a barrier object.
void begin_object(const void* object, const void* instruction) {
  touch(object, 8, Kind::write, instruction);
  Object& of = objects[number_of(object)];
  memset(&of.arrived, 0, 2 * sizeof(Clock));
}
void release(const void* object, const void* instruction) {
  touch(object, 8, Kind::atomic, instruction);
  join_past(objects[number_of(object)].arrived, *current);
  now++;
}
// Orders the last completed phase before the current thread's next accesses, after the thread's wait.
void acquire(const void* object, const void* instruction) {
  touch(object, 8, Kind::atomic, instruction);
  join(own(*current), objects[number_of(object)].completed);
}

// --- atomic accesses of global memory: a block inherits the order that earlier accessors of a variable have fenced ---

void fence() { fenced[current->rank] = now++; }
static Gate& gate_of(const void* address) {
  size_t slot = reinterpret_cast<uintptr_t>(address) / 4 * 0x9E3779B97F4A7C15ull >> 50;
  for (unsigned tries = 0; tries < gate_slots; tries++, slot = (slot + 1) % gate_slots)
    if (!gates[slot].address || gates[slot].address == address) return gates[slot].address = address, gates[slot];
  fail("more than %u atomic variables", gate_slots);
}
static void let_through(Gate& gate, unsigned past) {
  if (gate.count == gate.capacity) {
    unsigned* const more =
        static_cast<unsigned*>(from_arena((gate.capacity = 2 * gate.capacity + 4) * sizeof(unsigned)));
    gate.pasts = static_cast<unsigned*>(memcpy(more, gate.pasts, gate.count * sizeof(unsigned)));
  }
  gate.pasts[gate.count++] = past;
}
static void come_through(Gate& gate) {
  const unsigned number = &gate - gates, before = ordered_count;
  for (unsigned i = 0; i < gate.count; i++) {
    if (ordered_count == maximum_pasts) fail("a block is ordered behind more than %u others", maximum_pasts);
    ordered_pasts[ordered_count++] = {gate.pasts[i], number};
  }
  if (fenced[current->rank] <= block_floor) return;
  for (unsigned i = 0; i < before; i++)
    if (ordered_pasts[i].gate != number) let_through(gate, ordered_pasts[i].past);
  if (past_count == maximum_pasts) fail("more than %u atomic accesses", maximum_pasts);
  Clock* const clock = static_cast<Clock*>(from_arena(sizeof(Clock)));
  join_past(*clock, *current);
  pasts[past_count] = {block_begin, now, block_floor, clock};
  let_through(gate, past_count++);
  now++;
}
void atomic(const void* address, size_t bytes) {
  touch(address, bytes, Kind::atomic, EMULATED_HERE);
  const Region* const region = region_of(address);
  if (current && !unseen && !(region && region->is_shared)) come_through(gate_of(address));
}

// --- asynchronous accesses ---

// Makes a thread's writes so far visible to TMA and products that follow this call.
void publish() { published[current->rank] = now++; }
Request request_engine_read() { return {now++, true}; }
// Requests a write that may happen from this time on.
Request request_write(const void* address, size_t bytes, const void* instruction) {
  touch(address, bytes, Kind::write, instruction);
  return {now++};
}
// Orders the products of the warp before the current thread's next accesses, after its wait for them.
void acquire_products() { own(*current).until[first_warp + current->rank / warp_lanes] = now++; }
void unsee(int more) { unseen += more; }

Unseen::Unseen() { unsee(1); }
Unseen::~Unseen() { unsee(-1); }

Later::Later(Request request) : rank(current->rank) {
  acting[rank] = {first_thread + rank, request.time, request.engine};
}
Later::~Later() { acting[rank] = {}; }

ByWarp::ByWarp(Request request) : rank(current->rank) {
  acting[rank] = {first_warp + rank / warp_lanes, request.time, request.engine};
}
ByWarp::~ByWarp() { acting[rank] = {}; }

ByAgent::ByAgent(const void* object, Request request) : rank(current->rank), number(number_of(object)) {
  acting[rank] = {number, request.time, false};
}
ByAgent::~ByAgent() {
  acting[rank] = {};
  objects[number].arrived.until[number] = now++;
}
}  // namespace emulated::races
