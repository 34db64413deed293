"""Implements AddTensor, OpTensor, ScaleTensor and SetTensor."""
