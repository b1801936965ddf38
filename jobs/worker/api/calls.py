"""Declarations of the worker API's calls. Methods of protocols define the names, parameters and responses of calls.

Coordinators derive a route from each call and workers a request: `POST /api/worker/{name}` with the arguments as a JSON
object. The response is `{"answer": ...}`. Bytes are encoded as base64. The `worker` argument is never sent, because the
token identifies the worker.
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
    encode_base64,
)
from jobs.store.work.lease_store import Heard
from jobs.store.work.slots import TAKE, JobFacts
from jobs.worker.api.heartbeat_record import MAX_LANES, Offer, Row
from threads_protocol.numbers import short

#: Maximum time in seconds that a request can wait for work.
MAX_WAIT_SECONDS = 20.0

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$", description="SHA-1 over the SHA-1s of the partial results.")]
KeptLease = Annotated[tuple[JobId, LeaseToken, Units], Strict(False)]


@dataclass(frozen=True, kw_only=True)
class Registered:
    """Response to a registration."""

    worker: Annotated[str, Field(description="The worker's name, which is also the name of its token.")]
    born: Annotated[str, Field(description="Identifier of this process; starts with its start time in Redis.")]


@dataclass(frozen=True, kw_only=True)
class Work:
    """Response to a request for work: a slot for one job, leases of small jobs, or nothing."""

    how: Annotated[
        str,
        Field(description="hold: a slot for one job; take: leases of whole small jobs; none; draining."),
    ]
    jobs: tuple[JobFacts, ...] = ()
    leases: Annotated[tuple[str, ...], Field(description="For take: the lease token of each job.")] = ()


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Stored partial results of a job, which the caller merges."""

    accumulator: Octets | None
    parts: tuple[Octets, ...]
    done: Annotated[int, Field(description="Number of units that the partial results cover.")]
    spec: Annotated[Octets | None, Field(description="Null if the job does not exist or this worker does not hold it.")]
    more: Annotated[bool, Field(description="True if more partial results exist; request them with `start`.")]


class ApiCalls(Protocol):
    """Calls that only the worker API offers. Remote workers access the store of leases through these calls."""

    def register(self) -> Registered:
        """Register a new process of a worker. The response contains the worker's name."""

    def heartbeat(
        self,
        born: Annotated[str, Field(pattern=r"^[0-9]{13}-[0-9a-f]{8}$", description="Value that register returned.")],
        row: Row,
        leases: Annotated[Sequence[KeptLease], Field(max_length=TAKE * MAX_LANES)] = (),
        slot: Annotated[bool, Field(description="True to extend the worker's slot.")] = False,
        leaving: Annotated[bool, Field(description="True for the last heartbeat.")] = False,
    ) -> Heard:
        """Report that the worker is alive, and extend its leases and its slot.

        A heartbeat is required once per second, because leases and the slot expire after three seconds. Each lease is
        identified by its job and its token, and is sent with the first unit that is not computed yet.
        """

    def next(
        self,
        device: WorkDevice,
        lanes: Annotated[int, Field(ge=1, le=MAX_LANES, description="Number of idle lanes.")],
        take: Annotated[int, Field(ge=0, le=TAKE * MAX_LANES, description="Maximum number of small jobs.")] = TAKE,
        kinds: Annotated[
            dict[Annotated[str, Field(max_length=64)], int] | None,
            Field(
                max_length=256,
                description="Model version of each kind that the worker computes, or null for all kinds. A runner"
                " without a free slot lists only kinds whose jobs never finish.",
            ),
        ] = None,
        wait_seconds: Annotated[float, Field(ge=0, le=MAX_WAIT_SECONDS, description="Seconds to wait for work.")] = 0.0,
        offer: Annotated[Offer | None, Field(description="Free resources; required from runners.")] = None,
    ) -> Work:
        """End the worker's slot and return the best available work. Wait for work for up to `wait_seconds`.

        If the response is lost, its leases and its slot expire after three seconds, and other workers get the work.
        """

    def gather(
        self,
        job: JobId,
        limit: Annotated[int, Field(ge=1, le=256, description="Maximum number of partial results.")] = 256,
        start: Annotated[
            int,
            Field(
                ge=0, le=255, description="Index of the first partial result; above 0, the response has no accumulator."
            ),
        ] = 0,
    ) -> Parts:
        """Return the committed partial results of a job that the worker holds or has finished.

        Other jobs have none.
        """

    def fold(
        self, job: JobId, digest: Digest, parts: Annotated[SomeUnits, Field(le=256)], accumulator: Content
    ) -> bool:
        """Replace the gathered partial results by one merged result, the accumulator.

        Only the worker that gathered the partial results knows their digest.
        """

    def finish(self, job: JobId, digest: Digest, result: Content, marks: Marks = "[]") -> bool:
        """Store the final result that was derived from the gathered partial results."""

    def fail_result(self, job: JobId, digest: Digest, error: Reason, token: LeaseToken | None = None) -> bool:
        """Report that no final result can be derived from the gathered partial results.

        With a token, the report counts as a crash of a lane; otherwise, the job fails. The token makes repeated reports
        of one crash count once.
        """


#: Parts of the store with their protocols and calls; the worker API itself implements the first protocol.
_DECLARED: tuple[tuple[str, type, tuple[str, ...]], ...] = (
    ("", ApiCalls, ("register", "heartbeat", "next", "gather", "fold", "finish", "fail_result")),
    ("fleet", lease_store.FleetCalls, ("claim", "give_up")),
    ("slots", lease_store.SlotCalls, ("leave", "waiting", "unsupported")),
    (
        "leases",
        lease_store.LeaseCalls,
        ("lease", "commit", "done1_all", "release", "crash", "fail", "fail_unit", "split"),
    ),
    ("profiles", lease_store.ProfileCalls, ("report", "add_part")),
)


@dataclass(frozen=True, kw_only=True)
class Call:
    """Declaration of a call, used by clients and servers."""

    name: str
    #: Part of the store with the method of this name, or an empty string if the API implements the call.
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
        """Return the request body for a call with these arguments."""
        body = dict(self.signature.bind(*given, **named).arguments)
        body.pop("worker", None)
        return {**body, "error": body["error"][:MAX_REASON]} if "error" in body else body

    def read(self, answer: Mapping[str, Any]) -> Any:
        """Return the value in a response. Raises ValueError if the response lacks a field."""
        try:
            return self.gives.model_validate(answer).answer  # type: ignore[attr-defined]
        except ValidationError as error:
            field = ".".join(map(str, error.errors()[0]["loc"]))
            raise ValueError(
                f"its response to {self.path} has no valid field {field}: {short(str(answer)[:80])}"
            ) from None


def plain(value: Any) -> Any:
    """Convert an argument to a value that JSON supports."""
    if isinstance(value, bytes):
        return encode_base64(value)
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"cannot encode the argument {value!r} as JSON")


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


#: All calls, keyed by name.
CALLS: dict[str, Call] = {
    name: _call(part, name, getattr(protocol, name)) for part, protocol, names in _DECLARED for name in names
}
