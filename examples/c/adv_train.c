/* adv_train compares the CTC loss with the sum over all paths, and the gradients of a GRU below it with differences of
 * the loss. */
#include "check.h"

enum { T = 5, B = 2, IN = 3, LABELS = 4 }; /* The GRU has one hidden unit per label; the blank is first. */

static int lengths[B] = {5, 3}, labels[] = {1, 2, 2, 3}, label_counts[B] = {3, 1};

static cudnnHandle_t handle;
static cudnnRNNDescriptor_t network;
static cudnnRNNDataDescriptor_t x_desc, y_desc;
static cudnnTensorDescriptor_t h_desc, softmax_desc, probability_desc;
static cudnnCTCLossDescriptor_t ctc;
static size_t weight_size, work_size, reserve_size, ctc_size;
static float *x, *y, *dy, *probability, *costs;
static char *weights, *work, *reserve, *ctc_work;
static int* dev_lengths;
static float one = 1, zero = 0;

/* Returns minus the logarithm of the probability of all paths that spell the labels of a sequence. */
static double cost_of_paths(float p[T][B][LABELS], int b, const int* wanted) {
  double total = 0;
  int paths = (int)pow(LABELS, lengths[b]);
  for (int path = 0; path < paths; path++) {
    int spelled[T], count = 0, before = 0, rest = path;
    double product = 1;
    for (int t = 0; t < lengths[b]; t++, rest /= LABELS) {
      int label = rest % LABELS;
      product *= p[t][b][label];
      if (label && label != before) spelled[count++] = label;
      before = label;
    }
    if (count == label_counts[b] && !memcmp(spelled, wanted, count * sizeof *spelled)) total += product;
  }
  return -log(total);
}

/* Returns the sum of the costs, and writes the gradient with respect to the input of softmax to dy. */
static double loss(float costs_host[B]) {
  CHECK(cudnnRNNForward(handle, network, CUDNN_FWD_MODE_TRAINING, dev_lengths, x_desc, x, y_desc, y, h_desc, NULL, NULL,
                        h_desc, NULL, NULL, weight_size, weights, work_size, work, reserve_size, reserve));
  CHECK(cudnnSoftmaxForward(handle, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_CHANNEL, &one, softmax_desc, y, &zero,
                            softmax_desc, probability));
  CHECK(cudnnCTCLoss(handle, probability_desc, probability, labels, label_counts, lengths, costs, probability_desc, dy,
                     CUDNN_CTC_LOSS_ALGO_DETERMINISTIC, ctc, ctc_work, ctc_size));
  fetch(costs_host, costs, B * sizeof *costs);
  return (double)costs_host[0] + costs_host[1];
}

/* Returns the numerical derivative of the loss with respect to one number in device memory. */
static double slope(float* at) {
  float value, moved, unused[B];
  double change = 0;
  fetch(&value, at, sizeof value);
  for (int sign = -1; sign <= 1; sign += 2) {
    moved = value + sign * 0.01f;
    CHECK(cudaMemcpy(at, &moved, sizeof moved, cudaMemcpyHostToDevice));
    change += sign * loss(unused);
  }
  CHECK(cudaMemcpy(at, &value, sizeof value, cudaMemcpyHostToDevice));
  return change / 0.02;
}

static void describe(void) {
  int state_dims[3] = {1, B, LABELS}, state_strides[3] = {B * LABELS, LABELS, 1}, dims[3] = {T, B, LABELS},
      strides[3] = {B * LABELS, LABELS, 1};
  float fill = 0;
  CHECK(cudnnCreateRNNDescriptor(&network));
  CHECK(cudnnSetRNNDescriptor_v8(network, CUDNN_RNN_ALGO_STANDARD, CUDNN_GRU, CUDNN_RNN_DOUBLE_BIAS,
                                 CUDNN_UNIDIRECTIONAL, CUDNN_LINEAR_INPUT, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT,
                                 CUDNN_DEFAULT_MATH, IN, LABELS, LABELS, 1, NULL, CUDNN_RNN_PADDED_IO_ENABLED));
  CHECK(cudnnCreateRNNDataDescriptor(&x_desc));
  CHECK(cudnnCreateRNNDataDescriptor(&y_desc));
  CHECK(cudnnSetRNNDataDescriptor(x_desc, CUDNN_DATA_FLOAT, CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED, T, B, IN, lengths,
                                  &fill));
  CHECK(cudnnSetRNNDataDescriptor(y_desc, CUDNN_DATA_FLOAT, CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED, T, B, LABELS,
                                  lengths, &fill));
  CHECK(cudnnCreateTensorDescriptor(&h_desc));
  CHECK(cudnnCreateTensorDescriptor(&softmax_desc));
  CHECK(cudnnCreateTensorDescriptor(&probability_desc));
  CHECK(cudnnSetTensorNdDescriptor(h_desc, CUDNN_DATA_FLOAT, 3, state_dims, state_strides));
  CHECK(cudnnSetTensor4dDescriptor(softmax_desc, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, T * B, LABELS, 1,
                                   1)); /* the same memory */
  CHECK(cudnnSetTensorNdDescriptor(probability_desc, CUDNN_DATA_FLOAT, 3, dims, strides));
  CHECK(cudnnCreateCTCLossDescriptor(&ctc));
  CHECK(cudnnSetCTCLossDescriptorEx(ctc, CUDNN_DATA_FLOAT, CUDNN_LOSS_NORMALIZATION_NONE, CUDNN_NOT_PROPAGATE_NAN));
}

int main(void) {
  float x_host[T * B * IN], found[B], p[T][B][LABELS], dx[T * B * IN];
  CHECK(cudnnCreate(&handle));
  describe();
  CHECK(cudnnGetRNNWeightSpaceSize(handle, network, &weight_size));
  CHECK(cudnnGetRNNTempSpaceSizes(handle, network, CUDNN_FWD_MODE_TRAINING, x_desc, &work_size, &reserve_size));
  CHECK(cudnnGetCTCLossWorkspaceSize(handle, probability_desc, probability_desc, labels, label_counts, lengths,
                                     CUDNN_CTC_LOSS_ALGO_DETERMINISTIC, ctc, &ctc_size));
  int parameters = (int)(weight_size / sizeof(float));
  float *weights_host = malloc(weight_size), *dw_host = calloc(1, weight_size);
  draw(x_host, T * B * IN), draw(weights_host, parameters);
  x = device(x_host, sizeof x_host), y = device(NULL, sizeof p), dy = device(NULL, sizeof p),
  probability = device(NULL, sizeof p);
  weights = device(weights_host, weight_size), work = device(NULL, work_size), reserve = device(NULL, reserve_size);
  ctc_work = device(NULL, ctc_size), costs = device(NULL, sizeof found), dev_lengths = device(lengths, sizeof lengths);

  printf("loss %.5f\n", loss(found));
  fetch(p, probability, sizeof p);
  EXPECT(near(found[0], cost_of_paths(p, 0, labels), 1e-5) &&
         near(found[1], cost_of_paths(p, 1, labels + label_counts[0]), 1e-5));

  /* Softmax reads y, so dy is the gradient of the network's output. */
  float *dx_at = device(NULL, sizeof dx), *dw_at = device(dw_host, weight_size);
  CHECK(cudnnRNNBackwardData_v8(handle, network, dev_lengths, y_desc, y, dy, x_desc, dx_at, h_desc, NULL, NULL, NULL,
                                h_desc, NULL, NULL, NULL, weight_size, weights, work_size, work, reserve_size,
                                reserve));
  CHECK(cudnnRNNBackwardWeights_v8(handle, network, CUDNN_WGRAD_MODE_ADD, dev_lengths, x_desc, x, h_desc, NULL, y_desc,
                                   y, weight_size, dw_at, work_size, work, reserve_size, reserve));
  fetch(dx, dx_at, sizeof dx), fetch(dw_host, dw_at, weight_size);
  for (int i = 0; i < T * B * IN; i += 4) EXPECT(fabs(slope(x + i) - dx[i]) < 1e-3);
  for (int i = 0; i < parameters; i += 5) EXPECT(fabs(slope((float*)weights + i) - dw_host[i]) < 1e-3);
  CHECK(cudnnDestroyCTCLossDescriptor(ctc));
  CHECK(cudnnDestroyTensorDescriptor(probability_desc));
  CHECK(cudnnDestroyTensorDescriptor(softmax_desc));
  CHECK(cudnnDestroyTensorDescriptor(h_desc));
  CHECK(cudnnDestroyRNNDataDescriptor(y_desc));
  CHECK(cudnnDestroyRNNDataDescriptor(x_desc));
  CHECK(cudnnDestroyRNNDescriptor(network));
  CHECK(cudnnDestroy(handle));
  puts("adv_train: costs of all paths, gradients are the slopes");
  return 0;
}
