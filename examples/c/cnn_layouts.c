/* cnn_layouts compares a convolution in NCHW, NHWC and packed integers with loops. It folds a strided data gradient
 * into one without strides. */
#include "check.h"

enum { N = 2, C = 8, H = 6, W = 5, K = 8, R = 3, S = 3, PAD = 1, STRIDE = 2 };
enum { P = (H + 2 * PAD - R) / STRIDE + 1, Q = (W + 2 * PAD - S) / STRIDE + 1 };
enum { X = N * C * H * W, FILTER = K * C * R * S, Y = N * K * P * Q };

static const float one = 1, zero = 0;
static float x[X], w[FILTER], y[Y], found[Y];

static cudnnTensorDescriptor_t tensor(cudnnTensorFormat_t format, cudnnDataType_t type, int c, int h, int width) {
  cudnnTensorDescriptor_t made;
  CHECK(cudnnCreateTensorDescriptor(&made));
  CHECK(cudnnSetTensor4dDescriptor(made, format, type, N, c, h, width));
  return made;
}

static cudnnFilterDescriptor_t filter(cudnnTensorFormat_t format, cudnnDataType_t type) {
  cudnnFilterDescriptor_t made;
  CHECK(cudnnCreateFilterDescriptor(&made));
  CHECK(cudnnSetFilter4dDescriptor(made, type, format, K, C, R, S));
  return made;
}

static cudnnConvolutionDescriptor_t convolution(cudnnDataType_t compute) {
  cudnnConvolutionDescriptor_t made;
  CHECK(cudnnCreateConvolutionDescriptor(&made));
  CHECK(cudnnSetConvolution2dDescriptor(made, PAD, PAD, STRIDE, STRIDE, 1, 1, CUDNN_CROSS_CORRELATION, compute));
  return made;
}

static void forward(cudnnHandle_t handle, cudnnTensorDescriptor_t x_desc, const void* x_at,
                    cudnnFilterDescriptor_t w_desc, const void* w_at, cudnnDataType_t compute,
                    cudnnTensorDescriptor_t y_desc, void* y_at) {
  cudnnConvolutionDescriptor_t described = convolution(compute);
  cudnnConvolutionFwdAlgo_t algorithm = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
  size_t size;
  CHECK(cudnnGetConvolutionForwardWorkspaceSize(handle, x_desc, w_desc, described, y_desc, algorithm, &size));
  void* work = device(NULL, size);
  CHECK(cudnnConvolutionForward(handle, &one, x_desc, x_at, w_desc, w_at, described, algorithm, work, size, &zero,
                                y_desc, y_at));
  CHECK(cudaFree(work));
  CHECK(cudnnDestroyConvolutionDescriptor(described));
}

/* Channels last: cudnnTransformTensor reorders the tensors on the device, the host reorders the filter. */
static void channels_last(cudnnHandle_t handle) {
  cudnnTensorDescriptor_t x_desc = tensor(CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, C, H, W);
  cudnnTensorDescriptor_t x_last = tensor(CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, C, H, W);
  cudnnTensorDescriptor_t y_desc = tensor(CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, K, P, Q);
  cudnnTensorDescriptor_t y_last = tensor(CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, K, P, Q);
  cudnnFilterDescriptor_t w_desc = filter(CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT);
  cudnnFilterDescriptor_t w_last = filter(CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT);
  float reordered[FILTER];
  for (int i = 0; i < FILTER; i++) /* k, c, r, s becomes k, r, s, c */
    reordered[(i / (C * R * S) * R * S + i % (R * S)) * C + i / (R * S) % C] = w[i];
  float *x_at = device(x, sizeof x), *w_at = device(w, sizeof w), *x_last_at = device(NULL, sizeof x);
  float *y_at = device(NULL, sizeof y), *y_last_at = device(NULL, sizeof y);
  forward(handle, x_desc, x_at, w_desc, w_at, CUDNN_DATA_FLOAT, y_desc, y_at);
  fetch(found, y_at, sizeof found);
  for (int i = 0; i < Y; i++) EXPECT(near(found[i], y[i], 1e-5));
  CHECK(cudnnTransformTensor(handle, &one, x_desc, x_at, &zero, x_last, x_last_at));
  forward(handle, x_last, x_last_at, w_last, device(reordered, sizeof reordered), CUDNN_DATA_FLOAT, y_last, y_last_at);
  CHECK(cudnnTransformTensor(handle, &one, y_last, y_last_at, &zero, y_desc, y_at));
  fetch(found, y_at, sizeof found);
  for (int i = 0; i < Y; i++) EXPECT(near(found[i], y[i], 1e-5));
  CHECK(cudnnDestroyFilterDescriptor(w_last));
  CHECK(cudnnDestroyFilterDescriptor(w_desc));
  CHECK(cudnnDestroyTensorDescriptor(y_last));
  CHECK(cudnnDestroyTensorDescriptor(y_desc));
  CHECK(cudnnDestroyTensorDescriptor(x_last));
  CHECK(cudnnDestroyTensorDescriptor(x_desc));
}

/* Where element i of images of so many channels and pixels lies when every pixel has four channels together. */
static int packed(int i, int channels, int pixels) {
  int image = i / (channels * pixels), channel = i / pixels % channels, pixel = i % pixels;
  return ((image * (channels / 4) + channel / 4) * pixels + pixel) * 4 + channel % 4;
}

/* Signed bytes in packs of four channels; sums that do not fit into a byte saturate. */
static void packed_integers(cudnnHandle_t handle) {
  cudnnTensorDescriptor_t x_desc = tensor(CUDNN_TENSOR_NCHW_VECT_C, CUDNN_DATA_INT8x4, C, H, W);
  cudnnTensorDescriptor_t y_desc = tensor(CUDNN_TENSOR_NCHW_VECT_C, CUDNN_DATA_INT8x4, K, P, Q);
  cudnnFilterDescriptor_t w_desc = filter(CUDNN_TENSOR_NCHW_VECT_C, CUDNN_DATA_INT8x4);
  signed char x_bytes[X], w_bytes[FILTER], y_bytes[Y];
  int saturated = 0;
  for (int i = 0; i < X; i++) x_bytes[packed(i, C, H * W)] = (signed char)(int)(8 * x[i]);
  for (int i = 0; i < FILTER; i++) w_bytes[packed(i, C, R * S)] = (signed char)(int)(4 * w[i]);
  void* y_at = device(NULL, sizeof y_bytes);
  forward(handle, x_desc, device(x_bytes, sizeof x_bytes), w_desc, device(w_bytes, sizeof w_bytes), CUDNN_DATA_INT32,
          y_desc, y_at);
  fetch(y_bytes, y_at, sizeof y_bytes);
  for (int i = 0; i < Y; i++) {
    int sum = 0, n = i / (K * P * Q), k = i / (P * Q) % K, p = i / Q % P, q = i % Q;
    for (int j = 0; j < C * R * S; j++) {
      int row = p * STRIDE - PAD + j / S % R, column = q * STRIDE - PAD + j % S;
      if (row >= 0 && row < H && column >= 0 && column < W)
        sum += (int)(8 * x[((n * C + j / (R * S)) * H + row) * W + column]) * (int)(4 * w[k * C * R * S + j]);
    }
    saturated += sum < -128 || sum > 127;
    EXPECT(y_bytes[packed(i, K, P * Q)] == (sum < -128 ? -128 : sum > 127 ? 127 : sum));
  }
  EXPECT(saturated > 0 && saturated < Y / 2);
  CHECK(cudnnDestroyFilterDescriptor(w_desc));
  CHECK(cudnnDestroyTensorDescriptor(y_desc));
  CHECK(cudnnDestroyTensorDescriptor(x_desc));
}

/* dx by strides, and by folding: filter and dy are transformed, the gradient without strides is unfolded. */
static void folded(cudnnHandle_t handle) {
  cudnnTensorDescriptor_t dx_desc = tensor(CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, C, H, W);
  cudnnTensorDescriptor_t dy_desc = tensor(CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, K, P, Q);
  cudnnFilterDescriptor_t w_desc = filter(CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT), folded_w;
  cudnnConvolutionDescriptor_t strided = convolution(CUDNN_DATA_FLOAT), unstrided;
  cudnnTensorDescriptor_t padded_dy, folded_dx;
  cudnnTensorTransformDescriptor_t transforms[4]; /* of the filter, of dy, of dx, and of the folded dx back */
  cudnnConvolutionBwdDataAlgo_t algorithm = CUDNN_CONVOLUTION_BWD_DATA_ALGO_1;
  size_t w_size, dy_size, dx_size;
  float dx[X], by_folding[X];
  CHECK(cudnnCreateFilterDescriptor(&folded_w));
  CHECK(cudnnCreateTensorDescriptor(&padded_dy));
  CHECK(cudnnCreateTensorDescriptor(&folded_dx));
  CHECK(cudnnCreateConvolutionDescriptor(&unstrided));
  for (int i = 0; i < 4; i++) CHECK(cudnnCreateTensorTransformDescriptor(transforms + i));
  CHECK(cudnnGetFoldedConvBackwardDataDescriptors(handle, w_desc, dy_desc, strided, dx_desc, CUDNN_TENSOR_NCHW,
                                                  folded_w, padded_dy, unstrided, folded_dx, transforms[0],
                                                  transforms[1], transforms[2], transforms[3]));
  CHECK(cudnnGetTensorSizeInBytes(padded_dy, &dy_size));
  CHECK(cudnnGetTensorSizeInBytes(folded_dx, &dx_size));
  CHECK(cudnnGetFilterSizeInBytes(folded_w, &w_size));
  float *w_at = device(w, sizeof w), *dy_at = device(y, sizeof y), *dx_at = device(NULL, sizeof dx);
  void *folded_w_at = device(NULL, w_size), *padded_dy_at = device(NULL, dy_size),
       *folded_dx_at = device(NULL, dx_size);

  CHECK(cudnnConvolutionBackwardData(handle, &one, w_desc, w_at, dy_desc, dy_at, strided, algorithm, NULL, 0, &zero,
                                     dx_desc, dx_at));
  fetch(dx, dx_at, sizeof dx);
  CHECK(cudnnTransformFilter(handle, transforms[0], &one, w_desc, w_at, &zero, folded_w, folded_w_at));
  CHECK(cudnnTransformTensorEx(handle, transforms[1], &one, dy_desc, dy_at, &zero, padded_dy, padded_dy_at));
  CHECK(cudnnConvolutionBackwardData(handle, &one, folded_w, folded_w_at, padded_dy, padded_dy_at, unstrided, algorithm,
                                     NULL, 0, &zero, folded_dx, folded_dx_at));
  CHECK(cudnnTransformTensorEx(handle, transforms[3], &one, folded_dx, folded_dx_at, &zero, dx_desc, dx_at));
  fetch(by_folding, dx_at, sizeof by_folding);
  for (int i = 0; i < X; i++) EXPECT(near(by_folding[i], dx[i], 1e-5));
  printf("a gradient of stride %d by one of stride 1 with a filter of %zu bytes, not %zu\n", STRIDE, w_size, sizeof w);
  for (int i = 0; i < 4; i++) CHECK(cudnnDestroyTensorTransformDescriptor(transforms[i]));
  CHECK(cudnnDestroyConvolutionDescriptor(unstrided));
  CHECK(cudnnDestroyConvolutionDescriptor(strided));
  CHECK(cudnnDestroyFilterDescriptor(folded_w));
  CHECK(cudnnDestroyFilterDescriptor(w_desc));
  CHECK(cudnnDestroyTensorDescriptor(folded_dx));
  CHECK(cudnnDestroyTensorDescriptor(padded_dy));
  CHECK(cudnnDestroyTensorDescriptor(dy_desc));
  CHECK(cudnnDestroyTensorDescriptor(dx_desc));
}

int main(void) {
  cudnnHandle_t handle;
  CHECK(cudnnCreate(&handle));
  draw(x, X), draw(w, FILTER);
  for (int i = 0; i < Y; i++) { /* y[n][k][p][q], by its definition */
    int n = i / (K * P * Q), k = i / (P * Q) % K, p = i / Q % P, q = i % Q;
    double sum = 0;
    for (int j = 0; j < C * R * S; j++) {
      int row = p * STRIDE - PAD + j / S % R, column = q * STRIDE - PAD + j % S;
      if (row >= 0 && row < H && column >= 0 && column < W)
        sum += (double)x[((n * C + j / (R * S)) * H + row) * W + column] * w[k * C * R * S + j];
    }
    y[i] = (float)sum;
  }
  channels_last(handle);
  packed_integers(handle);
  folded(handle);
  CHECK(cudnnDestroy(handle));
  puts("cnn_layouts: every layout has the same numbers");
  return 0;
}
