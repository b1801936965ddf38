"""Calls of the worker API, each declared once, by a method of a protocol: its name, what it takes, what it gives.

Coordinators make a route of each, and workers a request: `POST /api/worker/{name}` with the arguments as a JSON object,
answered by `{"answer": ...}`. Bytes are base64. Nobody sends the argument `worker`: a token says who asks.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from typing import Annotated, Any, Protocol, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, Strict, ValidationError, create_model

from jobs.store.work import lease_store
from jobs.store.work.bounds import (
    MAX_REASON,
    Content,
    JobId,
    LeaseToken,
    Marks,
    Octets,
    Reason,
    SomeUnits,
    Units,
    WorkDevice,
    packed,
)
from jobs.store.work.lease_store import Heard
from jobs.store.work.slots import TAKE, Facts
from jobs.worker.api.rows import MAX_LANES, Offer, Row
from threads_protocol.numbers import short

#: Seconds for which a question for work may wait.
MAX_WAIT_SECONDS = 20.0

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$", description="SHA-1 over the SHA-1s of what was gathered.")]
KeptLease = Annotated[tuple[JobId, LeaseToken, Units], Strict(False)]


@dataclass(frozen=True, kw_only=True)
class Registered:
    """Answer to a registration."""

    worker: Annotated[str, Field(description="The worker's name, which is also the name of its token.")]
    born: Annotated[str, Field(description="Tells this process from others of its name; by Redis' clock.")]


@dataclass(frozen=True, kw_only=True)
class Work:
    """Answer to a request for work: a slot at a job, small jobs with their leases, or none."""

    how: Annotated[
        str,
        Field(description="hold: a slot at the job; take: small jobs, each wholly leased; none; draining."),
    ]
    jobs: tuple[Facts, ...] = ()
    leases: Annotated[tuple[str, ...], Field(description="take: the token of each job's lease.")] = ()


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Stored results of a job, to be merged by the caller."""

    accumulator: Octets | None
    parts: tuple[Octets, ...]
    done: Annotated[int, Field(description="Units that all of them cover.")]
    spec: Annotated[Octets | None, Field(description="None: there is no such job, or this worker does not hold it.")]
    more: Annotated[bool, Field(description="Others follow: ask for those by `start`.")]


class ApiCalls(Protocol):
    """Calls that the API alone has. Methods of the store of leases are made of them."""

    def register(self) -> Registered:
        """A worker's process begins. The answer names it."""

    def beat(
        self,
        born: Annotated[str, Field(pattern=r"^[0-9]{13}-[0-9a-f]{8}$", description="As register answered.")],
        row: Row,
        leases: Annotated[Sequence[KeptLease], Field(max_length=TAKE * MAX_LANES)] = (),
        slot: Annotated[bool, Field(description="It has a slot to keep.")] = False,
        leaving: Annotated[bool, Field(description="This is the last beat.")] = False,
    ) -> Heard:
        """The worker lives, and keeps its leases and its slot: once a second, or they expire after three.

        A lease is its job, its token and the first unit that is not computed yet.
        """

    def next(
        self,
        device: WorkDevice,
        lanes: Annotated[int, Field(ge=1, le=MAX_LANES, description="Idle lanes.")],
        take: Annotated[int, Field(ge=0, le=TAKE * MAX_LANES, description="Small jobs that it takes at most.")] = TAKE,
        kinds: Annotated[
            dict[Annotated[str, Field(max_length=64)], int] | None,
            Field(
                max_length=256,
                description="Version of each kind's model that it computes; null: any. A runner without a free slot"
                " names only kinds whose jobs never end.",
            ),
        ] = None,
        wait_seconds: Annotated[float, Field(ge=0, le=MAX_WAIT_SECONDS, description="Seconds to wait for work.")] = 0.0,
        offer: Annotated[Offer | None, Field(description="Of a runner, which gives one: what it has free.")] = None,
    ) -> Work:
        """End the worker's slot and give it the best work; wait for some up to `wait_seconds`.

        When the answer is lost, its leases and its slot expire after three seconds, and others get the work.
        """

    def gather(
        self,
        job: JobId,
        limit: Annotated[int, Field(ge=1, le=256, description="Parts at most.")] = 256,
        start: Annotated[int, Field(ge=0, le=255, description="Beyond 0 without the accumulator.")] = 0,
    ) -> Parts:
        """The committed parts of the job that the worker holds, or has computed to its end; nothing of any other."""

    def fold(
        self, job: JobId, digest: Digest, parts: Annotated[SomeUnits, Field(le=256)], accumulator: Content
    ) -> bool:
        """Put an accumulator in the place of what was gathered, of which only who gathered it knows the digest."""

    def finish(self, job: JobId, digest: Digest, result: Content, marks: Marks = "[]") -> bool:
        """Store the result of what was gathered."""

    def fail_result(self, job: JobId, digest: Digest, error: Reason, token: LeaseToken | None = None) -> bool:
        """The result of what was gathered cannot be derived: the job fails, or a death of a lane over it is counted.

        The token, where a lane died, counts once; without one it raised.
        """


#: Protocols, and the parts of the store with their methods; those of the first are the API's own.
_DECLARED: tuple[tuple[str, type, tuple[str, ...]], ...] = (
    ("", ApiCalls, ("register", "beat", "next", "gather", "fold", "finish", "fail_result")),
    ("fleet", lease_store.FleetCalls, ("claim", "give_up")),
    ("slots", lease_store.SlotCalls, ("leave", "waiting")),
    (
        "leases",
        lease_store.LeaseCalls,
        ("lease", "commit", "done1_all", "release", "crash", "fail", "fail_unit", "split"),
    ),
    ("profiles", lease_store.ProfileCalls, ("report", "add_part")),
)


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call as both sides need it."""

    name: str
    #: Part of the store whose method of this name answers it; empty: none.
    part: str
    signature: inspect.Signature
    takes: type[BaseModel]
    gives: type[BaseModel]

    @property
    def path(self) -> str:
        return self.name.replace("_", "-")

    @property
    def names_worker(self) -> bool:
        return "worker" in self.signature.parameters

    def body(self, *given: Any, **named: Any) -> dict[str, Any]:
        """Return what is sent for a call with these arguments."""
        body = dict(self.signature.bind(*given, **named).arguments)
        body.pop("worker", None)
        return {**body, "error": body["error"][:MAX_REASON]} if "error" in body else body

    def read(self, answer: Mapping[str, Any]) -> Any:
        """Return what an answer gives. ValueError, with the field and what came, for one of another server."""
        try:
            return self.gives.model_validate(answer).answer  # type: ignore[attr-defined]
        except ValidationError as error:
            field = ".".join(map(str, error.errors()[0]["loc"]))
            raise ValueError(f"its answer to {self.path} has no {field}, but {short(str(answer)[:80])}") from None


def plain(value: Any) -> Any:
    """Return what JSON can hold of an argument."""
    if isinstance(value, bytes):
        return packed(value)
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"no argument of a call: {value!r}")


def _call(part: str, name: str, method: Callable[..., Any]) -> Call:
    signature = inspect.signature(method)
    own = [parameter for parameter in signature.parameters.values() if parameter.name != "self"]
    types = get_type_hints(method, include_extras=True)
    model = "".join(word.title() for word in name.split("_"))
    fields: dict[str, Any] = {
        parameter.name: (types[parameter.name], ... if parameter.default is parameter.empty else parameter.default)
        for parameter in own
        if parameter.name != "worker"
    }
    answer: dict[str, Any] = {"answer": (types["return"], ...)}
    strict = ConfigDict(extra="forbid", strict=True)
    return Call(
        name=name,
        part=part,
        signature=signature.replace(parameters=own),
        takes=create_model(model, __config__=strict, __doc__=inspect.getdoc(method), **fields),
        gives=create_model(f"{model}Answer", **answer),
    )


#: Every call, by its name.
CALLS: dict[str, Call] = {
    name: _call(part, name, getattr(protocol, name)) for part, protocol, names in _DECLARED for name in names
}
