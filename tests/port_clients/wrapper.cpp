// This C++ client has descriptors with destructors, errors as exceptions, and calls with ::, in templates and lambdas.
#include "common.h"
#include <stdexcept>
#include <vector>

struct Failure : std::runtime_error {
  explicit Failure(cudnnStatus_t status) : std::runtime_error("cudnn call failed"), status(status) {}
  cudnnStatus_t status;
};

inline void check(cudnnStatus_t status) {
  if (status != CUDNN_STATUS_SUCCESS) throw Failure(status);
}

template <typename Handle, cudnnStatus_t (*Create)(Handle*), cudnnStatus_t (*Destroy)(Handle)> class Owned {
 public:
  Owned() { check(Create(&handle_)); }
  ~Owned() { Destroy(handle_); }
  Owned(const Owned&) = delete;
  operator Handle() const { return handle_; }

 private:
  Handle handle_{};
};

using Library = Owned<cudnnHandle_t, cudnnCreate, cudnnDestroy>;
using Pooling = Owned<cudnnPoolingDescriptor_t, cudnnCreatePoolingDescriptor, cudnnDestroyPoolingDescriptor>;
using Activation =
    Owned<cudnnActivationDescriptor_t, cudnnCreateActivationDescriptor, cudnnDestroyActivationDescriptor>;

template <typename T> cudnnTensorDescriptor_t described(T n, T c, T h, T w) {
  cudnnTensorDescriptor_t descriptor;
  check(::cudnnCreateTensorDescriptor(&descriptor));
  const int dims[] = {n, c, h, w}, strides[] = {c * h * w, h * w, w, 1};
  check(::cudnnSetTensorNdDescriptor(descriptor, CUDNN_DATA_FLOAT, 4, dims, strides));
  return descriptor;
}

int main() {
  Library handle;
  Pooling pooling;
  Activation activation;
  const float one = 1.0f, zero = 0.0f;
  auto x = described(1, 3, 6, 6), y = described(1, 3, 3, 3);
  std::vector<float> X(108), Y(27);
  for (size_t i = 0; i < X.size(); i++) X[i] = (float)((i * 37) % 29) / 7 - 2;
  auto pooled = [&](cudnnPoolingMode_t mode) {
    check(cudnnSetPooling2dDescriptor(pooling, mode, CUDNN_NOT_PROPAGATE_NAN, 2, 2, 0, 0, 2, 2));
    check(cudnnPoolingForward(handle, pooling, &one, x, X.data(), &zero, y, Y.data()));
    show("pooled", Y.data(), Y.size());
  };
  for (auto mode : {CUDNN_POOLING_MAX, CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING}) pooled(mode);
  if (cudnnStatus_t status =
          cudnnSetActivationDescriptor(activation, CUDNN_ACTIVATION_ELU, CUDNN_NOT_PROPAGATE_NAN, 0.5);
      status != CUDNN_STATUS_SUCCESS)
    return 1;
  check(cudnnActivationForward(handle, activation, /* alpha */ &one, y, Y.data(),  // beta comes after x
                               &zero, y, Y.data()));
  show("activated", Y.data(), Y.size());
  try {
    check(cudnnPoolingForward(handle, pooling, &one, y, Y.data(), &zero, x, X.data()));
  } catch (const Failure& failure) {
    printf("refused %d\n", failure.status == CUDNN_STATUS_BAD_PARAM || failure.status != CUDNN_STATUS_SUCCESS);
  }
  return 0;
}
