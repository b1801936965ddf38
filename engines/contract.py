"""Interfaces of the modules in an engine's folder. Engines import this module but never the registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from pydantic import BaseModel

from jobs.kinds.program_arguments import Argument

#: Capability of a model, named as in llama.cpp and Ollama.
Capability = Literal["completion", "embedding", "rerank"]


@dataclass(frozen=True, kw_only=True)
class Abilities:
    """Calls, context and capabilities of a service's replicas. None means that the engine does not know them."""

    #: Maximum number of tokens of prompt and answer together in one request.
    context_length: int | None = None
    capabilities: tuple[Capability, ...] | None = None
    #: Supported calls of `engines/calls.py`. The gateway rejects all others.
    calls: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Model:
    """Model of a service: an artifact that each replica has in its folder."""

    #: ID of the artifact.
    artifact: str
    #: Name of the model in requests.
    name: str
    #: Size of each file in bytes, keyed by path.
    files: Mapping[str, int]
    #: Function that returns up to the given number of first bytes of a file, or nothing if the store has lost the file.
    head: Callable[[str, int], bytes] = lambda path, most: b""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """Command and settings that start a replica. A runner needs no other file of the engine."""

    #: Arguments of the program. {port}, {address} and {python} are replaced, except in literals.
    command: Sequence[Argument]
    env: Mapping[str, str] = field(default_factory=dict)
    #: Packages of the {python} environment in the format of a requirements file, or an empty string.
    packages: str = ""
    #: Name of a Python module, or empty. If the runner's own Python has the module, no environment is installed.
    module: str = ""
    #: Path that returns HTTP 2xx when the replica is ready.
    health: str = "/health"
    grace_seconds: float = 10.0
    #: True if one replica leads the others, which get its address as CLUSTER_LEAD_ADDRESS, _PORT and _KEY.
    group: bool = False
    #: True if the replica runs code of the model, which requires the scope `operate`.
    runs_models_code: bool = False


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Program that answers prompts without a server, for workflows.

    Its working directory contains the model's files in `model`, and files with one prompt per line in `input`. The
    program writes answers/answers.jsonl, with one line {"text", "prompt"} per prompt in the same order.
    """

    #: Source text of a Python program, and its arguments.
    program: str
    arguments: Sequence[str]
    #: Python packages and their module, as in `Launch`.
    packages: str = ""
    module: str = ""


class Definition(Protocol):
    """Contents of `definition.py`: how a replica is started, and which requests it supports.

    Optional members:

    - LARGE = True if the packages take gigabytes.
    - `need(parameters, model, gpus)` returns a `memory.Need`, if models have a size.
    - `abilities(parameters, model)` returns the abilities of a replica, if they are known.
    - `credentials(key)` returns the certificate and its key in PEM for clients that have a replica's key, for a group.
    - PAGE is the start path for browsers, if the leading replica serves web pages.
    """

    #: Description of the engine in one sentence.
    SUMMARY: str
    #: openai: the replica supports calls of /v1, which the gateway forwards. http: it serves other requests.
    ROUTES: Literal["openai", "http"]
    Parameters: type[BaseModel]

    @staticmethod
    def launch(parameters: Any, model: Model | None, gpus: int) -> Launch:
        """Return the command that starts a replica with this number of GPUs.

        Raises InvalidRequest with the invalid field: a parameter, `model`, or a field of `requirements`.
        """
        ...
