/* adv_infer compares an LSTM over sequences of three lengths, and attention over its outputs, with their formulas in
 * loops. */
#include "check.h"

enum { T = 4, B = 3, IN = 2, HID = 4, HEADS = 2, KEY = 2 };

static int lengths[B] = {4, 3, 1};

static float sigmoid(float x) { return 1 / (1 + expf(-x)); }

/* y[t][b][h] of one layer; the weights of gates i, f, g, o (7.2.49). */
static void lstm(float (*w)[HID][IN], float (*r)[HID][HID], float (*bias)[HID], float x[T][B][IN], float y[T][B][HID]) {
  for (int b = 0; b < B; b++) {
    float h[HID] = {0}, c[HID] = {0}, gates[4][HID];
    for (int t = 0; t < T; t++) {
      if (t >= lengths[b]) {
        memset(y[t][b], 0, sizeof h);
        continue;
      }
      for (int g = 0; g < 4; g++)
        for (int i = 0; i < HID; i++) {
          gates[g][i] = bias[g][i];
          for (int j = 0; j < IN; j++) gates[g][i] += w[g][i][j] * x[t][b][j];
          for (int j = 0; j < HID; j++) gates[g][i] += r[g][i][j] * h[j];
        }
      for (int i = 0; i < HID; i++) {
        c[i] = sigmoid(gates[1][i]) * c[i] + sigmoid(gates[0][i]) * tanhf(gates[2][i]);
        y[t][b][i] = sigmoid(gates[3][i]) * tanhf(c[i]);
      }
      memcpy(h, y[t][b], sizeof h);
    }
  }
}

static float w[4][HID][IN], r[4][HID][HID], bias[4][HID], x[T][B][IN], y[T][B][HID], expected[T][B][HID];

/* Leaves the sequences of y on the device. */
static float* recurrent(cudnnHandle_t handle, int* dev_lengths) {
  cudnnRNNDescriptor_t network;
  cudnnRNNDataDescriptor_t x_desc, y_desc;
  cudnnTensorDescriptor_t h_desc, matrix, vector;
  int dims[3] = {1, B, HID}, strides[3] = {B * HID, HID, 1};
  size_t weight_size, work_size, reserve_size;
  float fill = 0;
  CHECK(cudnnCreateRNNDescriptor(&network));
  CHECK(cudnnSetRNNDescriptor_v8(network, CUDNN_RNN_ALGO_STANDARD, CUDNN_LSTM, CUDNN_RNN_SINGLE_INP_BIAS,
                                 CUDNN_UNIDIRECTIONAL, CUDNN_LINEAR_INPUT, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT,
                                 CUDNN_DEFAULT_MATH, IN, HID, HID, 1, NULL, CUDNN_RNN_PADDED_IO_ENABLED));
  CHECK(cudnnCreateRNNDataDescriptor(&x_desc));
  CHECK(cudnnCreateRNNDataDescriptor(&y_desc));
  CHECK(cudnnSetRNNDataDescriptor(x_desc, CUDNN_DATA_FLOAT, CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED, T, B, IN, lengths,
                                  &fill));
  CHECK(cudnnSetRNNDataDescriptor(y_desc, CUDNN_DATA_FLOAT, CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED, T, B, HID,
                                  lengths, &fill));
  CHECK(cudnnCreateTensorDescriptor(&h_desc));
  CHECK(cudnnCreateTensorDescriptor(&matrix));
  CHECK(cudnnCreateTensorDescriptor(&vector));
  CHECK(cudnnSetTensorNdDescriptor(h_desc, CUDNN_DATA_FLOAT, 3, dims, strides));
  CHECK(cudnnGetRNNWeightSpaceSize(handle, network, &weight_size));
  CHECK(cudnnGetRNNTempSpaceSizes(handle, network, CUDNN_FWD_MODE_INFERENCE, x_desc, &work_size, &reserve_size));
  void *weights = device(NULL, weight_size), *matrix_at, *vector_at;
  for (int id = 0; id < 8; id++) { /* 0 to 3: of the input; 4 to 7: recurrent */
    CHECK(
        cudnnGetRNNWeightParams(handle, network, 0, weight_size, weights, id, matrix, &matrix_at, vector, &vector_at));
    CHECK(cudaMemcpy(matrix_at, id < 4 ? (void*)w[id] : (void*)r[id - 4], id < 4 ? sizeof w[0] : sizeof r[0],
                     cudaMemcpyHostToDevice));
    EXPECT((vector_at != NULL) == (id < 4));
    if (vector_at) CHECK(cudaMemcpy(vector_at, bias[id], sizeof bias[0], cudaMemcpyHostToDevice));
  }
  float* y_at = device(NULL, sizeof y);
  CHECK(cudnnRNNForward(handle, network, CUDNN_FWD_MODE_INFERENCE, dev_lengths, x_desc, device(x, sizeof x), y_desc,
                        y_at, h_desc, NULL, NULL, h_desc, NULL, NULL, weight_size, weights, work_size,
                        device(NULL, work_size), 0, NULL));
  CHECK(cudnnDestroyTensorDescriptor(vector));
  CHECK(cudnnDestroyTensorDescriptor(matrix));
  CHECK(cudnnDestroyTensorDescriptor(h_desc));
  CHECK(cudnnDestroyRNNDataDescriptor(y_desc));
  CHECK(cudnnDestroyRNNDataDescriptor(x_desc));
  CHECK(cudnnDestroyRNNDescriptor(network));
  return y_at;
}

/* Every step attends to all steps of its own sequence, by two heads; there is no projection of the output. */
static void attention(cudnnHandle_t handle, int* dev_lengths, float* y_at) {
  cudnnAttnDescriptor_t attention;
  cudnnSeqDataDescriptor_t in, out;
  cudnnTensorDescriptor_t part;
  cudnnSeqDataAxis_t axes[4] = {CUDNN_SEQDATA_TIME_DIM, CUDNN_SEQDATA_BATCH_DIM, CUDNN_SEQDATA_BEAM_DIM,
                                CUDNN_SEQDATA_VECT_DIM};
  static const cudnnMultiHeadAttnWeightKind_t kinds[3] = {CUDNN_MH_ATTN_Q_WEIGHTS, CUDNN_MH_ATTN_K_WEIGHTS,
                                                          CUDNN_MH_ATTN_V_WEIGHTS};
  int dims[4], low[T] = {0}, high[T], rank, part_dims[3], part_strides[3];
  float p[3][HEADS][KEY][HID], found[T][B][HEADS][KEY];
  size_t weight_size, work_size;
  cudnnDataType_t type;
  draw(&p[0][0][0][0], 3 * HEADS * KEY * HID);
  CHECK(cudnnCreateAttnDescriptor(&attention));
  CHECK(cudnnSetAttnDescriptor(attention, CUDNN_ATTN_QUERYMAP_ALL_TO_ONE, HEADS, 0.7, CUDNN_DATA_FLOAT,
                               CUDNN_DATA_FLOAT, CUDNN_DEFAULT_MATH, NULL, NULL, HID, HID, HID, KEY, KEY, KEY, 0, T, T,
                               B, 1));
  dims[CUDNN_SEQDATA_TIME_DIM] = T, dims[CUDNN_SEQDATA_BATCH_DIM] = B, dims[CUDNN_SEQDATA_BEAM_DIM] = 1,
  dims[CUDNN_SEQDATA_VECT_DIM] = HID;
  CHECK(cudnnCreateSeqDataDescriptor(&in));
  CHECK(cudnnSetSeqDataDescriptor(in, CUDNN_DATA_FLOAT, 4, dims, axes, B, lengths, NULL));
  dims[CUDNN_SEQDATA_VECT_DIM] = HEADS * KEY;
  CHECK(cudnnCreateSeqDataDescriptor(&out));
  CHECK(cudnnSetSeqDataDescriptor(out, CUDNN_DATA_FLOAT, 4, dims, axes, B, lengths, NULL));
  CHECK(cudnnCreateTensorDescriptor(&part));
  CHECK(cudnnGetMultiHeadAttnBuffers(handle, attention, &weight_size, &work_size, NULL));
  char* copy = malloc(weight_size); /* weights may be found in a copy on the host, too */
  for (int kind = 0; kind < 3; kind++) {
    float* at;
    CHECK(cudnnGetMultiHeadAttnWeights(handle, attention, kinds[kind], weight_size, copy, part, (void**)&at));
    CHECK(cudnnGetTensorNdDescriptor(part, 3, &type, &rank, part_dims, part_strides));
    EXPECT(rank == 3 && part_dims[0] == HEADS && part_dims[1] == KEY && part_dims[2] == HID);
    for (int h = 0; h < HEADS; h++)
      for (int i = 0; i < KEY; i++)
        for (int j = 0; j < HID; j++)
          at[h * part_strides[0] + i * part_strides[1] + j * part_strides[2]] = p[kind][h][i][j];
  }
  for (int t = 0; t < T; t++) high[t] = T;
  float* out_at = device(NULL, sizeof found);
  CHECK(cudnnMultiHeadAttnForward(handle, attention, -1, low, high, dev_lengths, dev_lengths, in, y_at, NULL, in, y_at,
                                  in, y_at, out, out_at, weight_size, device(copy, weight_size), work_size,
                                  device(NULL, work_size), 0, NULL));
  fetch(found, out_at, sizeof found);
  for (int b = 0; b < B; b++)
    for (int t = 0; t < lengths[b]; t++)
      for (int h = 0; h < HEADS; h++) {
        float projected[3][T][KEY], weight[T], sum = 0;
        for (int kind = 0; kind < 3; kind++)
          for (int s = 0; s < lengths[b]; s++)
            for (int i = 0; i < KEY; i++) {
              projected[kind][s][i] = 0;
              for (int j = 0; j < HID; j++) projected[kind][s][i] += p[kind][h][i][j] * expected[s][b][j];
            }
        for (int s = 0; s < lengths[b]; s++) {
          float product = 0;
          for (int i = 0; i < KEY; i++) product += projected[0][t][i] * projected[1][s][i];
          sum += weight[s] = expf(0.7f * product);
        }
        for (int i = 0; i < KEY; i++) {
          float value = 0;
          for (int s = 0; s < lengths[b]; s++) value += weight[s] / sum * projected[2][s][i];
          EXPECT(near(found[t][b][h][i], value, 1e-5));
        }
      }
  free(copy);
  CHECK(cudnnDestroyTensorDescriptor(part));
  CHECK(cudnnDestroySeqDataDescriptor(out));
  CHECK(cudnnDestroySeqDataDescriptor(in));
  CHECK(cudnnDestroyAttnDescriptor(attention));
}

int main(void) {
  cudnnHandle_t handle;
  CHECK(cudnnCreate(&handle));
  draw(&w[0][0][0], 4 * HID * IN), draw(&r[0][0][0], 4 * HID * HID), draw(&bias[0][0], 4 * HID),
      draw(&x[0][0][0], T * B * IN);
  int* dev_lengths = device(lengths, sizeof lengths);
  float* y_at = recurrent(handle, dev_lengths);
  fetch(y, y_at, sizeof y);
  lstm(w, r, bias, x, expected);
  for (int i = 0; i < T * B * HID; i++) EXPECT(near((&y[0][0][0])[i], (&expected[0][0][0])[i], 1e-5));
  attention(handle, dev_lengths, y_at);
  CHECK(cudnnDestroy(handle));
  puts("adv_infer: as the formulas have it");
  return 0;
}
