"""Server of one GGUF file with llama.cpp, which runs until SIGTERM. Its address and key are in the environment."""

import argparse
import os
import signal
import sys

from xllamacpp import CommonParams, Server


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("model", "alias"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("context", "parallel", "threads", "gpu-layers"):
        parser.add_argument(f"--{name}", type=int, required=True)
    for name in ("embeddings", "reranking"):
        parser.add_argument(f"--{name}", action="store_true")
    return parser.parse_args()


def chosen(asked: argparse.Namespace) -> CommonParams:
    found = CommonParams()
    found.model.path, found.model_alias = asked.model, {asked.alias}
    found.n_ctx, found.n_parallel = asked.context * asked.parallel, asked.parallel
    found.n_gpu_layers = asked.gpu_layers
    found.embedding = asked.embeddings or asked.reranking
    if asked.reranking:
        from xllamacpp import llama_pooling_type

        found.pooling_type = llama_pooling_type.LLAMA_POOLING_TYPE_RANK
    found.hostnames, found.port = [os.environ["CLUSTER_ADDRESS"]], int(os.environ["CLUSTER_PORT"])
    found.api_keys = [os.environ["CLUSTER_KEY"]]
    found.endpoint_metrics = found.endpoint_slots = found.ui = False
    if threads := asked.threads or limit():
        found.cpuparams.n_threads = found.cpuparams_batch.n_threads = threads
    return found


def limit() -> int:
    """Return the container's CPU limit, which llama.cpp does not detect. Return 0 if there is no limit."""
    cores = int(os.environ.get("CLUSTER_CPUS", "0"))
    return cores if cores < (os.cpu_count() or 1) else 0


def main() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    server = Server(chosen(parse_arguments()))
    print(f"serves at {server.listening_address}", flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    sys.stdout.flush()
    os._exit(0)


main()
