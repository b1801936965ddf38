"""Models of cluster.yaml, which lists hosts with settings for connections, health checks and file transfers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from threads_cluster import errors

#: Default name of the configuration file.
FILE = "cluster.yaml"
#: Maximum size of cluster.yaml in bytes.
#: Maximum nesting depth of cluster.yaml.
#: Maximum number of hosts in cluster.yaml.
MAX_BYTES, _MAX_DEPTH, MAX_NODES = 256 << 10, 8, 1000

#: Type of host names. No value starts with "-", because ssh would read it as an option.
_Host = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_:][A-Za-z0-9._:%-]{0,252}$")]
_Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:%-]{0,252}$")]
_User = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._@\\-]{0,63}$")]
_Label = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
_Path = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]{1,1024}$")]
#: Type of folders on a host. A folder is an absolute path or a path in the user's home directory.
_Folder = Annotated[str, StringConstraints(pattern=r"^(/|~/)[^\x00-\x1f\x7f]{1,1023}$")]
_Seconds = Annotated[float, Field(gt=0, le=3600)]
_Weight = Annotated[float, Field(ge=0, le=1000, allow_inf_nan=False)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Node(_Part):
    """Host of cluster.yaml. Missing settings come from the key `ssh`, from ~/.ssh/config, and from ssh itself."""

    host: _Host
    #: Name of the host in tables and for the option --host. The default is `host`.
    name: _Name = ""
    user: _User | None = None
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    key_file: _Path | None = None
    #: Local command that opens the connection, like ssh's ProxyCommand. %h, %p and %r are replaced.
    proxy_command: _Path | None = None
    remote_root: _Folder | None = None
    #: Path of a Python on the host with the packages of requirements/local.txt. By default, `up` creates it.
    python: _Path | None = None
    labels: tuple[_Label, ...] = ()
    #: Number of CPU workers that `cluster up` starts on the host.
    workers: Annotated[int, Field(ge=0, le=64)] = 1
    gpu: bool = False
    runner: bool = False

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"host": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _named(self) -> Self:
        if not self.name:
            object.__setattr__(self, "name", self.host)
        return self


class Ssh(_Part):
    #: Timeout in seconds for connecting to a host.
    timeout: _Seconds = 10.0
    #: Maximum number of connections per host. A connection can run several commands at the same time.
    pool_size: Annotated[int, Field(ge=1, le=64)] = 10
    #: Seconds for which connections stay open for the next `cluster run`. With 0, they are closed at once.
    persist: Annotated[float, Field(ge=0, le=3600)] = 60.0
    key_file: _Path | None = None
    #: File with the keys of known hosts. The default is ~/.ssh/known_hosts and /etc/ssh/ssh_known_hosts.
    known_hosts: _Path | None = None


class HealthCheck(_Part):
    #: Maximum number of hosts that are checked at the same time.
    max_workers: Annotated[int, Field(ge=1, le=1000)] = 20
    #: Seconds after which a host without a response counts as unhealthy.
    timeout: _Seconds = 3.0
    cpu_weight: _Weight = 1.0
    gpu_weight: _Weight = 3.0
    #: Interval in seconds between the checks of `health --watch`. 0 means 2 seconds.
    refresh_interval: Annotated[float, Field(ge=0, le=3600)] = 0.0


class Sync(_Part):
    #: Patterns in .gitignore syntax of files that are not sent, in addition to the built-in patterns.
    exclude_patterns: tuple[_Path, ...] = (".git", "__pycache__", ".env", "node_modules")


class ClusterConfig(_Part):
    """Contents of the configuration file cluster.yaml."""

    nodes: Annotated[tuple[Node, ...], Field(min_length=1, max_length=MAX_NODES)]
    #: Folder on each host that contains the transferred folders.
    remote_root: _Folder = "~/grid_workspace"
    ssh: Ssh = Ssh()
    health_check: HealthCheck = HealthCheck()
    sync: Sync = Sync()

    @classmethod
    def from_yaml(cls, path: str | Path) -> ClusterConfig:
        """Parse a configuration file. Raises BadArgument with the file name, the line and the invalid key."""
        return _read(Path(path))

    def node(self, name: str) -> Node:
        """Return a host of cluster.yaml by its name. Raises BadArgument with the valid names."""
        for node in self.nodes:
            if node.name == name:
                return node
        names = ", ".join(node.name for node in self.nodes[:20])
        raise errors.BadArgument(f"no node of {FILE} has the name {name}; the nodes are {names}", "host")

    def root(self, node: Node) -> str:
        """Return the folder on a host that contains the transferred folders."""
        return node.remote_root or self.remote_root


def _read(path: Path) -> ClusterConfig:
    from threads_protocol import yaml_texts  # Clients that do not use SSH lack this package

    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise errors.BadArgument(f"{path}: cannot be read: {error.strerror}") from None
    try:
        value, complaints = yaml_texts.parse(text, max_bytes=MAX_BYTES, max_depth=_MAX_DEPTH, typed=False)
    except yaml_texts.Unreadable as error:
        raise errors.BadArgument(f"{path}:{error.complaint.place.line}: {error}") from None
    for one in complaints.first:
        raise errors.BadArgument(f"{path}:{one.place.line}: {one.text}")
    if not isinstance(value, dict):
        raise errors.BadArgument(f"{path}:1: must be a mapping with the key nodes, as in: nodes: [gpu1, gpu2]")
    try:
        # An empty value has the same meaning as a missing value.
        read = ClusterConfig.model_validate(_without_empty(value))
    except ValidationError as error:
        raise _to_error(path, value, error) from None
    _check_names(path, value, read.nodes)
    return read


def _line(value: Any, place: tuple[str | int, ...]) -> int:
    """Return the line of a key in the file, or the line of its longest existing prefix."""
    from threads_protocol.yaml_texts import START, find_position

    return find_position(value, place, START).line


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_empty(inner) for key, inner in value.items() if inner is not None}
    return [_without_empty(item) for item in value] if isinstance(value, list) else value


def _to_error(path: Path, value: Any, error: ValidationError) -> errors.BadArgument:
    """Convert a validation error to a BadArgument with the line of the first error and the number of further errors."""
    several = error.errors(include_url=False)
    first = several[0]
    place = tuple(first["loc"])
    text = first["msg"][0].lower() + first["msg"][1:]
    if first["type"] == "extra_forbidden":
        text = f"unknown key; the keys are {', '.join(_keys(place[:-1]))}"
    elif first["type"] == "string_pattern_mismatch":
        why = _PLAIN.get(str(place[-1]), "it contains invalid characters")
        text = f"invalid value {first['input']!r:.100}; {why}"
    elif first["type"] != "missing":
        text = f"{text}; got {first['input']!r:.100}"
    more = f" (and {len(several) - 1} more)" if len(several) > 1 else ""
    return errors.BadArgument(f"{path}:{_line(value, place)}: {format_path(place)}: {text}{more}")


#: Descriptions of valid values for fields that have a pattern.
_PLAIN = {
    "host": "a host must be a name or an address",
    "name": "a name must contain only letters, digits and . _ - and start with a letter or digit",
    "user": "a user must contain only letters, digits and . _ - and start with a letter or digit",
    "remote_root": "a folder must start with / or ~/",
}


def _keys(place: Iterable[str | int]) -> list[str]:
    """Return the valid keys of the mapping at this path."""
    parts: dict[str | int, type[BaseModel]] = {"nodes": Node, "ssh": Ssh, "health_check": HealthCheck, "sync": Sync}
    names = [parts[part].model_fields for part in place if part in parts]
    return list(names[-1] if names else ClusterConfig.model_fields)


def format_path(place: Iterable[str | int]) -> str:
    """Format a path in the file for messages, such as nodes[2].port."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return text.removeprefix(".")


def _check_names(path: Path, value: Any, nodes: Iterable[Node]) -> None:
    seen: set[str] = set()
    for number, node in enumerate(nodes):
        if node.name in seen:
            line = _line(value, ("nodes", number))
            raise errors.BadArgument(
                f"{path}:{line}: nodes[{number}]: another node has the name {node.name}; set a different name:"
            )
        seen.add(node.name)


def bracketed(host: str) -> str:
    """Put an IPv6 address in brackets, so that a port can follow."""
    return f"[{host}]" if ":" in host and not re.match(r"\[", host) else host
