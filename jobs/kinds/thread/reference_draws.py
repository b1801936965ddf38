"""Random draws of a simulated thread in plain Python; `cpu_draws.py` is the compiled version."""

from __future__ import annotations

from typing import Any

from jobs.kinds.random import sub
from jobs.kinds.thread import draws, tables


def negative_log(word: int) -> int:
    """Return -ln(U) in units of 2^-24 for U = (word | 1) / 2^64."""
    logs = tables.logarithms()
    word |= 1
    zeros = 64 - word.bit_length()
    rest = (word << zeros) - 2**63
    index, fraction = rest >> 53, rest >> 33 & 2**20 - 1
    step = ((logs[index] - logs[index + 1]) * fraction + 2**19) >> 20
    return zeros * logs[0] + logs[index] - step


def draw_work(table: dict[str, Any], key: int) -> int:
    """Draw the work of a thread in ns, at least 1."""
    numbers, word = table["numbers"], sub(key, draws.WORK)
    match table["law"]:
        case "fixed":
            work = numbers[0]
        case "uniform":
            work = numbers[0] + (numbers[1] * (word >> 32) >> 32)
        case "exponential":
            work = (numbers[0] * negative_log(word) + 2**23) >> 24
        case "hyperexponential":
            slow = sub(key, draws.BRANCH) >> 32 >= numbers[0]
            work = (numbers[1 + slow] * negative_log(word) + 2**23) >> 24
        case "pareto":
            index, fraction = divmod(negative_log(word), 2**20)
            work = numbers[index] + ((numbers[index + 1] - numbers[index]) * fraction >> 20)
        case "empirical":
            index, fraction = divmod((word >> 32) * (len(numbers) - 1), 2**32)
            work = numbers[index] + ((numbers[index + 1] - numbers[index]) * (fraction >> 10) >> 22)
        case law:
            raise ValueError(f"no law {law}")
    return max(1, int(work))
