// This file runs a launch (scheduler.h): fibers, the order of threads, barriers, warp operations and failures.
#include <algorithm>
#include <csignal>
#include <cstdarg>
#include <cstdlib>
#include <link.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <wchar.h>

#include "races.h"

namespace emulated {

static Fiber *running, scheduler;  // `running` is the fiber started last, `scheduler` the stack of the launch itself.
static Fiber fibers[maximum_threads];
static int fibers_made, fibers_idle;
static Fiber* idle[maximum_threads];

// --- stacks ---

extern "C" void emulated_switch_stack(void** save, void** resume);
asm(R"(
.text
.local emulated_switch_stack
.type emulated_switch_stack, @function
emulated_switch_stack:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp, (%rdi)
  movq (%rsi), %rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  popq %rax
  jmp *%rax
.size emulated_switch_stack, . - emulated_switch_stack
)");

static void switch_fiber(Fiber& from, Fiber& to) { emulated_switch_stack(&from.stack_pointer, &to.stack_pointer); }

static Thread* next_ready() {
  return block.ready_first == block.ready_last ? nullptr : block.ready[block.ready_first++ % maximum_threads];
}

void suspend() {
  Thread* thread = current;
  Thread* next = block.launch->failed ? nullptr : next_ready();
  current = next;
  switch_fiber(*thread->fiber, next ? *next->fiber : scheduler);
  current = thread;
}

[[noreturn]] static void abandon() {
  switch_fiber(*current->fiber, scheduler);
  __builtin_unreachable();
}

// --- failures ---

static void record_failure(const Thread* thread, const char* format, va_list values) {
  Launch& launch = *block.launch;
  if (launch.failed) return;
  launch.failed = thread ? 2 : 1;
  const unsigned block_index[] = {block.index.x, block.index.y, block.index.z};
  memcpy(launch.block_index, block_index, sizeof block_index);
  if (thread) memcpy(launch.thread_index, &thread->index, sizeof launch.thread_index);
  vsnprintf(launch.message, sizeof launch.message, format, values);
}
[[gnu::format(printf, 2, 3)]] static void record_failure(const Thread* thread, const char* format, ...) {
  va_list values;
  va_start(values, format);
  record_failure(thread, format, values);
  va_end(values);
}

void fail(const char* format, ...) {
  va_list values;
  va_start(values, format);
  record_failure(current, format, values);
  va_end(values);
  abandon();
}

// --- memory that earlier kernels may still write is inaccessible until the launch's first thread has waited for them,
// and later once more until a thread that the seed chooses has waited ---

static bool memory_held;
static uint64_t watched_block;
static int watched_thread;

static void hold_memory(bool hold) {
  memory_held = hold;
  for (size_t i = 0; i < block.launch->memory_count; i++) {
    const Pages& pages = block.launch->memory[i];
    mprotect(pages.first, pages.bytes, hold ? PROT_NONE : PROT_READ | PROT_WRITE);
  }
}

void griddepcontrol_wait() {
  current->follows = block.follows = true;
  if (memory_held) hold_memory(false);
}

void require_followed(const void* instruction) {
  if (!current->follows) fail_at(instruction, nullptr, "a copy before griddepcontrol_wait_before_access()");
}

static void watch_memory(uint64_t number_of_blocks) {
  const Launch& launch = *block.launch;
  const uint64_t random = (launch.seed + number_of_blocks * 31 + block.threads) * 0x9E3779B97F4A7C15ull;
  watched_block = (random >> 32) % number_of_blocks;
  watched_thread = (random >> 16) % block.threads;
  hold_memory(true);
}

// --- threads ---

void wake(Thread& thread) {
  thread.wait = Wait::nothing;
  block.ready[block.ready_last++ % maximum_threads] = &thread;
}

const char* base_name(const char* path) {
  const char* slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

static void release_barrier() {
  races::order_block();
  block.arrived = 0;
  block.vote_result = std::exchange(block.votes, 0u);
  for (int i = 0; block.follows && i < block.threads; i++) block.thread[i].follows = true;
  for (int i = 0; i < block.threads; i++) {  // The seed also orders threads after a barrier.
    Thread& thread = block.thread[block.order[i]];
    if (thread.wait == Wait::block && &thread != current) wake(thread);
  }
}

// Waits for every thread of the block and returns the number of threads whose predicate held.
unsigned barrier(Site site, bool predicate) {
  Thread& self = *current;
  self.site = site;
  block.votes += predicate;
  if (++block.arrived < block.threads) {
    self.wait = Wait::block;
    suspend();
    return block.vote_result;
  }
  for (int i = 0; i < block.threads; i++) {
    const Thread& other = block.thread[i];
    const bool same_file = other.site.file == site.file || strcmp(other.site.file, site.file) == 0;
    if (other.site.line != site.line || !same_file)
      fail("divergent barrier: thread %d is in %s at %s:%d, thread %d in %s at %s:%d", self.rank, site.operation,
           base_name(site.file), site.line, other.rank, other.site.operation, base_name(other.site.file),
           other.site.line);
  }
  release_barrier();
  return block.vote_result;
}

// Distributes the results of a warp operation when every live lane of the mask has arrived; returns whether it did.
static bool complete_warp_operation(Thread* warp_threads, Warp& warp, const Thread& member) {
  const unsigned lanes = warp.live & member.mask;
  if ((warp.waiting & lanes) != lanes) return false;
  for (unsigned rest = lanes; rest; rest &= rest - 1) {
    const Thread& other = warp_threads[__builtin_ctz(rest)];
    if (other.mask == member.mask && other.site.line == member.site.line && other.exchange == member.exchange) continue;
    record_failure(
        &member,
        "divergent warp operation: thread %d is in %s at %s:%d with mask %08x, thread %d in %s at %s:%d with mask %08x",
        member.rank, member.site.operation, base_name(member.site.file), member.site.line, member.mask, other.rank,
        other.site.operation, base_name(other.site.file), other.site.line, other.mask);
    return false;
  }
  member.exchange(warp_threads, lanes);
  warp.waiting &= ~lanes;
  for (unsigned rest = lanes; rest; rest &= rest - 1) {
    Thread& other = warp_threads[__builtin_ctz(rest)];
    if (&other == current) other.wait = Wait::nothing;
    else wake(other);
  }
  return true;
}

// Performs a warp operation: each live lane of the mask deposits its value, and the last lane exchanges them.
void warp_operation(Site site, unsigned mask, void (*exchange)(Thread*, unsigned)) {
  Thread& self = *current;
  const unsigned own = 1u << self.lane();
  if (!(mask & own))
    fail("%s at %s:%d: thread %d is not in its own mask %08x", site.operation, base_name(site.file), site.line,
         self.rank, mask);
  self.site = site;
  self.mask = mask;
  self.exchange = exchange;
  self.wait = Wait::warp;
  Warp& warp = block.warp[self.rank / warp_lanes];
  warp.waiting |= own;
  if (complete_warp_operation(&self - self.lane(), warp, self)) return;
  if (block.launch->failed) abandon();
  suspend();
}

// Ends a thread; the other lanes of its warp do not wait for it.
static void finish_thread(Thread& thread) {
  thread.wait = Wait::finished;
  block.finished++;
  Warp& warp = block.warp[thread.rank / warp_lanes];
  warp.live &= ~(1u << thread.lane());
  current = nullptr;
  Thread* warp_threads = &thread - thread.lane();
  for (unsigned rest = warp.waiting; rest && !block.launch->failed; rest &= rest - 1) {
    const int lane = __builtin_ctz(rest);
    if (warp.waiting >> lane & 1) complete_warp_operation(warp_threads, warp, warp_threads[lane]);
  }
}

// Fills the stack where a thread's variables will be, so that it cannot read the previous thread's variables.
[[gnu::noinline]] static void poison_stack() {
  alignas(16) unsigned char below[512];
  fill_with_poison(below, sizeof below);
  asm volatile("" ::"r"(below) : "memory");
}

static void run_threads() {  // Every fiber executes this function.
  for (;;) {
    Fiber* fiber = running;
    while (block.started < block.threads && !block.launch->failed) {
      Thread& thread = block.thread[block.order[block.started++]];
      thread.fiber = fiber;
      current = &thread;
      if (thread.rank == watched_thread && block.launch->kernel->waits && block.number == watched_block)
        hold_memory(true);
      poison_stack();
      block.launch->kernel->call(block.launch->arguments);
      finish_thread(thread);
      if (block.ready_first != block.ready_last) break;  // Threads that waited longer run first.
    }
    idle[fibers_idle++] = fiber;
    switch_fiber(*fiber, scheduler);
  }
}

static void prepare_fiber(Fiber& fiber) {
  // The stacks are staggered, because stacks at a power-of-two distance share cache sets.
  const size_t stagger = (&fiber - fibers) % 32 * 128;
  void** top = reinterpret_cast<void**>(fiber.stack + page_bytes + stack_bytes - stagger);
  *--top = nullptr;  // This replaces a return address, which keeps the alignment of a call.
  *--top = reinterpret_cast<void*>(run_threads);
  top -= 6;  // emulated_switch_stack restores six registers from here.
  memset(top, 0, 6 * sizeof *top);
  fiber.stack_pointer = top;
}

// Returns the stack with a number, null without memory. Stacks stay mapped: mapping them for each launch would take a
// third of the time of many launches.
static char* find_stack(int number) {
  char*& stack = block.launch->mappings->stacks[number];
  if (stack) return stack;
  void* made = mmap(nullptr, stack_bytes + page_bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED) return nullptr;
  mprotect(made, page_bytes, PROT_NONE);
  return stack = static_cast<char*>(made);
}

static bool start_fiber() {
  if (!fibers_idle) {
    Fiber& fiber = fibers[fibers_made];
    fiber.stack = find_stack(fibers_made);
    if (!fiber.stack) {
      record_failure(nullptr, "no memory for the stack of thread %d", fibers_made);
      return false;
    }
    prepare_fiber(fiber);
    fibers_made++;
    idle[fibers_idle++] = &fiber;
  }
  running = idle[--fibers_idle];
  switch_fiber(scheduler, *running);
  return true;
}

// --- shared memory and code of the module; __shared__ variables are thread-local ---

extern "C" {
alignas(16) thread_local unsigned char emulated_variable[16];
extern const size_t emulated_variable_offset;  // offset in the module's thread-local block
}
asm(R"(
.pushsection .rodata
.balign 8
.globl emulated_variable_offset
.hidden emulated_variable_offset
emulated_variable_offset: .quad emulated_variable@dtpoff
.popsection
)");
// Each word of shared memory has the offset of the instruction that requested a copy into it, 0 without one.
static unsigned *variables_in_flight, dynamic_in_flight[dynamic_shared_bytes / 4];
static size_t bytes_in_flight;

static int find_image(dl_phdr_info* info, size_t, void*) {
  Image found{};
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const auto& segment = info->dlpi_phdr[i];
    if (segment.p_type == PT_LOAD && segment.p_flags & PF_X) {
      found.code = reinterpret_cast<char*>(info->dlpi_addr + segment.p_vaddr);
      found.code_end = found.code + segment.p_memsz;
    }
    if (segment.p_type == PT_TLS) found.shared_bytes = segment.p_memsz;
  }
  const char* own = reinterpret_cast<char*>(find_image);
  if (own < found.code || own >= found.code_end) return 0;
  found.base = reinterpret_cast<char*>(info->dlpi_addr);
  image = found;
  variables_in_flight = static_cast<unsigned*>(calloc(found.shared_bytes / 4 + 1, sizeof(unsigned)));
  return 1;
}

static void locate_image() {
  if (!image.base) dl_iterate_phdr(find_image, nullptr);
  // Each host thread has its own copy of the variables.
  image.shared = reinterpret_cast<char*>(emulated_variable) - emulated_variable_offset;
}

constexpr size_t shared_mapping_bytes =
    (dynamic_shared_bytes + page_bytes - 1) / page_bytes * page_bytes;  // mapped for dynamic shared memory

// Maps dynamic shared memory so that its end (with odd seeds its start) touches an inaccessible page.
static void place_dynamic_shared_memory() {
  Mappings& of = *block.launch->mappings;
  if (!of.shared) {
    void* made = mmap(nullptr, shared_mapping_bytes + 2 * shared_guard_bytes, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made == MAP_FAILED) return record_failure(nullptr, "no memory for dynamic shared memory");
    of.shared = of.first_shared = of.last_shared = static_cast<char*>(made) + shared_guard_bytes;
  }
  const size_t wanted = block.launch->shared_bytes, bytes = (wanted + page_bytes - 1) / page_bytes * page_bytes;
  const bool at_start = block.launch->seed % 2;
  char *first = at_start ? of.shared : of.shared + shared_mapping_bytes - bytes, *last = first + bytes;
  if (first != of.first_shared || last != of.last_shared) {
    mprotect(of.first_shared, of.last_shared - of.first_shared, PROT_NONE);
    mprotect(first, bytes, PROT_READ | PROT_WRITE);
    of.first_shared = first, of.last_shared = last;
  }
  shared_memory = reinterpret_cast<unsigned char*>(at_start ? first : last - (wanted + 15) / 16 * 16);
}

constexpr unsigned char poison[] = {0xff, 0x7f};  // byte values at even and at odd addresses

static unsigned char poison_at(const void* address) { return poison[reinterpret_cast<uintptr_t>(address) % 2]; }

void fill_with_poison(void* memory, size_t bytes) {
  unsigned char *to = static_cast<unsigned char*>(memory), *end = to + bytes;
  while (to < end && reinterpret_cast<uintptr_t>(to) % sizeof(wchar_t)) *to = poison_at(to), to++;
  const size_t words = (end - to) / sizeof(wchar_t);
  wmemset(reinterpret_cast<wchar_t*>(to), 0x7fff7fff, words);
  for (to += words * sizeof(wchar_t); to < end; to++) *to = poison_at(to);
}

static bool is_poison(const void* memory, size_t bytes) {
  const unsigned char* const first = static_cast<const unsigned char*>(memory);
  for (size_t i = 0; i < std::min<size_t>(bytes, 2); i++)
    if (first[i] != poison_at(first + i)) return false;
  return bytes < 3 || memcmp(first, first + 2, bytes - 2) == 0;
}

// Fills all shared memory with poison before a block starts.
static void poison_shared_memory() {
  const Mappings& of = *block.launch->mappings;
  fill_with_poison(image.shared, image.shared_bytes);
  fill_with_poison(of.first_shared, of.last_shared - of.first_shared);
}

static void check_padding(const char* first, const char* last) {
  if (is_poison(first, last - first)) return;
  while (is_poison(first, 1)) first++;
  record_failure(nullptr, "dynamic shared memory was written at byte %td, the launch has %u bytes",
                 first - reinterpret_cast<char*>(shared_memory), block.launch->shared_bytes);
}
// Reports writes outside the dynamic shared memory of a block that has ended.
static void check_shared_padding() {
  const Mappings& of = *block.launch->mappings;
  const char* dynamic = reinterpret_cast<char*>(shared_memory);
  check_padding(of.first_shared, dynamic);
  check_padding(dynamic + block.launch->shared_bytes, of.last_shared);
}

// --- copies in flight ---

// Returns the request words of a range of the block's shared memory; null outside of it.
static unsigned* requests_of(const void* address, size_t bytes) {
  const size_t dynamic = static_cast<const unsigned char*>(address) - shared_memory,
               variable = static_cast<const char*>(address) - image.shared;
  if (dynamic < block.launch->shared_bytes && dynamic + bytes <= block.launch->shared_bytes)
    return dynamic_in_flight + dynamic / 4;
  if (variable < image.shared_bytes && variable + bytes <= image.shared_bytes)
    return variables_in_flight + variable / 4;
  return nullptr;
}

static unsigned first_request(const unsigned* requests, size_t bytes) {  // It returns 0 where no copy is in flight.
  const size_t words = bytes / 4;
  if (!words || (!*requests && memcmp(requests, requests + 1, (words - 1) * sizeof *requests) == 0)) return 0;
  while (!*requests) requests++;
  return *requests;
}

bool is_shared(const void* address, size_t bytes) { return requests_of(address, bytes); }

void begin_copy(void* to, size_t bytes, const void* instruction) {
  unsigned* const requests = requests_of(to, bytes);
  if (!requests) fail_at(instruction, nullptr, "a copy of %zu bytes to %p, not into the shared memory", bytes, to);
  if (const unsigned other = first_request(requests, bytes)) {
    block.launch->other_instruction = other;
    fail_at(instruction, nullptr, "two copies in flight write to the same memory");
  }
  wmemset(reinterpret_cast<wchar_t*>(requests), static_cast<const char*>(instruction) - image.base, bytes / 4);
  bytes_in_flight += bytes;
  fill_with_poison(to, bytes);
}

void end_copy(void* to, size_t bytes) {
  unsigned* const requests = requests_of(to, bytes);
#ifndef EMULATED_RACES  // The race detector reports both lines.
  if (!is_poison(to, bytes))
    fail_at(image.base + *requests, nullptr, "memory was written that a copy in flight writes to");
#endif
  memset(requests, 0, bytes / 4 * sizeof *requests);
  bytes_in_flight -= bytes;
}

void require_arrived(const void* from, size_t bytes, Site site) {
  const unsigned* const requests = requests_of(from, bytes);
  if (!requests)
    fail("%s at %s:%d reads %zu bytes at %p, not of the shared memory", site.operation, base_name(site.file), site.line,
         bytes, from);
  const unsigned request = bytes_in_flight ? first_request(requests, bytes) : 0;
  if (!request) return;
  block.launch->other_instruction = request;
  fail("%s at %s:%d reads memory that a copy in flight writes to", site.operation, base_name(site.file), site.line);
}

static unsigned forget_copies(unsigned* requests, size_t bytes) {  // It returns the first request.
  const unsigned first = first_request(requests, bytes);
  memset(requests, 0, bytes / 4 * sizeof *requests);
  return first;
}
// Fails if a copy is in flight when a block ends, because it would write to the shared memory of the next block.
static void check_copies() {
  if (!bytes_in_flight) return;
  const bool is_failed = block.launch->failed;
  const unsigned dynamic = forget_copies(dynamic_in_flight, dynamic_shared_bytes),
                 variable = forget_copies(variables_in_flight, image.shared_bytes);
  record_failure(nullptr, "a copy of %zu bytes that no thread has waited for when the block ends", bytes_in_flight);
  if (!is_failed) block.launch->instruction = dynamic ? dynamic : variable;
  bytes_in_flight = 0;
}

void fail_at(const void* instruction, const void* address, const char* format, ...) {
  va_list values;
  va_start(values, format);
  record_failure(current, format, values);
  va_end(values);
  const char* code = static_cast<const char*>(instruction);
  if (code >= image.code && code < image.code_end) block.launch->instruction = code - image.base;
  block.launch->address = reinterpret_cast<uint64_t>(address);
  abandon();
}

// --- signals: the host's memory protection finds invalid accesses that the compiler's checks miss ---

constexpr int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};

static const void* caller_in_module(const void* instruction, const void* stack_pointer) {
  // A fault inside the C library (a copy of a structure, for example) is blamed on the address it returns to.
  auto in_module = [](const void* p) { return p >= image.code && p < image.code_end; };
  if (in_module(instruction)) return instruction;
  const char* end = current->fiber->stack + page_bytes + stack_bytes - 64;
  for (auto word = static_cast<void* const*>(stack_pointer); reinterpret_cast<const char*>(word) < end; word++)
    if (in_module(*word)) return static_cast<const char*>(*word) - 1;
  return instruction;
}

static void on_signal(int number, siginfo_t* info, void* context) {
  if (!current) {  // No kernel is running, so the process gets its usual signal.
    signal(number, SIG_DFL);
    raise(number);
    return;
  }
  const auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const char *address = static_cast<char*>(info->si_addr), *stack = current->fiber->stack;
  const void* instruction = reinterpret_cast<void*>(registers[REG_RIP]);
  if (address >= stack && address < stack + page_bytes)
    fail_at(instruction, nullptr, "stack overflow: a thread has %zu bytes", stack_bytes);
  instruction = caller_in_module(instruction, reinterpret_cast<void*>(registers[REG_RSP]));
  if (memory_held && current->follows && number == SIGSEGV && info->si_code != SI_KERNEL) return hold_memory(false);
  if (number == SIGFPE) fail_at(instruction, nullptr, "division by zero or overflow of an integer division");
  if (number == SIGILL) fail_at(instruction, nullptr, "illegal instruction or __trap()");
  if (info->si_code == SI_KERNEL)
    fail_at(instruction, nullptr, "misaligned vector access or an address that cannot exist");
  // Memory of the device may be mapped right next to the guards of shared memory.
  const char* const mapped = block.launch->mappings->shared;
  if (mapped && address >= mapped - shared_guard_bytes && address < mapped + shared_mapping_bytes + shared_guard_bytes)
    fail_at(instruction, nullptr, "invalid memory access at byte %td of the dynamic shared memory, which has %u",
            address - reinterpret_cast<char*>(shared_memory), block.launch->shared_bytes);
  const char* cause =
      memory_held ? "invalid memory access, before griddepcontrol_wait_before_access()," : "invalid memory access";
  fail_at(instruction, address, "%s at address %p", cause, static_cast<const void*>(address));
}

struct SignalGuard {  // It installs the handlers for the duration of a launch.
  struct sigaction previous[4];
  stack_t previous_stack;
  SignalGuard() {
    static char stack[64 * 1024];
    stack_t alternate{};
    alternate.ss_sp = stack;
    alternate.ss_size = sizeof stack;
    sigaltstack(&alternate, &previous_stack);
    struct sigaction action{};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    for (int i = 0; i < 4; i++) sigaction(signals[i], &action, &previous[i]);
  }
  ~SignalGuard() {
    for (int i = 0; i < 4; i++) sigaction(signals[i], &previous[i], nullptr);
    sigaltstack(&previous_stack, nullptr);
  }
};

// --- launches ---

static void report_deadlock() {
  const Thread *first = nullptr, *other = nullptr;
  for (int i = 0; i < block.threads; i++) {
    const Thread& thread = block.thread[i];
    if (thread.wait == Wait::finished) continue;
    if (!first) first = &thread;
    if (!other && (thread.wait != first->wait || thread.site.line != first->site.line)) other = &thread;
  }
  const int waiting = block.threads - block.finished;
  if (other)
    record_failure(first,
                   "deadlock: %d threads wait for each other (thread %d in %s at %s:%d, thread %d in %s at %s:%d), %d "
                   "have finished",
                   waiting, first->rank, first->site.operation, base_name(first->site.file), first->site.line,
                   other->rank, other->site.operation, base_name(other->site.file), other->site.line, block.finished);
  else
    record_failure(first, "deadlock: %d threads wait in %s at %s:%d for the %d that have finished or are not in it",
                   waiting, first->site.operation, base_name(first->site.file), first->site.line,
                   block.threads - waiting);
}

// Orders the threads of a block: forward for seed 0, backward for 1, else shuffled differently for each block.
static void order_threads(unsigned seed, uint64_t block_number) {
  if (seed < 2) {
    for (int i = 0; i < block.threads; i++) block.order[i] = seed ? block.threads - 1 - i : i;
    return;
  }
  uint64_t random = seed * 0x9E3779B97F4A7C15ull + block_number;
  for (int i = 0; i < block.threads; i++) {
    random = random * 6364136223846793005ull + 1442695040888963407ull;
    const int j = (random >> 33) % (i + 1);
    block.order[i] = block.order[j];
    block.order[j] = i;
  }
}

static void run_block() {
  const int threads = block.threads;
  block.started = block.finished = block.arrived = 0;
  block.votes = block.ready_first = block.ready_last = 0;
  block.follows = !block.launch->kernel->waits;
  for (int i = 0; i < threads; i++) block.thread[i].wait = Wait::nothing, block.thread[i].follows = block.follows;
  for (int i = 0; i * warp_lanes < threads; i++) {
    const int lanes = threads - i * warp_lanes;
    block.warp[i] = {lanes >= warp_lanes ? ~0u : (1u << lanes) - 1, 0};
  }
  while (!block.launch->failed) {
    if (Thread* thread = next_ready()) {
      current = thread;
      switch_fiber(scheduler, *thread->fiber);
    } else if (block.started < threads) {
      if (!start_fiber()) break;
    } else if (block.finished == threads) {
      break;
    } else {
      report_deadlock();
    }
  }
  current = nullptr;
}

static void launch(Launch& request) {
  alignas(128) static char arguments[maximum_argument_bytes];
  memcpy(arguments, request.arguments, request.kernel->argument_bytes);
  request.arguments = arguments;
  SignalGuard guard;
  locate_image();
  block.launch = &request;
  fibers_made = fibers_idle = 0;  // Launches of other modules may have used the stacks.
  block.size = {request.block[0], request.block[1], request.block[2]};
  block.grid = {request.grid[0], request.grid[1], request.grid[2]};
  block.threads = block.size.x * block.size.y * block.size.z;
  for (unsigned i = 0; i < unsigned(block.threads); i++) {
    block.thread[i].index = {i % block.size.x, i / block.size.x % block.size.y, i / block.size.x / block.size.y};
    block.thread[i].rank = i;
  }
  const uint64_t number_of_blocks = uint64_t(block.grid.x) * block.grid.y * block.grid.z;
  place_dynamic_shared_memory();
  if (request.kernel->waits) watch_memory(number_of_blocks);
  races::begin_launch();
  for (uint64_t step = 0; step < number_of_blocks && !request.failed; step++) {
    const uint64_t number = block.number = request.seed ? number_of_blocks - 1 - step : step;
    blocks++;
    block.index = {unsigned(number % block.grid.x), unsigned(number / block.grid.x % block.grid.y),
                   unsigned(number / block.grid.x / block.grid.y)};
    if (step == 0 || request.seed > 1) order_threads(request.seed, number);
    poison_shared_memory();
    races::begin_block();
    run_block();
    if (!request.failed) check_shared_padding();
    check_copies();
  }
  races::end_launch();
  if (memory_held) hold_memory(false);
  block.launch = nullptr;
}

}  // namespace emulated

extern "C" EMULATED_EXPORT void emulated_launch(emulated::Launch* request) { emulated::launch(*request); }

// --- functions that the compiler's checks call (-fsanitize=bounds-strict,alignment,shift-exponent) ---

namespace emulated::checks {
struct Location {
  const char* file;
  uint32_t line, column;
};
struct Type {
  uint16_t kind, information;
  char name[];
};
struct OutOfBounds {
  Location location;
  const Type *array, *index;
};
struct TypeMismatch {
  Location location;
  const Type* type;
  unsigned char alignment_log2, kind;
};
struct ShiftOutOfBounds {
  Location location;
  const Type *left, *right;
};
}  // namespace emulated::checks

extern "C" {
void __ubsan_handle_out_of_bounds_abort(emulated::checks::OutOfBounds* check, void* index) {
  emulated::fail_at(static_cast<char*>(__builtin_return_address(0)) - 1, nullptr, "index %lld is out of bounds of %s",
                    static_cast<long long>(reinterpret_cast<intptr_t>(index)), check->array->name);
}
void __ubsan_handle_type_mismatch_v1_abort(emulated::checks::TypeMismatch* check, void* pointer) {
  emulated::fail_at(static_cast<char*>(__builtin_return_address(0)) - 1, pointer,
                    "misaligned access: address %p for %s, which needs a multiple of %u", pointer, check->type->name,
                    1u << check->alignment_log2);
}
void __ubsan_handle_shift_out_of_bounds_abort(emulated::checks::ShiftOutOfBounds* check, void*, void* count) {
  emulated::fail_at(static_cast<char*>(__builtin_return_address(0)) - 1, nullptr, "shift of %s by %lld",
                    check->left->name, static_cast<long long>(reinterpret_cast<intptr_t>(count)));
}
}
