"""Implements changes of layout and type: TransformTensor, TransformTensorEx, TransformFilter."""
