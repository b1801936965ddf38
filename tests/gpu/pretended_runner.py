"""A runner with the GPUs of `tests.gpu.pretended`: `python -m tests.gpu.pretended_runner`.

On a GPU of which a file in the folder PRETENDED_FAULTS has the name, something of others lies.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from runner import __main__ as runner
from runner import gpus
from runner.gpus import Gpu
from tests.gpu.pretended import UUIDS, PretendedTelemetry


def detect(*_: str) -> Sequence[Gpu]:
    return [
        Gpu(uuid=uuid, index=index, name="Pretended", memory_mib=16_384, compute_capability="9.0")
        for index, uuid in enumerate(UUIDS)
    ]


def foreign(gpu: Gpu) -> str:
    return "a test lies there" if Path(os.environ["PRETENDED_FAULTS"], gpu.uuid).exists() else ""


if __name__ == "__main__":
    gpus.detect, gpus.foreign, gpus.Nvml = detect, foreign, PretendedTelemetry  # type: ignore[assignment, attr-defined]
    sys.exit(runner.main())
