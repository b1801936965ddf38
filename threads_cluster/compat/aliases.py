"""The commands `gswarm` and `grid-cli`, which translate commands of other systems into commands of `cluster`."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn, TypeAlias

from threads_cluster import errors, settings
from threads_cluster.cli import main as cli
from threads_cluster.terminal import LONGEST, visible

#: Function that translates the value of a flag into arguments of `cluster`. Raises ValueError if it is invalid.
Translate: TypeAlias = Callable[[str], list[str]]
#: Flags without a value that all commands of `cluster` accept.
_ALWAYS = frozenset({"--json", "--help"})
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
#: Valid sampling intervals of a profile in milliseconds, which correspond to 100 Hz down to 1 Hz.
_PERIODS = range(10, 1001)
#: Configuration file of grid-cli. It has the format of cluster.yaml.
_HOST_FILE = Path("config/cluster_config.yaml")
#: Sections of gswarm's configuration file, mapped to the commands, options and settings that replace them.
_SECTIONS = {
    "cluster": "cluster login URL",
    "profiling": "--freq of profiler start",
    "models": "ARTIFACT_URL and CACHE_BYTES",
    "queue": "RUNNER_SLOTS, and --timeout and --retries of a job",
    "nodes": "./deploy-cluster.sh join on each node",
}
_SECTION = re.compile(r"^(\w+)\s*:", re.MULTILINE)


class NotTranslatable(Exception):
    """The command has no equivalent. The message contains the reason and alternatives."""


def _as(flag: str) -> Translate:
    return lambda value: [flag, value]


def _ignored(_value: str) -> list[str]:
    return []


def _operand(value: str) -> list[str]:
    return [value]


def _hertz(value: str) -> list[str]:
    if not (value.isascii() and value.isdigit() and int(value[:9]) in _PERIODS):
        raise ValueError(f"must be milliseconds from {_PERIODS[0]} to {_PERIODS[-1]}")
    return ["--hz", f"{1000 / int(value):g}"]


def _device(value: str) -> list[str]:
    """Translate a device such as gpu0, node1:gpu0 or cpu into the requirements of a replica."""
    host, _, device = value.rpartition(":")
    on_host = ["--host", host] if host else []
    if device == "cpu":
        return on_host
    if not (device.startswith("gpu") and device[3:].isdigit()):
        raise ValueError("must be cpu, or a GPU such as gpu0 or HOST:gpu0")
    return ["--gpus", "1", *on_host]


def _source(value: str) -> list[str]:
    """Translate the source of a model. In the other system, the source can be a hub, with the address in --url."""
    return [] if value in ("huggingface", "url") else ["--source", value]


def _level(value: str) -> list[str]:
    if value.upper() not in _LEVELS:
        raise ValueError(f"must be one of {', '.join(_LEVELS)}")
    return []


@dataclass(frozen=True, kw_only=True)
class Row:
    """Command of another system with the equivalent command of `cluster`."""

    foreign: str
    #: Command of this project, without the word `cluster`.
    native: str
    #: Maximum number of arguments that are not flags.
    operands: int = 0
    flags: Mapping[str, Translate] = field(default_factory=dict)
    #: True if the native command reads cluster.yaml.
    uses_hosts: bool = False


def _unchanged(*flags: str) -> dict[str, Translate]:
    return {flag: _as(flag) for flag in flags}


_NODE = {"--node": _ignored}  # The node is ignored, because services are found by name

GSWARM = (
    Row(foreign="status", native="status"),
    Row(foreign="nodes", native="hosts"),
    Row(foreign="health", native="health"),
    Row(foreign="node status", native="host", operands=1),
    Row(foreign="profiler start", native="profile start", flags={"--name": _operand, "--freq": _hertz}),
    Row(foreign="profiler stop", native="profile stop", flags={"--name": _operand}),
    Row(foreign="profiler status", native="profile status"),
    Row(foreign="profiler sessions", native="profile list"),
    Row(foreign="profiler recover", native="profile recover"),
    Row(foreign="profiler analyze", native="profile analyze", operands=1, flags=_unchanged("--data", "--plot")),
    Row(foreign="model list", native="model list", flags=_unchanged("--location")),
    Row(foreign="model info", native="model info", operands=1),
    Row(foreign="model register", native="model register", operands=1, flags=_unchanged("--type", "--source")),
    Row(
        foreign="model download",
        native="model download",
        operands=1,
        flags={
            "--source": _source,
            "--url": _as("--source"),
            "--type": _ignored,
            "--node": _as("--host"),
            "--device": _as("--device"),
        },
    ),
    Row(foreign="model move", native="model move", operands=1, flags=_unchanged("--from", "--to", "--node")),
    Row(foreign="model copy", native="model copy", operands=1, flags=_unchanged("--from", "--to", "--node")),
    Row(foreign="model delete", native="model delete", operands=1, flags=_unchanged("--device", "--node")),
    Row(
        foreign="model serve",
        native="serve",
        operands=1,
        flags={"--device": _device, "--node": _as("--host"), "--port": _as("--port")},
    ),
    Row(foreign="model stop", native="service stop", operands=1, flags=_NODE),
    Row(foreign="model services", native="services"),
    Row(foreign="model status", native="service show", operands=1, flags=_NODE),
    Row(foreign="model service-health", native="service show", operands=1, flags=_NODE),
    Row(foreign="data create", native="data create", flags=_unchanged("--source", "--device")),
    Row(foreign="data list", native="data list", flags=_unchanged("--device")),
    Row(foreign="data info", native="data info", operands=1),
    Row(foreign="data move", native="data move", operands=1, flags=_unchanged("--to")),
    Row(foreign="data transfer", native="data transfer", operands=1, flags=_unchanged("--to")),
    Row(foreign="data delete", native="data delete", operands=1),
    Row(foreign="queue status", native="queue status"),
    Row(foreign="queue tasks", native="queue tasks", flags=_unchanged("--status")),
    Row(foreign="queue cancel", native="queue cancel", operands=1),
    Row(foreign="queue history", native="queue history", flags=_unchanged("--limit")),
)
GRID_CLI = (
    Row(foreign="health", native="health", uses_hosts=True),
    Row(foreign="run", native="run", operands=1, flags={"--log-level": _level}),
    Row(foreign="cluster start", native="up", uses_hosts=True),
    Row(foreign="cluster stop", native="down", uses_hosts=True),
    Row(foreign="metrics", native="metrics"),
)
#: Commands that start or join a cluster. The command `cluster` has no equivalent.
_SCRIPT = {
    "host start": "./deploy-cluster.sh local",
    "host stop": "./deploy-cluster.sh stop",
    "host status": "./deploy-cluster.sh status",
    "client connect": "the line that ./deploy-cluster.sh invite prints on the cluster's machine",
}


def translate(rows: Sequence[Row], words: Sequence[str], known: Callable[[Sequence[str]], bool]) -> list[str]:
    """Translate a command line into arguments of `cluster`. Raises NotTranslatable if there is no equivalent.

    `known` returns True if `cluster` has a command.
    """
    row = _find_row(rows, words)
    operands, flags = _split(row, words[len(row.foreign.split()) :])
    native = row.native.split()
    if not known(native):
        raise NotTranslatable(
            f"{row.foreign} corresponds to cluster {row.native}, which this version lacks; see: cluster --help"
        )
    if row.foreign == "run" and "--help" not in flags:
        return _program(operands, known)
    return [*native, *operands, *flags, *(_host_file() if row.uses_hosts else ())]


def _find_row(rows: Sequence[Row], words: Sequence[str]) -> Row:
    for count in (2, 1):
        typed = " ".join(words[:count])
        if typed in _SCRIPT and any(row.foreign == "nodes" for row in rows):
            raise NotTranslatable(f"{typed} is not supported; use {_SCRIPT[typed]}")
        if row := next((row for row in rows if row.foreign == typed), None):
            return row
    have = ", ".join(row.foreign for row in rows)
    raise NotTranslatable(
        f"command {' '.join(words[:2])} does not exist; the commands are {have}; see also: cluster --help"
    )


def _split(row: Row, words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the arguments that are not flags, and the translated flags."""
    operands: list[str] = []
    flags: list[str] = []
    rest = iter(words)
    for word in rest:
        name, sign, value = word.partition("=")
        if not word.startswith("--"):
            operands.append(word)
        elif word in _ALWAYS or (word == "--keep-source" and row.foreign == "model move"):
            flags.append(word)
        else:
            flags += _flag(row, name, value if sign else next(rest, None))
    if len(operands) > row.operands:
        extra = operands[row.operands]
        raise NotTranslatable(f"{row.foreign}: unexpected argument {extra!r}; see: cluster {row.native} --help")
    return operands, flags


def _flag(row: Row, name: str, value: str | None) -> list[str]:
    if name not in row.flags:
        have = ", ".join((*row.flags, "--json"))
        raise NotTranslatable(
            f"{row.foreign}: unknown option {name}; the options are {have}; see: cluster {row.native} --help"
        )
    if value is None:
        raise NotTranslatable(f"{row.foreign}: {name} needs a value")
    try:
        return row.flags[name](value)
    except ValueError as error:
        raise NotTranslatable(f"{row.foreign}: {name} {error}; got {value}") from None


def _program(operands: Sequence[str], known: Callable[[Sequence[str]], bool]) -> list[str]:
    """Translate a shell command. It runs over SSH if a file lists hosts, otherwise on a runner."""
    if not operands:
        raise NotTranslatable('run: needs a command, as in: run "python3 train.py"; see: cluster run --help')
    config = _host_file()
    if not (config or Path("cluster.yaml").is_file()):
        return ["run", "--shell", operands[0]]
    if not known(["run", "--on"]):
        raise NotTranslatable(
            "run: this version cannot use the hosts of cluster.yaml; without that file, the command runs on a runner"
        )
    return ["run", "--on", "ssh", *config, "--", "/bin/sh", "-c", operands[0]]


def _host_file() -> list[str]:
    """Return the option that names grid-cli's host file, or an empty list if cluster.yaml exists or the file does not.

    Both files have the same format.
    """
    return ["--config", str(_HOST_FILE)] if _HOST_FILE.is_file() and not Path("cluster.yaml").is_file() else []


def has_command(words: Sequence[str]) -> bool:
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
        lines = [f"  {name} {row.foreign:<22} cluster {row.native}" for row in rows]
        print(f"{name}: commands of another system and the equivalent commands of cluster", *lines, sep="\n")
        sys.exit(0 if words else errors.REFUSED)
    try:
        native = translate(rows, words, has_command)
    except NotTranslatable as refused:
        print(visible(f"error: {name} {refused}", LONGEST), file=sys.stderr)
        sys.exit(errors.REFUSED)
    cli.main(native)


def describe_unread_file(home: Path | None) -> str:
    """Return a note that gswarm's configuration file is not read, with replacements. Return "" without such a file."""
    file = home and home / ".gswarm" / "config.yaml"
    try:
        text = file.read_text(encoding="utf-8", errors="replace") if file else ""
    except OSError:
        return ""
    instead = [f" Instead of {name}, use {_SECTIONS[name]}." for name in _SECTION.findall(text) if name in _SECTIONS]
    return f"note: {file} is not read.{''.join(instead)} See docs/coming-from/gswarm.md" if text else ""


def gswarm() -> NoReturn:
    """Entry point of the command `gswarm`. It translates the command line, runs it, and exits."""
    if note := describe_unread_file(settings.home()):
        print(visible(note, LONGEST), file=sys.stderr)
    _main("gswarm", GSWARM)


def grid_cli() -> NoReturn:
    """Entry point of the command `grid-cli`. It translates the command line, runs it, and exits."""
    _main("grid-cli", GRID_CLI)
