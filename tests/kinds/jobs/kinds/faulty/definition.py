"""Adds up unit numbers slowly, and misbehaves at one unit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from jobs.encoding.numbers import ExactInt
from jobs.kinds.contract import Kind
from jobs.models import Device, Mark, MarkKind, Partial, Plan, Spec
from threads_protocol.numbers import exact


class Parameters(BaseModel):
    model_config = ConfigDict(extra="forbid")

    units: Annotated[int, ExactInt(1, 2**53)] = 100
    seconds_per_unit: float = Field(0.0, ge=0, le=3600)
    fault: Literal["none", "crash", "hang", "raise", "result", "wait"] = "none"
    at: Annotated[int, ExactInt(-1, 2**53)] = -1
    #: The fault happens only while this file is absent; it is made first. With `wait`, units from `at` on wait for it.
    once: str = ""
    max_lease_seconds: float = 30.0
    cpu_seconds: float | None = None
    #: Leaves a mark that begins here.
    mark_from: Annotated[int, ExactInt(1, 2**96)] | None = None


class Faulty(Kind):
    """Sums that misbehave."""

    model_version = 1
    summary = "Sums unit numbers, slowly; misbehaves on request."
    example: ClassVar[dict[str, Any]] = {"units": 5}
    parameters = Parameters
    questions: ClassVar[Mapping[str, str]] = {"first": "The sum of the first units."}
    mark_kinds: ClassVar[Mapping[str, MarkKind]] = {
        "summed": MarkKind(summary="Units that somebody summed.", origin=1, join=lambda lower, upper: lower + upper)
    }

    def question(self, name: str, parameters: Mapping[str, Any], choice: Mapping[str, str]) -> dict[str, Any]:
        return {
            "units": int(choice.get("units", "1")),
            "seconds_per_unit": float(choice.get("seconds", "0")),
            "fault": choice.get("fault", "none"),
        }

    def plan(self, parameters: Parameters) -> Plan:
        estimate = parameters.units * max(parameters.seconds_per_unit, 1e-6)
        return Plan(
            total=parameters.units,
            spec=parameters.model_dump(),
            parameters=parameters.model_dump(),
            devices=(Device.CPU,),
            cpu_seconds=estimate if parameters.cpu_seconds is None else parameters.cpu_seconds,
            max_lease_seconds=parameters.max_lease_seconds,
        )

    def merge(self, left: Partial, right: Partial) -> Partial:
        return {"sum": left["sum"] + right["sum"], "count": left["count"] + right["count"]}

    def marks(self, spec: Spec, result: dict[str, Any]) -> list[Mark]:
        start = spec["mark_from"]
        return [] if start is None else [Mark(name="summed", lo=start, hi=start + spec["units"], payload=spec["units"])]

    def result(self, spec: Spec, partial: Partial) -> dict[str, Any]:
        if spec["fault"] == "result":
            raise ValueError("asked to")
        return {"sum": exact(partial["sum"]), "count": exact(partial["count"])}


KIND = Faulty()
