/* This file implements the driver's streams and events: all work is done when its call returns. */
typedef void (*callback)(void *stream, int status, void *data);
int cuStreamCreateWithPriority(handle *stream, unsigned flags, int priority) {
  (void)priority;  /* The only priority is 0. */
  if (!stream || flags > 1) return INVALID_VALUE;
  return (*stream = add(STREAM, 0, 0, flags)) ? SUCCESS : OUT_OF_MEMORY;
}
int cuStreamCreate(handle *stream, unsigned flags) { return cuStreamCreateWithPriority(stream, flags, 0); }
int cuStreamDestroy_v2(handle stream) { return removed(STREAM, stream) ? SUCCESS : INVALID_HANDLE; }
int cuStreamSynchronize(handle stream) { return is_stream(stream) ? SUCCESS : INVALID_HANDLE; }
int cuStreamQuery(handle stream) { return cuStreamSynchronize(stream); }
int cuStreamWaitEvent(handle stream, handle event, unsigned flags) {
  if (!is_stream(stream) || !known(EVENT, event)) return INVALID_HANDLE;
  return flags > 1 ? INVALID_VALUE : SUCCESS;
}
/* No stream is ever captured; the outputs that later releases add after the status are not written. */
int cuStreamIsCapturing(handle stream, int *status) {
  if (!status) return INVALID_VALUE;
  return is_stream(stream) ? (*status = 0, SUCCESS) : INVALID_HANDLE;
}
int cuThreadExchangeStreamCaptureMode(int *mode) {
  static __thread int current;
  if (!mode || *mode < 0 || *mode > 2) return INVALID_VALUE;
  int before = current;
  current = *mode;
  return *mode = before, SUCCESS;
}
int cuStreamGetFlags(handle stream, unsigned *flags) {
  handle found = known(STREAM, stream);
  if (!is_stream(stream)) return INVALID_HANDLE;
  return flags ? (*flags = found ? found->flags : 0, SUCCESS) : INVALID_VALUE;
}
int cuStreamGetPriority(handle stream, int *priority) {
  if (!is_stream(stream)) return INVALID_HANDLE;
  return priority ? (*priority = 0, SUCCESS) : INVALID_VALUE;
}
int cuStreamGetId(handle stream, unsigned long long *id) {
  handle found = known(STREAM, stream);
  if (!is_stream(stream)) return INVALID_HANDLE;
  return id ? (*id = found ? found->id : (uintptr_t)stream, SUCCESS) : INVALID_VALUE;
}
int cuStreamGetCtx(handle stream, void **made) {
  if (!is_stream(stream)) return INVALID_HANDLE;
  return made ? (*made = &context, SUCCESS) : INVALID_VALUE;
}
int cuStreamGetDevice(handle stream, int *device) {
  if (!is_stream(stream)) return INVALID_HANDLE;
  return device ? (*device = 0, SUCCESS) : INVALID_VALUE;
}
int cuStreamCopyAttributes(handle to, handle from) { return is_stream(to) && is_stream(from) ? SUCCESS : INVALID_HANDLE; }
int cuStreamAddCallback(handle stream, callback function, void *data, unsigned flags) {
  if (!is_stream(stream)) return INVALID_HANDLE;
  return function && !flags ? (function(stream, SUCCESS, data), SUCCESS) : INVALID_VALUE;
}
int cuLaunchHostFunc(handle stream, void (*function)(void *), void *data) {
  if (!is_stream(stream)) return INVALID_HANDLE;
  return function ? (function(data), SUCCESS) : INVALID_VALUE;
}

enum { WITHOUT_TIMES = 2, BETWEEN_PROCESSES = 4 };
int cuEventCreate(handle *event, unsigned flags) {
  if (!event || flags > 7 || (flags & BETWEEN_PROCESSES && !(flags & WITHOUT_TIMES))) return INVALID_VALUE;
  return (*event = add(EVENT, 0, 0, flags)) ? SUCCESS : OUT_OF_MEMORY;
}
int cuEventDestroy_v2(handle event) { return removed(EVENT, event) ? SUCCESS : INVALID_HANDLE; }
int cuEventRecord(handle event, handle stream) {
  struct object *found = known(EVENT, event);
  if (!found || !is_stream(stream)) return INVALID_HANDLE;
  clock_gettime(CLOCK_MONOTONIC, &found->recorded);
  found->is_recorded = 1;
  return SUCCESS;
}
int cuEventRecordWithFlags(handle event, handle stream, unsigned flags) { return flags > 1 ? INVALID_VALUE : cuEventRecord(event, stream); }
int cuEventSynchronize(handle event) { return known(EVENT, event) ? SUCCESS : INVALID_HANDLE; }
int cuEventQuery(handle event) { return cuEventSynchronize(event); }
int cuEventElapsedTime(float *milliseconds, handle first, handle last) {
  struct object *from = known(EVENT, first), *to = known(EVENT, last);
  if (!milliseconds) return INVALID_VALUE;
  if (!from || !to || !from->is_recorded || !to->is_recorded || (from->flags | to->flags) & WITHOUT_TIMES) return INVALID_HANDLE;
  *milliseconds = (to->recorded.tv_sec - from->recorded.tv_sec) * 1e3 + (to->recorded.tv_nsec - from->recorded.tv_nsec) * 1e-6;
  return SUCCESS;
}
