/* This file implements the driver's memory: allocations of every kind, pools, and queries about an address. */
enum { PITCH = 512 };

static int given_out(struct object *made, address *result) {
  return made ? (*result = (address)(uintptr_t)made->base, SUCCESS) : OUT_OF_MEMORY;
}
int cuMemAlloc_v2(address *result, size_t size) {
  return result && size ? given_out(add(DEVICE_MEMORY, size, 0, 0), result) : INVALID_VALUE;
}
int cuMemAllocManaged(address *result, size_t size, unsigned flags) {  /* The flags attach memory to all streams or to the host. */
  if (!result || !size || (flags != 1 && flags != 2)) return INVALID_VALUE;
  return given_out(add(MANAGED_MEMORY, size, 0, flags), result);
}
int cuMemAllocPitch_v2(address *result, size_t *pitch, size_t width, size_t height, unsigned element) {
  if (!result || !pitch || !width || !height || (element != 4 && element != 8 && element != 16)) return INVALID_VALUE;
  size_t whole = (width + PITCH - 1) / PITCH * PITCH;
  if (whole < width || height > SIZE_MAX / whole) return OUT_OF_MEMORY;
  int status = cuMemAlloc_v2(result, whole * height);
  return status ? status : (*pitch = whole, SUCCESS);
}
int cuMemFree_v2(address freed) {
  void *base = (void *)(uintptr_t)freed;
  return !freed || removed(DEVICE_MEMORY, base) || removed(MANAGED_MEMORY, base) ? SUCCESS : INVALID_VALUE;
}
int cuMemHostAlloc(void **result, size_t size, unsigned flags) {
  if (!result || !size || flags > 7) return INVALID_VALUE;
  struct object *made = add(HOST_MEMORY, size, 0, flags);
  return made ? (*result = made->base, SUCCESS) : OUT_OF_MEMORY;
}
int cuMemAllocHost_v2(void **result, size_t size) { return cuMemHostAlloc(result, size, 0); }
int cuMemFreeHost(void *freed) { return removed(HOST_MEMORY, freed) ? SUCCESS : INVALID_VALUE; }
int cuMemHostRegister_v2(void *start, size_t size, unsigned flags) {
  if (!start || !size || size > UINTPTR_MAX - (uintptr_t)start || flags > 15) return INVALID_VALUE;
  if (overlapping(start, size).kind) return ALREADY_REGISTERED;
  return add(REGISTERED_MEMORY, size, start, flags) ? SUCCESS : OUT_OF_MEMORY;
}
int cuMemHostUnregister(void *start) { return removed(REGISTERED_MEMORY, start) ? SUCCESS : NOT_REGISTERED; }
int cuMemHostGetDevicePointer_v2(address *result, void *inside, unsigned flags) {
  int kind = around((uintptr_t)inside).kind;
  if (!result || flags || (kind != HOST_MEMORY && kind != REGISTERED_MEMORY)) return INVALID_VALUE;
  return *result = (address)(uintptr_t)inside, SUCCESS;
}
int cuMemHostGetFlags(unsigned *flags, void *inside) {
  struct object found = around((uintptr_t)inside);
  if (!flags || (found.kind != HOST_MEMORY && found.kind != REGISTERED_MEMORY)) return INVALID_VALUE;
  return *flags = found.flags, SUCCESS;
}
int cuMemGetAddressRange_v2(address *base, size_t *size, address inside) {
  struct object found = around(inside);
  if (!found.kind) return NOT_FOUND;
  if (base) *base = (address)(uintptr_t)found.base;
  if (size) *size = found.size;
  return SUCCESS;
}
int cuMemGetInfo_v2(size_t *unused, size_t *all) {
  if (!unused || !all) return INVALID_VALUE;
  cuDeviceTotalMem_v2(all, 0);
  *unused = *all;
  pthread_mutex_lock(&lock);
  for (struct object *o = objects; o; o = o->next)
    if (o->kind == DEVICE_MEMORY || o->kind == MANAGED_MEMORY) *unused -= o->size < *unused ? o->size : *unused;
  pthread_mutex_unlock(&lock);
  return SUCCESS;
}
/* These hints and moves of managed memory move nothing. The first release passes a device number, where -1 is the host. */
enum { ADVICES = 7, READ_MOSTLY = 2 };  /* Advices are counted from 1; those up to READ_MOSTLY take no place. */
static struct place place_of(int device) { return (struct place){device == -1 ? 2 : 1, device}; }
int cuMemAdvise_v2(address start, size_t size, int advice, struct place place) {
  if (!size || !in_device(start, size) || around(start).kind != MANAGED_MEMORY || advice < 1 || advice >= ADVICES) return INVALID_VALUE;
  return advice > READ_MOSTLY ? placed(place) : SUCCESS;
}
int cuMemAdvise(address start, size_t size, int advice, int device) { return cuMemAdvise_v2(start, size, advice, place_of(device)); }
int cuMemPrefetchAsync_v2(address start, size_t size, struct place place, unsigned flags, void *stream) {
  if (!is_stream(stream)) return INVALID_HANDLE;
  return flags ? INVALID_VALUE : cuMemAdvise_v2(start, size, ADVICES - 1, place);
}
int cuMemPrefetchAsync(address start, size_t size, int device, void *stream) {
  return cuMemPrefetchAsync_v2(start, size, place_of(device), 0, stream);
}
int cuStreamAttachMemAsync(void *stream, address start, size_t size, unsigned flags) {
  struct object found = around(start);
  if (!is_stream(stream)) return INVALID_HANDLE;
  if (found.kind != MANAGED_MEMORY || (size && size != found.size) || (flags != 1 && flags != 2 && flags != 4)) return INVALID_VALUE;
  return SUCCESS;
}

/* Write one attribute of an address with the size of its type. */
static int attribute_of(address inside, int attribute, void *result) {
  struct object found = around(inside);
  int on_device = found.kind == DEVICE_MEMORY || found.kind == MANAGED_MEMORY, on_host = found.kind > DEVICE_MEMORY;
  if (!result || !found.kind) return INVALID_VALUE;
  switch (attribute) {
    case 1: *(void **)result = &context; return SUCCESS;
    case 2: *(unsigned *)result = on_device ? 2 : 1; return SUCCESS;
    case 3: *(address *)result = inside; return SUCCESS;
    case 4: return on_host ? (*(void **)result = (void *)(uintptr_t)inside, SUCCESS) : INVALID_VALUE;
    case 6: *(unsigned char *)result = 1; return SUCCESS;  /* This attribute is synchronous operations. */
    case 7: *(unsigned long long *)result = found.id; return SUCCESS;
    case 8: *(unsigned char *)result = found.kind == MANAGED_MEMORY; return SUCCESS;
    case 9: *(int *)result = 0; return SUCCESS;
    case 11: *(address *)result = (address)(uintptr_t)found.base; return SUCCESS;
    case 12: *(size_t *)result = found.size; return SUCCESS;
    case 13: *(unsigned char *)result = 1; return SUCCESS;  /* This attribute is mapped. */
    default: return INVALID_VALUE;
  }
}
int cuPointerGetAttribute(void *result, int attribute, address inside) { return attribute_of(inside, attribute, result); }
enum { POINTER_ATTRIBUTES = 22 };  /* cuda.h counts them from 1. */
/* Every attribute is 0 for memory that the driver did not allocate. */
int cuPointerGetAttributes(unsigned count, const int *attributes, void **results, address inside) {
  if (!count || !attributes || !results) return INVALID_VALUE;
  for (unsigned i = 0; i < count; i++) if (attributes[i] < 1 || attributes[i] >= POINTER_ATTRIBUTES) return INVALID_VALUE;
  for (unsigned i = 0; i < count; i++) {
    if (attributes[i] == 2 && results[i]) *(unsigned *)results[i] = 0;
    if ((attributes[i] == 1 || attributes[i] == 3 || attributes[i] == 4) && results[i]) *(void **)results[i] = 0;
    attribute_of(inside, attributes[i], results[i]);
  }
  return SUCCESS;
}

static const struct object fresh_pool = {.kind = POOL, .attributes = {1, 1, 1}};
static struct object default_pool = {.kind = POOL, .attributes = {1, 1, 1}};
static handle current_pool = &default_pool;
static void reset_pools(void) { default_pool = fresh_pool; current_pool = &default_pool; }
static int is_pool(handle pool) { return pool == &default_pool || known(POOL, pool); }
int cuDeviceGetDefaultMemPool(handle *pool, int device) {
  if (!pool) return INVALID_VALUE;
  return device ? INVALID_DEVICE : (*pool = &default_pool, SUCCESS);
}
int cuDeviceGetMemPool(handle *pool, int device) {
  if (!pool) return INVALID_VALUE;
  return device ? INVALID_DEVICE : (*pool = current_pool, SUCCESS);
}
int cuDeviceSetMemPool(int device, handle pool) {
  if (device) return INVALID_DEVICE;
  return is_pool(pool) ? (current_pool = pool, SUCCESS) : INVALID_VALUE;
}
struct pool_properties { int kind, handles; struct place place; };  /* kind is 1 for pinned and 2 for managed; handles lists the ways to share it. */
struct access { struct place place; int flags; };
int cuMemPoolCreate(handle *pool, const struct pool_properties *properties) {
  if (!pool || !properties || (properties->kind != 1 && properties->kind != 2)) return INVALID_VALUE;
  if (properties->handles) return properties->handles & ~15 ? INVALID_VALUE : NOT_SUPPORTED;
  int status = placed(properties->place);
  if (status && (properties->kind == 1 || properties->place.type)) return status;  /* Managed pools need no place. */
  if (!(*pool = add(POOL, 0, 0, 0))) return OUT_OF_MEMORY;
  for (int i = 0; i < FLAGS_ARE_INTS; i++) (*pool)->attributes[i] = 1;
  return SUCCESS;
}
int cuMemPoolDestroy(handle pool) {
  if (pool == current_pool) current_pool = &default_pool;
  return removed(POOL, pool) ? SUCCESS : INVALID_VALUE;
}
static unsigned long long used_of(handle pool) {
  unsigned long long used = 0;
  pthread_mutex_lock(&lock);
  for (struct object *o = objects; o; o = o->next) if (is_memory(o) && o->pool == pool) used += o->size;
  pthread_mutex_unlock(&lock);
  return used;
}
int cuMemPoolGetAttribute(handle pool, int attribute, void *result) {
  if (!is_pool(pool) || !result || attribute < 1 || attribute >= POOL_ATTRIBUTES) return INVALID_VALUE;
  unsigned long long value = attribute == USED || attribute == RESERVED ? used_of(pool) : pool->attributes[attribute - 1];
  if (attribute <= FLAGS_ARE_INTS) *(int *)result = (int)value;
  else *(unsigned long long *)result = value;
  return SUCCESS;
}
int cuMemPoolSetAttribute(handle pool, int attribute, void *given) {
  if (!is_pool(pool) || !given || attribute < 1 || attribute >= POOL_ATTRIBUTES) return INVALID_VALUE;
  unsigned long long value = attribute <= FLAGS_ARE_INTS ? (unsigned long long)*(int *)given : *(unsigned long long *)given;
  if (attribute == USED || attribute == RESERVED || (attribute > THRESHOLD && value)) return INVALID_VALUE;  /* Only high-water marks can be reset. */
  return pool->attributes[attribute - 1] = value, SUCCESS;
}
int cuMemPoolTrimTo(handle pool, size_t kept) { (void)kept; return is_pool(pool) ? SUCCESS : INVALID_VALUE; }
/* Access settings are not stored, because the only device can always access its own pools. */
int cuMemPoolSetAccess(handle pool, const struct access *given, size_t count) {
  if (!is_pool(pool) || (count && !given)) return INVALID_VALUE;
  for (size_t i = 0; i < count; i++) {
    int status = given[i].flags == 0 || given[i].flags == 1 || given[i].flags == 3 ? placed(given[i].place) : INVALID_VALUE;
    if (status) return status;
  }
  return SUCCESS;
}
int cuMemPoolGetAccess(int *flags, handle pool, const struct place *place) {
  if (!flags || !place || !is_pool(pool)) return INVALID_VALUE;
  int status = placed(*place);
  return status ? status : (*flags = 3 /* 3 means reading and writing. */, SUCCESS);
}
int cuMemAllocFromPoolAsync(address *result, size_t size, handle pool, void *stream) {
  if (!is_stream(stream)) return INVALID_HANDLE;
  if (!result || !size || !is_pool(pool)) return INVALID_VALUE;
  struct object *made = add(DEVICE_MEMORY, size, 0, 0);
  if (!made) return OUT_OF_MEMORY;
  made->pool = pool;
  unsigned long long used = used_of(pool);
  for (int high = RESERVED_HIGH; high <= USED_HIGH; high += USED_HIGH - RESERVED_HIGH)
    if (pool->attributes[high - 1] < used) pool->attributes[high - 1] = used;
  return given_out(made, result);
}
int cuMemAllocAsync(address *result, size_t size, void *stream) { return cuMemAllocFromPoolAsync(result, size, current_pool, stream); }
int cuMemFreeAsync(address freed, void *stream) { return is_stream(stream) ? cuMemFree_v2(freed) : INVALID_HANDLE; }
