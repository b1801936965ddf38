"""Types of responses about the usage of tenants."""

from __future__ import annotations

from typing import Annotated

from threads_protocol.answers.fields import Answer, Many, Whole, describe


class TenantUsage(Answer):
    """Usage of one tenant on one day. Work counts on the day on which it was committed."""

    tenant: str
    day: Annotated[str, describe("Day in UTC, such as 2026-11-22.")]
    lane_seconds: Annotated[dict[str, float], describe("Computing time of lanes in seconds, by device.")]
    units: Annotated[dict[str, Whole], describe("Committed units, by kind.")]
    jobs: Annotated[dict[str, Whole], describe("Finished jobs, by kind.")]
    device_seconds: Annotated[float, describe("GPU time in seconds, divided among the lanes.")]
    joules: Annotated[float | None, describe("Energy of GPUs in joules; null if not measured.")]
    requests: Annotated[dict[str, Whole], describe("Answered requests, by model.")]
    prompt_tokens: Annotated[dict[str, Whole], describe("Tokens of prompts, by model.")]
    answer_tokens: Annotated[dict[str, Whole], describe("Tokens of responses, by model.")]


class TenantUsages(Answer):
    usage: Many[TenantUsage]
