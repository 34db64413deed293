/* This file implements the driver's copies and sets of bytes, rows and planes. */
int cuMemcpyHtoDAsync_v2(address to, const void *from, size_t size, void *stream) {
  if (!is_stream(stream)) return INVALID_HANDLE;
  if ((size && !from) || !in_device(to, size)) return INVALID_VALUE;
  memmove((void *)(uintptr_t)to, from, size);
  return SUCCESS;
}
int cuMemcpyDtoHAsync_v2(void *to, address from, size_t size, void *stream) {
  if (!is_stream(stream)) return INVALID_HANDLE;
  if ((size && !to) || !in_device(from, size)) return INVALID_VALUE;
  memmove(to, (void *)(uintptr_t)from, size);
  return SUCCESS;
}
int cuMemcpyDtoDAsync_v2(address to, address from, size_t size, void *stream) {
  if (!is_stream(stream)) return INVALID_HANDLE;
  if (!in_device(to, size) || !in_device(from, size)) return INVALID_VALUE;
  memmove((void *)(uintptr_t)to, (void *)(uintptr_t)from, size);
  return SUCCESS;
}
int cuMemcpyHtoD_v2(address to, const void *from, size_t size) { return cuMemcpyHtoDAsync_v2(to, from, size, 0); }
int cuMemcpyDtoH_v2(void *to, address from, size_t size) { return cuMemcpyDtoHAsync_v2(to, from, size, 0); }
int cuMemcpyDtoD_v2(address to, address from, size_t size) { return cuMemcpyDtoDAsync_v2(to, from, size, 0); }
int cuMemcpyAsync(address to, address from, size_t size, void *stream) { return cuMemcpyDtoDAsync_v2(to, from, size, stream); }
int cuMemcpy(address to, address from, size_t size) { return cuMemcpyAsync(to, from, size, 0); }
int cuMemcpyPeerAsync(address to, void *of_to, address from, void *of_from, size_t size, void *stream) {
  return is_context(of_to) && is_context(of_from) ? cuMemcpyDtoDAsync_v2(to, from, size, stream) : INVALID_CONTEXT;
}
int cuMemcpyPeer(address to, void *of_to, address from, void *of_from, size_t size) {
  return cuMemcpyPeerAsync(to, of_to, from, of_from, size, 0);
}

/* A rows structure is one side of a 2-D copy, as in CUDA_MEMCPY2D. */
struct rows { size_t x, y; int kind; char *host; address device; void *array; size_t pitch; };
struct copy_2d { struct rows from, to; size_t width, height; };
struct planes { size_t x, y, z, level; int kind; char *host; address device; void *array, *reserved; size_t pitch, height; };
struct copy_3d { struct planes from, to; size_t width, height, depth; };
enum { ON_HOST = 1, ON_DEVICE, IN_ARRAY, UNIFIED };

/* Return the address of a row, or NULL if device memory does not have that many bytes there. */
static char *row_of(const struct planes *side, size_t row, size_t plane, size_t width) {
  address start = side->kind == ON_HOST ? (address)(uintptr_t)side->host : side->device;
  start += ((side->z + plane) * side->height + side->y + row) * side->pitch + side->x;
  return side->kind == ON_HOST || in_device(start, width) ? (char *)(uintptr_t)start : 0;
}
int cuMemcpy3DAsync_v2(const struct copy_3d *c, void *stream) {
  if (!is_stream(stream)) return INVALID_HANDLE;
  if (!c || c->from.level || c->to.level) return INVALID_VALUE;
  const struct planes *sides[] = {&c->from, &c->to};
  for (int i = 0; i < 2; i++) {
    const struct planes *side = sides[i];
    if (side->kind == IN_ARRAY) return NOT_SUPPORTED;
    if (side->kind < ON_HOST || side->kind > UNIFIED || (c->height > 1 && side->pitch < side->x + c->width)) return INVALID_VALUE;
    if (c->depth > 1 && side->height < side->y + c->height) return INVALID_VALUE;
    for (size_t plane = 0; plane < c->depth; plane++)
      for (size_t row = 0; row < c->height; row++)
        if (!row_of(side, row, plane, c->width)) return INVALID_VALUE;
  }
  for (size_t plane = 0; plane < c->depth; plane++)
    for (size_t row = 0; row < c->height; row++)
      memmove(row_of(&c->to, row, plane, c->width), row_of(&c->from, row, plane, c->width), c->width);
  return SUCCESS;
}
int cuMemcpy3D_v2(const struct copy_3d *c) { return cuMemcpy3DAsync_v2(c, 0); }
int cuMemcpy2DAsync_v2(const struct copy_2d *c, void *stream) {
  if (!c) return INVALID_VALUE;
  struct copy_3d whole = {.width = c->width, .height = c->height, .depth = 1};
  whole.from = (struct planes){.x = c->from.x, .y = c->from.y, .kind = c->from.kind, .host = c->from.host, .device = c->from.device, .pitch = c->from.pitch};
  whole.to = (struct planes){.x = c->to.x, .y = c->to.y, .kind = c->to.kind, .host = c->to.host, .device = c->to.device, .pitch = c->to.pitch};
  return cuMemcpy3DAsync_v2(&whole, stream);
}
int cuMemcpy2D_v2(const struct copy_2d *c) { return cuMemcpy2DAsync_v2(c, 0); }
int cuMemcpy2DUnaligned_v2(const struct copy_2d *c) { return cuMemcpy2DAsync_v2(c, 0); }

/* Set rows of elements with 1, 2 or 4 bytes. */
static int set_rows(address to, size_t pitch, unsigned value, size_t bytes, size_t width, size_t height, void *stream) {
  if (!is_stream(stream)) return INVALID_HANDLE;
  if (to % bytes || pitch % bytes || width > SIZE_MAX / bytes || (height > 1 && pitch < width * bytes)) return INVALID_VALUE;
  for (size_t row = 0; row < height; row++) if (!in_device(to + row * pitch, width * bytes)) return INVALID_VALUE;
  for (size_t row = 0; row < height; row++) {
    char *start = (char *)(uintptr_t)(to + row * pitch);
    if (bytes == 1) memset(start, (int)value, width);
    else for (size_t i = 0; i < width; i++) memcpy(start + i * bytes, &value, bytes);  /* The machine is little-endian. */
  }
  return SUCCESS;
}
#define SETS(bits, type)                                                                                                        \
  int cuMemsetD##bits##Async(address to, type value, size_t count, void *stream) {                                              \
    return set_rows(to, 0, value, bits / 8, count, 1, stream);                                                                  \
  }                                                                                                                             \
  int cuMemsetD##bits##_v2(address to, type value, size_t count) { return cuMemsetD##bits##Async(to, value, count, 0); }        \
  int cuMemsetD2D##bits##Async(address to, size_t pitch, type value, size_t width, size_t height, void *stream) {               \
    return set_rows(to, pitch, value, bits / 8, width, height, stream);                                                         \
  }                                                                                                                             \
  int cuMemsetD2D##bits##_v2(address to, size_t pitch, type value, size_t width, size_t height) {                               \
    return cuMemsetD2D##bits##Async(to, pitch, value, width, height, 0);                                                        \
  }
SETS(8, unsigned char)
SETS(16, unsigned short)
SETS(32, unsigned)
