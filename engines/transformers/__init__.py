"""Transformers: weights in safetensors, on CPUs and GPUs."""
