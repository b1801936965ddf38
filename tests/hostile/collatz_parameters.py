"""Checks parameters against the promises of `jobs/kinds/collatz/README.md`, and generates such parameters."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.hostile.verdicts import JUNK, STRANGE_KEYS, Verdict, edges, mostly, outside, whole

END, MOST_UNITS, MOST_COUNT = 2**96, 2**53, 2**53 - 2**33
RANGED = ("statistics", "verify", "records")
OWNERS: dict[str, tuple[str, ...]] = {
    "start_number": RANGED,
    "number_count": RANGED,
    "batch_size": RANGED,
    "columns": ("statistics",),
    "density": ("statistics",),
    "known": ("records",),
    "n": ("trajectory",),
    "max_points": ("trajectory",),
}
BOUNDS = {
    "start_number": (1, END - 1),
    "number_count": (1, MOST_COUNT),
    "batch_size": (1, MOST_UNITS),
    "columns": (0, 4096),
    "max_points": (2, 100_000),
}
NEEDED = {"start_number": RANGED, "number_count": RANGED, "n": ("trajectory",)}
MOST_DELAY, MOST_PATH = 8000, 2**400


def verdict(given: dict[str, Any]) -> Verdict:
    """Return which fields must be rejected. Null omits a field."""
    found = Verdict()
    found.refuse_unspeakable(given)
    given = {name: value for name, value in given.items() if value is not None or name != "mode"}
    mode = given.get("mode", "statistics")
    if not isinstance(mode, str) or mode not in (*RANGED, "trajectory"):
        found.wrong.add("mode")
        mode = ""
    for name, value in given.items():
        found.refuse_if(name not in OWNERS and name != "mode", name)
        if name in OWNERS and value is not None:
            found.refuse_if(bool(mode) and mode not in OWNERS[name], name)
            found.refuse_if(not _valid(name, value), name)
    for name, modes in NEEDED.items():
        found.refuse_if(mode in modes and given.get(name) is None, name)
    _together(given, found)
    return found


def _valid(name: str, value: Any) -> bool:
    if name in BOUNDS:
        return whole(value, *BOUNDS[name])
    if name == "n":
        short = not isinstance(value, str) or len(value) <= 20_000
        return short and whole(value, 1, 10**20_000 - 1)
    if name == "density":
        return isinstance(value, bool)
    bounds = {"delay": (0, MOST_DELAY), "path": (0, MOST_PATH)}
    return (
        isinstance(value, dict)
        and value.keys() == bounds.keys()
        and all(whole(value[key], *bound) for key, bound in bounds.items())
    )


def _together(given: dict[str, Any], found: Verdict) -> None:
    start, count = given.get("start_number"), given.get("number_count")
    started = whole(start, *BOUNDS["start_number"])
    if start is not None and count is not None and started and whole(count, *BOUNDS["number_count"]):
        found.refuse_if(int(start) + int(count) > END, "number_count")
    columns = given.get("columns") or 0
    if given.get("density") is True and whole(columns, 0, 4096):
        found.refuse_if(not 1 <= int(columns) <= 1024, "density")
    if given.get("density") is True and not whole(columns, 0, 4096):
        found.maybe.add("density")
    known = given.get("known")
    if known is not None and _valid("known", known):
        _check_known(int(start) if start is not None and started else 1, int(known["delay"]), int(known["path"]), found)


def _check_known(start: int, delay: int, path: int, found: Verdict) -> None:
    """Compare the result with trajectories computed here, if that is fast."""
    if start > 2000:
        found.maybe.add("known")
        return
    walked = [_walk(n) for n in range(1, start)]
    least = (max((one[0] for one in walked), default=0), max((one[1] for one in walked), default=0))
    found.refuse_if(delay < least[0] or path < least[1], "known")


_walked: dict[int, tuple[int, int]] = {}


def _walk(n: int) -> tuple[int, int]:
    """Return the delay and the greatest value of one number."""
    if n not in _walked:
        steps, top, x = 0, n, n
        while x != 1:
            x = 3 * x + 1 if x % 2 else x // 2
            steps, top = steps + 1, max(top, x)
        _walked[n] = (steps, top)
    return _walked[n]


def _known() -> st.SearchStrategy[Any]:
    delay, path = edges(0, MOST_DELAY), edges(0, MOST_PATH) | st.integers(2**54, 2**200).map(str)
    right = st.fixed_dictionaries({"delay": delay, "path": path})
    wrong = st.fixed_dictionaries({"delay": delay | JUNK}, optional={"path": path | JUNK, "more": JUNK})
    return mostly(right, wrong | JUNK, 4)


_N = edges(1, 2**96) | st.sampled_from(
    [27, "27", 10**19_999, 10**20_000 - 1, 10**20_000, "9" * 20_000, "9" * 20_001, "0" * 20_000, "0" * 19_999 + "7"]
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    **{name: mostly(edges(low, high), outside(low, high)) for name, (low, high) in BOUNDS.items()},
    "density": mostly(st.booleans(), JUNK),
    "known": _known(),
    "n": mostly(_N, outside(1, 2**96)),
}


@st.composite
def objects(draw: st.DrawFn) -> dict[str, Any]:
    """Return parameters, about half of which are valid."""
    mode = draw(st.sampled_from((*RANGED, "trajectory")))
    found: dict[str, Any] = {"mode": mode}
    for name, modes in OWNERS.items():
        wanted = 90 if mode in NEEDED.get(name, ()) else 35 if mode in modes else 2
        if draw(st.integers(0, 99)) < wanted:
            found[name] = draw(st.none() if draw(st.integers(0, 29)) == 0 else VALUES[name])
    if draw(st.integers(0, 29)) == 0:
        found["mode"] = draw(JUNK)
    elif mode == "statistics" and draw(st.booleans()):
        del found["mode"]
    if draw(st.integers(0, 29)) == 0:
        found[draw(STRANGE_KEYS)] = draw(JUNK)
    return found


#: Valid parameters whose reference result takes milliseconds.
SMALL: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.fixed_dictionaries(
        {
            "mode": st.sampled_from(["statistics", "verify"]),
            "start_number": edges(1, END - 200),
            "number_count": edges(1, 150),
        },
        optional={"batch_size": edges(1, MOST_UNITS)},
    ),
    st.fixed_dictionaries(
        {
            "start_number": edges(1, 2**90),
            "number_count": st.integers(1, 150),
            "columns": st.integers(1, 1024),
            "density": st.booleans(),
        }
    ),
    st.fixed_dictionaries({"mode": st.just("records"), "start_number": edges(1, 2**70), "number_count": edges(1, 150)}),
    st.fixed_dictionaries(
        {"mode": st.just("trajectory"), "n": edges(1, 2**300)}, optional={"max_points": st.integers(2, 100_000)}
    ),
)
