"""Detection of the GPUs that the local cluster can use. Each GPU has its own worker."""

from __future__ import annotations

import importlib.util
import subprocess

from jobs.settings import Settings

INSTALL = "deploy/environment.sh gpu-worker"


class NoGpus(Exception):
    """No GPU worker can start although GPU_ENABLED=true. The message contains the cause and a remedy."""


def count_listed() -> int:
    """Return the number of GPUs that NVIDIA's driver reports, or 0 without a driver."""
    try:
        listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return 0
    return sum(line.startswith("GPU ") for line in listing.splitlines())


def count_allowed(settings: Settings) -> int:
    """Return the number of GPUs that CUDA_VISIBLE_DEVICES allows. Each worker checks its GPU again."""
    wanted = [name for name in settings.cuda_visible_devices.split(",") if name.strip()]
    return min(count_listed(), len(wanted)) if wanted else count_listed()


def _missing(count: int) -> str | None:
    if not count:
        return "nvidia-smi lists no usable GPU"
    if importlib.util.find_spec("cupy") is None:
        return f"CuPy is not installed. Install it (0.6 GB): {INSTALL}, then run the same command again"
    return None


def usable_gpus(settings: Settings) -> tuple[int, str]:
    """Return the number of GPU workers to start, and advice for the user or "".

    Raises NoGpus if GPU_ENABLED=true and no GPU is usable.
    """
    if settings.gpu_enabled == "false":
        return 0, ""
    count = count_allowed(settings)
    missing = _missing(count)
    if missing is None:
        return count, ""
    if settings.gpu_enabled == "true":
        raise NoGpus(
            f"GPU_ENABLED=true, but {missing}. To run without GPUs: GPU_ENABLED=auto ./deploy-cluster.sh local"
        )
    return 0, f"{count} GPU(s) of this machine stay unused: {missing}" if count else ""
