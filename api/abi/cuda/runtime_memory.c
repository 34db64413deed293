/* This file implements the runtime's memory: allocations, pools, copies and sets. */
int cuMemAlloc_v2(address *, size_t), cuMemAllocManaged(address *, size_t, unsigned), cuMemFree_v2(address);
int cuMemAllocPitch_v2(address *, size_t *, size_t, size_t, unsigned), cuMemHostAlloc(void **, size_t, unsigned), cuMemFreeHost(void *);
int cuMemHostRegister_v2(void *, size_t, unsigned), cuMemHostUnregister(void *), cuMemHostGetFlags(unsigned *, void *);
int cuMemHostGetDevicePointer_v2(address *, void *, unsigned), cuMemGetInfo_v2(size_t *, size_t *);
struct place { int type, id; };
int cuMemAdvise(address, size_t, int, int), cuMemAdvise_v2(address, size_t, int, struct place);
int cuMemPrefetchAsync(address, size_t, int, void *), cuMemPrefetchAsync_v2(address, size_t, struct place, unsigned, void *);
int cuPointerGetAttributes(unsigned, const int *, void **, address), cuStreamAttachMemAsync(void *, address, size_t, unsigned);
int cuMemAllocAsync(address *, size_t, void *), cuMemFreeAsync(address, void *), cuMemAllocFromPoolAsync(address *, size_t, void *, void *);
int cuDeviceGetDefaultMemPool(void **, int), cuDeviceGetMemPool(void **, int), cuDeviceSetMemPool(int, void *);
int cuMemPoolCreate(void **, const void *), cuMemPoolDestroy(void *), cuMemPoolTrimTo(void *, size_t), cuMemPoolGetAttribute(void *, int, void *);
int cuMemPoolSetAttribute(void *, int, void *), cuMemPoolSetAccess(void *, const void *, size_t), cuMemPoolGetAccess(int *, void *, const void *);
int cuMemcpyHtoDAsync_v2(address, const void *, size_t, void *), cuMemcpyDtoHAsync_v2(void *, address, size_t, void *);
int cuMemcpyDtoDAsync_v2(address, address, size_t, void *), cuMemsetD2D8Async(address, size_t, unsigned char, size_t, size_t, void *);
int cuStreamSynchronize(void *);

/* Store what the driver made: NULL after an error, and for a size of 0, for which the driver is not asked. */
static int allocated(int status, const address *made, void **result) { *result = status ? 0 : (void *)*made; return noted(status); }
int cudaMalloc(void **result, size_t size) {
  address made = 0;
  if (!result) return noted(INVALID_VALUE);
  return allocated(size ? cuMemAlloc_v2(&made, size) : SUCCESS, &made, result);
}
int cudaMallocManaged(void **result, size_t size, unsigned flags) {
  address made = 0;
  if (!result) return noted(INVALID_VALUE);
  return allocated(cuMemAllocManaged(&made, size, flags), &made, result);
}
int cudaMallocAsync(void **result, size_t size, void *stream) {
  address made = 0;
  if (!result) return noted(INVALID_VALUE);
  return allocated(size ? cuMemAllocAsync(&made, size, stream) : cuStreamSynchronize(stream), &made, result);
}
int cudaMallocFromPoolAsync(void **result, size_t size, void *pool, void *stream) {
  address made = 0;
  if (!result) return noted(INVALID_VALUE);
  return allocated(size ? cuMemAllocFromPoolAsync(&made, size, pool, stream) : cuStreamSynchronize(stream), &made, result);
}
int cudaMallocPitch(void **result, size_t *pitch, size_t width, size_t height) {
  address made = 0;
  if (!result || !pitch) return noted(INVALID_VALUE);
  return allocated(width && height ? cuMemAllocPitch_v2(&made, pitch, width, height, 4) : SUCCESS, &made, result);
}
struct extent { size_t width, height, depth; };
struct pitched { void *memory; size_t pitch, width, height; };
int cudaMalloc3D(struct pitched *result, struct extent extent) {
  if (!result || (extent.depth && extent.height > (size_t)-1 / extent.depth)) return noted(INVALID_VALUE);
  *result = (struct pitched){0, 0, extent.width, extent.height};
  return cudaMallocPitch(&result->memory, &result->pitch, extent.width, extent.height * extent.depth);
}
int cudaFree(void *freed) { return noted(cuMemFree_v2((address)freed)); }
int cudaFreeAsync(void *freed, void *stream) { return noted(cuMemFreeAsync((address)freed, stream)); }
int cudaHostAlloc(void **result, size_t size, unsigned flags) { return noted(cuMemHostAlloc(result, size, flags)); }
int cudaMallocHost(void **result, size_t size) { return noted(cuMemHostAlloc(result, size, 0)); }
int cudaFreeHost(void *freed) { return freed ? noted(cuMemFreeHost(freed)) : SUCCESS; }
int cudaHostRegister(void *start, size_t size, unsigned flags) { return noted(cuMemHostRegister_v2(start, size, flags)); }
int cudaHostUnregister(void *start) { return noted(cuMemHostUnregister(start)); }
int cudaHostGetFlags(unsigned *flags, void *inside) { return noted(cuMemHostGetFlags(flags, inside)); }
int cudaHostGetDevicePointer(void **result, void *inside, unsigned flags) { return noted(cuMemHostGetDevicePointer_v2((address *)result, inside, flags)); }
int cudaMemGetInfo(size_t *unused, size_t *all) { return noted(cuMemGetInfo_v2(unused, all)); }
int cudaMemAdvise_v2(const void *start, size_t size, int advice, struct place place) { return noted(cuMemAdvise_v2((address)start, size, advice, place)); }
int cudaMemPrefetchAsync_v2(const void *start, size_t size, struct place place, unsigned flags, void *stream) {
  return noted(cuMemPrefetchAsync_v2((address)start, size, place, flags, stream));
}
#if RUNTIME_VERSION < 13000
int cudaMemAdvise(const void *start, size_t size, int advice, int device) { return noted(cuMemAdvise((address)start, size, advice, device)); }
int cudaMemPrefetchAsync(const void *start, size_t size, int device, void *stream) { return noted(cuMemPrefetchAsync((address)start, size, device, stream)); }
#else
int cudaMemAdvise(const void *, size_t, int, struct place) __attribute__((alias("cudaMemAdvise_v2")));
int cudaMemPrefetchAsync(const void *, size_t, struct place, unsigned, void *) __attribute__((alias("cudaMemPrefetchAsync_v2")));
#endif
int cudaStreamAttachMemAsync(void *stream, void *start, size_t size, unsigned flags) {
  return noted(cuStreamAttachMemAsync(stream, (address)start, size, flags));
}

/* Return the kind of memory at an address: 0 unknown to the driver, 1 host, 2 device, 3 managed. */
static int kind_of(const void *inside) {
  unsigned type = 0;
  unsigned char managed = 0;
  void *results[] = {&type, &managed};
  cuPointerGetAttributes(2, (int[]){2, 8}, results, (address)inside);
  return managed ? 3 : (int)type;
}
struct attributes {
  int type, device;
  void *of_device, *of_host;
#if RUNTIME_VERSION >= 13000
  long reserved[8];
#endif
};
int cudaPointerGetAttributes(struct attributes *a, const void *pointer) {
  if (!a) return noted(INVALID_VALUE);
  int kind = kind_of(pointer);
  *a = (struct attributes){.type = kind, .of_device = kind ? (void *)pointer : 0, .of_host = kind == 1 || kind == 3 ? (void *)pointer : 0};
  return SUCCESS;
}

int cudaDeviceGetDefaultMemPool(void **pool, int device) { return noted(cuDeviceGetDefaultMemPool(pool, device)); }
int cudaDeviceGetMemPool(void **pool, int device) { return noted(cuDeviceGetMemPool(pool, device)); }
int cudaDeviceSetMemPool(int device, void *pool) { return noted(cuDeviceSetMemPool(device, pool)); }
int cudaMemPoolCreate(void **pool, const void *properties) { return noted(cuMemPoolCreate(pool, properties)); }
int cudaMemPoolDestroy(void *pool) { return noted(cuMemPoolDestroy(pool)); }
int cudaMemPoolTrimTo(void *pool, size_t kept) { return noted(cuMemPoolTrimTo(pool, kept)); }
int cudaMemPoolGetAttribute(void *pool, int attribute, void *value) { return noted(cuMemPoolGetAttribute(pool, attribute, value)); }
int cudaMemPoolSetAttribute(void *pool, int attribute, void *value) { return noted(cuMemPoolSetAttribute(pool, attribute, value)); }
int cudaMemPoolSetAccess(void *pool, const void *given, size_t count) { return noted(cuMemPoolSetAccess(pool, given, count)); }
int cudaMemPoolGetAccess(int *flags, void *pool, const void *location) { return noted(cuMemPoolGetAccess(flags, pool, location)); }

enum { DEFAULT_COPY = 4 };  /* This is cudaMemcpyDefault, the last of the kinds. */
/* Return the kind of a copy. cudaMemcpyDefault asks for the first bytes alone: rows that leave an allocation would look like host
   memory, and have to be refused. */
static int direction(const void *to, const void *from, int kind) {
  return kind == DEFAULT_COPY ? 2 * (kind_of(from) > 1) + (kind_of(to) > 1) : kind;
}
static int copied(void *to, const void *from, size_t size, int kind, void *stream) {
  switch (kind) {
    case 0:
      if (size && (!to || !from || kind_of(to) == 2 || kind_of(from) == 2)) return INVALID_VALUE;
      if (size) memmove(to, from, size);
      return cuStreamSynchronize(stream);
    case 1: return cuMemcpyHtoDAsync_v2((address)to, from, size, stream);
    case 2: return cuMemcpyDtoHAsync_v2(to, (address)from, size, stream);
    case 3: return cuMemcpyDtoDAsync_v2((address)to, (address)from, size, stream);
    default: return INVALID_DIRECTION;
  }
}
int cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, void *stream) { return noted(copied(to, from, size, direction(to, from, kind), stream)); }
int cudaMemcpy(void *to, const void *from, size_t size, int kind) { return cudaMemcpyAsync(to, from, size, kind, 0); }
int cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, int kind, void *stream) {
  if (kind < 0 || kind > DEFAULT_COPY) return noted(INVALID_DIRECTION);
  if (width > to_pitch || width > from_pitch) return noted(INVALID_VALUE);
  int status = SUCCESS;
  kind = direction(to, from, kind);
  for (size_t row = 0; row < height && !status; row++)
    status = copied((char *)to + row * to_pitch, (const char *)from + row * from_pitch, width, kind, stream);
  return noted(status);
}
int cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, int kind) {
  return cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, kind, 0);
}
int cudaMemcpyPeerAsync(void *to, int of_to, const void *from, int of_from, size_t size, void *stream) {
  return noted(of_to || of_from ? INVALID_DEVICE : copied(to, from, size, 3, stream));
}
int cudaMemcpyPeer(void *to, int of_to, const void *from, int of_from, size_t size) { return cudaMemcpyPeerAsync(to, of_to, from, of_from, size, 0); }
struct side { void *array; size_t x, y, z; struct pitched at; };
struct copy_3d { struct side from, to; struct extent extent; int kind; };
static char *row_of(const struct side *side, size_t row, size_t plane) {
  return (char *)side->at.memory + ((side->z + plane) * side->at.height + side->y + row) * side->at.pitch + side->x;
}
static int fits(const struct side *side, struct extent e) {
  return (e.height <= 1 || (side->x <= side->at.pitch && e.width <= side->at.pitch - side->x)) &&
         (e.depth <= 1 || (side->y <= side->at.height && e.height <= side->at.height - side->y));
}
int cudaMemcpy3DAsync(const struct copy_3d *c, void *stream) {
  if (!c || !fits(&c->from, c->extent) || !fits(&c->to, c->extent)) return noted(INVALID_VALUE);
  if (c->kind < 0 || c->kind > DEFAULT_COPY) return noted(INVALID_DIRECTION);
  if (c->from.array || c->to.array) return noted(NOT_SUPPORTED);
  int status = cuStreamSynchronize(stream), kind = direction(row_of(&c->to, 0, 0), row_of(&c->from, 0, 0), c->kind);
  for (size_t plane = 0; plane < c->extent.depth; plane++)
    for (size_t row = 0; row < c->extent.height && !status; row++)
      status = copied(row_of(&c->to, row, plane), row_of(&c->from, row, plane), c->extent.width, kind, stream);
  return noted(status);
}
int cudaMemcpy3D(const struct copy_3d *c) { return cudaMemcpy3DAsync(c, 0); }

int cudaMemset2DAsync(void *to, size_t pitch, int byte, size_t width, size_t height, void *stream) {
  return noted(cuMemsetD2D8Async((address)to, pitch, (unsigned char)byte, width, height, stream));
}
int cudaMemset2D(void *to, size_t pitch, int byte, size_t width, size_t height) { return cudaMemset2DAsync(to, pitch, byte, width, height, 0); }
int cudaMemsetAsync(void *to, int byte, size_t size, void *stream) { return cudaMemset2DAsync(to, size, byte, size, 1, stream); }
int cudaMemset(void *to, int byte, size_t size) { return cudaMemsetAsync(to, byte, size, 0); }
int cudaMemset3DAsync(struct pitched to, int byte, struct extent extent, void *stream) {
  int status = cuStreamSynchronize(stream);
  for (size_t plane = 0; plane < extent.depth && !status; plane++)
    status = cudaMemset2DAsync((char *)to.memory + plane * to.height * to.pitch, to.pitch, byte, extent.width, extent.height, stream);
  return noted(status);
}
int cudaMemset3D(struct pitched to, int byte, struct extent extent) { return cudaMemset3DAsync(to, byte, extent, 0); }
