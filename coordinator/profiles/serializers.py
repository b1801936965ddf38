"""Build the API's responses about profiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coordinator import decoding
from jobs.store.profiles import SILENT_MS, KnownRecording, Profile
from threads_protocol.answers import profiles as answers


def serialize_profile(profile: Profile, recordings: Sequence[KnownRecording], now: int) -> answers.Profile:
    """Serialize a profile with its recordings. `now` is Redis time in milliseconds."""
    rows = [serialize_recording(one, now) for one in recordings]
    return {
        "name": profile.name,
        "id": profile.profile_id,
        "tenant": profile.tenant,
        "state": profile.state,
        "hz": profile.hz,
        "hosts": list(profile.hosts),
        "job_id": profile.job or None,
        "created": decoding.format_seconds(profile.created / 1000),
        "ends": decoding.format_seconds(profile.until / 1000),
        "ended": decoding.format_seconds(profile.ended / 1000) if profile.ended else None,
        "artifact_id": profile.artifact or None,
        "trouble": profile.trouble or None,
        "samples": sum(row["samples"] for row in rows),
        "missed": sum(row["missed"] for row in rows),
        "bytes": sum(row["bytes"] for row in rows),
        "recordings": rows,
    }


def serialize_recording(one: KnownRecording, now: int) -> answers.Recording:
    """Serialize a recording. Values of the worker's report that have the wrong type are ignored."""
    row = one.row
    devices = row.get("devices")
    return {
        "name": one.name,
        "worker": one.worker,
        "host": str(row.get("host", "")),
        "devices": [str(device) for device in devices] if isinstance(devices, list) else [],
        "state": _state(one, now),
        "samples": int(_number(row, "samples")),
        "missed": int(_number(row, "missed")),
        "seconds": _number(row, "seconds"),
        "bytes": int(_number(row, "bytes")),
        "cpu_seconds": _number(row, "cpu_seconds"),
        "ended": str(row.get("reason", "")) or None,
    }


def _state(one: KnownRecording, now: int) -> str:
    if one.end:
        return one.end
    if abs(now - one.heard) >= SILENT_MS:
        return "silent"
    return "sending" if one.size else "recording"


def _number(row: Mapping[str, Any], name: str) -> float:
    value = row.get(name)
    return value if isinstance(value, int | float) else 0
