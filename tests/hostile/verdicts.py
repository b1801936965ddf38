"""The READMEs' promises about parameters, implemented independently of the code for the oracles of all kinds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st


@dataclass
class Verdict:
    """Fields that must be rejected, and fields that may be, because only exact arithmetic decides near a bound."""

    wrong: set[str] = field(default_factory=set)
    maybe: set[str] = field(default_factory=set)

    def refuse_unspeakable(self, given: dict[str, Any]) -> None:
        """Report the object instead of a key that no response can contain, such as half of a surrogate pair."""
        self.maybe.update("" for key in given if not key.isascii() and not _speakable(key))

    def refuse_if(self, what: bool, name: str) -> None:
        if what:
            self.wrong.add(name)

    def at_most(self, value: float, bound: float, name: str, tolerance: float = 0.01) -> None:
        """Reject values above the bound. Values within the tolerance of the bound may be accepted or rejected."""
        if value > bound * (1 + tolerance):
            self.wrong.add(name)
        elif value > bound * (1 - tolerance):
            self.maybe.add(name)


def _speakable(key: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in key)


def whole(value: Any, low: int, high: int) -> bool:
    """Check that a value is an integer within its bounds, as a number or a decimal string."""
    if isinstance(value, str):
        digits = value.removeprefix("-")
        if not digits or set(digits) - set("0123456789"):
            return False
        value = int(value)
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def number(value: Any, low: float, high: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high


def edges(low: int, high: int) -> st.SearchStrategy[Any]:
    """Return integers within the bounds, and the bounds themselves; one in four as a decimal string."""
    inside = st.integers(low, high)
    found = inside | st.integers(low, min(high, low + 300)) | st.sampled_from(sorted({low, low + 1, high - 1, high}))
    return found | found | found | found.map(str)


def outside(low: float, high: float) -> st.SearchStrategy[Any]:
    """Return values just beyond the bounds, far beyond them, and values that only look like numbers."""
    near = [low - 1, high + 1, -high, str(int(high) + 1), high * 2, low - 1e-9, float(low), low + 0.5]
    return st.sampled_from(near) | JUNK


LOOKALIKES: list[Any] = [
    True,
    False,
    None,
    "",
    " 1",
    "1 ",
    "+1",
    "1_0",
    "1e3",
    "1.0",
    "0x10",
    "\u0661",
    "\uff11",
    "-0",
    "007",
    "--1",
    "-",
    "NaN",
    "\x00",
    "\ud800",
    "null",
    "true",
    1.0,
    1e3,
    -0.0,
    2.5,
    1e400,
    -1e400,
    float("nan"),
    5e-324,
    10**400,
    -(10**400),
    2**53,
    2**63,
    2**64,
    2**96,
    [],
    {},
    [[]],
    [1],
    {"": 1},
    {"a": None},
    "9" * 4400,
    "0" * 500,
    b"".decode(),
]
JUNK: st.SearchStrategy[Any] = st.sampled_from(LOOKALIKES) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)
#: Keys that no kind has.
STRANGE_KEYS = st.text(max_size=10) | st.sampled_from(
    [
        "__class__",
        "model_config",
        "N",
        "Mode",
        "start number",
        "\ud800",
        "\x00",
        "seed ",
        "",
        "constructor",
        "a.b",
        "\u202e",
    ]
)


def mostly(right: st.SearchStrategy[Any], wrong: st.SearchStrategy[Any], odds: int = 12) -> st.SearchStrategy[Any]:
    """Return the valid value, and one time in `odds` the invalid one."""
    return st.integers(1, odds).flatmap(lambda n: wrong if n == odds else right)
