"""Rows that workers send of themselves with each beat: each value within bounds, texts of JSON among them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from jobs.hosts.labels import joined
from jobs.models import MAX_UNITS
from jobs.store.work.bounds import Integer, Number, Reason, is_json_of

#: Lanes of a worker.
MAX_LANES = 1024

ShortText = Annotated[str, Field(max_length=64)]


class OfferedGpu(BaseModel):
    """A GPU; whatever else a runner says of it is dropped."""

    model_config = ConfigDict(extra="ignore", strict=True)

    name: ShortText | None = None
    memory_mib: int = Field(ge=0, le=1 << 30)
    compute_capability: str = Field(pattern=r"^[0-9]{1,3}\.[0-9]{1,3}$")


class Offer(BaseModel):
    """Which programs a runner can take now."""

    model_config = ConfigDict(extra="forbid", strict=True)

    cpus: float = Field(ge=0, le=100_000, description="Free ones, as the others.")
    memory_mib: float = Field(ge=0, le=1 << 40)
    gpus: list[OfferedGpu] = Field(default_factory=list, max_length=64)
    host: str = Field("", pattern=r"^[A-Za-z0-9._-]{0,64}$")
    labels: list[ShortText] = Field(default_factory=list, max_length=64)
    tenant: ShortText = Field("", description="The only tenant whose jobs it may take; empty: any.")


class OfferBesideReplicas(Offer):
    """Resources that a runner has for programs while its replicas of services are running."""

    model_config = ConfigDict(extra="ignore", strict=True)

    replicas: int = Field(ge=0, le=MAX_LANES, description="Number of replicas that it can still add.")
    works_for: ShortText = Field("", description="The only tenant whose jobs it takes now; empty: any.")


class Disk(BaseModel):
    """Room on a disk of a worker's machine."""

    model_config = ConfigDict(extra="forbid", strict=True)

    disk: str = Field(pattern=r"^[0-9]{1,10}:[0-9]{1,10}$")
    places: list[Annotated[str, Field(pattern=r"^[a-z]{1,32}$")]] = Field(max_length=16)
    free_bytes: int = Field(ge=0, le=MAX_UNITS)
    total_bytes: int = Field(ge=0, le=MAX_UNITS)


class Card(BaseModel):
    """A GPU of a worker's machine on which no worker computes; fields of a later version are dropped."""

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
    """A GPU on which a worker computes: these figures are numbers, and what else it says of one may be texts."""

    model_config = ConfigDict(extra="allow", strict=True)
    __pydantic_extra__: dict[str, str | list[str] | Number] = Field(init=False)

    uuid: ShortText
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
    """Return the JSON of a list of at most 16 cards, of what is known of each. ValueError for any other text."""
    try:
        cards = _CARDS.validate_json(text)
    except ValidationError as error:
        raise ValueError(f"must be a JSON list of at most 16 cards: {error.errors()[0]['msg']}") from None
    return json.dumps([card.model_dump(exclude_none=True) for card in cards])


Text = Annotated[str, Field(max_length=16_384)]
Versions = dict[Annotated[str, Field(pattern=r"^[a-z_]{1,32}$")], ShortText]
Disks = Annotated[
    Text, is_json_of(Annotated[list[Disk], Field(max_length=16)], "list of at most 16 disks, each with its room")
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
    """A worker's row. Fields of a later version are dropped."""

    model_config = ConfigDict(extra="ignore", strict=True)

    device: Literal["cpu", "gpu", "runner"]
    state: Literal["starting", "parked", "idle", "busy", "draining", "drained", "stopped"]
    lanes: int = Field(ge=0, le=MAX_LANES)
    busy_lanes: int = Field(ge=0, le=MAX_LANES)
    job: str = Field(pattern=r"^[A-Za-z0-9_-]{0,64}$")
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
    offer: Annotated[Text, is_json_of(Offer, "offer")] | None = None
    beside_replicas: Annotated[Text, is_json_of(OfferBesideReplicas, "offer")] | None = None
    isolation: Literal["uid", "shared"] | None = None
    cordoned: Annotated[str, Field(max_length=300)] | None = None
    running: Running | None = None

    def labelled(self, labels: Sequence[str]) -> dict[str, Any]:
        """Return the row with the labels that its worker's token gives its host, whatever it says."""
        row = self.model_dump(exclude_none=True) | {"labels": joined(labels)}
        for name in row.keys() & {"offer", "beside_replicas"}:
            row[name] = json.dumps(offered(json.loads(row[name]), labels))
        return row


def offered(offer: dict[str, Any], labels: Sequence[str]) -> Any:
    """Return what a runner offers, with the labels of its host among those that it says of itself."""
    return {**offer, "labels": sorted({*offer.get("labels", ()), *labels})}
