"""vLLM: weights in safetensors, on GPUs."""
