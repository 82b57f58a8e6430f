"""What a program itself does with its GPUs, as `gpudiag trace` saw it."""
