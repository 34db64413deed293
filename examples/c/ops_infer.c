/* ops_infer uses handles, tensors, pooling, activation, softmax and reductions, and shows what a refused call says. */
#include "check.h"

void cudnnGetLastErrorString(char*, size_t); /* of a later release: the reason for the last status of this thread */

enum { N = 2, C = 3, H = 6, W = 4, COUNT = N * C * H * W, POOLED = COUNT / 4 };

int main(void) {
  cudnnHandle_t handle;
  cudnnTensorDescriptor_t x_desc, y_desc, total_desc;
  cudnnPoolingDescriptor_t window;
  cudnnActivationDescriptor_t relu;
  cudnnReduceTensorDescriptor_t reduce;
  float x[COUNT], y[POOLED], expected[POOLED], total[N], one = 1, zero = 0;
  int n, c, h, w;
  size_t size;
  char why[300];
  printf("cuDNN %zu\n", cudnnGetVersion());
  CHECK(cudnnCreate(&handle));
  CHECK(cudnnCreateTensorDescriptor(&x_desc));
  CHECK(cudnnCreateTensorDescriptor(&y_desc));
  CHECK(cudnnCreateTensorDescriptor(&total_desc));
  CHECK(cudnnSetTensor4dDescriptor(x_desc, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, N, C, H, W));
  CHECK(cudnnCreatePoolingDescriptor(&window));
  CHECK(cudnnSetPooling2dDescriptor(window, CUDNN_POOLING_MAX, CUDNN_PROPAGATE_NAN, 2, 2, 0, 0, 2, 2));
  CHECK(cudnnGetPooling2dForwardOutputDim(window, x_desc, &n, &c, &h, &w));
  EXPECT(n == N && c == C && h == H / 2 && w == W / 2);
  CHECK(cudnnSetTensor4dDescriptor(y_desc, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, n, c, h, w));

  /* Maxima of 2 x 2, without those below 0, as a distribution over the channels. */
  draw(x, COUNT);
  float *dx = device(x, sizeof x), *dy = device(NULL, sizeof y);
  CHECK(cudnnPoolingForward(handle, window, &one, x_desc, dx, &zero, y_desc, dy));
  CHECK(cudnnCreateActivationDescriptor(&relu));
  CHECK(cudnnSetActivationDescriptor(relu, CUDNN_ACTIVATION_RELU, CUDNN_PROPAGATE_NAN, 0));
  CHECK(cudnnActivationForward(handle, relu, &one, y_desc, dy, &zero, y_desc, dy));
  CHECK(cudnnSoftmaxForward(handle, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_CHANNEL, &one, y_desc, dy, &zero, y_desc,
                            dy));
  fetch(y, dy, sizeof y);
  for (int i = 0; i < POOLED; i++) {
    int plane = i / (h * w), row = i / w % h, column = i % w;
    float largest = 0;
    for (int a = 0; a < 4; a++) largest = fmaxf(largest, x[(plane * H + 2 * row + a / 2) * W + 2 * column + a % 2]);
    expected[i] = expf(largest);
  }
  for (int i = 0; i < POOLED; i++) {
    int area = h * w, image = i / (C * area), pixel = i % area;
    float sum = 0;
    for (int k = 0; k < C; k++) sum += expected[(image * C + k) * area + pixel];
    EXPECT(near(y[i], expected[i] / sum, 1e-6));
  }

  /* The probabilities of an image sum to its pixels; alpha scales. */
  float half = 0.5f;
  CHECK(cudnnSetTensor4dDescriptor(total_desc, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, N, 1, 1, 1));
  CHECK(cudnnCreateReduceTensorDescriptor(&reduce));
  CHECK(cudnnSetReduceTensorDescriptor(reduce, CUDNN_REDUCE_TENSOR_ADD, CUDNN_DATA_FLOAT, CUDNN_PROPAGATE_NAN,
                                       CUDNN_REDUCE_TENSOR_NO_INDICES, CUDNN_32BIT_INDICES));
  CHECK(cudnnGetReductionWorkspaceSize(handle, reduce, y_desc, total_desc, &size));
  float* dtotal = device(NULL, sizeof total);
  CHECK(cudnnReduceTensor(handle, reduce, NULL, 0, device(NULL, size), size, &half, y_desc, dy, &zero, total_desc,
                          dtotal));
  fetch(total, dtotal, sizeof total);
  EXPECT(near(total[0], h * w / 2.0, 1e-6) && near(total[1], h * w / 2.0, 1e-6));

  /* Tensors that do not fit each other: the status is the document's, the reason names arguments, values and the
   * clause. */
  EXPECT(cudnnPoolingForward(handle, window, &one, x_desc, dx, &zero, total_desc, dtotal) == CUDNN_STATUS_BAD_PARAM);
  cudnnGetLastErrorString(why, sizeof why);
  printf("%s\n", why);
  CHECK(cudnnDestroyReduceTensorDescriptor(reduce));
  CHECK(cudnnDestroyActivationDescriptor(relu));
  CHECK(cudnnDestroyPoolingDescriptor(window));
  CHECK(cudnnDestroyTensorDescriptor(total_desc));
  CHECK(cudnnDestroyTensorDescriptor(y_desc));
  CHECK(cudnnDestroyTensorDescriptor(x_desc));
  CHECK(cudnnDestroy(handle));
  puts("ops_infer: as loops have it");
  return 0;
}
