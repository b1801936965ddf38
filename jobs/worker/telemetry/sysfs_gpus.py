"""AMD and Intel GPUs of the host, as reported by sysfs. Workers do not compute on these GPUs.

Measurements that a driver does not report are omitted. A suspended GPU has none, because a read would wake it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

DRM = Path("/sys/class/drm")
_VENDORS = {"0x1002": "AMD", "0x8086": "Intel"}
_CARD = re.compile(r"card[0-9]{1,3}")
#: Maximum number of GPUs that are reported per host.
#: `_MOST_NAME` is the maximum length of a GPU's name in characters.
MOST, _MOST_NAME = 16, 64


def look(folder: Path = DRM) -> list[dict[str, Any]]:
    """Return the card, the name and the measurements (in base units) of each GPU, sorted by card number."""
    places = [
        place for place in _list(folder) if _CARD.fullmatch(place.name) and _text(place, "device/vendor") in _VENDORS
    ]
    return [_card(place) for place in sorted(places, key=lambda place: int(place.name[4:]))[:MOST]]


def _list(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _card(place: Path) -> dict[str, Any]:
    device = place / "device"
    vendor = _VENDORS[_text(device, "vendor")]
    model = _text(device, "product_name") or f"{vendor} GPU {_text(device, 'device')}"
    told = {"card": place.name, "name": (model if vendor in model else f"{vendor} {model}")[:_MOST_NAME]}
    if _text(device, "power/runtime_status") == "suspended":
        return told
    return told | {name: value for name, value in _figures(place).items() if value is not None}


def _figures(place: Path) -> dict[str, float | int | None]:
    """Return a GPU's measurements in base units, or None for each measurement that the driver does not report."""
    device = place / "device"
    sensors = [sensor for sensor in _list(device / "hwmon") if sensor.name.startswith("hwmon")]
    busy = _number(device, "gpu_busy_percent", float)
    clock = _first(sensors, ("freq1_input",), 1.0)
    turbo = _number(place, "gt_act_freq_mhz", float)
    return {
        "utilization_ratio": None if busy is None else busy / 100,
        "memory_used_bytes": _number(device, "mem_info_vram_used", int),
        "memory_total_bytes": _number(device, "mem_info_vram_total", int),
        "temperature_celsius": _first(sensors, ("temp1_input",), 1e-3),
        "power_watts": _first(sensors, ("power1_average", "power1_input"), 1e-6),
        "clock_hertz": clock if clock is not None else None if turbo is None else turbo * 1e6,
    }


def _first(sensors: list[Path], names: tuple[str, ...], factor: float) -> float | None:
    """Return the first available measurement of the named files, in base units."""
    for sensor in sensors:
        for name in names:
            value: float | None = _number(sensor, name, float)
            if value is not None:
                return round(value * factor, 6)
    return None


def _number(place: Path, name: str, kind: Callable[[str], Any]) -> Any:
    """Return a non-negative number from a file, or None if the file does not contain one."""
    try:
        value = kind(_text(place, name))
    except ValueError:
        return None
    return value if 0 <= value < 2**53 else None


def _text(place: Path, name: str) -> str:
    try:
        return (place / name).read_text(errors="replace").strip()
    except OSError:
        return ""
