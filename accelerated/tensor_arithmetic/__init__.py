"""AddTensor, OpTensor, ScaleTensor and SetTensor."""
