/* These helpers do with several calls of MIOpen the work of one call of cuDNN. Sources that `dualdnn port` rewrote
 * include this file after miopen/miopen.h. Functions have the parameters of the cuDNN function in their name, in its
 * order, and return miopenStatus_t. They take FLOAT and 4-D NCHW tensors, and use only calls of the porting guide. C99
 * and C++11 compile them, by GCC, Clang and hipcc.
 *
 * Temporaries come from DUALDNN_PORT_ALLOCATE(pointer, bytes), non-zero where it succeeded, and go back through
 * DUALDNN_PORT_FREE(pointer), which must wait for the work that uses them, as hipFree does. Define both to use a pool.
 */
#ifndef DUALDNN_PORT_MIOPEN_H
#define DUALDNN_PORT_MIOPEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifndef DUALDNN_PORT_ALLOCATE
#define DUALDNN_PORT_ALLOCATE(pointer, bytes) (hipMalloc((pointer), (bytes)) == hipSuccess)
#define DUALDNN_PORT_FREE(pointer) ((void)hipFree(pointer))
#endif

/* The source was written for cuDNN 8.0.3: without these, `#if CUDNN_MAJOR >= 7` would compile its oldest branch. */
#ifndef CUDNN_MAJOR
#define CUDNN_MAJOR 8
#define CUDNN_MINOR 0
#define CUDNN_PATCHLEVEL 3
#define CUDNN_VERSION (CUDNN_MAJOR * 1000 + CUDNN_MINOR * 100 + CUDNN_PATCHLEVEL)
#define CUDNN_DIM_MAX 8
#define CUDNN_BN_MIN_EPSILON 0.0
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* MIOpen does not have these choices. Variables of these types keep compiling, and helpers read them. */
typedef enum {
  DUALDNN_PORT_TENSOR_NCHW = 0,
  DUALDNN_PORT_TENSOR_NHWC = 1,
  DUALDNN_PORT_TENSOR_NCHW_VECT_C = 2
} dualdnnPortTensorFormat_t;
#ifdef DUALDNN_PORT_TODAY /* MIOpen of today has these itself. */
typedef miopenNanPropagation_t dualdnnPortNanPropagation_t;
typedef miopenSoftmaxAlgorithm_t dualdnnPortSoftmaxAlgorithm_t;
typedef miopenSoftmaxMode_t dualdnnPortSoftmaxMode_t;
#define DUALDNN_PORT_NOT_PROPAGATE_NAN MIOPEN_NOT_PROPAGATE_NAN
#define DUALDNN_PORT_PROPAGATE_NAN MIOPEN_PROPAGATE_NAN
#define DUALDNN_PORT_SOFTMAX_FAST MIOPEN_SOFTMAX_FAST
#define DUALDNN_PORT_SOFTMAX_ACCURATE MIOPEN_SOFTMAX_ACCURATE
#define DUALDNN_PORT_SOFTMAX_LOG MIOPEN_SOFTMAX_LOG
#define DUALDNN_PORT_SOFTMAX_MODE_INSTANCE MIOPEN_SOFTMAX_MODE_INSTANCE
#define DUALDNN_PORT_SOFTMAX_MODE_CHANNEL MIOPEN_SOFTMAX_MODE_CHANNEL
#else
typedef enum { DUALDNN_PORT_NOT_PROPAGATE_NAN = 0, DUALDNN_PORT_PROPAGATE_NAN = 1 } dualdnnPortNanPropagation_t;
typedef enum {
  DUALDNN_PORT_SOFTMAX_FAST = 0,
  DUALDNN_PORT_SOFTMAX_ACCURATE = 1,
  DUALDNN_PORT_SOFTMAX_LOG = 2
} dualdnnPortSoftmaxAlgorithm_t;
typedef enum { DUALDNN_PORT_SOFTMAX_MODE_INSTANCE = 0, DUALDNN_PORT_SOFTMAX_MODE_CHANNEL = 1 } dualdnnPortSoftmaxMode_t;
#endif
typedef enum {
  DUALDNN_PORT_NO_WORKSPACE = 0,
  DUALDNN_PORT_PREFER_FASTEST = 1,
  DUALDNN_PORT_SPECIFY_WORKSPACE_LIMIT = 2
} dualdnnPortPreference_t;
typedef enum {
  DUALDNN_PORT_DEFAULT_MATH = 0,
  DUALDNN_PORT_TENSOR_OP_MATH = 1,
  DUALDNN_PORT_TENSOR_OP_MATH_ALLOW_CONVERSION = 2,
  DUALDNN_PORT_FMA_MATH = 3
} dualdnnPortMathType_t;

/* MIOpen has no algorithm 7, which tells the helpers to take the one that Find chose. */
#define DUALDNN_PORT_FWD_ALGO_OF_FIND ((miopenConvFwdAlgorithm_t)7)
#define DUALDNN_PORT_BWD_DATA_ALGO_OF_FIND ((miopenConvBwdDataAlgorithm_t)7)
#define DUALDNN_PORT_BWD_FILTER_ALGO_OF_FIND ((miopenConvBwdWeightsAlgorithm_t)7)

/* These results have the field names of cuDNN; MIOpen reports no determinism and mathType. */
typedef struct {
  miopenConvFwdAlgorithm_t algo;
  miopenStatus_t status;
  float time;
  size_t memory;
} dualdnnPortConvolutionFwdAlgoPerf_t;
typedef struct {
  miopenConvBwdDataAlgorithm_t algo;
  miopenStatus_t status;
  float time;
  size_t memory;
} dualdnnPortConvolutionBwdDataAlgoPerf_t;
typedef struct {
  miopenConvBwdWeightsAlgorithm_t algo;
  miopenStatus_t status;
  float time;
  size_t memory;
} dualdnnPortConvolutionBwdFilterAlgoPerf_t;

/* ---- Descriptors ---- */

typedef struct {
  int dims[4], strides[4];
  size_t bytes;
} dualdnnPortTensor;

static inline miopenStatus_t dualdnnPortDescribe(miopenTensorDescriptor_t descriptor, dualdnnPortTensor* tensor) {
  miopenDataType_t type;
  int *d = tensor->dims, *s = tensor->strides, i;
  miopenStatus_t status =
      miopenGet4dTensorDescriptor(descriptor, &type, d, d + 1, d + 2, d + 3, s, s + 1, s + 2, s + 3);
  if (status != miopenStatusSuccess) return status;
  if (type != miopenFloat) return miopenStatusUnsupportedOp;
  tensor->bytes = sizeof(float);
  for (i = 0; i < 4; i++) tensor->bytes += (size_t)(d[i] - 1) * (size_t)s[i] * sizeof(float);
  return status;
}

/* The rows have no gaps; the stride of an extent of 1 does not matter. */
static inline bool dualdnnPortPacked(const int dims[4], const int strides[4]) {
  int i, step = 1;
  for (i = 3; i >= 0; i--) {
    if (dims[i] != 1 && strides[i] != step) return false;
    step *= dims[i];
  }
  return true;
}

static inline miopenStatus_t dualdnnPortSetTensor4dDescriptor(miopenTensorDescriptor_t tensorDesc,
                                                              dualdnnPortTensorFormat_t format,
                                                              miopenDataType_t dataType, int n, int c, int h, int w) {
  if (format != DUALDNN_PORT_TENSOR_NCHW || dataType != miopenFloat) return miopenStatusUnsupportedOp;
  return miopenSet4dTensorDescriptor(tensorDesc, dataType, n, c, h, w);
}

static inline miopenStatus_t dualdnnPortSetTensor4dDescriptorEx(miopenTensorDescriptor_t tensorDesc,
                                                                miopenDataType_t dataType, int n, int c, int h, int w,
                                                                int nStride, int cStride, int hStride, int wStride) {
  const int dims[4] = {n, c, h, w}, strides[4] = {nStride, cStride, hStride, wStride};
  if (!dualdnnPortPacked(dims, strides)) return miopenStatusUnsupportedOp;
  return dualdnnPortSetTensor4dDescriptor(tensorDesc, DUALDNN_PORT_TENSOR_NCHW, dataType, n, c, h, w);
}

static inline miopenStatus_t dualdnnPortSetTensorNdDescriptor(miopenTensorDescriptor_t tensorDesc,
                                                              miopenDataType_t dataType, int nbDims, const int dimA[],
                                                              const int strideA[]) {
  if (nbDims != 4) return miopenStatusUnsupportedOp;
  return dualdnnPortSetTensor4dDescriptorEx(tensorDesc, dataType, dimA[0], dimA[1], dimA[2], dimA[3], strideA[0],
                                            strideA[1], strideA[2], strideA[3]);
}

static inline miopenStatus_t dualdnnPortSetFilter4dDescriptor(miopenTensorDescriptor_t filterDesc,
                                                              miopenDataType_t dataType,
                                                              dualdnnPortTensorFormat_t format, int k, int c, int h,
                                                              int w) {
  return dualdnnPortSetTensor4dDescriptor(filterDesc, format, dataType, k, c, h, w);
}

static inline miopenStatus_t dualdnnPortSetFilterNdDescriptor(miopenTensorDescriptor_t filterDesc,
                                                              miopenDataType_t dataType,
                                                              dualdnnPortTensorFormat_t format, int nbDims,
                                                              const int filterDimA[]) {
  if (nbDims != 4) return miopenStatusUnsupportedOp;
  return dualdnnPortSetTensor4dDescriptor(filterDesc, format, dataType, filterDimA[0], filterDimA[1], filterDimA[2],
                                          filterDimA[3]);
}

static inline miopenStatus_t dualdnnPortGetFilter4dDescriptor(miopenTensorDescriptor_t filterDesc,
                                                              miopenDataType_t* dataType,
                                                              dualdnnPortTensorFormat_t* format, int* k, int* c, int* h,
                                                              int* w) {
  int strides[4];
  *format = DUALDNN_PORT_TENSOR_NCHW;
  return miopenGet4dTensorDescriptor(filterDesc, dataType, k, c, h, w, strides, strides + 1, strides + 2, strides + 3);
}

static inline miopenStatus_t dualdnnPortGetTensorSizeInBytes(miopenTensorDescriptor_t tensorDesc, size_t* size) {
  dualdnnPortTensor tensor;
  miopenStatus_t status = dualdnnPortDescribe(tensorDesc, &tensor);
  if (status == miopenStatusSuccess) *size = tensor.bytes;
  return status;
}

static inline miopenStatus_t dualdnnPortGetFilterSizeInBytes(miopenTensorDescriptor_t filterDesc, size_t* size) {
  return dualdnnPortGetTensorSizeInBytes(filterDesc, size);
}

static inline miopenStatus_t dualdnnPortSetConvolution2dDescriptor(miopenConvolutionDescriptor_t convDesc, int pad_h,
                                                                   int pad_w, int u, int v, int dilation_h,
                                                                   int dilation_w, miopenConvolutionMode_t mode,
                                                                   miopenDataType_t computeType) {
  if (mode != miopenConvolution || computeType != miopenFloat) return miopenStatusUnsupportedOp;
  return miopenInitConvolutionDescriptor(convDesc, mode, pad_h, pad_w, u, v, dilation_h, dilation_w);
}

static inline miopenStatus_t dualdnnPortSetConvolutionNdDescriptor(miopenConvolutionDescriptor_t convDesc,
                                                                   int arrayLength, const int padA[],
                                                                   const int filterStrideA[], const int dilationA[],
                                                                   miopenConvolutionMode_t mode,
                                                                   miopenDataType_t dataType) {
  if (arrayLength != 2) return miopenStatusUnsupportedOp;
  return dualdnnPortSetConvolution2dDescriptor(convDesc, padA[0], padA[1], filterStrideA[0], filterStrideA[1],
                                               dilationA[0], dilationA[1], mode, dataType);
}

static inline miopenStatus_t dualdnnPortGetConvolution2dDescriptor(miopenConvolutionDescriptor_t convDesc, int* pad_h,
                                                                   int* pad_w, int* u, int* v, int* dilation_h,
                                                                   int* dilation_w, miopenConvolutionMode_t* mode,
                                                                   miopenDataType_t* computeType) {
  *computeType = miopenFloat;
  return miopenGetConvolutionDescriptor(convDesc, mode, pad_h, pad_w, u, v, dilation_h, dilation_w);
}

static inline miopenStatus_t dualdnnPortSetConvolutionMathType(miopenConvolutionDescriptor_t convDesc,
                                                               dualdnnPortMathType_t mathType) {
  (void)convDesc, (void)mathType; /* Every choice allows FLOAT to be computed in FLOAT. */
  return miopenStatusSuccess;
}

static inline miopenStatus_t dualdnnPortSetConvolutionGroupCount(miopenConvolutionDescriptor_t convDesc,
                                                                 int groupCount) {
  (void)convDesc;
  return groupCount == 1 ? miopenStatusSuccess : miopenStatusUnsupportedOp;
}

static inline miopenStatus_t dualdnnPortSetPooling2dDescriptor(miopenPoolingDescriptor_t poolingDesc,
                                                               miopenPoolingMode_t mode,
                                                               dualdnnPortNanPropagation_t maxpoolingNanOpt,
                                                               int windowHeight, int windowWidth, int verticalPadding,
                                                               int horizontalPadding, int verticalStride,
                                                               int horizontalStride) {
  (void)maxpoolingNanOpt;
  return miopenSet2dPoolingDescriptor(poolingDesc, mode, windowHeight, windowWidth, verticalPadding, horizontalPadding,
                                      verticalStride, horizontalStride);
}

static inline miopenStatus_t dualdnnPortSetPoolingNdDescriptor(miopenPoolingDescriptor_t poolingDesc,
                                                               miopenPoolingMode_t mode,
                                                               dualdnnPortNanPropagation_t maxpoolingNanOpt, int nbDims,
                                                               const int windowDimA[], const int paddingA[],
                                                               const int strideA[]) {
  (void)maxpoolingNanOpt;
  if (nbDims != 2) return miopenStatusUnsupportedOp;
  return miopenSet2dPoolingDescriptor(poolingDesc, mode, windowDimA[0], windowDimA[1], paddingA[0], paddingA[1],
                                      strideA[0], strideA[1]);
}

static inline miopenStatus_t dualdnnPortGetPooling2dDescriptor(miopenPoolingDescriptor_t poolingDesc,
                                                               miopenPoolingMode_t* mode,
                                                               dualdnnPortNanPropagation_t* maxpoolingNanOpt,
                                                               int* windowHeight, int* windowWidth,
                                                               int* verticalPadding, int* horizontalPadding,
                                                               int* verticalStride, int* horizontalStride) {
  *maxpoolingNanOpt = DUALDNN_PORT_NOT_PROPAGATE_NAN;
  return miopenGet2dPoolingDescriptor(poolingDesc, mode, windowHeight, windowWidth, verticalPadding, horizontalPadding,
                                      verticalStride, horizontalStride);
}

/* The coefficient limits the clipped ReLU and scales the ELU; TANH is beta * tanh(alpha * x), so zeros would give zero.
 */
static inline miopenStatus_t dualdnnPortSetActivationDescriptor(miopenActivationDescriptor_t activationDesc,
                                                                miopenActivationMode_t mode,
                                                                dualdnnPortNanPropagation_t reluNanOpt, double coef) {
  (void)reluNanOpt;
  if (mode == miopenActivationTANH) return miopenSetActivationDescriptor(activationDesc, mode, 1.0, 1.0, 0.0);
  if (mode != miopenActivationCLIPPEDRELU && mode != miopenActivationELU) coef = 0.0;
  return miopenSetActivationDescriptor(activationDesc, mode, coef, 0.0, 0.0);
}

static inline miopenStatus_t dualdnnPortGetActivationDescriptor(miopenActivationDescriptor_t activationDesc,
                                                                miopenActivationMode_t* mode,
                                                                dualdnnPortNanPropagation_t* reluNanOpt, double* coef) {
  double beta, power;
  miopenStatus_t status = miopenGetActivationDescriptor(activationDesc, mode, coef, &beta, &power);
  *reluNanOpt = DUALDNN_PORT_NOT_PROPAGATE_NAN;
  if (status == miopenStatusSuccess && *mode == miopenActivationTANH) *coef = 0.0;
  return status;
}

static inline miopenStatus_t dualdnnPortSetLRNDescriptor(miopenLRNDescriptor_t normDesc, unsigned lrnN, double lrnAlpha,
                                                         double lrnBeta, double lrnK) {
  return miopenSetLRNDescriptor(normDesc, miopenLRNCrossChannel, lrnN, lrnAlpha, lrnBeta, lrnK);
}

static inline miopenStatus_t dualdnnPortGetLRNDescriptor(miopenLRNDescriptor_t normDesc, unsigned* lrnN,
                                                         double* lrnAlpha, double* lrnBeta, double* lrnK) {
  miopenLRNMode_t mode;
  return miopenGetLRNDescriptor(normDesc, &mode, lrnN, lrnAlpha, lrnBeta, lrnK);
}

/* ---- The library ---- */

static inline size_t dualdnnPortGetVersion(void) { return CUDNN_VERSION; }

static inline const char* dualdnnPortGetErrorString(miopenStatus_t status) {
  static const char* const names[] = {
      "miopenStatusSuccess",        "miopenStatusNotInitialized", "miopenStatusInvalidValue",
      "miopenStatusBadParm",        "miopenStatusAllocFailed",    "miopenStatusInternalError",
      "miopenStatusNotImplemented", "miopenStatusUnknownError",   "miopenStatusUnsupportedOp"};
  return (unsigned)status < sizeof names / sizeof *names ? names[status] : "unknown miopenStatus_t";
}

/* ---- alpha and beta other than 1 and 0: destination = alpha * result + beta * destination ---- */

static inline float dualdnnPortFloat(const void* scalar) { return *(const float*)scalar; }

/* A call with alpha 1 and beta 0 writes to the destination itself, or to a temporary where its values are needed. */
static inline miopenStatus_t dualdnnPortBegin(const void* beta, miopenTensorDescriptor_t descriptor, void* destination,
                                              void** target) {
  dualdnnPortTensor tensor;
  miopenStatus_t status;
  *target = destination;
  if (dualdnnPortFloat(beta) == 0.0f) return miopenStatusSuccess;
  *target = NULL;
  status = dualdnnPortDescribe(descriptor, &tensor);
  if (status != miopenStatusSuccess) return status;
  return DUALDNN_PORT_ALLOCATE(target, tensor.bytes) ? miopenStatusSuccess : miopenStatusAllocFailed;
}

static inline miopenStatus_t dualdnnPortEnd(miopenStatus_t status, miopenHandle_t handle, const void* alpha,
                                            const void* beta, miopenTensorDescriptor_t descriptor, void* destination,
                                            void* target) {
  const float zero = 0.0f;
  if (target == destination) {
    if (status == miopenStatusSuccess && dualdnnPortFloat(alpha) != 1.0f)
      status = miopenScaleTensor(handle, descriptor, destination, alpha);
    return status;
  }
  if (status == miopenStatusSuccess)
    status = miopenOpTensor(handle, miopenTensorOpAdd, beta, descriptor, destination, alpha, descriptor, target, &zero,
                            descriptor, destination);
  if (target != NULL) DUALDNN_PORT_FREE(target);
  return status;
}

/* STATEMENT computes into `target` with alpha `&one` and beta `&zero`, and sets `status`. */
#define DUALDNN_PORT_SCALED(alpha, beta, descriptor, destination, STATEMENT)        \
  const float one = 1.0f, zero = 0.0f;                                              \
  void* target;                                                                     \
  miopenStatus_t status = dualdnnPortBegin(beta, descriptor, destination, &target); \
  (void)one, (void)zero;                                                            \
  if (status == miopenStatusSuccess) STATEMENT;                                     \
  return dualdnnPortEnd(status, handle, alpha, beta, descriptor, destination, target)

/* ---- Tensors ---- */

/* C = alpha * A + beta * C. MIOpen broadcasts B alone, so A becomes B. */
static inline miopenStatus_t dualdnnPortAddTensor(miopenHandle_t handle, const void* alpha,
                                                  miopenTensorDescriptor_t aDesc, const void* A, const void* beta,
                                                  miopenTensorDescriptor_t cDesc, void* C) {
  const float one = 1.0f, zero = 0.0f, sum = dualdnnPortFloat(alpha) + dualdnnPortFloat(beta);
  miopenStatus_t status;
  if (A == C) return miopenScaleTensor(handle, cDesc, C, &sum);
  if (dualdnnPortFloat(beta) != 0.0f)
    return miopenOpTensor(handle, miopenTensorOpAdd, beta, cDesc, C, alpha, aDesc, A, &zero, cDesc, C);
  status = miopenSetTensor(handle, cDesc, C, &zero); /* A beta of 0 must not read C, which may hold NaN. */
  if (status != miopenStatusSuccess) return status;
  return miopenOpTensor(handle, miopenTensorOpAdd, &one, cDesc, C, alpha, aDesc, A, &zero, cDesc, C);
}

static inline miopenStatus_t dualdnnPortTransformTensor(miopenHandle_t handle, const void* alpha,
                                                        miopenTensorDescriptor_t xDesc, const void* x, const void* beta,
                                                        miopenTensorDescriptor_t yDesc, void* y) {
  dualdnnPortTensor from, to;
  miopenStatus_t status = dualdnnPortDescribe(xDesc, &from);
  if (status == miopenStatusSuccess) status = dualdnnPortDescribe(yDesc, &to);
  if (status != miopenStatusSuccess) return status;
  if (memcmp(from.dims, to.dims, sizeof from.dims) != 0) return miopenStatusBadParm;
  return dualdnnPortAddTensor(handle, alpha, xDesc, x, beta, yDesc, y);
}

typedef struct dualdnnPortOpTensorDescriptor {
  miopenTensorOp_t op;
  miopenDataType_t type;
  dualdnnPortNanPropagation_t nan;
}* dualdnnPortOpTensorDescriptor_t;

static inline miopenStatus_t dualdnnPortCreateOpTensorDescriptor(dualdnnPortOpTensorDescriptor_t* opTensorDesc) {
  *opTensorDesc = (dualdnnPortOpTensorDescriptor_t)calloc(1, sizeof **opTensorDesc);
  return *opTensorDesc != NULL ? miopenStatusSuccess : miopenStatusAllocFailed;
}

static inline miopenStatus_t dualdnnPortSetOpTensorDescriptor(dualdnnPortOpTensorDescriptor_t opTensorDesc,
                                                              miopenTensorOp_t opTensorOp,
                                                              miopenDataType_t opTensorCompType,
                                                              dualdnnPortNanPropagation_t opTensorNanOpt) {
  if (opTensorDesc == NULL) return miopenStatusBadParm;
  if (opTensorCompType != miopenFloat) return miopenStatusUnsupportedOp;
  opTensorDesc->op = opTensorOp, opTensorDesc->type = opTensorCompType, opTensorDesc->nan = opTensorNanOpt;
  return miopenStatusSuccess;
}

static inline miopenStatus_t dualdnnPortGetOpTensorDescriptor(dualdnnPortOpTensorDescriptor_t opTensorDesc,
                                                              miopenTensorOp_t* opTensorOp,
                                                              miopenDataType_t* opTensorCompType,
                                                              dualdnnPortNanPropagation_t* opTensorNanOpt) {
  if (opTensorDesc == NULL) return miopenStatusBadParm;
  *opTensorOp = opTensorDesc->op, *opTensorCompType = opTensorDesc->type, *opTensorNanOpt = opTensorDesc->nan;
  return miopenStatusSuccess;
}

static inline miopenStatus_t dualdnnPortDestroyOpTensorDescriptor(dualdnnPortOpTensorDescriptor_t opTensorDesc) {
  free(opTensorDesc);
  return miopenStatusSuccess;
}

static inline miopenStatus_t dualdnnPortOpTensor(miopenHandle_t handle, dualdnnPortOpTensorDescriptor_t opTensorDesc,
                                                 const void* alpha1, miopenTensorDescriptor_t aDesc, const void* A,
                                                 const void* alpha2, miopenTensorDescriptor_t bDesc, const void* B,
                                                 const void* beta, miopenTensorDescriptor_t cDesc, void* C) {
  if (opTensorDesc == NULL) return miopenStatusBadParm;
  return miopenOpTensor(handle, opTensorDesc->op, alpha1, aDesc, A, alpha2, bDesc, B, beta, cDesc, C);
}

/* ---- Convolutions: Find runs kernels and writes its output, so it runs on temporaries; its results are remembered by
 * handle and contents of the descriptors. a, b, out: the operands in MIOpen's order. ---- */

enum { dualdnnPortForward = 0, dualdnnPortBackwardData = 1, dualdnnPortBackwardFilter = 2, dualdnnPortMostResults = 8 };

typedef struct dualdnnPortFound {
  struct dualdnnPortFound* next;
  miopenHandle_t handle;
  int problem[32]; /* direction, dimensions and strides of a, b and out, the convolution */
  int count;
  int algorithms[dualdnnPortMostResults];
  float times[dualdnnPortMostResults];
  size_t workspaces[dualdnnPortMostResults];
} dualdnnPortFound;

/* The program has one table, however many files include this. */
__attribute__((weak)) dualdnnPortFound* dualdnnPortFirstFound;
__attribute__((weak)) char dualdnnPortFoundLock;

static inline void dualdnnPortLock(void) {
  while (__atomic_test_and_set(&dualdnnPortFoundLock, __ATOMIC_ACQUIRE)) {}
}

static inline void dualdnnPortUnlock(void) { __atomic_clear(&dualdnnPortFoundLock, __ATOMIC_RELEASE); }

static inline miopenStatus_t dualdnnPortDestroy(miopenHandle_t handle) {
  dualdnnPortFound** link = &dualdnnPortFirstFound;
  dualdnnPortLock();
  while (*link != NULL) {
    dualdnnPortFound* entry = *link;
    if (entry->handle != handle) {
      link = &entry->next;
    } else {
      *link = entry->next;
      free(entry);
    }
  }
  dualdnnPortUnlock();
  return miopenDestroy(handle);
}

static inline miopenStatus_t dualdnnPortQuery(miopenHandle_t handle, int direction, miopenTensorDescriptor_t aDesc,
                                              miopenTensorDescriptor_t bDesc, miopenConvolutionDescriptor_t convDesc,
                                              miopenTensorDescriptor_t outDesc, size_t* size) {
  if (direction == dualdnnPortForward)
    return miopenConvolutionForwardGetWorkSpaceSize(handle, bDesc, aDesc, convDesc, outDesc, size);
  if (direction == dualdnnPortBackwardData)
    return miopenConvolutionBackwardDataGetWorkSpaceSize(handle, aDesc, bDesc, convDesc, outDesc, size);
  return miopenConvolutionBackwardWeightsGetWorkSpaceSize(handle, aDesc, bDesc, convDesc, outDesc, size);
}

static inline miopenStatus_t dualdnnPortFindOn(miopenHandle_t handle, int direction, miopenTensorDescriptor_t aDesc,
                                               const void* a, miopenTensorDescriptor_t bDesc, const void* b,
                                               miopenConvolutionDescriptor_t convDesc, miopenTensorDescriptor_t outDesc,
                                               void* out, void* workSpace, size_t size, dualdnnPortFound* found) {
  miopenConvAlgoPerf_t results[dualdnnPortMostResults];
  miopenStatus_t status;
  int i;
  if (direction == dualdnnPortForward)
    status =
        miopenFindConvolutionForwardAlgorithm(handle, aDesc, a, bDesc, b, convDesc, outDesc, out,
                                              dualdnnPortMostResults, &found->count, results, workSpace, size, false);
  else if (direction == dualdnnPortBackwardData)
    status = miopenFindConvolutionBackwardDataAlgorithm(handle, aDesc, a, bDesc, b, convDesc, outDesc, out,
                                                        dualdnnPortMostResults, &found->count, results, workSpace, size,
                                                        false);
  else
    status = miopenFindConvolutionBackwardWeightsAlgorithm(handle, aDesc, a, bDesc, b, convDesc, outDesc, out,
                                                           dualdnnPortMostResults, &found->count, results, workSpace,
                                                           size, false);
  if (status == miopenStatusSuccess && found->count < 1) status = miopenStatusUnsupportedOp;
  for (i = 0; status == miopenStatusSuccess && i < found->count; i++) {
    found->algorithms[i] = direction == dualdnnPortForward        ? (int)results[i].fwd_algo
                           : direction == dualdnnPortBackwardData ? (int)results[i].bwd_data_algo
                                                                  : (int)results[i].bwd_weights_algo;
    found->times[i] = results[i].time;
    found->workspaces[i] = results[i].memory;
  }
  return status;
}

static inline miopenStatus_t dualdnnPortProblem(int direction, miopenTensorDescriptor_t aDesc,
                                                miopenTensorDescriptor_t bDesc, miopenConvolutionDescriptor_t convDesc,
                                                miopenTensorDescriptor_t outDesc, int problem[32], size_t bytes[3]) {
  miopenTensorDescriptor_t descriptors[3] = {aDesc, bDesc, outDesc};
  miopenConvolutionMode_t mode;
  dualdnnPortTensor tensor;
  int i, *c = problem + 25;
  miopenStatus_t status = miopenGetConvolutionDescriptor(convDesc, &mode, c, c + 1, c + 2, c + 3, c + 4, c + 5);
  problem[0] = direction;
  problem[31] = (int)mode;
  for (i = 0; i < 3 && status == miopenStatusSuccess; i++) {
    status = dualdnnPortDescribe(descriptors[i], &tensor);
    memcpy(problem + 1 + 8 * i, tensor.dims, sizeof tensor.dims);
    memcpy(problem + 5 + 8 * i, tensor.strides, sizeof tensor.strides);
    bytes[i] = tensor.bytes;
  }
  return status;
}

/* Returns the results of Find for the problem; each handle finds them once. */
static inline miopenStatus_t dualdnnPortFind(miopenHandle_t handle, int direction, miopenTensorDescriptor_t aDesc,
                                             miopenTensorDescriptor_t bDesc, miopenConvolutionDescriptor_t convDesc,
                                             miopenTensorDescriptor_t outDesc, const dualdnnPortFound** result) {
  size_t bytes[4] = {0, 0, 0, 0};
  void* memory[4] = {NULL, NULL, NULL, NULL};
  miopenTensorDescriptor_t descriptors[3] = {aDesc, bDesc, outDesc};
  const float zero = 0.0f;
  dualdnnPortFound *entry, key;
  int i;
  miopenStatus_t status = dualdnnPortProblem(direction, aDesc, bDesc, convDesc, outDesc, key.problem, bytes);
  if (status != miopenStatusSuccess) return status;
  dualdnnPortLock();
  for (entry = dualdnnPortFirstFound; entry != NULL; entry = entry->next)
    if (entry->handle == handle && memcmp(entry->problem, key.problem, sizeof key.problem) == 0) break;
  dualdnnPortUnlock();
  *result = entry;
  if (entry != NULL) return miopenStatusSuccess;
  entry = (dualdnnPortFound*)calloc(1, sizeof *entry);
  if (entry == NULL) return miopenStatusAllocFailed;
  entry->handle = handle;
  memcpy(entry->problem, key.problem, sizeof key.problem);
  status = dualdnnPortQuery(handle, direction, aDesc, bDesc, convDesc, outDesc, &bytes[3]);
  for (i = 0; i < 4 && status == miopenStatusSuccess; i++) {
    if (bytes[i] != 0 && !DUALDNN_PORT_ALLOCATE(&memory[i], bytes[i])) status = miopenStatusAllocFailed;
    if (status == miopenStatusSuccess && i < 3) status = miopenSetTensor(handle, descriptors[i], memory[i], &zero);
  }
  if (status == miopenStatusSuccess)
    status = dualdnnPortFindOn(handle, direction, aDesc, memory[0], bDesc, memory[1], convDesc, outDesc, memory[2],
                               memory[3], bytes[3], entry);
  for (i = 0; i < 4; i++)
    if (memory[i] != NULL) DUALDNN_PORT_FREE(memory[i]);
  if (status != miopenStatusSuccess) {
    free(entry);
    return status;
  }
  dualdnnPortLock();
  entry->next = dualdnnPortFirstFound;
  dualdnnPortFirstFound = entry;
  dualdnnPortUnlock();
  *result = entry;
  return status;
}

/* Returns the fastest result that the limit allows, the wanted algorithm first; -1 where none fits. */
static inline int dualdnnPortChoose(const dualdnnPortFound* found, int wanted, size_t limit) {
  int i, fastest = -1;
  for (i = found->count - 1; i >= 0; i--) {
    if (found->workspaces[i] > limit) continue;
    if (found->algorithms[i] == wanted) return i;
    fastest = i;
  }
  return fastest;
}

static inline miopenStatus_t dualdnnPortConvolve(miopenHandle_t handle, int direction, const void* alpha,
                                                 miopenTensorDescriptor_t aDesc, const void* a,
                                                 miopenTensorDescriptor_t bDesc, const void* b,
                                                 miopenConvolutionDescriptor_t convDesc, int algorithm,
                                                 const void* beta, miopenTensorDescriptor_t outDesc, void* out,
                                                 void* workSpace, size_t size) {
  const float one = 1.0f, zero = 0.0f;
  const dualdnnPortFound* found;
  void *target, *own = NULL;
  int chosen;
  miopenStatus_t status = dualdnnPortFind(handle, direction, aDesc, bDesc, convDesc, outDesc, &found);
  if (status != miopenStatusSuccess) return status;
  chosen = dualdnnPortChoose(found, algorithm, workSpace != NULL ? size : 0);
  if (chosen < 0) { /* cuDNN has algorithms without workspace. Where MIOpen has none, it gets one. */
    chosen = dualdnnPortChoose(found, algorithm, SIZE_MAX);
    size = found->workspaces[chosen];
    if (!DUALDNN_PORT_ALLOCATE(&own, size)) return miopenStatusAllocFailed;
    workSpace = own;
  }
  algorithm = found->algorithms[chosen];
  status = dualdnnPortBegin(beta, outDesc, out, &target);
  if (status == miopenStatusSuccess && direction == dualdnnPortForward)
    status = miopenConvolutionForward(handle, &one, aDesc, a, bDesc, b, convDesc, (miopenConvFwdAlgorithm_t)algorithm,
                                      &zero, outDesc, target, workSpace, size);
  else if (status == miopenStatusSuccess && direction == dualdnnPortBackwardData)
    status =
        miopenConvolutionBackwardData(handle, &one, aDesc, a, bDesc, b, convDesc,
                                      (miopenConvBwdDataAlgorithm_t)algorithm, &zero, outDesc, target, workSpace, size);
  else if (status == miopenStatusSuccess)
    status = miopenConvolutionBackwardWeights(handle, &one, aDesc, a, bDesc, b, convDesc,
                                              (miopenConvBwdWeightsAlgorithm_t)algorithm, &zero, outDesc, target,
                                              workSpace, size);
  status = dualdnnPortEnd(status, handle, alpha, beta, outDesc, out, target);
  if (own != NULL) DUALDNN_PORT_FREE(own);
  return status;
}

/* Defines the seven calls of a direction. p, q: the operands in cuDNN's order. A, B: MIOpen's first and second of them.
 */
#define DUALDNN_PORT_CONVOLUTION(NAME, DIRECTION, ALGORITHM, RESULT, A, B)                                             \
  static inline miopenStatus_t dualdnnPortFind##NAME##Algorithm(                                                       \
      miopenHandle_t handle, miopenTensorDescriptor_t pDesc, miopenTensorDescriptor_t qDesc,                           \
      miopenConvolutionDescriptor_t convDesc, miopenTensorDescriptor_t outDesc, const int requestedAlgoCount,          \
      int* returnedAlgoCount, RESULT* perfResults) {                                                                   \
    const dualdnnPortFound* found;                                                                                     \
    int i;                                                                                                             \
    miopenStatus_t status;                                                                                             \
    if (requestedAlgoCount < 1) return miopenStatusBadParm;                                                            \
    status = dualdnnPortFind(handle, DIRECTION, A##Desc, B##Desc, convDesc, outDesc, &found);                          \
    if (status != miopenStatusSuccess) return status;                                                                  \
    *returnedAlgoCount = found->count < requestedAlgoCount ? found->count : requestedAlgoCount;                        \
    for (i = 0; i < *returnedAlgoCount; i++) {                                                                         \
      perfResults[i].algo = (ALGORITHM)found->algorithms[i];                                                           \
      perfResults[i].status = miopenStatusSuccess;                                                                     \
      perfResults[i].time = found->times[i];                                                                           \
      perfResults[i].memory = found->workspaces[i];                                                                    \
    }                                                                                                                  \
    return status;                                                                                                     \
  }                                                                                                                    \
  static inline miopenStatus_t dualdnnPortGet##NAME##Algorithm_v7(                                                     \
      miopenHandle_t handle, miopenTensorDescriptor_t pDesc, miopenTensorDescriptor_t qDesc,                           \
      miopenConvolutionDescriptor_t convDesc, miopenTensorDescriptor_t outDesc, const int requestedAlgoCount,          \
      int* returnedAlgoCount, RESULT* perfResults) {                                                                   \
    return dualdnnPortFind##NAME##Algorithm(handle, pDesc, qDesc, convDesc, outDesc, requestedAlgoCount,               \
                                            returnedAlgoCount, perfResults);                                           \
  }                                                                                                                    \
  static inline miopenStatus_t dualdnnPortFind##NAME##AlgorithmEx(                                                     \
      miopenHandle_t handle, miopenTensorDescriptor_t pDesc, const void* p, miopenTensorDescriptor_t qDesc,            \
      const void* q, miopenConvolutionDescriptor_t convDesc, miopenTensorDescriptor_t outDesc, void* out,              \
      const int requestedAlgoCount, int* returnedAlgoCount, RESULT* perfResults, void* workSpace,                      \
      size_t workSpaceSizeInBytes) {                                                                                   \
    (void)p, (void)q, (void)out, (void)workSpace, (void)workSpaceSizeInBytes;                                          \
    return dualdnnPortFind##NAME##Algorithm(handle, pDesc, qDesc, convDesc, outDesc, requestedAlgoCount,               \
                                            returnedAlgoCount, perfResults);                                           \
  }                                                                                                                    \
  static inline miopenStatus_t dualdnnPortGet##NAME##Algorithm(                                                        \
      miopenHandle_t handle, miopenTensorDescriptor_t pDesc, miopenTensorDescriptor_t qDesc,                           \
      miopenConvolutionDescriptor_t convDesc, miopenTensorDescriptor_t outDesc, dualdnnPortPreference_t preference,    \
      size_t memoryLimitInBytes, ALGORITHM* algo) {                                                                    \
    const dualdnnPortFound* found;                                                                                     \
    size_t limit = preference == DUALDNN_PORT_NO_WORKSPACE ? 0 : SIZE_MAX;                                             \
    int chosen;                                                                                                        \
    miopenStatus_t status = dualdnnPortFind(handle, DIRECTION, A##Desc, B##Desc, convDesc, outDesc, &found);           \
    if (status != miopenStatusSuccess) return status;                                                                  \
    if (preference == DUALDNN_PORT_SPECIFY_WORKSPACE_LIMIT) limit = memoryLimitInBytes;                                \
    chosen = dualdnnPortChoose(found, -1, limit);                                                                      \
    if (chosen < 0) return miopenStatusUnsupportedOp;                                                                  \
    *algo = (ALGORITHM)found->algorithms[chosen];                                                                      \
    return status;                                                                                                     \
  }                                                                                                                    \
  static inline miopenStatus_t dualdnnPortGet##NAME##AlgorithmMaxCount(miopenHandle_t handle, int* count) {            \
    (void)handle;                                                                                                      \
    *count = dualdnnPortMostResults;                                                                                   \
    return miopenStatusSuccess;                                                                                        \
  }                                                                                                                    \
  static inline miopenStatus_t dualdnnPortGet##NAME##WorkspaceSize(                                                    \
      miopenHandle_t handle, miopenTensorDescriptor_t pDesc, miopenTensorDescriptor_t qDesc,                           \
      miopenConvolutionDescriptor_t convDesc, miopenTensorDescriptor_t outDesc, ALGORITHM algo, size_t* sizeInBytes) { \
    (void)algo;                                                                                                        \
    return dualdnnPortQuery(handle, DIRECTION, A##Desc, B##Desc, convDesc, outDesc, sizeInBytes);                      \
  }                                                                                                                    \
  static inline miopenStatus_t dualdnnPort##NAME(                                                                      \
      miopenHandle_t handle, const void* alpha, miopenTensorDescriptor_t pDesc, const void* p,                         \
      miopenTensorDescriptor_t qDesc, const void* q, miopenConvolutionDescriptor_t convDesc, ALGORITHM algo,           \
      void* workSpace, size_t workSpaceSizeInBytes, const void* beta, miopenTensorDescriptor_t outDesc, void* out) {   \
    return dualdnnPortConvolve(handle, DIRECTION, alpha, A##Desc, A, B##Desc, B, convDesc, (int)algo, beta, outDesc,   \
                               out, workSpace, workSpaceSizeInBytes);                                                  \
  }
DUALDNN_PORT_CONVOLUTION(ConvolutionForward, dualdnnPortForward, miopenConvFwdAlgorithm_t,
                         dualdnnPortConvolutionFwdAlgoPerf_t, p, q)
DUALDNN_PORT_CONVOLUTION(ConvolutionBackwardData, dualdnnPortBackwardData, miopenConvBwdDataAlgorithm_t,
                         dualdnnPortConvolutionBwdDataAlgoPerf_t, q, p)
DUALDNN_PORT_CONVOLUTION(ConvolutionBackwardFilter, dualdnnPortBackwardFilter, miopenConvBwdWeightsAlgorithm_t,
                         dualdnnPortConvolutionBwdFilterAlgoPerf_t, q, p)

static inline miopenStatus_t dualdnnPortConvolutionBackwardBias(miopenHandle_t handle, const void* alpha,
                                                                miopenTensorDescriptor_t dyDesc, const void* dy,
                                                                const void* beta, miopenTensorDescriptor_t dbDesc,
                                                                void* db) {
  DUALDNN_PORT_SCALED(alpha, beta, dbDesc, db,
                      status = miopenConvolutionBackwardBias(handle, &one, dyDesc, dy, &zero, dbDesc, target));
}

/* ---- Activation, softmax ---- */

static inline miopenStatus_t dualdnnPortActivationForward(miopenHandle_t handle,
                                                          miopenActivationDescriptor_t activationDesc,
                                                          const void* alpha, miopenTensorDescriptor_t xDesc,
                                                          const void* x, const void* beta,
                                                          miopenTensorDescriptor_t yDesc, void* y) {
  DUALDNN_PORT_SCALED(alpha, beta, yDesc, y,
                      status = miopenActivationForward(handle, activationDesc, &one, xDesc, x, &zero, yDesc, target));
}

static inline miopenStatus_t dualdnnPortActivationBackward(
    miopenHandle_t handle, miopenActivationDescriptor_t activationDesc, const void* alpha,
    miopenTensorDescriptor_t yDesc, const void* y, miopenTensorDescriptor_t dyDesc, const void* dy,
    miopenTensorDescriptor_t xDesc, const void* x, const void* beta, miopenTensorDescriptor_t dxDesc, void* dx) {
  DUALDNN_PORT_SCALED(alpha, beta, dxDesc, dx,
                      status = miopenActivationBackward(handle, activationDesc, &one, yDesc, y, dyDesc, dy, xDesc, x,
                                                        &zero, dxDesc, target));
}

/* y = activation(alpha1 * convolution + alpha2 * z + bias) */
static inline miopenStatus_t dualdnnPortConvolutionBiasActivationForward(
    miopenHandle_t handle, const void* alpha1, miopenTensorDescriptor_t xDesc, const void* x,
    miopenTensorDescriptor_t wDesc, const void* w, miopenConvolutionDescriptor_t convDesc,
    miopenConvFwdAlgorithm_t algo, void* workSpace, size_t workSpaceSizeInBytes, const void* alpha2,
    miopenTensorDescriptor_t zDesc, const void* z, miopenTensorDescriptor_t biasDesc, const void* bias,
    miopenActivationDescriptor_t activationDesc, miopenTensorDescriptor_t yDesc, void* y) {
  const float one = 1.0f, zero = 0.0f;
  void* target; /* z may be y, whose values are needed after the convolution unless alpha2 is 0. */
  miopenStatus_t status = dualdnnPortBegin(alpha2, yDesc, y, &target);
  if (status == miopenStatusSuccess)
    status = dualdnnPortConvolutionForward(handle, alpha1, xDesc, x, wDesc, w, convDesc, algo, workSpace,
                                           workSpaceSizeInBytes, &zero, yDesc, target);
  if (status == miopenStatusSuccess && target != y)
    status = dualdnnPortAddTensor(handle, alpha2, zDesc, z, &one, yDesc, target);
  if (status == miopenStatusSuccess) status = dualdnnPortAddTensor(handle, &one, biasDesc, bias, &one, yDesc, target);
  if (status == miopenStatusSuccess)
    status = miopenActivationForward(handle, activationDesc, &one, yDesc, target, &zero, yDesc, y);
  if (target != NULL && target != y) DUALDNN_PORT_FREE(target);
  return status;
}

/* Makes a descriptor of N x CHW x 1 x 1, over whose channels one softmax runs; CHANNEL keeps the tensor itself. */
static inline miopenStatus_t dualdnnPortImages(dualdnnPortSoftmaxMode_t mode, miopenTensorDescriptor_t descriptor,
                                               miopenTensorDescriptor_t* images) {
  dualdnnPortTensor tensor;
  miopenStatus_t status;
  *images = descriptor;
  if (mode == DUALDNN_PORT_SOFTMAX_MODE_CHANNEL) return miopenStatusSuccess;
  status = dualdnnPortDescribe(descriptor, &tensor);
  if (status != miopenStatusSuccess) return status;
  if (!dualdnnPortPacked(tensor.dims, tensor.strides)) return miopenStatusUnsupportedOp;
  status = miopenCreateTensorDescriptor(images);
  if (status != miopenStatusSuccess) return status;
  return miopenSet4dTensorDescriptor(*images, miopenFloat, tensor.dims[0],
                                     tensor.dims[1] * tensor.dims[2] * tensor.dims[3], 1, 1);
}

static inline void dualdnnPortForget(miopenTensorDescriptor_t images, miopenTensorDescriptor_t descriptor) {
  if (images != descriptor && images != NULL) (void)miopenDestroyTensorDescriptor(images);
}

static inline miopenStatus_t dualdnnPortSoftmaxForward(miopenHandle_t handle, dualdnnPortSoftmaxAlgorithm_t algorithm,
                                                       dualdnnPortSoftmaxMode_t mode, const void* alpha,
                                                       miopenTensorDescriptor_t xDesc, const void* x, const void* beta,
                                                       miopenTensorDescriptor_t yDesc, void* y) {
  const float one = 1.0f, zero = 0.0f;
  miopenTensorDescriptor_t from, to = yDesc;
  void* target = y;
  miopenStatus_t status = dualdnnPortImages(mode, xDesc, &from);
  if (algorithm == DUALDNN_PORT_SOFTMAX_LOG) status = miopenStatusUnsupportedOp;
  if (status == miopenStatusSuccess) status = dualdnnPortImages(mode, yDesc, &to);
  if (status == miopenStatusSuccess) status = dualdnnPortBegin(beta, yDesc, y, &target);
  if (status == miopenStatusSuccess) status = miopenSoftmaxForward(handle, &one, from, x, &zero, to, target);
  status = dualdnnPortEnd(status, handle, alpha, beta, yDesc, y, target);
  dualdnnPortForget(from, xDesc);
  dualdnnPortForget(to, yDesc);
  return status;
}

static inline miopenStatus_t dualdnnPortSoftmaxBackward(miopenHandle_t handle, dualdnnPortSoftmaxAlgorithm_t algorithm,
                                                        dualdnnPortSoftmaxMode_t mode, const void* alpha,
                                                        miopenTensorDescriptor_t yDesc, const void* y,
                                                        miopenTensorDescriptor_t dyDesc, const void* dy,
                                                        const void* beta, miopenTensorDescriptor_t dxDesc, void* dx) {
  const float one = 1.0f, zero = 0.0f;
  miopenTensorDescriptor_t result, slope = dyDesc, to = dxDesc;
  void* target = dx;
  miopenStatus_t status = dualdnnPortImages(mode, yDesc, &result);
  if (algorithm == DUALDNN_PORT_SOFTMAX_LOG) status = miopenStatusUnsupportedOp;
  if (status == miopenStatusSuccess) status = dualdnnPortImages(mode, dyDesc, &slope);
  if (status == miopenStatusSuccess) status = dualdnnPortImages(mode, dxDesc, &to);
  if (status == miopenStatusSuccess) status = dualdnnPortBegin(beta, dxDesc, dx, &target);
  if (status == miopenStatusSuccess)
    status = miopenSoftmaxBackward(handle, &one, result, y, slope, dy, &zero, to, target);
  status = dualdnnPortEnd(status, handle, alpha, beta, dxDesc, dx, target);
  dualdnnPortForget(result, yDesc);
  dualdnnPortForget(slope, dyDesc);
  dualdnnPortForget(to, dxDesc);
  return status;
}

/* ---- Pooling, LRN: the backward call of MIOpen wants the workspace of a forward call, that of cuDNN wants x alone.
 * The workspace is made again from x, into a temporary: nothing has to be kept between the calls of the program. ----
 */

static inline miopenStatus_t dualdnnPortPoolingForward(miopenHandle_t handle, miopenPoolingDescriptor_t poolingDesc,
                                                       const void* alpha, miopenTensorDescriptor_t xDesc, const void* x,
                                                       const void* beta, miopenTensorDescriptor_t yDesc, void* y) {
  DUALDNN_PORT_SCALED(
      alpha, beta, yDesc, y,
      status = miopenPoolingForward(handle, poolingDesc, &one, xDesc, x, &zero, yDesc, target, false, NULL, 0));
}

/* The forward call before a backward one needs this memory: its output and its workspace. */
static inline miopenStatus_t dualdnnPortForwardMemory(miopenTensorDescriptor_t yDesc, size_t workspace,
                                                      void* memory[2]) {
  dualdnnPortTensor tensor;
  miopenStatus_t status = dualdnnPortDescribe(yDesc, &tensor);
  if (status != miopenStatusSuccess) return status;
  if (!DUALDNN_PORT_ALLOCATE(&memory[0], tensor.bytes)) return miopenStatusAllocFailed;
  if (workspace != 0 && !DUALDNN_PORT_ALLOCATE(&memory[1], workspace)) return miopenStatusAllocFailed;
  return status;
}

static inline void dualdnnPortFreeForwardMemory(void* memory[2]) {
  if (memory[0] != NULL) DUALDNN_PORT_FREE(memory[0]);
  if (memory[1] != NULL) DUALDNN_PORT_FREE(memory[1]);
}

static inline miopenStatus_t dualdnnPortPoolingBackward(miopenHandle_t handle, miopenPoolingDescriptor_t poolingDesc,
                                                        const void* alpha, miopenTensorDescriptor_t yDesc,
                                                        const void* y, miopenTensorDescriptor_t dyDesc, const void* dy,
                                                        miopenTensorDescriptor_t xDesc, const void* x, const void* beta,
                                                        miopenTensorDescriptor_t dxDesc, void* dx) {
  const float one = 1.0f, zero = 0.0f;
  void *memory[2] = {NULL, NULL}, *target = dx;
  size_t size = 0;
  miopenStatus_t status = miopenPoolingGetWorkSpaceSize(yDesc, &size);
  if (status == miopenStatusSuccess) status = dualdnnPortForwardMemory(yDesc, size, memory);
  if (status == miopenStatusSuccess)
    status = miopenPoolingForward(handle, poolingDesc, &one, xDesc, x, &zero, yDesc, memory[0], true, memory[1], size);
  if (status == miopenStatusSuccess) status = dualdnnPortBegin(beta, dxDesc, dx, &target);
  if (status == miopenStatusSuccess)
    status = miopenPoolingBackward(handle, poolingDesc, &one, yDesc, y, dyDesc, dy, xDesc, x, &zero, dxDesc, target,
                                   memory[1]);
  status = dualdnnPortEnd(status, handle, alpha, beta, dxDesc, dx, target);
  dualdnnPortFreeForwardMemory(memory);
  return status;
}

static inline miopenStatus_t dualdnnPortLRNCrossChannelForward(miopenHandle_t handle, miopenLRNDescriptor_t normDesc,
                                                               miopenLRNMode_t lrnMode, const void* alpha,
                                                               miopenTensorDescriptor_t xDesc, const void* x,
                                                               const void* beta, miopenTensorDescriptor_t yDesc,
                                                               void* y) {
  (void)lrnMode; /* The descriptor holds the mode, and cuDNN has only one. */
  DUALDNN_PORT_SCALED(alpha, beta, yDesc, y,
                      status = miopenLRNForward(handle, normDesc, &one, xDesc, x, &zero, yDesc, target, false, NULL));
}

static inline miopenStatus_t dualdnnPortLRNCrossChannelBackward(
    miopenHandle_t handle, miopenLRNDescriptor_t normDesc, miopenLRNMode_t lrnMode, const void* alpha,
    miopenTensorDescriptor_t yDesc, const void* y, miopenTensorDescriptor_t dyDesc, const void* dy,
    miopenTensorDescriptor_t xDesc, const void* x, const void* beta, miopenTensorDescriptor_t dxDesc, void* dx) {
  const float one = 1.0f, zero = 0.0f;
  void *memory[2] = {NULL, NULL}, *target = dx;
  size_t size = 0;
  miopenStatus_t status = miopenLRNGetWorkSpaceSize(yDesc, &size);
  (void)lrnMode;
  (void)y; /* MIOpen computes with y, which must be the result for this x without alpha and beta. */
  if (status == miopenStatusSuccess) status = dualdnnPortForwardMemory(yDesc, size, memory);
  if (status == miopenStatusSuccess)
    status = miopenLRNForward(handle, normDesc, &one, xDesc, x, &zero, yDesc, memory[0], true, memory[1]);
  if (status == miopenStatusSuccess) status = dualdnnPortBegin(beta, dxDesc, dx, &target);
  if (status == miopenStatusSuccess)
    status = miopenLRNBackward(handle, normDesc, &one, yDesc, memory[0], dyDesc, dy, xDesc, x, &zero, dxDesc, target,
                               memory[1]);
  status = dualdnnPortEnd(status, handle, alpha, beta, dxDesc, dx, target);
  dualdnnPortFreeForwardMemory(memory);
  return status;
}

/* ---- Batch normalisation: MIOpen declares inputs without const ---- */

static inline miopenStatus_t dualdnnPortBatchNormalizationForwardTraining(
    miopenHandle_t handle, miopenBatchNormMode_t mode, const void* alpha, const void* beta,
    miopenTensorDescriptor_t xDesc, const void* x, miopenTensorDescriptor_t yDesc, void* y,
    miopenTensorDescriptor_t bnScaleBiasMeanVarDesc, const void* bnScale, const void* bnBias,
    double exponentialAverageFactor, void* resultRunningMean, void* resultRunningVariance, double epsilon,
    void* resultSaveMean, void* resultSaveInvVariance) {
  DUALDNN_PORT_SCALED(alpha, beta, yDesc, y,
                      status = miopenBatchNormalizationForwardTraining(
                          handle, mode, (void*)&one, (void*)&zero, xDesc, x, yDesc, target, bnScaleBiasMeanVarDesc,
                          (void*)bnScale, (void*)bnBias, exponentialAverageFactor, resultRunningMean,
                          resultRunningVariance, epsilon, resultSaveMean, resultSaveInvVariance));
}

static inline miopenStatus_t dualdnnPortBatchNormalizationForwardInference(
    miopenHandle_t handle, miopenBatchNormMode_t mode, const void* alpha, const void* beta,
    miopenTensorDescriptor_t xDesc, const void* x, miopenTensorDescriptor_t yDesc, void* y,
    miopenTensorDescriptor_t bnScaleBiasMeanVarDesc, const void* bnScale, const void* bnBias, const void* estimatedMean,
    const void* estimatedVariance, double epsilon) {
  DUALDNN_PORT_SCALED(alpha, beta, yDesc, y,
                      status = miopenBatchNormalizationForwardInference(
                          handle, mode, (void*)&one, (void*)&zero, xDesc, x, yDesc, target, bnScaleBiasMeanVarDesc,
                          (void*)bnScale, (void*)bnBias, (void*)estimatedMean, (void*)estimatedVariance, epsilon));
}

static inline miopenStatus_t dualdnnPortBatchNormalizationBackward(
    miopenHandle_t handle, miopenBatchNormMode_t mode, const void* alphaDataDiff, const void* betaDataDiff,
    const void* alphaParamDiff, const void* betaParamDiff, miopenTensorDescriptor_t xDesc, const void* x,
    miopenTensorDescriptor_t dyDesc, const void* dy, miopenTensorDescriptor_t dxDesc, void* dx,
    miopenTensorDescriptor_t bnScaleBiasDiffDesc, const void* bnScale, void* resultBnScaleDiff, void* resultBnBiasDiff,
    double epsilon, const void* savedMean, const void* savedInvVariance) {
  const float one = 1.0f, zero = 0.0f;
  void *data = dx, *scale = resultBnScaleDiff, *bias = resultBnBiasDiff;
  miopenStatus_t status = dualdnnPortBegin(betaDataDiff, dxDesc, dx, &data);
  if (status == miopenStatusSuccess)
    status = dualdnnPortBegin(betaParamDiff, bnScaleBiasDiffDesc, resultBnScaleDiff, &scale);
  if (status == miopenStatusSuccess)
    status = dualdnnPortBegin(betaParamDiff, bnScaleBiasDiffDesc, resultBnBiasDiff, &bias);
  if (status == miopenStatusSuccess)
    status = miopenBatchNormalizationBackward(handle, mode, &one, &zero, &one, &zero, xDesc, x, dyDesc, dy, dxDesc,
                                              data, bnScaleBiasDiffDesc, bnScale, scale, bias, epsilon, savedMean,
                                              savedInvVariance);
  status = dualdnnPortEnd(status, handle, alphaDataDiff, betaDataDiff, dxDesc, dx, data);
  status = dualdnnPortEnd(status, handle, alphaParamDiff, betaParamDiff, bnScaleBiasDiffDesc, resultBnScaleDiff, scale);
  return dualdnnPortEnd(status, handle, alphaParamDiff, betaParamDiff, bnScaleBiasDiffDesc, resultBnBiasDiff, bias);
}

#ifdef __cplusplus
}
#endif
#endif
