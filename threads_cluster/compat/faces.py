"""The commands `gswarm` and `grid-cli`, which translate other systems' commands into commands of `cluster`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn, TypeAlias

from threads_cluster import errors
from threads_cluster.cli import main as cli
from threads_cluster.terminal import LONGEST, visible

#: Translates the value of a flag into arguments of `cluster`. Raises ValueError if the value is invalid.
Translate: TypeAlias = Callable[[str], list[str]]
#: Flags without a value that every command of `cluster` accepts.
_ALWAYS = frozenset({"--json", "--help"})
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
#: Valid sampling periods of a profile in milliseconds: 100 Hz to 1 Hz.
_PERIODS = range(10, 1001)


class Refused(Exception):
    """The command cannot be translated. The message gives the reason and the alternatives."""


def _as(flag: str) -> Translate:
    return lambda value: [flag, value]


def _nothing(_value: str) -> list[str]:
    return []


def _operand(value: str) -> list[str]:
    return [value]


def _hertz(value: str) -> list[str]:
    if not (value.isascii() and value.isdigit() and int(value[:9]) in _PERIODS):
        raise ValueError(f"must be milliseconds from {_PERIODS[0]} to {_PERIODS[-1]}")
    return ["--hz", f"{1000 / int(value):g}"]


def _gpu(value: str) -> list[str]:
    if value == "cpu":
        return []
    if not (value.startswith("gpu") and value[3:].isdigit()):
        raise ValueError("must be cpu, or a GPU such as gpu0")
    return ["--gpus", "1"]


def _source(value: str) -> list[str]:
    """Translate a model source. The other system may name only the hub, with the address in --url."""
    return [] if value in ("huggingface", "url") else ["--source", value]


def _no_port(_value: str) -> list[str]:
    raise ValueError(
        "is not supported, because all services share the cluster's /v1 and are selected by name; remove it"
    )


def _level(value: str) -> list[str]:
    if value.upper() not in _LEVELS:
        raise ValueError(f"must be one of {', '.join(_LEVELS)}")
    return []


@dataclass(frozen=True, kw_only=True)
class Row:
    """A command of another system, and the equivalent command of `cluster`."""

    theirs: str
    #: Command of this project, without the word `cluster`.
    ours: str
    #: Maximum number of operands.
    operands: int = 0
    flags: Mapping[str, Translate] = field(default_factory=dict)


def _same(*flags: str) -> dict[str, Translate]:
    return {flag: _as(flag) for flag in flags}


_NODE = {"--node": _nothing}  # Services are found by name, so the node is ignored.

GSWARM = (
    Row(theirs="status", ours="status"),
    Row(theirs="nodes", ours="hosts"),
    Row(theirs="health", ours="health"),
    Row(theirs="node status", ours="host", operands=1),
    Row(theirs="profiler start", ours="profile start", flags={"--name": _operand, "--freq": _hertz}),
    Row(theirs="profiler stop", ours="profile stop", flags={"--name": _operand}),
    Row(theirs="profiler status", ours="profile status"),
    Row(theirs="profiler sessions", ours="profile list"),
    Row(theirs="profiler recover", ours="profile recover"),
    Row(theirs="profiler analyze", ours="profile analyze", operands=1, flags=_same("--data", "--plot")),
    Row(theirs="model list", ours="model list", flags=_same("--location")),
    Row(theirs="model info", ours="model info", operands=1),
    Row(theirs="model register", ours="model register", operands=1, flags=_same("--type", "--source")),
    Row(
        theirs="model download",
        ours="model download",
        operands=1,
        flags={
            "--source": _source,
            "--url": _as("--source"),
            "--type": _nothing,
            "--node": _as("--host"),
            "--device": _as("--device"),
        },
    ),
    Row(theirs="model move", ours="model move", operands=1, flags=_same("--from", "--to", "--node")),
    Row(theirs="model copy", ours="model copy", operands=1, flags=_same("--from", "--to", "--node")),
    Row(theirs="model delete", ours="model delete", operands=1, flags=_same("--device", "--node")),
    Row(
        theirs="model serve",
        ours="serve",
        operands=1,
        flags={"--device": _gpu, "--node": _as("--host"), "--port": _no_port},
    ),
    Row(theirs="model stop", ours="service stop", operands=1, flags=_NODE),
    Row(theirs="model services", ours="services"),
    Row(theirs="model status", ours="service show", operands=1, flags=_NODE),
    Row(theirs="model service-health", ours="service show", operands=1, flags=_NODE),
    Row(theirs="data create", ours="data create", flags=_same("--source", "--device")),
    Row(theirs="data list", ours="data list", flags=_same("--device")),
    Row(theirs="data info", ours="data info", operands=1),
    Row(theirs="data move", ours="data move", operands=1, flags=_same("--to")),
    Row(theirs="data transfer", ours="data transfer", operands=1, flags=_same("--to")),
    Row(theirs="data delete", ours="data delete", operands=1),
    Row(theirs="queue status", ours="queue status"),
    Row(theirs="queue tasks", ours="queue tasks", flags=_same("--status")),
    Row(theirs="queue cancel", ours="queue cancel", operands=1),
    Row(theirs="queue history", ours="queue history", flags=_same("--limit")),
)
GRID_CLI = (
    Row(theirs="health", ours="health"),
    Row(theirs="run", ours="run", operands=1, flags={"--log-level": _level}),
    Row(theirs="cluster start", ours="up"),
    Row(theirs="cluster stop", ours="down"),
    Row(theirs="metrics", ours="metrics"),
)
#: Commands that start or join a cluster, for which `cluster` has no equivalent.
_SCRIPT = {
    "host start": "./deploy-cluster.sh local",
    "host stop": "./deploy-cluster.sh stop",
    "host status": "./deploy-cluster.sh status",
    "client connect": "./deploy-cluster.sh join TOKEN",
}


def translated(rows: Sequence[Row], words: Sequence[str], known: Callable[[Sequence[str]], bool]) -> list[str]:
    """Translate a command line into arguments of `cluster`. Raise Refused with the alternatives if that is impossible.

    `known` returns True if `cluster` has a command.
    """
    row = _row(rows, words)
    operands, flags = _split(row, words[len(row.theirs.split()) :])
    ours = row.ours.split()
    if not known(ours):
        raise Refused(f"{row.theirs} corresponds to cluster {row.ours}, which this version lacks; see: cluster --help")
    if row.theirs == "run" and "--help" not in flags:
        return _program(operands, known)
    return [*ours, *operands, *flags]


def _row(rows: Sequence[Row], words: Sequence[str]) -> Row:
    for count in (2, 1):
        typed = " ".join(words[:count])
        if typed in _SCRIPT and any(row.theirs == "nodes" for row in rows):
            raise Refused(f"{typed} is not supported; use {_SCRIPT[typed]}")
        if row := next((row for row in rows if row.theirs == typed), None):
            return row
    have = ", ".join(row.theirs for row in rows)
    raise Refused(f"command {' '.join(words[:2])} does not exist; the commands are {have}; see also: cluster --help")


def _split(row: Row, words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the operands and the translated flags."""
    operands: list[str] = []
    flags: list[str] = []
    rest = iter(words)
    for word in rest:
        name, sign, value = word.partition("=")
        if not word.startswith("--"):
            operands.append(word)
        elif word in _ALWAYS or (word == "--keep-source" and row.theirs == "model move"):
            flags.append(word)
        else:
            flags += _flag(row, name, value if sign else next(rest, None))
    if len(operands) > row.operands:
        extra = operands[row.operands]
        raise Refused(f"{row.theirs}: unexpected argument {extra!r}; see: cluster {row.ours} --help")
    return operands, flags


def _flag(row: Row, name: str, value: str | None) -> list[str]:
    if name not in row.flags:
        have = ", ".join((*row.flags, "--json"))
        raise Refused(f"{row.theirs}: unknown option {name}; the options are {have}; see: cluster {row.ours} --help")
    if value is None:
        raise Refused(f"{row.theirs}: {name} needs a value")
    try:
        return row.flags[name](value)
    except ValueError as error:
        raise Refused(f"{row.theirs}: {name} {error}; got {value}") from None


def _program(operands: Sequence[str], known: Callable[[Sequence[str]], bool]) -> list[str]:
    """Translate a shell command: run it over SSH if cluster.yaml exists, else on a runner."""
    if not operands:
        raise Refused('run: needs a command, as in: run "python3 train.py"; see: cluster run --help')
    if not Path("cluster.yaml").is_file():
        return ["run", "--shell", operands[0]]
    if not known(["run", "--on"]):
        raise Refused(
            "run: this version cannot use the hosts of cluster.yaml; without that file, the command runs on a runner"
        )
    return ["run", "--on", "ssh", "--", "/bin/sh", "-c", operands[0]]


def has(words: Sequence[str]) -> bool:
    """Return True if `cluster` has this command. A last word that starts with dashes is a flag of the command."""
    command = cli.commands()
    for word in words:
        if word.startswith("--"):
            return any(word in parameter.opts for parameter in command.params)
        commands = getattr(command, "commands", {})
        if word not in commands:
            return False
        command = commands[word]
    return True


def _main(name: str, rows: Sequence[Row]) -> NoReturn:
    words = sys.argv[1:]
    if not words or words[0] in ("--help", "-h"):
        lines = [f"  {name} {row.theirs:<22} cluster {row.ours}" for row in rows]
        print(f"{name}: commands of another system and the equivalent commands of cluster", *lines, sep="\n")
        sys.exit(0 if words else errors.REFUSED)
    try:
        ours = translated(rows, words, has)
    except Refused as refused:
        print(visible(f"error: {name} {refused}", LONGEST), file=sys.stderr)
        sys.exit(errors.REFUSED)
    cli.main(ours)


def gswarm() -> NoReturn:
    """Entry point of `gswarm`: translate the command line, run it, and exit."""
    _main("gswarm", GSWARM)


def grid_cli() -> NoReturn:
    """Entry point of `grid-cli`: translate the command line, run it, and exit."""
    _main("grid-cli", GRID_CLI)
