"""Verifies the certificate of a Collatz search on the first GPU: `python -m gpu_worker.certificates`.

See `jobs.worker.certificates`.
"""

from __future__ import annotations

import sys

from gpu_worker.cupy_device import CupyDevice
from jobs.kinds import gpu
from jobs.models import Device
from jobs.worker import certificates


def open_first_gpu() -> None:
    """Let the kernels of this process use the first GPU. Raises DeviceLost."""
    gpu.set_device(CupyDevice("certificates"))


if __name__ == "__main__":
    sys.exit(certificates.main(Device.GPU, open_first_gpu))
