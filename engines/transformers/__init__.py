"""Engine for Hugging Face Transformers, which runs models in safetensors format on CPUs and GPUs."""
