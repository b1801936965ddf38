"""Interfaces of the modules in the folder of an engine. Engines import this module, but never the registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from pydantic import BaseModel

from jobs.kinds.program_arguments import Argument

#: Capability of a model. The names are the same as in llama.cpp and Ollama.
Capability = Literal["completion", "embedding", "rerank"]


@dataclass(frozen=True, kw_only=True)
class Abilities:
    """Supported API calls, context length and capabilities of a replica. None means unknown."""

    #: Maximum number of tokens in the prompt and the answer of a request together.
    context_length: int | None = None
    capabilities: tuple[Capability, ...] | None = None
    #: Supported API calls, which are listed in `engines/calls.py`. The gateway rejects all other calls.
    calls: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Model:
    """Model of a service. Its artifact is in the folder of each replica."""

    #: ID of the artifact that contains the model.
    artifact: str
    #: Name by which requests select the model.
    name: str
    #: Size in bytes of each file of the artifact, keyed by path.
    files: Mapping[str, int]
    #: Function that returns the first bytes of a file, up to a number. It returns b"" if the file is lost.
    head: Callable[[str, int], bytes] = lambda path, most: b""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """Command and settings with which a runner starts a replica. The runner needs no other file of the engine."""

    #: Program and arguments, in which {port}, {address} and {python} are replaced, except in literals.
    command: Sequence[Argument]
    env: Mapping[str, str] = field(default_factory=dict)
    #: Packages that {python} needs, in the format of a requirements file, or an empty string.
    packages: str = ""
    #: Name of a Python module, or empty. The runner installs no packages if its own Python has this module.
    module: str = ""
    #: HTTP path that returns status 2xx when the replica is ready.
    health: str = "/health"
    grace_seconds: float = 10.0
    #: True if one replica leads the others. They get its address in environment variables CLUSTER_LEAD_*.
    group: bool = False
    #: True if the replica runs code from the model's artifact, which requires the scope `operate`.
    runs_models_code: bool = False


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Program that answers a list of prompts without a server, as a job of a workflow.

    Its working directory contains the model's files in `model`, and files with one prompt per line in `input`. The
    program writes answers/answers.jsonl, with one line {"text", "prompt"} per prompt in the same order.
    """

    #: Source text of a Python program.
    program: str
    arguments: Sequence[str]
    #: Packages that the program needs, in the format of a requirements file.
    packages: str = ""
    module: str = ""


class Definition(Protocol):
    """Definition of an engine: how a replica is started, and which requests a replica supports.

    Each engine has a module `definition.py` with these members. Optional members:

    - LARGE = True if the packages take gigabytes.
    - `need(parameters, model, gpus)` returns a `memory.Need`, if models have a size.
    - `abilities(parameters, model)` returns the abilities of a replica, if they are known.
    - `credentials(key)` returns the certificate and its key in PEM for clients that have a replica's key, for a group.
    - PAGE is the start path for browsers, if the leading replica serves web pages.
    """

    #: Description of the engine in one sentence, for users.
    SUMMARY: str
    #: Requests that a replica supports: openai for calls of /v1, http for any other requests.
    ROUTES: Literal["openai", "http"]
    Parameters: type[BaseModel]

    @staticmethod
    def launch(parameters: Any, model: Model | None, gpus: int) -> Launch:
        """Return the command that starts a replica with `gpus` GPUs.

        Raises InvalidRequest with the invalid field: a parameter, `model`, or a field of `requirements`.
        """
        ...
