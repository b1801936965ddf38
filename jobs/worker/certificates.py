"""Verifies the certificate of a search of kind `collatz`, mode `frontier`: `python -m jobs.worker.certificates`.

The command `cluster verify-certificate` runs this program, or `gpu_worker.certificates` for a GPU, because clients do
not import kernels. stdin contains one JSON object with the `result` of the job, and either the list `blocks`, the size
`sample`, or neither for all blocks.
Each line of stdout is a JSON object: the chosen blocks, then each block that matches, or the reason for a refusal.
"""

from __future__ import annotations

import json
import random
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

from pydantic import ValidationError

from jobs.hosts import cpu_level
from jobs.kinds import registry
from jobs.kinds.collatz.frontier_plan import BLOCKS, Division, division
from jobs.kinds.gpu import DeviceLost
from jobs.models import Device, Partial, Plan
from jobs.settings import load_for, use_cpu_level

Json: TypeAlias = dict[str, Any]

#: Names of the numbers in a row of a certificate, after the number of the block.
_NAMES = ("survivors", "passes", "checksum")


class Refused(Exception):
    """The certificate is wrong."""


class UnknownBlock(Exception):
    """The certificate does not contain the block."""


class UnsupportedDevice(Exception):
    """The device has no kernel for searches of this size."""


class Certificate:
    """Certificate of a job with its result. Raises Refused if the search has not finished."""

    def __init__(self, result: Json) -> None:
        self.result = result
        try:
            self.plan = _plan(result["bits"])
            self.rows = {row[0]: [int(number) for number in row[1:]] for row in result["certificate"]}
            self.largest_bits = int(result["largest_bits"])
        except (KeyError, TypeError, ValueError, IndexError):
            raise Refused("this is not a result of kind collatz, mode frontier") from None
        self.cut = division(int(self.plan.spec["bits"]))
        self._check_blocks([row[0] for row in result["certificate"]])

    def blocks(self) -> list[int]:
        """Return the blocks that contain units."""
        ranges = map(self.cut.block_range, range(BLOCKS))
        return [block for block, (low, high) in enumerate(ranges) if low < high]

    def _check_blocks(self, listed: Sequence[int]) -> None:
        blocks = self.blocks()
        for block in blocks:
            if block not in self.rows:
                raise Refused(f"block {block} is missing")
            if len(self.rows[block]) != len(_NAMES):
                raise Refused(f"block {block} must have {len(_NAMES)} numbers; got {len(self.rows[block])}")
        for block, expected in zip(listed, [*blocks, None], strict=False):
            if block != expected:
                raise Refused(f"block {block} is listed twice, is in the wrong place, or does not exist")

    def check_totals(self) -> None:
        """Raise Refused unless the other fields of the result follow from the blocks."""
        rows = [[block, *numbers] for block, numbers in self.rows.items()]
        partial = {"units": self.cut.units, "blocks": rows, "largest_bits": self.largest_bits}
        whole = registry.definition("collatz").result(self.plan.spec, partial)
        for name, value in whole.items():
            if name != "certificate" and self.result.get(name) != value:
                raise Refused(f"{name} is {self.result.get(name)!r}, but follows from all blocks as {value!r}")

    def check_block(self, block: int, partial: Partial) -> int:
        """Compare a block with its recomputed partial result, and return the bits of its largest value."""
        for name, stated, found in zip(_NAMES, self.rows[block], partial["blocks"][0][1:], strict=True):
            if stated != found:
                raise Refused(f"block {block} is wrong: {name} is {stated}, but {found} when recomputed")
        if partial["largest_bits"] > self.largest_bits:
            raise Refused(f"block {block} has a value of {partial['largest_bits']} bits, above largest_bits")
        return int(partial["largest_bits"])


def _plan(bits: Any) -> Plan:
    """Return the plan of a search of all numbers below 2^bits."""
    kind = registry.definition("collatz")
    try:
        return kind.plan(kind.parameters(mode="frontier", bits=bits))
    except ValidationError as error:
        raise Refused(f"bits {error.errors()[0]['msg']}") from None


def choose(certificate: Certificate, blocks: Sequence[int] | None, sample: int | None) -> list[int]:
    """Return the blocks to recompute: the named ones, a random sample, or all."""
    known = certificate.blocks()
    if blocks:
        wrong = [block for block in blocks if block not in certificate.rows]
        if wrong:
            raise UnknownBlock(f"block {wrong[0]} does not exist; the blocks are {known[0]} to {known[-1]}")
        return sorted(set(blocks))
    # A forger of certificates cannot predict the random numbers of the operating system.
    return known if sample is None else sorted(random.SystemRandom().sample(known, min(sample, len(known))))


def recompute(cut: Division, spec: Json, block: int, device: Device) -> Partial:
    """Compute a block with the kernel of a device."""
    low, high = cut.block_range(block)
    try:
        return registry.kernel("collatz", device).run(spec, low, high, lambda _: True)[1]
    except ArithmeticError as error:
        raise Refused(f"block {block} cannot be verified: {error}") from None


def verify(question: Json, threads: int, device: Device = Device.CPU) -> Iterator[Json]:
    """Yield the chosen blocks, then each block that matches. Raises Refused at the first difference."""
    certificate = Certificate(question["result"])
    if device not in certificate.plan.devices:
        raise UnsupportedDevice(f"a GPU cannot recompute this certificate. {certificate.plan.cpu_only}")
    known = certificate.blocks()
    chosen = choose(certificate, question.get("blocks"), question.get("sample"))
    is_whole = chosen == known
    yield {"bits": certificate.cut.bits, "chosen": chosen, "of": len(known)}
    if not is_whole:  # With all blocks, totals are checked at the end, so that an error names the wrong block.
        certificate.check_totals()
    spec, largest = dict(certificate.plan.spec), 0
    pool = ThreadPoolExecutor(threads)
    try:
        found = pool.map(lambda block: recompute(certificate.cut, spec, block, device), chosen)
        for block, partial in zip(chosen, found, strict=True):
            largest = max(largest, certificate.check_block(block, partial))
            yield {"matches": block}
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    if is_whole:
        certificate.check_totals()
        if largest != certificate.largest_bits:
            raise Refused(f"largest_bits is {certificate.largest_bits}, but {largest} when recomputed")


def main(device: Device = Device.CPU, open_device: Callable[[], None] = lambda: None) -> int:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    settings = load_for(f"{device}-worker")
    try:
        use_cpu_level(settings.cpu_level)
        open_device()
        for line in verify(json.load(sys.stdin), settings.lanes(), device):
            write(line)
    except Refused as error:
        write({"refused": str(error)})
    except (UnknownBlock, UnsupportedDevice, cpu_level.UnsupportedLevel, DeviceLost) as error:
        write({"failed": str(error)})
    return 0


def write(line: Json) -> None:
    """Print one line for the client."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
