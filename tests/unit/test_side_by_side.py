"""Tests which tests run in one process, one after another."""

from __future__ import annotations

import re

from tests.packages import TOP
from tests.ports import free_port, port_range
from tests.side_by_side import group

#: Written such that this file does not contain the text itself.
MARK = "@pytest.mark." + "alone"


def test_tests_that_share_a_cluster_stay_together() -> None:
    first = "tests/integration/test_api.py::test_one[a::b]"
    assert group(first) == group("tests/integration/test_api.py::test_two") == "tests/integration/test_api.py"
    assert group("tests/hostile/test_bodies.py::test_one") == group("tests/hostile/test_requests.py::test_two")
    assert group("tests/stack/test_stack.py::test_one") != group("tests/hostile/test_bodies.py::test_one")


def test_other_tests_are_each_by_themselves() -> None:
    assert group("tests/unit/test_pace.py::test_one") != group("tests/unit/test_pace.py::test_two")


def test_make_runs_every_test_that_measures_time() -> None:
    marked = {file.parent.relative_to(TOP).as_posix() for file in TOP.glob("tests/*/*.py") if MARK in file.read_text()}
    lists = re.findall(r"^(?:PAIRS|ALONE) := (.*)$", (TOP / "Makefile").read_text(), re.MULTILINE)
    assert sorted(" ".join(lists).split()) == sorted(marked)


def test_processes_side_by_side_get_different_ports() -> None:
    shares = [set(port_range(f"gw{number}")) for number in range(8)] + [set(port_range(""))]
    assert len(set.union(*shares)) == sum(map(len, shares))
    assert len({free_port() for _ in range(50)}) == 50
