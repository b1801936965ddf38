"""Units that take a stated time each, which differs between devices."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from jobs.encoding.numbers import ExactInt
from jobs.kinds.contract import Kind
from jobs.models import Device, Partial, Plan, Spec


class Parameters(BaseModel):
    model_config = ConfigDict(extra="forbid")

    units: Annotated[int, ExactInt(1, 2**53)] = 100
    cpu_seconds_per_unit: float = Field(0.001, gt=0, le=10)
    gpu_seconds_per_unit: float = Field(0.0001, gt=0, le=10)


class Paced(Kind):
    """Units of a stated time."""

    model_version = 1
    summary = "Takes its time, which differs between devices."
    example: ClassVar[dict[str, Any]] = {"units": 5}
    parameters = Parameters

    def plan(self, parameters: Parameters) -> Plan:
        return Plan(
            total=parameters.units,
            spec=parameters.model_dump(),
            parameters=parameters.model_dump(),
            devices=(Device.GPU, Device.CPU),
            cpu_seconds=parameters.units * parameters.cpu_seconds_per_unit,
        )

    def merge(self, left: Partial, right: Partial) -> Partial:
        return {"sum": left["sum"] + right["sum"]}

    def result(self, spec: Spec, partial: Partial) -> dict[str, Any]:
        return {"sum": partial["sum"]}


KIND = Paced()
