/* This is libcuda.so.1 for machines without a GPU: device memory is memory of the process. It tracks every allocation and its
   size, streams, events, memory pools and contexts, and one device. Work is done when its call returns. Missing functions
   return CUDA_ERROR_NOT_SUPPORTED and print their name once (names.json). The driver refuses handles that it did not create and
   memory outside of allocations. It is compiled as one file: objects.c, devices.c, memory.c, copies.c, streams.c and generated
   code. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

typedef unsigned long long address;
typedef struct object *handle;
enum {
  SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_DEVICE = 101, INVALID_CONTEXT = 201, UNSUPPORTED_LIMIT = 215,
  INVALID_HANDLE = 400, NOT_FOUND = 500, ALREADY_REGISTERED = 712, NOT_REGISTERED = 713, NOT_SUPPORTED = 801
};
/* The first four kinds are memory; registered memory belongs to the program. */
enum { DEVICE_MEMORY = 1, HOST_MEMORY, MANAGED_MEMORY, REGISTERED_MEMORY, STREAM, EVENT, POOL, CONTEXT };
enum { ALIGNMENT = 256, MAX_NAMES = 2000 };
enum { FLAGS_ARE_INTS = 3, THRESHOLD, RESERVED, RESERVED_HIGH, USED, USED_HIGH, POOL_ATTRIBUTES };  /* attributes of a pool, counted from 1 */

/* An object records what the driver returned, by the address that the caller knows. */
struct object {
  int kind;
  unsigned flags;
  char *base;
  void *allocated;  /* argument of free */
  size_t size;
  unsigned long long id, attributes[POOL_ATTRIBUTES];
  handle pool;  /* pool of an allocation */
  void *context;  /* the context that was current, with which the object ends; memory pools belong to the device */
  struct timespec recorded;
  int is_recorded;
  struct object *next;
};
static struct object *objects;
static int context;  /* Its address is the handle of the primary context. */
static void *current(void);
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* A place is a device with a number (type 1), or the host (types 2 to 4). */
struct place { int type, id; };
static int placed(struct place given) { return given.type < 1 || given.type > 4 ? INVALID_VALUE : given.type == 1 && given.id ? INVALID_DEVICE : SUCCESS; }

static int is_memory(const struct object *o) { return o->kind <= REGISTERED_MEMORY; }

/* Allocate zeroed memory, like a GPU's on first use. calloc leaves large blocks to the system, which maps pages on use. */
static int with_memory(struct object *made, size_t size) {
  if (size > SIZE_MAX - ALIGNMENT || !(made->allocated = calloc(1, size + ALIGNMENT - 1))) return 0;
  made->base = (char *)(((uintptr_t)made->allocated + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
  return 1;
}

static struct object *add(int kind, size_t size, void *given, unsigned flags) {
  static unsigned long long ids;
  struct object *made = calloc(1, sizeof *made);
  if (!made) return 0;
  made->kind = kind;
  made->size = size;
  made->flags = flags;
  made->base = given ? given : (char *)made;
  made->context = kind == POOL ? &context : current();
  if (is_memory(made) && !given && !with_memory(made, size)) { free(made); return 0; }
  pthread_mutex_lock(&lock);
  made->id = ++ids;
  made->next = objects;
  objects = made;
  pthread_mutex_unlock(&lock);
  return made;
}

static int removed(int kind, const void *base) {
  pthread_mutex_lock(&lock);
  struct object **link = &objects;
  while (*link && !((*link)->kind == kind && (*link)->base == base)) link = &(*link)->next;
  struct object *found = *link;
  if (found) *link = found->next;
  pthread_mutex_unlock(&lock);
  if (!found) return 0;
  free(found->allocated);
  free(found);
  return 1;
}

/* End what a context owns: memory, streams, events. Other contexts stay. Another thread may still compute there, so the
   pages go back to the system, but no address is used again. */
static void ended(const void *owner) {
  pthread_mutex_lock(&lock);
  for (struct object **link = &objects; *link;) {
    struct object *found = *link;
    if (found->context != owner || found->kind == CONTEXT) { link = &found->next; continue; }
    *link = found->next;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = ((uintptr_t)found->allocated + page - 1) / page * page;
    uintptr_t end = ((uintptr_t)found->allocated + found->size) / page * page;
    if (found->allocated && begin < end) madvise((void *)begin, end - begin, MADV_DONTNEED);
  }
  pthread_mutex_unlock(&lock);
}

/* Return a copy of the record of memory that overlaps these bytes; its kind is 0 if there is none. */
static struct object overlapping(const void *start, size_t size) {
  struct object found = {0};
  pthread_mutex_lock(&lock);
  for (struct object *o = objects; o && !found.kind; o = o->next)
    if (is_memory(o) && (const char *)start < o->base + o->size && (const char *)start + size > o->base) found = *o;
  pthread_mutex_unlock(&lock);
  return found;
}
static struct object around(address inside) { return overlapping((void *)(uintptr_t)inside, 1); }

static struct object *known(int kind, const void *base) {
  struct object *found = 0;
  pthread_mutex_lock(&lock);
  for (struct object *o = objects; o && !found; o = o->next)
    if (o->kind == kind && o->base == base) found = o;
  pthread_mutex_unlock(&lock);
  return found;
}

static int is_stream(const void *stream) { return (uintptr_t)stream <= 2 || known(STREAM, stream) != 0; }  /* Values up to 2 are the default, legacy and per-thread streams. */

/* Return whether the device can access this many bytes here; pinned and registered memory counts as its own. */
static int in_device(address start, size_t size) {
  struct object found = around(start);
  return size == 0 || (found.kind && size <= found.size - (start - (address)(uintptr_t)found.base));
}

/* Print once that a function is missing; name must be the same pointer in every call for one function. */
int dualdnn_missing(const char *name) {
  static const char *said[MAX_NAMES];
  pthread_mutex_lock(&lock);
  int i = 0;
  while (i < MAX_NAMES && said[i] && said[i] != name) i++;
  int first = i < MAX_NAMES && !said[i];
  if (first) said[i] = name;
  pthread_mutex_unlock(&lock);
  if (first) fprintf(stderr, "dualdnn: %s: this CUDA has no such function: it is memory of the host, and runs no kernels\n", name);
  return NOT_SUPPORTED;
}
__attribute__((noinline)) static int missing(const char *name) { return dualdnn_missing(name); }
