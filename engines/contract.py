"""Protocols of the modules in an engine's folder. Engines import this and never the registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from pydantic import BaseModel

from jobs.kinds.program_arguments import Argument

#: Ability of a model, by its name in llama.cpp and Ollama.
Capability = Literal["completion", "embedding", "rerank"]


@dataclass(frozen=True, kw_only=True)
class Abilities:
    """Calls, context and capabilities of a service's replicas. None: the engine cannot know this."""

    #: Most tokens of prompt and answer together in one request.
    context_length: int | None = None
    capabilities: tuple[Capability, ...] | None = None
    #: Calls of `engines/calls.py` that they answer; the gateway refuses all others.
    calls: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Model:
    """Model of a service: an artifact that each replica has in its folder."""

    #: Id of the artifact.
    artifact: str
    #: Name by which it is asked for.
    name: str
    #: Bytes by path.
    files: Mapping[str, int]
    #: Returns the first bytes of a file, at most so many; none where the store has lost them.
    head: Callable[[str, int], bytes] = lambda path, most: b""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """Start of a replica, as a runner must know it. It needs nothing of the engine's folder."""

    #: Arguments of the program; {port}, {address} and {python} are replaced, except in literals.
    command: Sequence[Argument]
    env: Mapping[str, str] = field(default_factory=dict)
    #: Packages that {python} has, as a file of requirements lists them; empty: none.
    packages: str = ""
    #: Module of these: a Python that has it needs no environment. Empty: always one.
    module: str = ""
    #: Path that answers 2xx once the replica is ready.
    health: str = "/health"
    grace_seconds: float = 10.0
    #: One replica leads the others, and each is told where that one answers: CLUSTER_LEAD_ADDRESS, _PORT and _KEY.
    group: bool = False
    #: It runs code that the model brings: whoever serves it needs the scope operate.
    runs_models_code: bool = False


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Program that answers prompts without a server, for workflows.

    In its folder are the model's files under `model`, and the prompts as lines of files under `input`. It writes
    answers/answers.jsonl: a line {"text", "prompt"} for each prompt, in their order.
    """

    #: Text of a program in Python, and what it is called with.
    program: str
    arguments: Sequence[str]
    #: As of a launch.
    packages: str = ""
    module: str = ""


class Definition(Protocol):
    """`definition.py`: how a replica is started, and what it answers.

    One whose packages are gigabytes says LARGE. One whose models have a size also has `need(parameters, model, gpus)`,
    which returns a `memory.Need`; one that knows what its replicas can be asked for, `abilities(parameters, model)`;
    one whose replicas are a group, `credentials(key)`: the certificate and its key, in
    PEM, of whoever has a replica's key. One whose leading replica answers browsers, GET and WebSockets that come with
    its key, says PAGE: the path at which people begin to look.
    """

    #: One sentence for people.
    SUMMARY: str
    #: openai: it answers the calls of /v1 that the gateway passes on; http: something else, which the gateway does not.
    ROUTES: Literal["openai", "http"]
    Parameters: type[BaseModel]

    @staticmethod
    def launch(parameters: Any, model: Model | None, gpus: int) -> Launch:
        """Return how a replica is started that has so many GPUs.

        Raises InvalidRequest naming the parameter, `model`, or what it lacks of `requirements`.
        """
        ...
