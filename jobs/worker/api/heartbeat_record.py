"""Validation of the record that a worker sends with each heartbeat, including fields that contain JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from jobs.hosts.labels import join_labels
from jobs.models import MAX_UNITS
from jobs.store.work.bounds import Integer, Number, Reason, is_json_of

#: Maximum number of lanes of a worker.
MAX_LANES = 1024

ShortText = Annotated[str, Field(max_length=64)]
JobName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{0,64}$")]


class OfferedGpu(BaseModel):
    """A GPU that a runner offers to programs. Unknown fields are dropped."""

    model_config = ConfigDict(extra="ignore", strict=True)

    name: ShortText | None = None
    memory_mib: int = Field(ge=0, le=1 << 30)
    compute_capability: str = Field(pattern=r"^[0-9]{1,3}\.[0-9]{1,3}$")


class Offer(BaseModel):
    """Free resources of a runner for programs."""

    model_config = ConfigDict(extra="forbid", strict=True)

    cpus: float = Field(ge=0, le=100_000, description="Free CPUs. The other fields are free resources too.")
    memory_mib: float = Field(ge=0, le=1 << 40)
    gpus: list[OfferedGpu] = Field(default_factory=list, max_length=64)
    host: str = Field("", pattern=r"^[A-Za-z0-9._-]{0,64}$")
    labels: list[ShortText] = Field(default_factory=list, max_length=64)
    tenant: ShortText = Field("", description="The only tenant whose jobs the runner can take; empty for any tenant.")


class OfferNextToReplicas(Offer):
    """Resources that a runner has for programs while its replicas of services are running."""

    model_config = ConfigDict(extra="ignore", strict=True)

    replicas: int = Field(ge=0, le=MAX_LANES, description="Number of replicas that the runner can still start.")
    works_for: ShortText = Field(
        "", description="The only tenant whose jobs the runner can take now; empty for any tenant."
    )
    replica_jobs: list[Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]] = Field(
        default_factory=list, max_length=MAX_LANES, description="Jobs of the running replicas."
    )


class Disk(BaseModel):
    """Free space on a disk of a worker's machine."""

    model_config = ConfigDict(extra="forbid", strict=True)

    disk: str = Field(pattern=r"^[0-9]{1,10}:[0-9]{1,10}$")
    places: list[Annotated[str, Field(pattern=r"^[a-z]{1,32}$")]] = Field(max_length=16)
    free_bytes: int = Field(ge=0, le=MAX_UNITS)
    total_bytes: int = Field(ge=0, le=MAX_UNITS)


class Card(BaseModel):
    """A GPU of a worker's machine that no worker uses. Unknown fields are dropped: newer versions can add fields."""

    model_config = ConfigDict(extra="ignore", strict=True)

    card: str = Field(pattern=r"^card[0-9]{1,3}$")
    name: ShortText
    utilization_ratio: float | None = Field(None, ge=0, le=1)
    memory_used_bytes: int | None = Field(None, ge=0, le=MAX_UNITS)
    memory_total_bytes: int | None = Field(None, ge=0, le=MAX_UNITS)
    temperature_celsius: float | None = Field(None, ge=0, le=1000)
    power_watts: float | None = Field(None, ge=0, le=1e6)
    clock_hertz: float | None = Field(None, ge=0, le=1e12)


class Gpu(BaseModel):
    """A GPU of a worker. Newer versions can add fields, whose values are texts, lists of texts or numbers."""

    model_config = ConfigDict(extra="allow", strict=True)
    __pydantic_extra__: dict[str, str | list[str] | Number] = Field(init=False)

    uuid: str = Field(pattern=r"^[A-Za-z0-9._:/-]{1,64}$")
    name: str = Field("", pattern=r"^[^\x00-\x1f\x7f-\x9f]{0,96}$")
    job: JobName = ""
    throttle_reasons: list[ShortText] = Field(default_factory=list, max_length=32)
    index: Number = 0
    utilization_ratio: Number = 0
    sm_active_ratio: Number = 0
    memory_used_bytes: Number = 0
    memory_total_bytes: Number = 0
    temperature_celsius: Number = 0
    power_watts: Number = 0
    energy_joules_total: Number = 0
    clock_sm_hertz: Number = 0
    clock_memory_hertz: Number = 0
    pcie_receive_bytes_per_second: Number = 0
    pcie_transmit_bytes_per_second: Number = 0


_CARDS = TypeAdapter(Annotated[list[Card], Field(max_length=16)])


def _are_cards(text: str) -> str:
    """Return JSON of a list of at most 16 GPUs with their known fields. Raises ValueError for any other text."""
    try:
        cards = _CARDS.validate_json(text)
    except ValidationError as error:
        raise ValueError(f"must be a JSON list of at most 16 cards: {error.errors()[0]['msg']}") from None
    return json.dumps([card.model_dump(exclude_none=True) for card in cards])


Text = Annotated[str, Field(max_length=16_384)]
Versions = dict[Annotated[str, Field(pattern=r"^[a-z_]{1,32}$")], ShortText]
Disks = Annotated[
    Text, is_json_of(Annotated[list[Disk], Field(max_length=16)], "list of at most 16 disks with their free space")
]
Gpus = Annotated[
    str,
    Field(max_length=65_536),
    is_json_of(Annotated[list[Gpu], Field(max_length=64)], "list of at most 64 GPUs, each an object with a uuid"),
]
Running = Annotated[
    Text, is_json_of(Annotated[list[tuple[str, int]], Field(max_length=64)], "list of at most 64 [job, unit]")
]


class Row(BaseModel):
    """Record that a worker sends with each heartbeat. Unknown fields are dropped: newer versions can add fields."""

    model_config = ConfigDict(extra="ignore", strict=True)

    device: Literal["cpu", "gpu", "runner"]
    state: Literal["starting", "parked", "idle", "busy", "draining", "drained", "stopped"]
    lanes: int = Field(ge=0, le=MAX_LANES)
    busy_lanes: int = Field(ge=0, le=MAX_LANES)
    job: JobName
    kinds: Annotated[Text, is_json_of(dict[str, Integer], "object of integers")]
    rates: Annotated[Text, is_json_of(dict[str, Number], "object of numbers")]
    pid: int = Field(ge=0, le=2**32)
    host: str = Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")
    network: str = Field(pattern=r"^[0-9]{1,20}$")
    cpu_ratio: float = Field(ge=0, le=100)
    cpus: int = Field(ge=1, le=100_000)
    memory_used_bytes: int = Field(ge=0, le=MAX_UNITS)
    memory_total_bytes: int = Field(ge=0, le=MAX_UNITS)
    network_receive_bytes_total: int = Field(ge=0, le=2**64)
    network_transmit_bytes_total: int = Field(ge=0, le=2**64)
    network_receive_bytes_per_second: float | None = Field(None, ge=0, le=1e18)
    network_transmit_bytes_per_second: float | None = Field(None, ge=0, le=1e18)
    load1: float | None = Field(None, ge=0, le=1e9)
    disks: Disks | None = None
    versions: (
        Annotated[
            str,
            Field(max_length=4096),
            is_json_of(Annotated[Versions, Field(max_length=16)], "object of at most 16 versions by name"),
        ]
        | None
    ) = None
    cards: Annotated[Text, AfterValidator(_are_cards)] | None = None
    clock: float | None = Field(None, ge=0, le=1e12)
    round_trip_seconds: float | None = Field(None, ge=0, le=1e6)
    cpu_energy_joules_total: float | None = Field(None, ge=0, le=1e18)
    cpu_level: str | None = Field(None, pattern=r"^[A-Za-z0-9_]{1,32}$")
    gpus: Gpus | None = None
    retired: Reason | None = None
    refused: Reason | None = None
    compiling: Annotated[str, Field(pattern=r"^[A-Za-z0-9_,]{0,4096}$")] | None = None
    offer: Annotated[Text, is_json_of(Offer, "offer")] | None = None
    beside_replicas: Annotated[Text, is_json_of(OfferNextToReplicas, "offer")] | None = None
    isolation: Literal["uid", "shared"] | None = None
    cordoned: Annotated[str, Field(max_length=300)] | None = None
    running: Running | None = None

    def labelled(self, labels: Sequence[str]) -> dict[str, Any]:
        """Return the record with the host labels that the worker's token grants, replacing the worker's own labels."""
        row = self.model_dump(exclude_none=True) | {"labels": join_labels(labels)}
        for name in row.keys() & {"offer", "beside_replicas"}:
            row[name] = json.dumps(offered(json.loads(row[name]), labels))
        return row


def offered(offer: dict[str, Any], labels: Sequence[str]) -> Any:
    """Return a runner's offer with the granted labels added to its own labels."""
    return {**offer, "labels": sorted({*offer.get("labels", ()), *labels})}
