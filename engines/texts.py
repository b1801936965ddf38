"""Texts in the folders of engines: what a replica is given of them, since it has no such folder."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from jobs.kinds.program_arguments import Argument, literal

SERVER, BATCH, PACKAGES = "server.py", "batch.py", "requirements.txt"


@lru_cache
def text(engine: str, name: str) -> str:
    """Return a file of an engine's folder."""
    return (Path(__file__).parent / engine / name).read_text()


def server_command(engine: str, options: Mapping[str, object]) -> list[Argument]:
    """Return the arguments that start an engine's server. True stands for a flag alone; None and False for none."""
    command: list[Argument] = ["{python}", "-c", literal(text(engine, SERVER))]
    for name, value in options.items():
        if value is True:
            command.append(name)
        elif value is not None and value is not False:
            command += [name, literal(str(value))]
    return command
