"""A GPU worker without a GPU: its real process, with telemetry that is made up and kernels that run on the host.

`python -m tests.gpu.pretended`; faults are asked for by files in the folder PRETENDED_FAULTS.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpu_worker import __main__ as worker
from gpu_worker import sharing
from jobs import logs, settings
from jobs.kinds import gpu
from jobs.worker.telemetry import gpu_faults
from jobs.worker.telemetry.gpus import HostGpu, Sample
from tests.gpu.host_device import HostArray, HostDevice

UUIDS = ("GPU-aaaaaaaa-0000-0000-0000-000000000000", "GPU-bbbbbbbb-0000-0000-0000-000000000001")
WATTS = 250.0


class PretendedTelemetry:
    """Two GPUs that draw 250 W each whatever they do; sick while the file `xid` says by which error."""

    def __init__(self, faults: Path = Path("/nonexistent")) -> None:
        self._since = time.monotonic()
        self._faults = faults

    def gpus(self) -> list[HostGpu]:
        return [HostGpu(index=index, uuid=uuid, name="Pretended") for index, uuid in enumerate(UUIDS)]

    def sample(self, uuid: str) -> Sample:
        return Sample(
            utilization_ratio=0.9,
            sm_active_ratio=0.8,
            memory_used_bytes=2**30,
            memory_total_bytes=2**34,
            temperature_celsius=55.0,
            power_watts=WATTS,
            energy_joules_total=self.joules(uuid),
            clock_sm_hertz=1.7e9,
            clock_memory_hertz=2.6e9,
            pcie_receive_bytes_per_second=1e6,
            pcie_transmit_bytes_per_second=2e6,
            throttle_reasons=("sw_power_cap",),
        )

    def joules(self, uuid: str) -> float:
        return WATTS * (time.monotonic() - self._since)

    def fault(self, uuid: str) -> str:
        file = self._faults / "xid"
        return gpu_faults.describe_xid(int(file.read_text())) if file.exists() else ""

    def close(self) -> None: ...


class FaultyDevice(HostDevice):
    """Fails as told by files: `lost`, `full` (memory for so many units of a launch), `wrong`, `slow` (seconds).

    Of slow launches the file `launches` has a byte each.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(most_blocks=8, most_threads=64)
        self.faults = folder

    def compiled(self, source: str) -> Callable[..., None]:
        launch = super().compiled(source)

        def faulty(name: str, *arguments: Any) -> None:
            if (self.faults / "lost").exists():
                raise gpu.DeviceLost("an illegal memory access was encountered")
            if (self.faults / "slow").exists():
                with (self.faults / "launches").open("ab") as launches:
                    launches.write(b".")
                time.sleep(float((self.faults / "slow").read_text()))
            launch(name, *arguments)
            if (self.faults / "wrong").exists():
                for array in arguments[-3:]:
                    if isinstance(array, HostArray) and len(array) < 10_000:
                        array.values[0] += 1

        return faulty


def main() -> int:
    chosen = settings.load()
    logs.configure(chosen.log_level, "gpu-worker", host=chosen.host_name(), worker=chosen.worker_name())
    folder = Path(os.environ.get("PRETENDED_FAULTS", "/nonexistent"))
    sharing.IDLE_SECONDS = float(os.environ.get("PRETENDED_IDLE_SECONDS", sharing.IDLE_SECONDS))
    machine = worker.Machine(
        telemetry=lambda: PretendedTelemetry(folder), open=lambda uuid, memory: FaultyDevice(folder)
    )
    return worker.run(chosen, machine)


if __name__ == "__main__":
    sys.exit(main())
