"""Search for the best parameter with joblib, whose calls run on the cluster. The runners need joblib."""

# joblib has no type annotations.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false

from typing import cast

import joblib

import threads_cluster


def error(step: float) -> float:
    """Return the error of Euler's method for y' = y from 0 to 1."""
    value = 1.0
    for _ in range(round(1 / step)):
        value += step * value
    return abs(value - 2.718281828459045)


def main() -> None:
    threads_cluster.register_joblib()
    steps = [0.1 / 2**n for n in range(16)]
    with joblib.parallel_config("threads-cluster", requirements=["joblib"]):
        errors = cast("list[float]", joblib.Parallel(n_jobs=-1)(joblib.delayed(error)(step) for step in steps))
    best = min(zip(errors, steps, strict=True))
    print(f"The smallest error is {best[0]:.2g}, with the step {best[1]:.2g}.")


if __name__ == "__main__":
    main()
