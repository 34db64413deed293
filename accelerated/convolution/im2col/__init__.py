"""Compute the im2col buffer as the matrix of cudnnIm2Col, and in the workspace of algorithm GEMM."""
