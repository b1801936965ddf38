"""llama.cpp: models in GGUF, on CPUs and GPUs."""
