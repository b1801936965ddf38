"""Texts of files in engine folders. They are sent to replicas, because runners do not have the folders."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from jobs.kinds.program_arguments import Argument, literal

SERVER, BATCH, PACKAGES = "server.py", "batch.py", "requirements.txt"


@lru_cache
def text(engine: str, name: str) -> str:
    """Return the text of a file in the folder of an engine."""
    return (Path(__file__).parent / engine / name).read_text()


def server_command(engine: str, options: Mapping[str, object]) -> list[Argument]:
    """Return the command that starts an engine's server. An option with the value True becomes a flag.

    None and False omit the option.
    """
    command: list[Argument] = ["{python}", "-c", literal(text(engine, SERVER))]
    for name, value in options.items():
        if value is True:
            command.append(name)
        elif value is not None and value is not False:
            command += [name, literal(str(value))]
    return command
