"""cluster.yaml: which hosts there are, and how they are reached, judged and kept up to date."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from threads_cluster import errors

#: Looked for in the current folder.
FILE = "cluster.yaml"
#: Bytes of one file, levels of its lists and mappings, and its hosts.
MAX_BYTES, _MAX_DEPTH, MAX_NODES = 256 << 10, 8, 1000

#: None begins with -, which ssh would take for an option.
_Host = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_:][A-Za-z0-9._:%-]{0,252}$")]
_Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:%-]{0,252}$")]
_User = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._@\\-]{0,63}$")]
_Label = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
_Path = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]{1,1024}$")]
#: A folder on a host: from its root, or from the user's home.
_Folder = Annotated[str, StringConstraints(pattern=r"^(/|~/)[^\x00-\x1f\x7f]{1,1023}$")]
_Seconds = Annotated[float, Field(gt=0, le=3600)]
_Weight = Annotated[float, Field(ge=0, le=1000, allow_inf_nan=False)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Node(_Part):
    """A host; what is not given is that of `ssh`, of ~/.ssh/config, or of ssh itself."""

    host: _Host
    #: In tables and for --host; default: the host.
    name: _Name = ""
    user: _User | None = None
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    key_file: _Path | None = None
    #: What is run here for its connection, as ssh's ProxyCommand: %h, %p and %r are host, port and user.
    proxy_command: _Path | None = None
    remote_root: _Folder | None = None
    #: A Python there that has what requirements/local.txt names; default: up makes an environment.
    python: _Path | None = None
    labels: tuple[_Label, ...] = ()
    #: What `cluster up` starts there.
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
    #: Seconds until a host that does not answer is given up.
    timeout: _Seconds = 10.0
    #: Connections to one host at most; each carries several commands at once.
    pool_size: Annotated[int, Field(ge=1, le=64)] = 10
    key_file: _Path | None = None
    #: Keys of hosts; default: ~/.ssh/known_hosts and /etc/ssh/ssh_known_hosts.
    known_hosts: _Path | None = None


class HealthCheck(_Part):
    #: Hosts that are asked at once.
    max_workers: Annotated[int, Field(ge=1, le=1000)] = 20
    #: Seconds until a host that has not said how it is counts as unhealthy.
    timeout: _Seconds = 3.0
    cpu_weight: _Weight = 1.0
    gpu_weight: _Weight = 3.0
    #: Seconds between two looks of `health --watch`; 0: 2 s.
    refresh_interval: Annotated[float, Field(ge=0, le=3600)] = 0.0


class Sync(_Part):
    #: Lines of .gitignore: what is not sent, beside what is never sent.
    exclude_patterns: tuple[_Path, ...] = (".git", "__pycache__", ".env", "node_modules")


class ClusterConfig(_Part):
    """All of cluster.yaml."""

    nodes: Annotated[tuple[Node, ...], Field(min_length=1, max_length=MAX_NODES)]
    #: Folder on each host, in which each folder that is sent gets one of its name.
    remote_root: _Folder = "~/grid_workspace"
    ssh: Ssh = Ssh()
    health_check: HealthCheck = HealthCheck()
    sync: Sync = Sync()

    @classmethod
    def from_yaml(cls, path: str | Path) -> ClusterConfig:
        """Read a file. BadArgument with its name, a line and the path of a key that is wrong."""
        return _read(Path(path))

    def node(self, name: str) -> Node:
        """Return a node by its name. BadArgument with those that there are."""
        for node in self.nodes:
            if node.name == name:
                return node
        names = ", ".join(node.name for node in self.nodes[:20])
        raise errors.BadArgument(f"no node of {FILE} is called {name}; there are {names}", "host")

    def root(self, node: Node) -> str:
        """Return the folder on a host in which folders that are sent lie."""
        return node.remote_root or self.remote_root


def _read(path: Path) -> ClusterConfig:
    from threads_protocol import yaml_texts  # a package that hosts of the cluster alone do not need

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
        # An empty value is one that is not given.
        read = ClusterConfig.model_validate(_given(value))
    except ValidationError as error:
        raise _wrong(path, value, error) from None
    _check_names(path, value, read.nodes)
    return read


def _line(value: Any, place: tuple[str | int, ...]) -> int:
    """Return the line of a place, else of what is around it."""
    from threads_protocol.yaml_texts import START, find_position

    return find_position(value, place, START).line


def _given(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _given(inner) for key, inner in value.items() if inner is not None}
    return [_given(item) for item in value] if isinstance(value, list) else value


def _wrong(path: Path, value: Any, error: ValidationError) -> errors.BadArgument:
    """Return the first complaint with its line, and how many more there are."""
    several = error.errors(include_url=False)
    first = several[0]
    place = tuple(first["loc"])
    text = first["msg"][0].lower() + first["msg"][1:]
    if first["type"] == "extra_forbidden":
        text = f"there is no such key; there are {', '.join(_keys(place[:-1]))}"
    elif first["type"] == "string_pattern_mismatch":
        why = _PLAIN.get(str(place[-1]), "it has characters that it may not have")
        text = f"{first['input']!r:.100} is not taken; {why}"
    elif first["type"] != "missing":
        text = f"{text}; got {first['input']!r:.100}"
    more = f" (and {len(several) - 1} more)" if len(several) > 1 else ""
    return errors.BadArgument(f"{path}:{_line(value, place)}: {dotted(place)}: {text}{more}")


#: What a text may be, where a pattern says it shortest.
_PLAIN = {
    "host": "a host is a name or an address",
    "name": "a name has letters, digits and . _ - and begins with a letter or digit",
    "user": "a user has letters, digits and . _ - and begins with a letter or digit",
    "remote_root": "a folder begins with / or ~/",
}


def _keys(place: Iterable[str | int]) -> list[str]:
    """Return the keys of the mapping at a place."""
    parts: dict[str | int, type[BaseModel]] = {"nodes": Node, "ssh": Ssh, "health_check": HealthCheck, "sync": Sync}
    names = [parts[part].model_fields for part in place if part in parts]
    return list(names[-1] if names else ClusterConfig.model_fields)


def dotted(place: Iterable[str | int]) -> str:
    """Return a place as people write it: nodes[2].port"""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return text.removeprefix(".")


def _check_names(path: Path, value: Any, nodes: Iterable[Node]) -> None:
    seen: set[str] = set()
    for number, node in enumerate(nodes):
        if node.name in seen:
            line = _line(value, ("nodes", number))
            raise errors.BadArgument(
                f"{path}:{line}: nodes[{number}]: a node is called {node.name} already; give it another name:"
            )
        seen.add(node.name)


def bracketed(host: str) -> str:
    """Return a host as it stands before a colon: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host and not re.match(r"\[", host) else host
