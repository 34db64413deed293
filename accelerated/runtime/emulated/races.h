// The race detector reports two accesses to the same bytes, one of them a write, that no synchronization orders.
//
// Kernels compiled with -fsanitize=thread report each access by a call (race_calls.cpp). Only the synchronization of
// the PTX manual orders accesses. The order in which fibers and blocks run does not count, so that races are found even
// when the results are right. It consists of barriers of the block, __syncwarp, and an arrival at a barrier object
// before the wait for its phase. Between blocks it is an atomic access after a fence, before another access to the same
// variable. Shared memory that TMA or asynchronous products read must have been published by the threads that wrote it.
// The detector does not track TMA reads of global memory, variables of the module, allocations of more than 64 MB, or
// flags that are not atomic. It does not check that a fence follows an atomic access.
//
// Time is a counter that synchronization increments. Each access has its time. Each thread has a vector clock: for each
// agent, the time up to which the agent's accesses precede the thread's next one. TMA has one agent per barrier object,
// and asynchronous products have one per warp; their accesses may happen at any time after the request. Blocks run one
// after another, so that times distinguish them.
#pragma once
#include "scheduler.h"

namespace emulated::races {
struct Request {  // It describes accesses that happen later.
  unsigned time = 0;
  bool engine = false;  // whether TMA or products access the memory, which see published writes only
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

void order_block();                              // All threads of the block have reached a barrier.
void order_lanes(Thread* warp, unsigned lanes);  // The given lanes of a warp have waited for each other.
void fence();                                    // It orders earlier accesses before later atomic accesses.

// These calls follow a barrier object: it is set up, a thread arrives, a phase ends, and a thread has waited.
void begin_object(const void* object, const void* instruction);
void release(const void* object, const void* instruction);
void complete(const void* object);
void acquire(const void* object, const void* instruction);

void publish();           // TMA and products that follow it see the thread's writes so far.
void acquire_products();  // The thread has waited for its warp's products.
Request request_engine_read();
Request request_write(const void* address, size_t bytes, const void* instruction);  // The write may happen from now on.

void unsee(int more);  // Accesses are ignored while the sum of its arguments is not 0.
struct Unseen {        // Accesses in its scope are ignored.
  Unseen();
  ~Unseen();
};
struct Later {  // Accesses in its scope were requested by this thread before.
  const unsigned rank;
  Later(Request request);
  ~Later();
};
struct ByWarp {  // Accesses in its scope belong to asynchronous products, for which the warp waits together.
  const unsigned rank;
  ByWarp(Request request);
  ~ByWarp();
};
struct ByAgent {  // Accesses in its scope belong to TMA, and precede the threads that wait for the object.
  const unsigned rank, number;
  ByAgent(const void* object, Request request);
  ~ByAgent();
};
}  // namespace emulated::races

#endif
