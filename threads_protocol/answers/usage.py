"""Responses about usage."""

from __future__ import annotations

from typing import Annotated

from threads_protocol.answers.fields import Answer, Many, Whole, describe


class TenantUsage(Answer):
    """Usage of one tenant on one day, by the time when work was committed."""

    tenant: str
    day: Annotated[str, describe("As 2026-11-22, UTC.")]
    lane_seconds: Annotated[dict[str, float], describe("Time of lanes that computed, by device.")]
    units: Annotated[dict[str, Whole], describe("Committed units by kind.")]
    jobs: Annotated[dict[str, Whole], describe("Jobs that were done, by kind.")]
    device_seconds: Annotated[float, describe("Time of GPUs, shared by their lanes.")]
    joules: Annotated[float | None, describe("Energy of GPUs; null where none was measured.")]
    requests: Annotated[dict[str, Whole], describe("Requests to models that were answered, by model.")]
    prompt_tokens: Annotated[dict[str, Whole], describe("Tokens of their prompts, by model.")]
    answer_tokens: Annotated[dict[str, Whole], describe("Tokens of their answers, by model.")]


class TenantUsages(Answer):
    usage: Many[TenantUsage]
