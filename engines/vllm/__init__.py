"""Engine for vLLM, which runs models in safetensors format on GPUs."""
