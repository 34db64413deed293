/* cnn_train trains a filter and a bias towards given ones, by gradients of convolutions only. The gradient of the input
 * vanishes with the error. */
#include "check.h"

enum { N = 8, C = 2, H = 9, W = 8, K = 3, R = 3, S = 3, Y = N * K * H * W, STEPS = 60 };

int main(void) {
  cudnnHandle_t handle;
  cudnnTensorDescriptor_t x_desc, y_desc, bias_desc;
  cudnnFilterDescriptor_t w_desc;
  cudnnConvolutionDescriptor_t convolution;
  cudnnConvolutionBwdFilterAlgoPerf_t row;
  static float x[N * C * H * W], goal[Y], w[K * C * R * S], learned[K * C * R * S], bias[K], learned_bias[K], error[Y],
      dx[N * C * H * W];
  float one = 1, zero = 0, minus = -1, rate = -0.02f;
  double first = 0, last = 0, largest = 0;
  int found;
  size_t size;
  CHECK(cudnnCreate(&handle));
  CHECK(cudnnCreateTensorDescriptor(&x_desc));
  CHECK(cudnnCreateTensorDescriptor(&y_desc));
  CHECK(cudnnCreateTensorDescriptor(&bias_desc));
  CHECK(cudnnCreateFilterDescriptor(&w_desc));
  CHECK(cudnnCreateConvolutionDescriptor(&convolution));
  CHECK(cudnnSetTensor4dDescriptor(y_desc, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, N, K, H, W));
  CHECK(cudnnSetTensor4dDescriptor(bias_desc, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, K, 1, 1));
  CHECK(cudnnSetTensor4dDescriptor(x_desc, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, N, C, H, W));
  CHECK(cudnnSetFilter4dDescriptor(w_desc, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, K, C, R, S));
  CHECK(cudnnSetConvolution2dDescriptor(convolution, 1, 1, 1, 1, 1, 1, CUDNN_CONVOLUTION, CUDNN_DATA_FLOAT));
  draw(x, N * C * H * W), draw(w, K * C * R * S), draw(bias, K);
  float *x_at = device(x, sizeof x), *w_at = device(w, sizeof w), *bias_at = device(bias, sizeof bias),
        *goal_at = device(NULL, sizeof goal);
  float *error_at = device(NULL, sizeof error), *dx_at = device(NULL, sizeof dx);
  cudnnConvolutionFwdAlgo_t forward = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM;
  CHECK(cudnnConvolutionForward(handle, &one, x_desc, x_at, w_desc, w_at, convolution, forward, NULL, 0, &zero, y_desc,
                                goal_at));
  CHECK(cudnnAddTensor(handle, &one, bias_desc, bias_at, &one, y_desc, goal_at));

  CHECK(cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle, x_desc, y_desc, convolution, w_desc, 1, &found, &row));
  EXPECT(found == 1 && row.status == CUDNN_STATUS_SUCCESS);
  CHECK(cudnnGetConvolutionBackwardFilterWorkspaceSize(handle, x_desc, y_desc, convolution, w_desc, row.algo, &size));
  void* work = device(NULL, size);
  float *v_at = device(learned, sizeof learned), *c_at = device(learned_bias, sizeof learned_bias); /* zeros */
  for (int step = 0; step < STEPS; step++) {
    CHECK(cudnnConvolutionForward(handle, &one, x_desc, x_at, w_desc, v_at, convolution, forward, NULL, 0, &zero,
                                  y_desc, error_at));
    CHECK(cudnnAddTensor(handle, &one, bias_desc, c_at, &one, y_desc, error_at));
    CHECK(cudnnAddTensor(handle, &minus, y_desc, goal_at, &one, y_desc, error_at));
    fetch(error, error_at, sizeof error);
    last = 0;
    for (int i = 0; i < Y; i++) last += (double)error[i] * error[i];
    if (step == 0) first = last;
    /* v -= 0.02 * gradient / N: alpha scales the gradient, beta 1 keeps what is there. */
    float scaled = rate / N;
    CHECK(cudnnConvolutionBackwardFilter(handle, &scaled, x_desc, x_at, y_desc, error_at, convolution, row.algo, work,
                                         size, &one, w_desc, v_at));
    CHECK(cudnnConvolutionBackwardBias(handle, &scaled, y_desc, error_at, &one, bias_desc, c_at));
  }
  CHECK(cudnnConvolutionBackwardData(handle, &one, w_desc, v_at, y_desc, error_at, convolution,
                                     CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, NULL, 0, &zero, x_desc, dx_at));
  fetch(learned, v_at, sizeof learned), fetch(learned_bias, c_at, sizeof learned_bias), fetch(dx, dx_at, sizeof dx);
  printf("squared error %.3g, after %d steps %.3g\n", first, STEPS, last);
  EXPECT(last < 1e-6 * first);
  for (int i = 0; i < K * C * R * S; i++) EXPECT(fabs(learned[i] - w[i]) < 1e-3);
  for (int i = 0; i < K; i++) EXPECT(fabs(learned_bias[i] - bias[i]) < 1e-3);
  for (int i = 0; i < N * C * H * W; i++) largest = fmax(largest, fabs(dx[i]));
  EXPECT(largest > 0 && largest < 0.01);
  CHECK(cudnnDestroyConvolutionDescriptor(convolution));
  CHECK(cudnnDestroyFilterDescriptor(w_desc));
  CHECK(cudnnDestroyTensorDescriptor(bias_desc));
  CHECK(cudnnDestroyTensorDescriptor(y_desc));
  CHECK(cudnnDestroyTensorDescriptor(x_desc));
  CHECK(cudnnDestroy(handle));
  puts("cnn_train: the filter is learned");
  return 0;
}
