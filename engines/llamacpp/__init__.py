"""Engine for llama.cpp, which runs models in GGUF format on CPUs and GPUs."""
