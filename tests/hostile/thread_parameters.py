"""Checks parameters against the promises of `jobs/kinds/thread/README.md`, and generates such parameters."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from tests.hostile.verdicts import JUNK, STRANGE_KEYS, Verdict, edges, mostly, number, outside, whole

SCHEDULERS = ("fifo", "lifo", "round_robin", "work_stealing")
JOINS = ("none", "suspend", "block")
WHOLE = {
    "thread_count": (1, 1_000_000),
    "max_depth": (0, 64),
    "batch_size": (1, 65_536),
    "replicas": (1, 16_777_216),
    "seed": (0, 2**53 - 1),
    "max_threads": (1, 4_194_304),
}
NUMBERS = {
    "dispatch_cost_us": (0.0, 1e4),
    "spawn_cost_us": (0.0, 1e4),
    "join_cost_us": (0.0, 1e4),
    "steal_cost_us": (0.01, 1e4),
    "quantum_us": (1.0, 1e6),
    "stack_kib": (0.0, 1e6),
    "confidence": (0.5, 0.9999),
}
DEFAULTS: dict[str, Any] = {
    "thread_count": 1000,
    "max_depth": 10,
    "replicas": 1024,
    "cores": 8,
    "scheduler": "work_stealing",
    "join": "suspend",
    "spawn": {"distribution": "binomial", "children": 2, "probability": 0.4},
    "work": {"distribution": "exponential", "mean_us": 100},
    "dispatch_cost_us": 1,
    "spawn_cost_us": 0.1,
    "join_cost_us": 0,
    "quantum_us": None,
    "arrival": {"process": "batch"},
    "max_threads": 1_000_000,
    "trace": None,
}
MOST_CELLS, MOST_BYTES = 32, 512 * 2**20
_TRACE = {"cell": (0, MOST_CELLS - 1), "replica": (0, 16_777_215), "max_events": (1, 250_000)}
_KNOWN = {*WHOLE, *NUMBERS, *DEFAULTS}
#: Maximum ratio of an exponential draw to its mean: 64 ln 2.
LONGEST_DRAW = 64 * math.log(2)

Number = tuple[float, float]
_TIME, _MEAN, _SHAPE = (0.001, 1e6), (0.0, 16.0), ("constant", "linear")
Field = Callable[[Any], bool]


def _within(bounds: Number) -> Field:
    return lambda value: number(value, *bounds)


def _integer(low: int, high: int) -> Field:
    return lambda value: whole(value, low, high)


def _numbers(least: int, most: int, bounds: Number) -> Field:
    return lambda value: (
        isinstance(value, list) and least <= len(value) <= most and all(number(each, *bounds) for each in value)
    )


#: Fields of each law; fields in _OPTIONAL can be omitted.
LAWS: dict[str, dict[str, dict[str, Field]]] = {
    "spawn": {
        "fixed": {"children": _integer(0, 64)},
        "binomial": {"children": _integer(0, 64), "probability": _within((0, 1))},
        "geometric": {"mean": _within(_MEAN)},
        "poisson": {"mean": _within(_MEAN)},
        "pmf": {"probabilities": _numbers(1, 65, (0, 1))},
    },
    "work": {
        "fixed": {"mean_us": _within(_TIME)},
        "uniform": {"min_us": _within(_TIME), "max_us": _within(_TIME)},
        "exponential": {"mean_us": _within(_TIME)},
        "hyperexponential": {"mean_us": _within(_TIME), "scv": _within((1, 100))},
        "pareto": {"mean_us": _within(_TIME), "alpha": _within((1.05, 10)), "max_ratio": _within((1, 1e4))},
        "empirical": {"quantiles_us": _numbers(2, 1024, _TIME)},
    },
    "arrival": {"batch": {}, "poisson": {"rate_per_ms": _within((1e-4, 1e6))}},
}
_TAG = {"spawn": "distribution", "work": "distribution", "arrival": "process"}
_SHAPED = ("binomial", "geometric", "poisson")


def _optional(name: str, tag: str) -> dict[str, Field]:
    if name == "spawn" and tag in _SHAPED:
        return {"shape": lambda value: isinstance(value, str) and value in _SHAPE}
    return {"warmup_roots": _integer(0, 999_999)} if (name, tag) == ("arrival", "poisson") else {}


# -- each field by itself -------------------------------------------------------------------------------------------


def verdict(given: dict[str, Any]) -> Verdict:
    """Return which fields must be rejected. Null omits an optional field."""
    found = Verdict()
    found.refuse_unspeakable(given)
    given = {name: _omit_nulls(name, value) for name, value in given.items() if value is not None or name not in _KNOWN}
    for name, value in given.items():
        found.refuse_if(not _valid(name, value, found), name)
    rules = Verdict()
    _together({**DEFAULTS, **{name: value for name, value in given.items() if name not in found.wrong}}, rules)
    if found.wrong:
        found.maybe |= rules.wrong  # which complaint comes first is not promised
        return found
    found.wrong |= rules.wrong
    if not found.wrong:
        _sizes({**DEFAULTS, **given}, found)
    return found


def _omit_nulls(name: str, value: Any) -> Any:
    """Return the value of a field without nulls in its optional parts."""
    optional = {"spawn": {"shape"}, "arrival": {"warmup_roots"}, "trace": _TRACE.keys()}.get(name, ())
    if not isinstance(value, dict):
        return value
    return {key: one for key, one in value.items() if one is not None or key not in optional}


def _valid(name: str, value: Any, found: Verdict) -> bool:
    if name in WHOLE:
        return whole(value, *WHOLE[name])
    if name in NUMBERS:
        return number(value, *NUMBERS[name])
    if name in LAWS:
        return _valid_law(name, value, found)
    rest: dict[str, Field] = {"cores": _cores, "scheduler": _schedulers, "trace": _trace, "join": _join}
    return name in rest and rest[name](value)


def _join(value: Any) -> bool:
    return isinstance(value, str) and value in JOINS


def _cores(value: Any) -> bool:
    listed = value if isinstance(value, list) else [value]
    spelled = [str(each) for each in listed if isinstance(each, int | str) and not isinstance(each, bool)]
    names = {str(cores) for cores in range(1, 65)}
    return 1 <= len(listed) <= 16 and len(set(spelled) & names) == len(listed)


def _schedulers(value: Any) -> bool:
    listed = value if isinstance(value, list) else [value]
    return bool(listed) and len({each for each in listed if isinstance(each, str)} & {*SCHEDULERS}) == len(listed)


def _trace(value: Any) -> bool:
    return isinstance(value, dict) and all(key in _TRACE and whole(one, *_TRACE[key]) for key, one in value.items())


def _valid_law(name: str, value: Any, found: Verdict) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get(_TAG[name]), str):
        return False
    tag = value[_TAG[name]]
    needed = LAWS[name].get(tag)
    if needed is None:
        return False
    more = _optional(name, tag)
    keys = value.keys() - {_TAG[name]}
    if not needed.keys() <= keys <= needed.keys() | more.keys():
        return False
    return all({**needed, **more}[key](value[key]) for key in keys) and _within_law(name, tag, value, found)


def _within_law(name: str, tag: str, law: dict[str, Any], found: Verdict) -> bool:
    """Check the rules between the fields of one law."""
    if tag == "pmf":
        off = abs(math.fsum(law["probabilities"]) - 1)
        found.maybe.update([name] if 0.5e-9 < off < 2e-9 else [])
        return off < 2e-9
    if tag == "uniform":
        return bool(law["min_us"] <= law["max_us"])
    if tag == "empirical":
        return all(low <= high for low, high in pairwise(law["quantiles_us"]))
    if tag == "hyperexponential":
        found.at_most(_slow_branch(law), 1.2e7, name, 1e-6)
    if tag == "pareto":
        found.at_most(law["mean_us"] * law["max_ratio"], 1e8, name, 1e-9)
    return True


def _slow_branch(law: dict[str, Any]) -> float:
    """Return the mean in µs of the rarer branch of two exponentials with balanced means."""
    share = (1 - math.sqrt((law["scv"] - 1) / (law["scv"] + 1))) / 2
    return float(law["mean_us"] / (2 * share))


# -- fields together ------------------------------------------------------------------------------------------------


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _together(asked: dict[str, Any], found: Verdict) -> None:
    schedulers = set(_listed(asked["scheduler"]))
    cells = len(_listed(asked["cores"])) * len(schedulers)
    found.refuse_if(cells > MOST_CELLS, "scheduler")
    found.refuse_if(asked["join"] == "block" and not schedulers <= {"fifo", "lifo"}, "join")
    found.refuse_if(asked["join"] == "none" and asked["join_cost_us"] != 0, "join_cost_us")
    found.refuse_if(asked["quantum_us"] is not None and "round_robin" not in schedulers, "quantum_us")
    roots = int(asked["thread_count"])
    found.refuse_if(int(asked["arrival"].get("warmup_roots", 0)) >= roots, "arrival")
    found.refuse_if(int(asked["max_threads"]) < roots, "max_threads")
    trace = asked["trace"] or {}
    gone = int(trace.get("cell", 0)) >= cells or int(trace.get("replica", 0)) >= int(asked["replicas"])
    found.refuse_if(bool(trace) and gone, "trace")


# -- what is too large ----------------------------------------------------------------------------------------------


def _children(law: dict[str, Any]) -> tuple[list[float], bool]:
    """Return the probabilities of 0, 1, 2, ... children at depth 0, and whether they decrease with depth."""
    tag, fades = law["distribution"], law.get("shape") == "linear"
    if tag == "pmf":
        total = math.fsum(law["probabilities"])
        return [each / total for each in law["probabilities"]], fades
    if tag in ("fixed", "binomial"):
        some = 1.0 if tag == "fixed" else float(law["probability"])
        weights = [0.0] * (int(law["children"]) + 1)
        weights[-1] += some
        weights[0] += 1 - some
        return weights, fades
    return [_share(tag, law["mean"], children) for children in range(65)], fades


def _share(tag: str, mean: float, children: int) -> float:
    if mean == 0:
        return float(children == 0)
    if tag == "geometric":
        return float((mean / (1 + mean)) ** children / (1 + mean))
    return math.exp(children * math.log(mean) - mean - math.lgamma(children + 1))


def _mean_children(law: dict[str, Any], depth: int, max_depth: int) -> float:
    weights, fades = _children(law)
    mean = math.fsum(children * share for children, share in enumerate(weights))
    mean = mean if law["distribution"] != "geometric" else _cut_geometric(law["mean"] * (1 - fades * depth / max_depth))
    return mean if law["distribution"] == "geometric" else mean * (1 - fades * depth / max_depth)


def _cut_geometric(mean: float) -> float:
    """Return the mean of a geometric number of children, limited to 64."""
    again = mean / (1 + mean)
    return mean * (1 - again**64)


def expected_threads(asked: dict[str, Any]) -> float:
    depth = int(asked["max_depth"])
    level = threads = float(asked["thread_count"])
    for above in range(depth):
        level *= _mean_children(asked["spawn"], above, depth)
        threads += level
    return threads


def _widest(law: dict[str, Any], chance: float) -> int:
    """Return the maximum number of children of a thread, ignoring rarer numbers."""
    if law["distribution"] in ("fixed", "binomial"):
        return int(law["children"])
    weights, _ = _children(law)
    tails = [math.fsum(weights[children:]) for children in range(len(weights))]
    return max(children for children, tail in enumerate(tails) if children == 0 or tail > chance)


def _most_threads(asked: dict[str, Any], widest: int) -> int:
    level = threads = int(asked["thread_count"])
    cap = int(asked["max_threads"])
    for _ in range(int(asked["max_depth"])):
        level = min(level * widest, cap)
        threads += level
    return min(threads, cap)


def _work(law: dict[str, Any]) -> tuple[float, float]:
    """Return (mean, maximum) in µs."""
    tag = law["distribution"]
    if tag == "uniform":
        return (law["min_us"] + law["max_us"]) / 2, law["max_us"]
    if tag == "empirical":
        steps = [(low + high) / 2 for low, high in pairwise(law["quantiles_us"])]
        return math.fsum(steps) / len(steps), law["quantiles_us"][-1]
    mean = law["mean_us"]
    longest = {
        "fixed": mean,
        "exponential": LONGEST_DRAW * mean,
        "pareto": mean * law.get("max_ratio", 1),
        "hyperexponential": LONGEST_DRAW * _slow_branch({"scv": 1, **law}),
    }
    return mean, longest[tag]


def _sizes(asked: dict[str, Any], found: Verdict) -> None:
    expected, cells = expected_threads(asked), len(_listed(asked["cores"])) * len(_listed(asked["scheduler"]))
    found.at_most(expected, int(asked["max_threads"]), "max_threads")
    found.at_most(expected * int(asked["replicas"]) * cells, 1e12, "replicas")
    # Thresholds have 32 bits: which rare number of children is the last depends on rounding.
    narrow, wide = _widest(asked["spawn"], 2**-30), _widest(asked["spawn"], 2**-35)
    low, high = Verdict(), Verdict()
    _limits(asked, expected, narrow, low)
    _limits(asked, expected, wide, high)
    found.wrong |= low.wrong
    found.maybe |= low.maybe | high.maybe | high.wrong
    if _table_bytes(asked) > 45_000:
        found.maybe.add("")


def _limits(asked: dict[str, Any], expected: float, widest: int, found: Verdict) -> None:
    most = _most_threads(asked, widest)
    sliced = "round_robin" in _listed(asked["scheduler"])
    mean, longest = _work(asked["work"])
    turns = 1.0
    if sliced:
        quantum = asked["quantum_us"] or 1000.0
        turns = longest / quantum + 1
        found.at_most(mean / quantum, 1e4, "quantum_us")
        found.at_most(math.ceil(expected) * (1 + mean / quantum), 1e9, "quantum_us")
    arrives = asked["arrival"]["process"] == "poisson"
    rows = most + 1 + (0 if arrives else 1 - int(asked["thread_count"])) + (most if sliced else 0)
    found.at_most(96 * rows, MOST_BYTES, "max_threads", 1e-6)
    each = longest + asked["dispatch_cost_us"] * turns + asked["join_cost_us"] + widest * asked["spawn_cost_us"]
    last = int(asked["thread_count"]) * LONGEST_DRAW / asked["arrival"]["rate_per_ms"] if arrives else 0.0
    found.at_most(1e6 * last + 1e3 * most * each, 2.0**56, "work")


def _table_bytes(asked: dict[str, Any]) -> int:
    """Return the approximate size of the compiled laws as JSON."""
    rows = int(asked["max_depth"]) if asked["spawn"].get("shape") == "linear" else 1
    thresholds = _widest(asked["spawn"], 2**-33) + 1
    listed = len(asked["work"].get("quantiles_us", [])) + len(asked["spawn"].get("probabilities", []))
    return 12 * rows * thresholds + 36 * listed


# -- objects --------------------------------------------------------------------------------------------------------


def _floats(low: float, high: float) -> st.SearchStrategy[Any]:
    inside = st.floats(low, high) | st.sampled_from([low, high]) | st.integers(math.ceil(low), math.floor(high) or 1)
    usual = st.sampled_from([each for each in (1, 2.5, 10, 100.0, 0.75) if low <= each <= high] or [low])
    return mostly(usual | inside, outside(low, high), 40)


def _laws(name: str) -> st.SearchStrategy[Any]:
    """Return all sorts of laws, one in thirty of which is invalid."""
    mean, time = _floats(*_MEAN) | st.floats(0, 1.2), _floats(*_TIME)
    values: dict[str, st.SearchStrategy[Any]] = {
        "children": mostly(edges(0, 64) | st.integers(0, 4), outside(0, 64), 30),
        "mean": mean,
        "probability": _floats(0, 1) | st.floats(0, 0.5),
        "probabilities": _pmf(),
        "mean_us": time,
        "min_us": time,
        "max_us": time,
        "scv": _floats(1, 100),
        "alpha": _floats(1.05, 10),
        "max_ratio": _floats(1, 1e4),
        "quantiles_us": _quantiles(),
        "rate_per_ms": _floats(1e-4, 1e6),
    }
    more = {
        "shape": mostly(st.sampled_from(_SHAPE), JUNK),
        "warmup_roots": mostly(st.integers(0, 50), edges(0, 999_999)),
    }

    def one(tag: str) -> st.SearchStrategy[Any]:
        fields = {_TAG[name]: st.just(tag), **{key: values[key] for key in LAWS[name][tag]}}
        return st.fixed_dictionaries(fields, optional={key: more[key] for key in _optional(name, tag)})

    right = st.sampled_from(sorted(LAWS[name])).flatmap(one)
    strange = st.tuples(right, STRANGE_KEYS, JUNK).map(lambda drawn: {**drawn[0], drawn[1]: drawn[2]})
    short = right.map(lambda law: dict(list(law.items())[:-1]))
    return mostly(right, strange | short | JUNK | st.fixed_dictionaries({_TAG[name]: JUNK}), 30)


def _pmf() -> st.SearchStrategy[Any]:
    def scaled(weights: list[float]) -> list[float]:
        return [each / math.fsum(weights) for each in weights] if math.fsum(weights) > 1e-300 else weights

    weights = st.lists(st.floats(0, 1), min_size=1, max_size=65)
    return mostly(weights.map(scaled), weights | st.just([1.0] + [5e-324] * 64) | st.just([1.0] * 66) | JUNK, 8)


def _quantiles() -> st.SearchStrategy[Any]:
    few = st.lists(st.floats(*_TIME), min_size=2, max_size=12)
    many = st.integers(2, 1025).map(lambda count: [0.001 + 0.123456789 * each for each in range(count)])
    return mostly(few.map(sorted) | many, few | JUNK | st.just([1.0]), 8)


def _sweeps(one: st.SearchStrategy[Any], most: int) -> st.SearchStrategy[Any]:
    lists = st.lists(one, min_size=1, max_size=most, unique=True)
    wrong = st.lists(one, min_size=most + 1, max_size=most + 3) | st.lists(one | JUNK, max_size=3) | JUNK
    return mostly(one | one | lists, wrong, 15)


_TRACES = mostly(
    st.none() | st.fixed_dictionaries({}, optional={"cell": st.integers(0, 1), "replica": st.integers(0, 5)}),
    st.fixed_dictionaries(
        {}, optional={"cell": edges(0, 31) | JUNK, "replica": edges(0, 16_777_215), "max_events": edges(0, 250_001)}
    ),
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    **{name: mostly(edges(low, high), outside(low, high), 30) for name, (low, high) in WHOLE.items()},
    **{name: _floats(*bounds) for name, bounds in NUMBERS.items()},
    **{name: _laws(name) for name in LAWS},
    "thread_count": mostly(st.integers(1, 3000), edges(1, 1_000_000), 4),
    "cores": _sweeps(st.integers(1, 64) | st.integers(1, 64).map(str) | st.sampled_from([1, 64]), 16),
    "scheduler": _sweeps(st.sampled_from(SCHEDULERS), 4),
    "join": mostly(st.sampled_from(JOINS), JUNK, 20),
    "trace": _TRACES,
}


@st.composite
def objects(draw: st.DrawFn) -> dict[str, Any]:
    """Return parameters, about half of which are valid."""
    names = draw(st.lists(st.sampled_from(sorted(VALUES)), max_size=8, unique=True))
    found = {name: draw(VALUES[name]) for name in names}
    if draw(st.integers(0, 39)) == 0:
        found[draw(STRANGE_KEYS)] = draw(JUNK)
    if draw(st.integers(0, 39)) == 0:
        found[draw(st.sampled_from(sorted(VALUES)))] = None
    return found


_TIMES = st.floats(0.5, 500)
_SMALL_SPAWN = st.one_of(
    st.fixed_dictionaries({"distribution": st.just("fixed"), "children": st.integers(0, 2)}),
    st.fixed_dictionaries(
        {"distribution": st.just("binomial"), "children": st.integers(0, 4), "probability": st.floats(0, 0.3)},
        optional={"shape": st.sampled_from(_SHAPE)},
    ),
    st.fixed_dictionaries(
        {"distribution": st.sampled_from(["geometric", "poisson"]), "mean": st.floats(0, 1.2)},
        optional={"shape": st.sampled_from(_SHAPE)},
    ),
    st.fixed_dictionaries({"distribution": st.just("pmf"), "probabilities": st.just([0.5, 0.25, 0.25])}),
)
_SMALL_WORK = st.one_of(
    st.fixed_dictionaries({"distribution": st.sampled_from(["fixed", "exponential"]), "mean_us": _TIMES}),
    st.fixed_dictionaries({"distribution": st.just("uniform"), "min_us": st.just(1), "max_us": st.floats(1, 300)}),
    st.fixed_dictionaries({"distribution": st.just("hyperexponential"), "mean_us": _TIMES, "scv": st.floats(1, 20)}),
    st.fixed_dictionaries(
        {
            "distribution": st.just("pareto"),
            "mean_us": _TIMES,
            "alpha": st.floats(1.05, 10),
            "max_ratio": st.floats(1, 100),
        }
    ),
    st.fixed_dictionaries({"distribution": st.just("empirical"), "quantiles_us": st.just([1, 5.5, 80, 81])}),
)


@st.composite
def small(draw: st.DrawFn) -> dict[str, Any]:
    """Valid parameters whose reference result takes milliseconds."""
    scheduler = draw(st.sampled_from(SCHEDULERS))
    join = draw(st.sampled_from(JOINS if scheduler in ("fifo", "lifo") else JOINS[:2]))
    found = {
        "thread_count": draw(st.integers(1, 12)),
        "max_depth": draw(st.integers(0, 4)),
        "scheduler": scheduler,
        "replicas": draw(st.integers(1, 3)),
        "cores": draw(st.integers(1, 64) | st.just([1, 3])),
        "join": join,
        "seed": draw(edges(0, 2**53 - 1)),
        "spawn": draw(_SMALL_SPAWN),
        "work": draw(_SMALL_WORK),
        "max_threads": 400,
        "dispatch_cost_us": draw(st.floats(0, 20)),
        "spawn_cost_us": draw(st.floats(0, 5)),
        "steal_cost_us": draw(st.floats(0.5, 50)),
        "confidence": draw(st.floats(0.5, 0.9999)),
        "join_cost_us": draw(st.floats(0, 5)) if join != "none" else 0,
    }
    if scheduler == "round_robin":
        found["quantum_us"] = draw(st.floats(2, 500))
    if draw(st.booleans()):
        found["arrival"] = {"process": "poisson", "rate_per_ms": draw(st.floats(0.1, 1e4))}
    return found
