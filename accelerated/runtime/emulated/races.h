// Races: two accesses of the same bytes of shared or global memory, one of them a write, that nothing orders.
//
// Compiled with -fsanitize=thread, kernels report each access by a call; what the compiler calls is in race_calls.cpp.
// What orders accesses is what the PTX manual says does, whatever the order in which fibers and blocks run: barriers of
// the block, __syncwarp, an arrival at a barrier object (for its own thread alone) before the end of the wait for its
// phase, and, between blocks, an atomic access behind a fence before another of the same variable. So a race is found
// although the numbers are right. What TMA and asynchronous products read of shared memory must have been published by
// those who wrote it. Not followed: global memory in what TMA reads, in variables of the module and in allocations of
// more than 64 MB; flags in memory that are no atomic accesses; that a fence stands behind an atomic access, too.
//
// Time counts what may order something. An access has the time at which it happened; a thread knows of each other one
// up to which time its accesses come before what the thread does next (a vector clock). Those of TMA belong to an agent
// for each barrier object, those of asynchronous products to one for each warp; they may happen at any time from the
// request on. Blocks run one after another, so that times distinguish them.
#pragma once
#include "scheduler.h"

namespace emulated::races {
struct Request {  // of accesses that happen later
  unsigned time = 0;
  bool engine = false;  // which sees only what was published
};
}  // namespace emulated::races

#ifndef EMULATED_RACES

namespace emulated::races {
inline void begin_launch() {}
inline void end_launch() {}
inline void begin_block() {}
inline void fence() {}
inline void unsee(int) {}
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

namespace emulated::races {
void begin_launch();
void end_launch();
void begin_block();

void read(const void* address, size_t bytes);
void write(const void* address, size_t bytes);
void atomic(const void* address, size_t bytes);

void order_block();                              // a barrier of the block
void order_lanes(Thread* warp, unsigned lanes);  // some lanes of a warp wait for each other
void fence();                                    // what comes before it is ordered before later atomic accesses

// Barrier objects: one is set up; a thread arrives; a phase ends; a thread comes behind its wait.
void begin_object(const void* object, const void* instruction);
void release(const void* object, const void* instruction);
void complete(const void* object);
void acquire(const void* object, const void* instruction);

void publish();           // a thread's writes so far can be seen by TMA and by products, by those who come behind it
void acquire_products();  // behind the wait for products
Request request_engine_read();
Request request_write(const void* address, size_t bytes, const void* instruction);  // it may be written from now on

void unsee(int more);  // accesses are no kernel's while the sum is not 0
struct Unseen {        // in its scope
  Unseen();
  ~Unseen();
};
struct Later {  // in its scope: the accesses that this thread requested
  const unsigned rank;
  Later(Request request);
  ~Later();
};
struct ByWarp {  // in its scope: accesses of asynchronous products, which a warp requests and waits for together
  const unsigned rank;
  ByWarp(Request request);
  ~ByWarp();
};
struct ByAgent {  // in its scope: accesses of TMA; those who wait for the object come behind them
  const unsigned rank, number;
  ByAgent(const void* object, Request request);
  ~ByAgent();
};
}  // namespace emulated::races

#endif
