// The scheduler runs one launch on the host: blocks run one after another, and the threads of a block are fibers of the
// calling host thread. A fiber runs one CUDA thread after another. Only a thread that has to wait keeps its fiber, so a
// kernel without barriers never switches stacks. The caller serialises launches, because the state below exists once
// per module. Kernels are compiled against this header and linked with scheduler.cpp, which is compiled once.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector_types.h>

#undef __shared__
#define __shared__ thread_local  // Inside a function it implies static; after `extern` it stays a declaration.
#define EMULATED_EXPORT __attribute__((visibility("default")))
#define EMULATED_CALL inline __attribute__((noinline))  // EMULATED_HERE is then the caller's address.
#define EMULATED_HERE (static_cast<const char*>(__builtin_return_address(0)) - 1)

inline unsigned char* shared_memory;  // dynamic shared memory of the launch

namespace emulated {

constexpr int maximum_threads = 1024;       // per block
constexpr int warp_lanes = 32;              // threads
constexpr size_t stack_bytes = 256 * 1024;  // per thread
constexpr size_t page_bytes = 4096;
constexpr size_t dynamic_shared_bytes = 227 * 1024;  // per block
constexpr size_t shared_guard_bytes = 1 << 20;       // inaccessible bytes on each side of shared memory
constexpr size_t maximum_argument_bytes = 32 * 1024;

struct Kernel {
  const char* name;
  void (*call)(const void* arguments);
  size_t argument_bytes;
  unsigned maximum_block_threads, waits;  // `waits`: whether it waits for earlier kernels before it touches memory
  const char* field_names;                // argument fields, separated by commas
  const unsigned long long* fields;       // offset and size of each field in bytes
};

struct Pages {
  void* first;
  size_t bytes;
};

struct Mappings {  // All modules of the process share them. A null pointer is not mapped yet.
  char* stacks[maximum_threads];
  char *shared, *first_shared, *last_shared;  // reserved range; accessible part of it
};

struct Launch {  // library.py declares the same structures.
  const Kernel* kernel;
  const void* arguments;
  unsigned grid[3], block[3], shared_bytes, seed;
  const Pages* memory;  // pages of the allocations that the arguments point into
  size_t memory_count;
  Mappings* mappings;
  // `failed` is 1 after a failure, or 2 if the thread is known. Instructions are offsets into this library, 0 if
  // unknown.
  unsigned failed, block_index[3], thread_index[3];
  uint64_t instruction, other_instruction, address;
  char message[1024];
};

struct Site {  // A site is the operation and source line at which a thread waits.
  const char *operation, *file;
  int line;
};

enum class Wait : unsigned char { nothing, block, warp, phase, finished };

struct Fiber {
  void* stack_pointer;
  char* stack;  // The lowest page is inaccessible.
};

struct Thread {
  uint3 index;
  int rank;
  Fiber* fiber;
  Wait wait;
  bool follows;  // whether it waited for earlier kernels, or synchronized with a thread that did
  Site site;
  unsigned mask;  // mask of the warp operation in which the thread waits
  int source;
  void (*exchange)(Thread* warp, unsigned lanes);
  const void* awaited;  // barrier object whose phase the thread waits for
  unsigned char value[48], result[16];
  int lane() const { return rank % warp_lanes; }
};

struct Warp {
  unsigned live, waiting;  // masks of lanes
};

struct Block {
  Launch* launch;
  uint3 index;
  uint64_t number;
  uint3 size, grid;
  int threads, started, finished, arrived;
  unsigned votes, vote_result;
  bool follows;  // whether a thread has waited for earlier kernels
  unsigned ready_first, ready_last;
  Thread thread[maximum_threads];
  Warp warp[maximum_threads / warp_lanes];
  int order[maximum_threads];
  Thread* ready[maximum_threads];
};

inline Block block;
inline uint64_t blocks;  // number of blocks that this module has run
inline Thread* current;  // The pointer is null outside kernels.

// Both end the launch and report the current thread; fail_at also reports an instruction of this module and an address.
[[noreturn, gnu::format(printf, 1, 2)]] void fail(const char* format, ...);
[[noreturn, gnu::format(printf, 3, 4)]] void fail_at(const void* instruction, const void* address, const char* format,
                                                     ...);
const char* base_name(const char* path);

// Poison marks memory that nobody has written. It is NaN in every floating-point type, and differs from the integers
// that kernels use for "none".
void fill_with_poison(void* memory, size_t bytes);
void suspend();  // It returns when another thread wakes this one.
void wake(Thread& thread);
// Waits for earlier kernels and makes memory accessible.
void griddepcontrol_wait();
inline void follow_others() { current->follows |= block.follows; }  // Call it after a synchronization.
void require_followed(const void* instruction);                     // Call it before an asynchronous access.
unsigned barrier(Site site, bool predicate);  // It returns the number of the block's threads whose predicate held.
// Each live lane of the mask deposits its value; the last lane to arrive exchanges them.
void warp_operation(Site site, unsigned mask, void (*exchange)(Thread*, unsigned));

// Copies into shared memory have multiples of 4 bytes. Their target is poison from the request until a thread has
// waited, and no other access may touch it.
void begin_copy(void* to, size_t bytes, const void* instruction);
void end_copy(void* to, size_t bytes);
void require_arrived(const void* from, size_t bytes, Site site);  // It fails if a copy into the range is in flight.
bool is_shared(const void* address, size_t bytes);

// A list keeps items in order of arrival. It drops the items of earlier blocks, which a failed launch may have left.
// Containers of the C++ library would take longer to compile than many kernels.
template <class T> struct List {
  T* items;
  size_t count, capacity;
  uint64_t of_block;
  List& of_this_block() {
    if (of_block != blocks) count = 0;
    of_block = blocks;
    return *this;
  }
  void add(const T& item) {
    if (count == capacity) {
      capacity = 2 * capacity + 16;
      items = static_cast<T*>(realloc(static_cast<void*>(items), capacity * sizeof(T)));
    }
    items[count++] = item;
  }
  void remove(size_t first, size_t removed) {
    count -= removed;
    memmove(static_cast<void*>(items + first), items + first + removed, (count - first) * sizeof(T));
  }
};

// Queues hold the asynchronous requests that each thread of a block has not waited for, in groups.
template <class T> struct Queues {
  struct Entry {
    T request;
    bool ends_group;
  };
  List<Entry> of[maximum_threads];
  List<Entry>& own() { return of[current->rank].of_this_block(); }
  void add(const T& request) { own().add({request, false}); }
  void end_group() { own().add({{}, true}); }
  // Finishes the oldest groups until only `pending` groups are left.
  template <class Finish> void finish(int pending, Finish finish_request) {
    List<Entry>& queue = own();
    int groups = -pending;
    for (size_t i = 0; i < queue.count; i++) groups += queue.items[i].ends_group;
    size_t finished = 0;
    for (; groups > 0; finished++) {
      if (queue.items[finished].ends_group) groups--;
      else finish_request(queue.items[finished].request);
    }
    queue.remove(0, finished);
  }
};

struct Image {                            // It gives the addresses of this module in memory.
  char *base, *code, *code_end, *shared;  // `shared` is this host thread's copy of the module's __shared__ variables.
  size_t shared_bytes;
};
inline Image image;

template <class Signature> struct KernelCall;
template <class Arguments> struct KernelCall<void (*)(Arguments)> {
  static constexpr size_t argument_bytes = sizeof(Arguments);
  using type = Arguments;
  template <void (*kernel)(Arguments)> static void call(const void* arguments) {
    kernel(*static_cast<const Arguments*>(arguments));
  }
};

template <auto kernel>
constexpr Kernel describe(const char* name, bool waits, const char* field_names, const unsigned long long* fields,
                          unsigned maximum_block_threads, ...) {
  using Call = KernelCall<decltype(kernel)>;
  static_assert(Call::argument_bytes <= maximum_argument_bytes);
  return {name, Call::template call<kernel>, Call::argument_bytes, maximum_block_threads, waits, field_names, fields};
}

}  // namespace emulated
