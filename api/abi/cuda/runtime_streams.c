/* This file implements the runtime's streams and events. */
int cuStreamCreate(void **, unsigned), cuStreamDestroy_v2(void *), cuStreamWaitEvent(void *, void *, unsigned), cuStreamIsCapturing(void *, int *);
int cuStreamGetFlags(void *, unsigned *), cuStreamGetPriority(void *, int *), cuStreamGetId(void *, unsigned long long *);
int cuStreamGetDevice(void *, int *), cuStreamCopyAttributes(void *, void *), cuThreadExchangeStreamCaptureMode(int *);
int cuStreamAddCallback(void *, void (*)(void *, int, void *), void *, unsigned), cuLaunchHostFunc(void *, void (*)(void *), void *);
int cuEventCreate(void **, unsigned), cuEventDestroy_v2(void *), cuEventRecordWithFlags(void *, void *, unsigned), cuEventSynchronize(void *);
int cuEventElapsedTime(float *, void *, void *);

int cudaStreamCreateWithFlags(void **stream, unsigned flags) { return noted(cuStreamCreate(stream, flags)); }
int cudaStreamCreateWithPriority(void **stream, unsigned flags, int priority) { (void)priority; return noted(cuStreamCreate(stream, flags)); }
int cudaStreamCreate(void **stream) { return cudaStreamCreateWithFlags(stream, 0); }
int cudaStreamDestroy(void *stream) { return noted(cuStreamDestroy_v2(stream)); }
int cudaStreamSynchronize(void *stream) { return noted(cuStreamSynchronize(stream)); }
int cudaStreamQuery(void *stream) { return noted(cuStreamSynchronize(stream)); }
int cudaStreamWaitEvent(void *stream, void *event, unsigned flags) { return noted(cuStreamWaitEvent(stream, event, flags)); }
int cudaStreamIsCapturing(void *stream, int *status) { return noted(cuStreamIsCapturing(stream, status)); }
int cudaStreamGetCaptureInfo(void *stream, int *status) { return noted(cuStreamIsCapturing(stream, status)); }
int cudaThreadExchangeStreamCaptureMode(int *mode) { return noted(cuThreadExchangeStreamCaptureMode(mode)); }
int cudaStreamGetFlags(void *stream, unsigned *flags) { return noted(cuStreamGetFlags(stream, flags)); }
int cudaStreamGetPriority(void *stream, int *priority) { return noted(cuStreamGetPriority(stream, priority)); }
int cudaStreamGetId(void *stream, unsigned long long *id) { return noted(cuStreamGetId(stream, id)); }
int cudaStreamGetDevice(void *stream, int *device) { return noted(cuStreamGetDevice(stream, device)); }
int cudaStreamCopyAttributes(void *to, void *from) { return noted(cuStreamCopyAttributes(to, from)); }
int cudaStreamAddCallback(void *stream, void (*function)(void *, int, void *), void *data, unsigned flags) {
  return noted(cuStreamAddCallback(stream, function, data, flags));
}
int cudaLaunchHostFunc(void *stream, void (*function)(void *), void *data) { return noted(cuLaunchHostFunc(stream, function, data)); }
int cudaEventCreateWithFlags(void **event, unsigned flags) { return noted(cuEventCreate(event, flags)); }
int cudaEventCreate(void **event) { return cudaEventCreateWithFlags(event, 0); }
int cudaEventDestroy(void *event) { return noted(cuEventDestroy_v2(event)); }
int cudaEventRecordWithFlags(void *event, void *stream, unsigned flags) { return noted(cuEventRecordWithFlags(event, stream, flags)); }
int cudaEventRecord(void *event, void *stream) { return cudaEventRecordWithFlags(event, stream, 0); }
int cudaEventSynchronize(void *event) { return noted(cuEventSynchronize(event)); }
int cudaEventQuery(void *event) { return noted(cuEventSynchronize(event)); }
int cudaEventElapsedTime(float *milliseconds, void *first, void *last_) { return noted(cuEventElapsedTime(milliseconds, first, last_)); }
