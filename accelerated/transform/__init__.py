"""Changes of layout and type: TransformTensor, TransformTensorEx, TransformFilter."""
