/* cnn_infer computes a grouped convolution by every algorithm that a search finds, and one with bias and activation. */
#include "check.h"

enum { N = 2, C = 4, H = 7, W = 6, K = 6, R = 3, S = 2, GROUPS = 2, PAD = 1, STRIDE = 2 };
enum { P = (H + 2 * PAD - R) / STRIDE + 1, Q = (W + 2 * PAD - S) / STRIDE + 1, COUNT = N * K * P * Q };

static float x[N * C * H * W], w[K * (C / GROUPS) * R * S], bias[K], z[COUNT];

/* y[n][k][p][q], by its definition. */
static double convolved(int n, int k, int p, int q) {
  double sum = 0;
  int per_group = C / GROUPS, first = k / (K / GROUPS) * per_group;
  for (int c = 0; c < per_group; c++)
    for (int r = 0; r < R; r++)
      for (int s = 0; s < S; s++) {
        int row = p * STRIDE - PAD + r, column = q * STRIDE - PAD + s;
        if (row >= 0 && row < H && column >= 0 && column < W)
          sum += (double)x[((n * C + first + c) * H + row) * W + column] * w[((k * per_group + c) * R + r) * S + s];
      }
  return sum;
}

int main(void) {
  cudnnHandle_t handle;
  cudnnTensorDescriptor_t x_desc, y_desc, bias_desc;
  cudnnFilterDescriptor_t w_desc;
  cudnnConvolutionDescriptor_t convolution;
  cudnnActivationDescriptor_t relu;
  cudnnConvolutionFwdAlgoPerf_t rows[CUDNN_CONVOLUTION_FWD_ALGO_COUNT];
  float y[COUNT], one = 1, zero = 0;
  int n, k, p, q, found, computed = 0;
  CHECK(cudnnCreate(&handle));
  CHECK(cudnnCreateTensorDescriptor(&x_desc));
  CHECK(cudnnCreateTensorDescriptor(&y_desc));
  CHECK(cudnnCreateTensorDescriptor(&bias_desc));
  CHECK(cudnnCreateFilterDescriptor(&w_desc));
  CHECK(cudnnCreateConvolutionDescriptor(&convolution));
  CHECK(cudnnSetTensor4dDescriptor(x_desc, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, N, C, H, W));
  CHECK(cudnnSetTensor4dDescriptor(bias_desc, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, K, 1, 1));
  CHECK(cudnnSetFilter4dDescriptor(w_desc, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, K, C / GROUPS, R, S));
  CHECK(cudnnSetConvolution2dDescriptor(convolution, PAD, PAD, STRIDE, STRIDE, 1, 1, CUDNN_CROSS_CORRELATION,
                                        CUDNN_DATA_FLOAT));
  CHECK(cudnnSetConvolutionGroupCount(convolution, GROUPS));
  CHECK(cudnnGetConvolution2dForwardOutputDim(convolution, x_desc, w_desc, &n, &k, &p, &q));
  EXPECT(n == N && k == K && p == P && q == Q);
  CHECK(cudnnSetTensor4dDescriptor(y_desc, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, n, k, p, q));
  draw(x, N * C * H * W), draw(w, K * C / GROUPS * R * S), draw(bias, K), draw(z, COUNT);
  float *dx = device(x, sizeof x), *dw = device(w, sizeof w), *dbias = device(bias, sizeof bias),
        *dz = device(z, sizeof z);
  float* dy = device(NULL, sizeof y);

  /* The quickest first; a row that cannot serve says why by its status. */
  CHECK(cudnnFindConvolutionForwardAlgorithm(handle, x_desc, w_desc, convolution, y_desc,
                                             CUDNN_CONVOLUTION_FWD_ALGO_COUNT, &found, rows));
  for (int i = 0; i < found; i++) {
    size_t size;
    if (rows[i].status) continue;
    EXPECT(i == 0 || rows[i].time >= rows[i - 1].time);
    CHECK(cudnnGetConvolutionForwardWorkspaceSize(handle, x_desc, w_desc, convolution, y_desc, rows[i].algo, &size));
    EXPECT(size == rows[i].memory);
    CHECK(cudnnConvolutionForward(handle, &one, x_desc, dx, w_desc, dw, convolution, rows[i].algo, device(NULL, size),
                                  size, &zero, y_desc, dy));
    fetch(y, dy, sizeof y);
    for (int j = 0; j < COUNT; j++)
      EXPECT(near(y[j], convolved(j / (K * P * Q), j / (P * Q) % K, j / Q % P, j % Q), 1e-5));
    printf("algorithm %d: %zu bytes of work space\n", rows[i].algo, size);
    computed++;
  }
  EXPECT(computed >= 2);

  /* y = max(0, 0.5 * x * w + 2 * z + bias) */
  float half = 0.5f, two = 2;
  CHECK(cudnnCreateActivationDescriptor(&relu));
  CHECK(cudnnSetActivationDescriptor(relu, CUDNN_ACTIVATION_RELU, CUDNN_NOT_PROPAGATE_NAN, 0));
  CHECK(cudnnConvolutionBiasActivationForward(handle, &half, x_desc, dx, w_desc, dw, convolution,
                                              CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, NULL, 0, &two, y_desc,
                                              dz, bias_desc, dbias, relu, y_desc, dy));
  fetch(y, dy, sizeof y);
  for (int j = 0; j < COUNT; j++) {
    double sum = convolved(j / (K * P * Q), j / (P * Q) % K, j / Q % P, j % Q) / 2 + 2 * z[j] + bias[j / (P * Q) % K];
    EXPECT(near(y[j], sum > 0 ? sum : 0, 1e-5));
  }
  CHECK(cudnnDestroyActivationDescriptor(relu));
  CHECK(cudnnDestroyConvolutionDescriptor(convolution));
  CHECK(cudnnDestroyFilterDescriptor(w_desc));
  CHECK(cudnnDestroyTensorDescriptor(bias_desc));
  CHECK(cudnnDestroyTensorDescriptor(y_desc));
  CHECK(cudnnDestroyTensorDescriptor(x_desc));
  CHECK(cudnnDestroy(handle));
  puts("cnn_infer: as loops have it");
  return 0;
}
