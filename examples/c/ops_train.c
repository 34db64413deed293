/* ops_train trains with batch normalization, and compares the gradients of a small chain with differences. */
#include "check.h"

enum { N = 4, C = 3, H = 4, W = 4, COUNT = N * C * H * W, POOLED = COUNT / 4 };

static cudnnHandle_t handle;
static cudnnTensorDescriptor_t x_desc, y_desc, channel_desc;
static cudnnActivationDescriptor_t tanh_desc;
static cudnnPoolingDescriptor_t window;
static float *x, *scale, *bias, *normal, *active, *pooled, *probability, *saved_mean, *saved_inverse;
static float one = 1, zero = 0, target[POOLED];
static const double EPSILON = 1e-3;

/* The sum of target * softmax(average(tanh(normalized x))). */
static double loss(float* mean, float* variance) {
  float out[POOLED];
  double total = 0;
  CHECK(cudnnBatchNormalizationForwardTraining(handle, CUDNN_BATCHNORM_SPATIAL, &one, &zero, x_desc, x, x_desc, normal,
                                               channel_desc, scale, bias, 1.0, mean, variance, EPSILON, saved_mean,
                                               saved_inverse));
  CHECK(cudnnActivationForward(handle, tanh_desc, &one, x_desc, normal, &zero, x_desc, active));
  CHECK(cudnnPoolingForward(handle, window, &one, x_desc, active, &zero, y_desc, pooled));
  CHECK(cudnnSoftmaxForward(handle, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_CHANNEL, &one, y_desc, pooled, &zero,
                            y_desc, probability));
  fetch(out, probability, sizeof out);
  for (int i = 0; i < POOLED; i++) total += (double)target[i] * out[i];
  return total;
}

static float gradient_x[COUNT], gradient_scale[C], gradient_bias[C];

static void backward(void) {
  float *dy = device(target, sizeof target), *dpooled = device(NULL, sizeof target),
        *dactive = device(NULL, sizeof gradient_x);
  float *dnormal = device(NULL, sizeof gradient_x), *dx = device(NULL, sizeof gradient_x);
  float *dscale = device(NULL, sizeof gradient_scale), *dbias = device(NULL, sizeof gradient_bias);
  CHECK(cudnnSoftmaxBackward(handle, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_CHANNEL, &one, y_desc, probability,
                             y_desc, dy, &zero, y_desc, dpooled));
  CHECK(cudnnPoolingBackward(handle, window, &one, y_desc, pooled, y_desc, dpooled, x_desc, active, &zero, x_desc,
                             dactive));
  CHECK(cudnnActivationBackward(handle, tanh_desc, &one, x_desc, active, x_desc, dactive, x_desc, normal, &zero, x_desc,
                                dnormal));
  CHECK(cudnnBatchNormalizationBackward(handle, CUDNN_BATCHNORM_SPATIAL, &one, &zero, &one, &zero, x_desc, x, x_desc,
                                        dnormal, x_desc, dx, channel_desc, scale, dscale, dbias, EPSILON, saved_mean,
                                        saved_inverse));
  fetch(gradient_x, dx, sizeof gradient_x);
  fetch(gradient_scale, dscale, sizeof gradient_scale);
  fetch(gradient_bias, dbias, sizeof gradient_bias);
}

/* How the loss changes with one number on the device. */
static double slope(float* at) {
  float value, moved;
  double change = 0;
  fetch(&value, at, sizeof value);
  for (int sign = -1; sign <= 1; sign += 2) {
    moved = value + sign * 0.01f;
    CHECK(cudaMemcpy(at, &moved, sizeof moved, cudaMemcpyHostToDevice));
    change += sign * loss(NULL, NULL);
  }
  CHECK(cudaMemcpy(at, &value, sizeof value, cudaMemcpyHostToDevice));
  return change / 0.02;
}

int main(void) {
  float x_host[COUNT], channels[C], mean[C], variance[C];
  CHECK(cudnnCreate(&handle));
  CHECK(cudnnCreateTensorDescriptor(&x_desc));
  CHECK(cudnnCreateTensorDescriptor(&y_desc));
  CHECK(cudnnCreateTensorDescriptor(&channel_desc));
  CHECK(cudnnSetTensor4dDescriptor(x_desc, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, N, C, H, W));
  CHECK(cudnnSetTensor4dDescriptor(y_desc, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, N, C, H / 2, W / 2));
  CHECK(cudnnDeriveBNTensorDescriptor(channel_desc, x_desc, CUDNN_BATCHNORM_SPATIAL));
  CHECK(cudnnCreateActivationDescriptor(&tanh_desc));
  CHECK(cudnnSetActivationDescriptor(tanh_desc, CUDNN_ACTIVATION_TANH, CUDNN_PROPAGATE_NAN, 0));
  CHECK(cudnnCreatePoolingDescriptor(&window));
  CHECK(cudnnSetPooling2dDescriptor(window, CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING, CUDNN_PROPAGATE_NAN, 2, 2, 0,
                                    0, 2, 2));
  draw(x_host, COUNT), draw(target, POOLED), draw(channels, C);
  x = device(x_host, sizeof x_host), bias = device(channels, sizeof channels);
  for (int i = 0; i < C; i++) channels[i] += 2;
  scale = device(channels, sizeof channels);
  normal = device(NULL, sizeof x_host), active = device(NULL, sizeof x_host);
  pooled = device(NULL, sizeof target), probability = device(NULL, sizeof target);
  saved_mean = device(NULL, sizeof mean), saved_inverse = device(NULL, sizeof mean);

  /* Running statistics with a factor of 1 are those of the batch; the variance is the unbiased one. They are set
     before, since the old ones count 0 times: what is left of memory may be NaN. */
  float zeros[C] = {0};
  float *running_mean = device(zeros, sizeof mean), *running_variance = device(zeros, sizeof variance);
  loss(running_mean, running_variance);
  fetch(mean, running_mean, sizeof mean), fetch(variance, running_variance, sizeof variance);
  for (int c = 0; c < C; c++) {
    double sum = 0, squares = 0;
    int m = N * H * W;
    for (int i = 0; i < m; i++) sum += x_host[(i / (H * W) * C + c) * H * W + i % (H * W)];
    for (int i = 0; i < m; i++) squares += pow(x_host[(i / (H * W) * C + c) * H * W + i % (H * W)] - sum / m, 2);
    EXPECT(near(mean[c], sum / m, 1e-6) && near(variance[c], squares / (m - 1), 1e-6));
  }

  backward();
  for (int i = 0; i < COUNT; i += 7) EXPECT(fabs(slope(x + i) - gradient_x[i]) < 3e-4);
  for (int i = 0; i < C; i++)
    EXPECT(fabs(slope(scale + i) - gradient_scale[i]) < 1e-3 && fabs(slope(bias + i) - gradient_bias[i]) < 1e-3);
  CHECK(cudnnDestroyPoolingDescriptor(window));
  CHECK(cudnnDestroyActivationDescriptor(tanh_desc));
  CHECK(cudnnDestroyTensorDescriptor(channel_desc));
  CHECK(cudnnDestroyTensorDescriptor(y_desc));
  CHECK(cudnnDestroyTensorDescriptor(x_desc));
  CHECK(cudnnDestroy(handle));
  puts("ops_train: gradients are the slopes");
  return 0;
}
