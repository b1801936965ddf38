"""Tests the detection of AMD and Intel GPUs with trees of files like those of their drivers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from jobs.worker.api import heartbeat_record
from jobs.worker.telemetry import sysfs_gpus

AMD = {
    "device/vendor": "0x1002",
    "device/device": "0x740f",
    "device/product_name": "Instinct MI210",
    "device/gpu_busy_percent": "37",
    "device/mem_info_vram_used": str(3 << 30),
    "device/mem_info_vram_total": str(64 << 30),
    "device/power/runtime_status": "active",
    "device/hwmon/hwmon4/temp1_input": "52000",
    "device/hwmon/hwmon4/power1_average": "95000000",
    "device/hwmon/hwmon4/freq1_input": "1700000000",
}
#: Program that reads the GPUs that a worker reports.
checked = TypeAdapter(heartbeat_record.Row.model_fields["cards"].rebuild_annotation()).validate_python
INTEL = {"device/vendor": "0x8086", "device/device": "0x9a49", "gt_act_freq_mhz": "1300"}


def tree(folder: Path, **of_cards: dict[str, str]) -> Path:
    for card, files in of_cards.items():
        for name, text in files.items():
            file = folder / card.replace("_", "-") / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{text}\n")
    return folder


def test_a_card_tells_what_its_driver_shows(tmp_path: Path) -> None:
    found = sysfs_gpus.look(tree(tmp_path, card1=AMD, card0=INTEL))
    assert found == [
        {"card": "card0", "name": "Intel GPU 0x9a49", "clock_hertz": 1.3e9},
        {
            "card": "card1",
            "name": "AMD Instinct MI210",
            "utilization_ratio": 0.37,
            "memory_used_bytes": 3 << 30,
            "memory_total_bytes": 64 << 30,
            "temperature_celsius": 52.0,
            "power_watts": 95.0,
            "clock_hertz": 1.7e9,
        },
    ]
    assert checked(json.dumps(found)) == json.dumps(found)


def test_connectors_other_vendors_and_no_folder_are_no_cards(tmp_path: Path) -> None:
    others = tree(tmp_path, card0={"device/vendor": "0x1a03"}, card0_DP_1=AMD, renderD128=AMD, version={"x": "1"})
    assert sysfs_gpus.look(others) == [] == sysfs_gpus.look(tmp_path / "none")


def test_a_card_that_sleeps_is_named_and_not_woken(tmp_path: Path) -> None:
    asleep = AMD | {"device/power/runtime_status": "suspended"}
    assert sysfs_gpus.look(tree(tmp_path, card0=asleep)) == [{"card": "card0", "name": "AMD Instinct MI210"}]


def test_figures_that_are_none_are_left_out(tmp_path: Path) -> None:
    broken = AMD | {
        "device/gpu_busy_percent": "",
        "device/mem_info_vram_used": "-1",
        "device/mem_info_vram_total": "9" * 40,
        "device/hwmon/hwmon4/temp1_input": "n/a",
        "device/product_name": "x" * 500,
    }
    (tmp_path / "card0" / "device" / "hwmon" / "hwmon4" / "power1_average").mkdir(parents=True)
    del broken["device/hwmon/hwmon4/power1_average"]
    [found] = sysfs_gpus.look(tree(tmp_path, card0=broken))
    assert set(found) == {"card", "name", "clock_hertz"} and len(found["name"]) == 64
    assert checked(json.dumps([found]))


@pytest.mark.parametrize(
    "card",
    [
        {"card": "card0"},
        {"card": "../x", "name": "x"},
        {"card": "card0", "name": "x" * 65},
        {"card": "card0", "name": "x", "utilization_ratio": 2.0},
        {"card": "card0", "name": "x", "power_watts": "9"},
    ],
)
def test_what_a_worker_says_of_cards_is_within_bounds(card: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be a JSON list of at most 16 cards"):
        checked(json.dumps([card]))
    with pytest.raises((ValidationError, ValueError)):
        checked(json.dumps([{"card": "card0", "name": "x"}] * 17))
