"""What executes commands: GEMM, post-processing, vectors, loss."""
