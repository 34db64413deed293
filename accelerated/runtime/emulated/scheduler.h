// One launch on the host: blocks run one after another; the threads of a block are fibers of the calling host thread.
// A fiber runs one CUDA thread after another; only a thread that has to wait keeps its fiber, so a kernel without
// barriers never switches stacks. Launches are serialised by the caller: the state below exists once per module, whose
// kernels are compiled against this header and linked with scheduler.cpp, which is compiled once.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector_types.h>

#undef __shared__
#define __shared__ thread_local  // inside a function this implies static; after `extern` it stays a declaration
#define EMULATED_EXPORT __attribute__((visibility("default")))
#define EMULATED_CALL inline __attribute__((noinline))  // so that EMULATED_HERE is where it is called
#define EMULATED_HERE (static_cast<const char*>(__builtin_return_address(0)) - 1)

inline unsigned char* shared_memory;  // dynamic, of the launch

namespace emulated {

constexpr int maximum_threads = 1024, warp_lanes = 32;
constexpr size_t stack_bytes = 256 * 1024, page_bytes = 4096;
constexpr size_t dynamic_shared_bytes = 227 * 1024, shared_guard_bytes = 1 << 20;
constexpr size_t maximum_argument_bytes = 32 * 1024;

struct Kernel {
  const char* name;
  void (*call)(const void* arguments);
  size_t argument_bytes;
  unsigned maximum_block_threads, waits;  // waits: for earlier kernels, before it touches memory
  const char* field_names;                // of the arguments, with commas between them
  const unsigned long long* fields;       // offset and size of each
};

struct Pages {
  void* first;
  size_t bytes;
};

struct Mappings {  // of the process: all modules launch with the same ones. Null: not made yet
  char* stacks[maximum_threads];
  char *shared, *first_shared, *last_shared;  // what may be dynamic shared memory; the pages that are
};

struct Launch {  // library.py has the same structures
  const Kernel* kernel;
  const void* arguments;
  unsigned grid[3], block[3], shared_bytes, seed;
  const Pages* memory;  // what the arguments point into
  size_t memory_count;
  Mappings* mappings;
  // What went wrong: failed is 1, or 2 if the thread is known. The instruction is an offset into this library; 0: not
  // known.
  unsigned failed, block_index[3], thread_index[3];
  uint64_t instruction, other_instruction, address;
  char message[1024];
};

struct Site {  // where a thread waits
  const char *operation, *file;
  int line;
};

enum class Wait : unsigned char { nothing, block, warp, phase, finished };

struct Fiber {
  void* stack_pointer;
  char* stack;  // its lowest page is inaccessible
};

struct Thread {
  uint3 index;
  int rank;
  Fiber* fiber;
  Wait wait;
  bool follows;  // earlier kernels: it has waited for them, or is behind a thread that has
  Site site;
  unsigned mask;  // of the warp operation it waits in
  int source;
  void (*exchange)(Thread* warp, unsigned lanes);
  const void* awaited;  // the object whose phase it waits for
  unsigned char value[48], result[16];
  int lane() const { return rank % warp_lanes; }
};

struct Warp {
  unsigned live, waiting;  // lanes
};

struct Block {
  Launch* launch;
  uint3 index;
  uint64_t number;
  uint3 size, grid;
  int threads, started, finished, arrived;
  unsigned votes, vote_result;
  bool follows;  // a thread has waited for earlier kernels
  unsigned ready_first, ready_last;
  Thread thread[maximum_threads];
  Warp warp[maximum_threads / warp_lanes];
  int order[maximum_threads];
  Thread* ready[maximum_threads];
};

inline Block block;
inline uint64_t blocks;  // that this module has run
inline Thread* current;  // null outside kernels

// Ends the launch: with the thread that found something wrong, with an instruction of this module and an address.
[[noreturn, gnu::format(printf, 1, 2)]] void fail(const char* format, ...);
[[noreturn, gnu::format(printf, 3, 4)]] void fail_at(const void* instruction, const void* address, const char* format,
                                                     ...);
const char* base_name(const char* path);

// What nobody has written: NaN in every floating-point type, and as an integer no number that means "none".
void fill_with_poison(void* memory, size_t bytes);
void suspend();  // until another thread wakes this one
void wake(Thread& thread);
// Memory is inaccessible until a thread has waited for earlier kernels: the first of the launch, and one more.
void griddepcontrol_wait();
inline void follow_others() { current->follows |= block.follows; }  // behind what orders it behind other threads
void require_followed(const void* instruction);                     // before a request to access memory
unsigned barrier(Site site, bool predicate);  // of the block; returns the number of threads whose predicate held
// Each live lane of the mask deposits its value; the last to come exchanges them.
void warp_operation(Site site, unsigned mask, void (*exchange)(Thread*, unsigned));

// Copies into shared memory, of multiples of 4 bytes: what they write is poison from the request until a thread has
// waited, and nobody else's.
void begin_copy(void* to, size_t bytes, const void* instruction);
void end_copy(void* to, size_t bytes);
void require_arrived(const void* from, size_t bytes, Site site);  // what is read of shared memory
bool is_shared(const void* address, size_t bytes);

// Items in the order in which they came. A launch that failed may have left some of its block. (Modules compile each
// container of the C++ library for longer than many a kernel.)
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

// Asynchronous requests of each thread of a block that it has not waited for, in groups.
template <class T> struct Queues {
  struct Entry {
    T request;
    bool ends_group;
  };
  List<Entry> of[maximum_threads];
  List<Entry>& own() { return of[current->rank].of_this_block(); }
  void add(const T& request) { own().add({request, false}); }
  void end_group() { own().add({{}, true}); }
  // The oldest first, until so many groups are pending.
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

struct Image {                            // this module, as the dynamic linker placed it
  char *base, *code, *code_end, *shared;  // shared: this host thread's copy of the module's __shared__ variables
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
