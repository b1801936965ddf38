"""Answers about usage, for the API's description and the tests."""

from __future__ import annotations

from coordinator.schemas import Answer, required


class TenantUsage(Answer):
    """Usage of a tenant on a day, by the time at which work was committed."""

    tenant: str
    day: str = required("As 2026-11-22, UTC.")
    lane_seconds: dict[str, float] = required("Time of lanes that computed, by device.")
    units: dict[str, int | str] = required("Committed units by kind.")
    jobs: dict[str, int | str] = required("Jobs that were done, by kind.")
    device_seconds: float = required("Time of GPUs, shared by their lanes.")
    joules: float | None = required("Energy of GPUs; null where none was measured.")
    requests: dict[str, int | str] = required("Requests to models that were answered, by model.")
    prompt_tokens: dict[str, int | str] = required("Tokens of their prompts, by model.")
    answer_tokens: dict[str, int | str] = required("Tokens of their answers, by model.")


class TenantUsages(Answer):
    usage: list[TenantUsage]
