"""Duration and seed of the suites: a fixed seed in the short run, and a random, printed one in the long run."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis.strategies import SearchStrategy

#: Seed of the short run.
FIXED_SEED = 20261122


@dataclass(frozen=True)
class Plan:
    """Duration of the run in minutes and its first seed; 0 minutes for the short run."""

    minutes: float
    seed: int

    @property
    def long(self) -> bool:
        return self.minutes > 0

    def rounds(self, share: float) -> Iterator[int]:
        """Yield a seed per round: one round in the short run, else as many as start within this share of the time."""
        until = time.monotonic() + share * self.minutes * 60
        seed = self.seed
        yield seed
        while self.long and time.monotonic() < until:
            seed += 1
            yield seed

    def random(self, share: float) -> Iterator[random.Random]:
        return map(random.Random, self.rounds(share))


def explore(check: Callable[[Any], None], inputs: SearchStrategy[Any], examples: int, seed: int) -> None:
    """Run `check` on a number of inputs from this seed. A failing input is minimized before it is reported."""
    chosen = hypothesis.settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=False,
        print_blob=False,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )

    def one(value: Any) -> None:
        check(value)

    hypothesis.seed(seed)(chosen(hypothesis.given(inputs)(one)))()
