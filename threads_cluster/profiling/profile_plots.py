"""Plots of a profile with matplotlib. A plot has one panel per metric, and each panel has one line per device."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from threads_cluster.cli import formatting
from threads_cluster.errors import BadArgument
from threads_cluster.profiling import profile_analysis
from threads_cluster.profiling.profile_analysis import Axis, Line, Recorded

#: File extensions of the supported plot formats.
FORMATS = ("pdf", "png", "svg")
#: Maximum number of lines with different colors. More lines become one band with their median.
_COLOURED = 10
#: Colors that color-blind readers can distinguish, by Okabe and Ito, with two grays and a brown.
_COLOURS = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#D55E00",
    "#6A6A6A",
    "#000000",
    "#8C613C",
    "#B3B3B3",
)
#: Panels of a plot: metric, title, unit, factor of the unit, and minimum upper limit of the axis.
_PANELS = (
    ("utilization", "Utilization", "%", 0.01, 100.0),
    ("memory", "Memory in use", "GiB", float(1 << 30), None),
    ("power", "Power", "W", 1.0, None),
    ("receive", "Received", "MB/s", 1e6, None),
    ("transmit", "Sent", "MB/s", 1e6, None),
    ("read", "Read from disks", "MB/s", 1e6, None),
    ("write", "Written to disks", "MB/s", 1e6, None),
)
_INCHES, _PANEL_INCHES = 8.27, 1.65


def check(file: Path) -> None:
    """Raise BadArgument if the format of a plot is not supported or its folder does not exist."""
    if file.suffix.lower().lstrip(".") not in FORMATS:
        raise BadArgument(f"--plot: {file} must end with .{', .'.join(FORMATS)}")
    if not file.absolute().parent.is_dir():
        raise BadArgument(f"--plot: folder {file.absolute().parent} does not exist")
    _figure()


def _figure() -> Any:
    try:
        return importlib.import_module("matplotlib.figure").Figure
    except ImportError:
        raise BadArgument("--plot needs matplotlib: pip install 'matplotlib>=3.9'") from None


def write(recorded: Recorded, file: Path) -> None:
    """Draw a profile into a PDF, PNG or SVG file. Raises the errors of `check`, and OSError."""
    check(file)
    axis = Axis.of(recorded)
    known = [(panel, found) for panel in _PANELS if (found := profile_analysis.lines(recorded, axis, panel[0]))]
    drawn = _figure()(figsize=(_INCHES, 1.6 + _PANEL_INCHES * max(1, len(known))), layout="constrained")
    drawn.suptitle(_title(recorded), fontsize=11)
    devices = list(recorded.pieces)
    panels = drawn.subplots(max(1, len(known)), 1, sharex=True, squeeze=False)[:, 0]
    for place, (panel, found) in zip(panels, known, strict=False):
        _draw(place, axis, panel, found, devices)
    panels[-1].set_xlabel("seconds since the start of the profile", fontsize=9)
    _legend(drawn, panels[0], recorded)
    drawn.savefig(file, dpi=160, metadata=_metadata(file))


def _metadata(file: Path) -> dict[str, Any]:
    """Return metadata of a plot without the creation time, so that equal plots have equal files."""
    return {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(file.suffix.lower().lstrip("."), {})


def _title(recorded: Recorded) -> str:
    hosts = {pieces[0].host for pieces in recorded.pieces.values()}
    hz = max(piece.hz for pieces in recorded.pieces.values() for piece in pieces)
    length = formatting.duration(recorded.end - recorded.begin)
    many = "host" if len(hosts) == 1 else "hosts"
    return f"Profile {recorded.name}: {length}, {len(hosts)} {many}, {hz:g} samples/s"


def _draw(place: Any, axis: Axis, panel: tuple[Any, ...], found: Mapping[str, Line], devices: Sequence[str]) -> None:
    _, title, unit, one, top = panel
    if len(found) > _COLOURED:
        _band(place, axis, [_scaled(values, one) for values in found.values()])
    else:
        for device, values in found.items():
            color = _COLOURS[devices.index(device) % len(_COLOURS)]
            place.plot(axis.seconds, _scaled(values, one), color=color, linewidth=1.1)
    place.set_ylim(bottom=0, top=top and top * 1.02)
    place.set_xlim(0, axis.seconds[-1])
    place.set_title(title, fontsize=9, loc="left")
    place.set_ylabel(unit, fontsize=9)
    place.tick_params(labelsize=8)
    place.grid(visible=True, color="#DDDDDD", linewidth=0.6)
    for side in ("top", "right"):
        place.spines[side].set_visible(False)


def _scaled(values: Line, one: float) -> list[float]:
    return [float("nan") if value is None else value / one for value in values]


def _band(place: Any, axis: Axis, several: Sequence[Sequence[float]]) -> None:
    """Draw the minimum, the median and the maximum of many devices over time."""
    low, middle, high = list[float](), list[float](), list[float]()
    for column in zip(*several, strict=True):
        there = sorted(value for value in column if value == value)
        picked = (there[0], there[len(there) // 2], there[-1]) if there else (float("nan"),) * 3
        for row, value in zip((low, middle, high), picked, strict=True):
            row.append(value)
    place.fill_between(axis.seconds, low, high, color=_COLOURS[0], alpha=0.2, linewidth=0)
    place.plot(axis.seconds, middle, color=_COLOURS[0], linewidth=1.2)


def _legend(drawn: Any, place: Any, recorded: Recorded) -> None:
    if len(recorded.pieces) > _COLOURED:
        text = f"{len(recorded.pieces)} devices: median, and range from minimum to maximum"
        drawn.legend([place.plot([], [], color=_COLOURS[0])[0]], [text], loc="outside lower center", fontsize=8)
        return
    handles = [place.plot([], [], color=_COLOURS[at % len(_COLOURS)])[0] for at in range(len(recorded.pieces))]
    titles = [pieces[0].title for pieces in recorded.pieces.values()]
    drawn.legend(handles, titles, loc="outside lower center", ncols=2 if len(titles) > 1 else 1, fontsize=8)
