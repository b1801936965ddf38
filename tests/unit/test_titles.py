"""Tests job titles: exact, short, on one line, and available for all parameters."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.jobs import titles
from jobs.kinds import registry
from jobs.kinds.collatz.titles import brief
from threads_cluster.client.programs import call_command


def collatz(start: int | str, count: int, mode: str = "statistics") -> str:
    return titles.title("collatz", {"mode": mode, "start_number": start, "number_count": count})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (collatz(1, 10**7), "Collatz 1…10⁷, statistics"),
        (collatz(1, 2**40, "verify"), "Collatz 1…2⁴⁰, verification"),
        (collatz(2**40, 2**40, "verify"), "Collatz 2⁴⁰…2⁴¹−1, verification"),
        (collatz(1, 25 * 10**6, "records"), "Collatz 1…2.5×10⁷, records"),
        (collatz(1, 1000), "Collatz 1…1,000, statistics"),
        (collatz(10**15, 10**13), "Collatz 10¹³ numbers from 10¹⁵, statistics"),
        (collatz(str(2**71 + 12345), 10**9), "Collatz 10⁹ numbers from ≈2.36×10²¹, statistics"),
        (collatz(str(2**95), 123_456_789_012), "Collatz ≈1.23×10¹¹ numbers from 2⁹⁵, statistics"),
        (titles.title("collatz", {"mode": "trajectory", "n": 27}), "Collatz trajectory of 27"),
        (titles.title("collatz", {"mode": "trajectory", "n": str(2**100 - 1)}), "Collatz trajectory of 2¹⁰⁰−1"),
        (
            titles.title("collatz", {"mode": "trajectory", "n": "7" * 20_000}),
            "Collatz trajectory of a number of 20,000 digits",
        ),
        (titles.title("thread", {"cores": 8, "scheduler": "work_stealing"}), "Threads: 8 cores, work stealing"),
        (titles.title("thread", {"cores": 1, "scheduler": ["fifo", "lifo"]}), "Threads: 1 core, fifo and lifo"),
        (titles.title("thread", {"cores": [1, 2, 4], "scheduler": "fifo"}), "Threads: 1, 2, 4 cores, fifo"),
        (
            titles.title("thread", {"cores": [1, 2, 4, 8, 16, 64], "scheduler": ["fifo", "lifo", "round_robin"]}),
            "Threads: 1 to 64 cores, 3 schedulers",
        ),
        (
            titles.title("thread", {"cores": 8, "scheduler": "fifo", "trace": {"replica": 7}}),
            "Threads: trace of replica 7, 8 cores, fifo",
        ),
        (
            titles.title("command", {"command": ["python3", "train.py", "--seed", "{unit}"], "count": 100}),
            "train.py × 100",
        ),
        (titles.title("command", {"command": ["echo", "two words"], "count": 1}), "echo"),
        (titles.title("command", {"command": "for i in 1 2\ndo\techo $i\ndone"}), "echo"),
        (titles.title("command", {"command": ["a"], "items": [1, 2, 3]}), "a × 3"),
        (titles.title("command", {"command": ["echo", {"literal": "{unit} b"}]}), "echo"),
        (titles.title("service", {"service": "chat", "engine": "llamacpp"}), "chat"),
    ],
)
def test_a_title_says_what_the_job_is(given: str, expected: str) -> None:
    assert given == expected


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python3", "train.py", "--lr", "0.1"], "train.py"),
        (["/usr/bin/python3.12", "-u", "src/train.py"], "train.py"),
        (["python3", "-m", "pytest", "-q"], "pytest"),
        (["python3", "-c", "import secret; print(1)"], "python3"),
        (call_command("work:square"), "work:square"),
        (["./bin/simulate", "--seed", "{unit}"], "simulate"),
        (["env", "A=1", "python3", "fit.py"], "fit.py"),
        (["sh", "-c", "nproc; free -m"], "nproc"),
        (["bash", "-lc", "set -e; cd data && A=1 python3 clean.py 'a;b'"], "clean.py"),
        ('sort "part-$CLUSTER_UNIT" | uniq -c', "sort"),
        ("# prepare\nfor f in *; do gzip $f; done", "gzip"),
        ("while ! [ -e over ]; do sleep 1; done", "["),
        ('echo "not closed', "echo"),
        ("cd /tmp", "sh"),
        ("bash", "bash"),
    ],
)
def test_a_title_names_the_program_and_contains_no_source_code(command: list[str] | str, name: str) -> None:
    assert titles.title("command", {"command": command}) == name


@given(st.integers(1, 2**96))
def test_what_is_told_in_few_signs_is_the_number_itself(number: int) -> None:
    """Powers and numbers are parsed again; inexact numbers are not shortened as exact ones."""
    lowered = brief(number).translate(str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789"))
    assert not lowered or len(lowered) <= 11
    for near in (number, 2 ** (number % 96), 2 ** (number % 96 + 1) - 1, number % 1000 * 10 ** (number % 25)):
        if near and (text := brief(near)):
            assert worth(text) == near


def worth(text: str) -> int:
    """Return the value of a text such as 2.5×10⁷, 2⁴⁰−1 or 1,024."""
    lowered = "⁰¹²³⁴⁵⁶⁷⁸⁹"
    for base in ("×10", "10", "2"):
        head, found, tail = text.partition(base)
        raised = "".join(str(lowered.index(sign)) for sign in tail if sign in lowered)
        if found and raised and (base == "×10" or not head):
            power = int(base.lstrip("×")) ** int(raised)
            whole, _, part = head.partition(".")
            figures = int(whole + part) if head else 1
            return figures * power // 10 ** len(part) + {"1": 1}.get(tail.partition("+")[2], 0) - ("−" in tail)
    return int(text.replace(",", ""))


@pytest.mark.parametrize("kind", registry.names())
def test_every_kind_names_its_example(kind: str) -> None:
    definition = registry.definition(kind)
    plan = definition.plan(definition.parameters.model_validate(definition.example))
    title = titles.title(kind, plan.parameters)
    assert 3 <= len(title) <= titles.MAX_LENGTH and title.isprintable()


def test_a_kind_without_titles_is_named_by_its_parameters() -> None:
    shown = titles.title("primes", {"limit": 1000, "many": [1, 2], "seed": 7})
    assert shown == "primes: limit 1000, seed 7"
    assert titles.title("primes", {}) == titles.title("primes", None) == "primes"


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(
    ["mode", "start_number", "number_count", "n", "cores", "scheduler", "trace", "command", "count"]
)


@given(st.sampled_from([*registry.names(), "gone"]), ANYTHING | st.dictionaries(NAMES, ANYTHING))
def test_whatever_is_stored_has_a_title_of_one_line(kind: str, parameters: Any) -> None:
    """Parameters of another version, or broken ones, hide no job."""
    title = titles.title(kind, parameters)
    assert 1 <= len(title) <= titles.MAX_LENGTH
    assert title.isprintable()


def test_what_turns_text_around_is_not_passed_on() -> None:
    assert titles.title("command", {"command": "rm\u202e\x1b[31m ok"}) == "rm\ufffd\ufffd[31m"
    long = titles.title("command", {"command": "x" * 40_000})
    assert len(long) == titles.MAX_LENGTH and long.endswith("…")
