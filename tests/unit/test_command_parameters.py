"""Tests the parameters of programs: valid values, and the error message for every limit."""

from __future__ import annotations

import json
import time
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from coordinator.jobs import submissions
from jobs import errors
from jobs.kinds import programs as program
from jobs.kinds.command.definition import KIND
from jobs.kinds.program_arguments import literal
from jobs.models import Device, Plan

TRUE = {"command": ["true"]}


def plan(**parameters: Any) -> Plan:
    return KIND.plan(submissions.validate(KIND.parameters, parameters, "parameters"))


def planned_or_refused(parameters: dict[str, Any]) -> Plan | errors.InvalidRequest:
    try:
        return plan(**parameters)
    except errors.InvalidRequest as refusal:
        return refusal


def test_the_spec_has_every_parameter_and_the_number_of_units() -> None:
    made = plan(command=["echo", "{unit}"])
    assert made.total == made.spec["total"] == 1
    assert made.devices == (Device.RUNNER,) and made.cpu_seconds == 1.0 and made.mode == "default"
    assert set(made.spec) == {*KIND.parameters.model_fields, "total", "value_bytes"}
    assert made.spec["retries"] == {
        "max": 0,
        "initial_delay_seconds": 1.0,
        "factor": 2.0,
        "max_delay_seconds": 60.0,
        "jitter": True,
    }
    assert made.spec["grace_seconds"] == 10.0 and made.spec["batch"] is None and made.spec["value_bytes"] == 1024
    again = plan(**made.parameters)
    assert (again.spec, again.requirements) == (made.spec, made.requirements)


def test_a_lease_lives_as_long_as_its_unit_may() -> None:
    assert plan(**TRUE).max_lease_seconds == 366 * 86400
    assert plan(**TRUE, timeout_seconds=100, grace_seconds=5).max_lease_seconds == 105 + 3600


def test_values_of_many_units_fit_into_one_result() -> None:
    made = plan(**TRUE, count=100_000)
    assert made.total * made.spec["value_bytes"] <= 16 << 20
    assert made.spec["value_bytes"] >= len(json.dumps({"artifact": True}))


def test_items_give_the_number_of_units() -> None:
    assert plan(command=["echo", "{item}"], items=["a", 2, None, {"b": [1]}]).total == 4
    assert plan(**TRUE, items=[1, 2], count=2).total == 2
    assert plan(**TRUE, items_artifact="items", count=7).total == 7


def test_requirements_are_what_was_asked_for_in_one_form() -> None:
    needs = {"labels": ["b", "a", "b"], "gpus": "2", "cpus": 4.0, "compute_capability": "8.0"}
    made = plan(**TRUE, requirements=needs)
    assert json.dumps(made.requirements) == (
        '{"compute_capability": "8.0", "cpus": 4, "gpus": 2, "labels": ["a", "b"]}'
    )
    assert made.spec["requirements"] == made.parameters["requirements"] == made.requirements
    assert plan(**TRUE, requirements={"gpus": None, "labels": []}).requirements == {}


def test_a_folder_of_outputs_has_one_form() -> None:
    assert plan(**TRUE, outputs=["./out/", "a/**/*.csv"]).spec["outputs"] == ["out", "a/**/*.csv"]


LONG = "x" * (33 << 10)
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({}, "command", "is required"),
    ({"command": []}, "command", "list of 1..1000 texts"),
    ({"command": ["true"] * 1001}, "command", "list of 1..1000 texts"),
    ({"command": ""}, "command", "1 to 32768 bytes"),
    ({"command": [""]}, "command", "the first argument is the program"),
    ({"command": {"a": 1}}, "command", "list of 1..1000 texts"),
    ({"command": ["echo", 5]}, "command", "argument 2 must be a text"),
    ({"command": ["echo", {"literal": 5}]}, "command", "argument 2 must be a text"),
    ({"command": ["echo", {"literal": "{unit}", "more": ""}]}, "command", "argument 2 must be a text"),
    ({"command": [{"literal": ""}]}, "command", "the first argument is the program"),
    ({"command": ["echo", {"literal": "a\0{unit}"}]}, "command", "argument 2 contains a NUL"),
    ({"command": ["echo", {"literal": LONG}]}, "command", "at most 32768 bytes in total; got 33796"),
    ({"command": ["echo", "a\0b"]}, "command", "argument 2 contains a NUL"),
    ({"command": "echo \0"}, "command", "contains a NUL"),
    ({"command": ["echo", "\ud800"]}, "command", "argument 2 contains a lone surrogate"),
    ({"command": "\udfff"}, "command", "contains a lone surrogate"),
    ({"command": ["echo", LONG]}, "command", "at most 32768 bytes in total; got 33796"),
    ({"command": LONG}, "command", "1 to 32768 bytes"),
    ({"command": "echo {unit}"}, "command", "use $CLUSTER_UNIT"),
    ({"command": "echo {item}", "items": [1]}, "command", "use $CLUSTER_ITEM"),
    ({"command": ["echo", "{item}"]}, "command", "{item} requires items: `--items FILE`"),
    ({**TRUE, "count": 0}, "count", "1..100000"),
    ({**TRUE, "count": -1}, "count", "1..100000"),
    ({**TRUE, "count": 1_000_000}, "count", "1..100000"),
    ({**TRUE, "count": 1.0}, "count", "must be an integer"),
    ({**TRUE, "count": True}, "count", "must be an integer"),
    ({**TRUE, "count": "9" * 90_000}, "count", "1..100000"),
    ({**TRUE, "items": []}, "items", "1..100000 values"),
    ({**TRUE, "items": "abc"}, "items", "1..100000 values"),
    ({**TRUE, "items": list(range(100_000))}, "items", "must have at most 49152 bytes as JSON; got 588891. Put larger"),
    ({**TRUE, "items": ["x" * 50_000]}, "items", "items_artifact with count"),
    ({**TRUE, "items": [float("nan")]}, "items", "list of JSON values"),
    ({**TRUE, "items": [{1, 2}]}, "items", "list of JSON values"),
    ({**TRUE, "items": ["a", {"b": "\ud800"}]}, "items", "item 2 contains a lone surrogate"),
    ({"command": ["echo", "{item}"], "items": ["a", "b\0"]}, "items", "contains a NUL"),
    ({"command": ["x", "{item}" * 5000], "items": ["y" * 40_000]}, "items", "argument 2 has 200000001 bytes"),
    ({"command": ["x", *["{item}"] * 40], "items": ["y" * 40_000]}, "items", "the maximum is 1048576"),
    ({**TRUE, "items": [1, 2], "count": 3}, "count", "must be omitted or 2, the number of items"),
    ({**TRUE, "items": [1], "items_artifact": "a"}, "items_artifact", "cannot be combined"),
    ({**TRUE, "items_artifact": "a"}, "count", "the number of lines of its file"),
    ({**TRUE, "items_artifact": "../a"}, "items_artifact", "an artifact's name or ID"),
    ({**TRUE, "files": "a b"}, "files", "an artifact's name or ID"),
    ({**TRUE, "files": "x" * 65}, "files", "an artifact's name or ID"),
    ({**TRUE, "outputs": "a"}, "outputs", "list of at most 100 texts"),
    ({**TRUE, "outputs": ["a"] * 101}, "outputs", "list of at most 100 texts"),
    ({**TRUE, "outputs": ["a", "./a/"]}, "outputs", "'a' twice"),
    *(
        ({**TRUE, "outputs": [path]}, "outputs", "must be relative")
        for path in ("/etc/passwd", "../x", "a/../../x", "..", ".", "./", "/", "././a", "a//b", "a//", "a\\b")
    ),
    ({**TRUE, "outputs": ["a\0"]}, "outputs", "contains a NUL"),
    ({**TRUE, "outputs": ["x" * 1025]}, "outputs", "1 to 1024 bytes"),
    ({**TRUE, "env": []}, "env", "at most 100 variables"),
    ({**TRUE, "env": {f"A{n}": "" for n in range(101)}}, "env", "at most 100 variables"),
    ({**TRUE, "env": {"A": "x" * (17 << 10)}}, "env", "at most 16384 bytes in total; got 17409"),
    ({**TRUE, "env": {"A": "a\0"}}, "env", "value of A contains a NUL"),
    ({**TRUE, "env": {"A": 1}}, "env", "value of A must be a text"),
    *(
        ({**TRUE, "env": {name: ""}}, "env", "a name must have 1..128 letters")
        for name in ("", "A=B", "1A", "A-B", "Ä", "A" * 129)
    ),
    *(
        ({**TRUE, "env": {name: ""}}, "env", "the runner sets HOME")
        for name in ("HOME", "CUDA_VISIBLE_DEVICES", "CLUSTER_UNIT", "CLUSTER_")
    ),
    ({**TRUE, "secrets": ["A", "A"]}, "secrets", "'A' twice"),
    ({**TRUE, "secrets": ["HOME"]}, "secrets", "the runner sets HOME"),
    ({**TRUE, "secrets": ["A"], "env": {"A": ""}}, "secrets", "A is also in env"),
    *(
        ({**TRUE, "timeout_seconds": value}, "timeout_seconds", "number in 0.1..31622400")
        for value in (0, -1, 1e9, "5", True, float("nan"), float("inf"))
    ),
    ({**TRUE, "stop_signal_seconds": 5}, "stop_signal_seconds", "requires timeout_seconds"),
    ({**TRUE, "stop_signal_seconds": 5, "timeout_seconds": 4}, "stop_signal_seconds", "at most timeout_seconds, 4"),
    ({**TRUE, "grace_seconds": 26}, "grace_seconds", "0..25"),
    ({**TRUE, "retries": {"max": -1}}, "retries.max", "0..1000"),
    ({**TRUE, "retries": {"max_delay_seconds": 3601}}, "retries.max_delay_seconds", "0..3600"),
    ({**TRUE, "retries": {"factor": 0.5}}, "retries.factor", "1..100"),
    ({**TRUE, "retries": {"jitter": 1}}, "retries.jitter", "boolean"),
    ({**TRUE, "retries": {"often": 1}}, "retries.often", "is not a known field"),
    ({**TRUE, "batch": 0}, "batch", "1..100000"),
    ({**TRUE, "requirements": {"gpus": 65}}, "requirements.gpus", "1..64"),
    ({**TRUE, "requirements": {"gpu_memory_mib": 1}}, "requirements.gpu_memory_mib", "requires gpus"),
    ({**TRUE, "requirements": {"compute_capability": "8"}}, "requirements.compute_capability", "such as 8.0"),
    ({**TRUE, "requirements": {"cpus": 0.3}}, "requirements.cpus", "0.5..4096"),
    ({**TRUE, "requirements": {"cpus": 1.25}}, "requirements.cpus", "multiple of 0.5"),
    ({**TRUE, "requirements": {"host": "a/b"}}, "requirements.host", "a host name"),
    ({**TRUE, "requirements": {"labels": ["a b"]}}, "requirements.labels", "letters, digits"),
    ({**TRUE, "requirements": {"labels": ["a"] * 33}}, "requirements.labels", "at most 32"),
    ({**TRUE, "workspace": "../a"}, "workspace", "lowercase letters"),
    ({**TRUE, "workspace": ""}, "workspace", "lowercase letters"),
    ({**TRUE, "python": {"requirements": "r.txt"}}, "python.requirements", "files is required"),
    ({**TRUE, "python": {"requirements": "../r.txt"}, "files": "f"}, "python.requirements", "relative"),
    ({**TRUE, "python": {"requirements": "r.txt", "module": "a b"}, "files": "f"}, "python.module", "must be 1 to 64"),
    ({**TRUE, "image": "x"}, "image", "is not a known field"),
]


@pytest.mark.parametrize(("parameters", "field", "words"), REFUSED)
def test_what_is_beyond_a_bound_is_refused_by_its_name(parameters: dict[str, Any], field: str, words: str) -> None:
    began = time.process_time()
    with pytest.raises(errors.InvalidRequest) as caught:
        plan(**parameters)
    assert caught.value.field == f"parameters.{field}"
    assert words in caught.value.detail
    assert len(caught.value.detail) < 400 and caught.value.detail.encode()
    assert time.process_time() - began < 2


def test_texts_that_are_long_together_are_refused_with_the_two_longest() -> None:
    with pytest.raises(errors.InvalidRequest, match=r"items 4[0-9]+ and command 2[0-9]+") as caught:
        plan(command="c" * 20_000, items=["i" * 45_000])
    assert caught.value.field == "parameters.items"


def test_the_most_of_everything_that_fits_is_within_a_spec() -> None:
    made = plan(command=["echo", *["w"] * 999], items=list(range(8000)), env={f"A{n}": "v" * 90 for n in range(100)})
    assert len(json.dumps(made.spec)) < 64 << 10


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
WORD = st.text(st.sampled_from("a.{}*/"), min_size=1, max_size=9) | st.sampled_from(["{unit}", "{{unit}", "x{item}y"])
NAMES, LABELS = st.sampled_from(["C", "D_1"]), st.sampled_from(["x", "y=1"])
SOUND: dict[str, st.SearchStrategy[Any]] = {
    "command": st.lists(WORD | st.fixed_dictionaries({"literal": WORD}), min_size=1, max_size=4) | WORD,
    "count": st.integers(1, 100_000),
    "items": st.lists(JSON, min_size=1, max_size=4),
    "items_artifact": st.just("a" * 64),
    "files": st.just("b" * 64),
    "outputs": st.lists(st.sampled_from(["a", "b/*", "c/**/d"]), unique=True),
    "env": st.dictionaries(NAMES, WORD),
    "secrets": st.lists(st.sampled_from(["A", "B"]), unique=True),
    "timeout_seconds": st.floats(0.1, 100),
    "stop_signal_seconds": st.floats(0, 100),
    "requirements": st.fixed_dictionaries(
        {},
        optional={
            "gpus": st.integers(1, 64),
            "cpus": st.sampled_from([0.5, 1, 2.0]),
            "labels": st.lists(LABELS),
            "memory_mib": st.integers(1, 9),
            "host": st.just("h"),
        },
    ),
    "retries": st.fixed_dictionaries({}, optional={"max": st.integers(0, 9), "factor": st.floats(1, 100)}),
    "python": st.just({"requirements": "r.txt"}),
    "workspace": st.just("w"),
    "batch": st.integers(1, 9),
}


@st.composite
def mostly_sound(draw: st.DrawFn) -> dict[str, Any]:
    """Return some parameters, each valid on its own, and often an arbitrary one."""
    names = draw(st.lists(st.sampled_from(sorted(SOUND)), unique=True, max_size=4))
    needed = {"stop_signal_seconds": "timeout_seconds", "python": "files", "items_artifact": "count"}
    names += [needed[name] for name in names if name in needed]
    parameters = {name: draw(SOUND[name]) for name in ("command", *names)}
    if draw(st.booleans()):
        parameters[draw(st.sampled_from(sorted(SOUND)))] = draw(JSON)
    return parameters


@given(mostly_sound())
@settings(max_examples=200, deadline=None)
def test_whatever_comes_is_refused_by_name_or_can_be_run(parameters: dict[str, Any]) -> None:
    began = time.process_time()
    made = planned_or_refused(parameters)
    if isinstance(made, errors.InvalidRequest):
        assert made.field and made.field.startswith("parameters"), made.detail
        assert made.detail.startswith(made.field) and len(made.detail) < 700 and made.detail.encode()
    else:
        assert len(json.dumps(made.spec, allow_nan=False)) < 64 << 10
        again = plan(**json.loads(json.dumps(made.parameters)))
        assert json.dumps(again.spec) == json.dumps(made.spec)
        for unit in {0, made.total - 1}:
            words = program.arguments(made.spec, unit, program.item_of(made.spec, unit))
            assert all("\0" not in word and word.encode() is not None for word in words)
    assert time.process_time() - began < 0.5


# -- what a runner makes of it ----------------------------------------------------------------------------------------


def test_places_are_filled_in_once() -> None:
    spec = plan(command=["a{unit}b{unit}", "{item}", "${items}", "{{unit}}"], items=["{unit}{item}", {"k": "ü"}]).spec
    assert program.arguments(spec, 0, program.item_of(spec, 0)) == ["a0b0", "{unit}{item}", "${items}", "{0}"]
    assert program.arguments(spec, 1, program.item_of(spec, 1))[1] == '{"k":"\\u00fc"}'


UNKNOWN = [
    "{}",
    "{.}",
    "{/}",
    "{//}",
    "{/.}",
    "{#}",
    "{2}",
    "{2.}",
    "{item.a}",
    "{item[0]}",
    "{items}",
    "{name}",
    "{1..5}",
    "{item['a']}",
    "{ item }",
    "{unit!r}",
]
LITERAL = ["${HOME}", "{{.Names}}", '{"a":1}', "{print $2}", "{a,b}", "{", "}{", "{ }", '{"item": 1}']


@pytest.mark.parametrize("more", [{"items": ["x"]}, {"items_artifact": "a" * 64, "count": 2}, {"count": 2}])
@pytest.mark.parametrize("unknown", UNKNOWN)
def test_a_placeholder_that_does_not_exist_is_refused_by_its_name(unknown: str, more: dict[str, Any]) -> None:
    """An unknown placeholder once reached the program unchanged in each unit."""
    with pytest.raises(errors.InvalidRequest) as caught:
        plan(command=["draw", f"out/{unknown}.png"], **more)
    assert caught.value.field == "parameters.command"
    for words in (f"{unknown} is not a placeholder", "{unit}", "{item}", "--shell"):
        assert words in caught.value.detail


@pytest.mark.parametrize("word", LITERAL)
def test_other_braces_stay_as_they_are(word: str) -> None:
    assert program.arguments(plan(command=["draw", word], items=["x"]).spec, 0, "x") == ["draw", word]


@pytest.mark.parametrize("unknown", UNKNOWN)
def test_an_unknown_placeholder_in_a_literal_reaches_the_program(unknown: str) -> None:
    assert literal(unknown) == {"literal": unknown}
    assert program.arguments(plan(command=["draw", literal(unknown)], count=2).spec, 1) == ["draw", unknown]


def test_a_program_that_runs_once_gets_its_words_as_typed() -> None:
    for word in UNKNOWN:
        assert program.arguments(plan(command=["sed", word]).spec, 0) == ["sed", word]


def test_nothing_is_filled_into_a_literal() -> None:
    command = ["a{unit}", {"literal": "{unit}{item}"}, {"literal": "plain"}, {"literal": "{port}"}]
    made = plan(command=command, items=["i"])
    assert made.parameters["command"] == ["a{unit}", {"literal": "{unit}{item}"}, "plain", {"literal": "{port}"}]
    assert plan(**json.loads(json.dumps(made.parameters))) == made
    assert program.arguments(made.spec, 0, "i") == ["a0", "{unit}{item}", "plain", "{port}"]
    assert plan(command=["echo", {"literal": "{item}"}]).total == 1, "it needs no items"
    assert plan(command=["x", {"literal": "{item}" * 5000}], items=["y" * 20_000]).total == 1, "it stays short"


def test_a_text_is_for_the_shell() -> None:
    assert program.arguments(plan(command="echo $CLUSTER_UNIT").spec, 5) == ["/bin/sh", "-c", "echo $CLUSTER_UNIT"]


def test_an_item_of_an_artifact_that_does_not_fit_is_refused_when_it_is_filled_in() -> None:
    spec = plan(command=["echo", "{item}"], items_artifact="a", count=3).spec
    assert program.item_of(spec, 0) is None
    with pytest.raises(ValueError, match=r"unit 2: argument 2 has 200001 bytes with item .*; the maximum is 131072"):
        program.arguments(spec, 2, "x" * 200_000)
    with pytest.raises(ValueError, match=r"unit 1: the item .* contains a NUL"):
        program.arguments(spec, 1, "\0")


def test_waits_grow_up_to_their_bound() -> None:
    spec = plan(**TRUE, retries={"jitter": False}).spec
    assert [program.retry_delay_ms(spec, attempt, 0.9) for attempt in (1, 2, 3, 7, 10**9)] == [
        1000,
        2000,
        4000,
        60000,
        60000,
    ]
    assert program.max_retries(spec) == 0
    dice = plan(**TRUE).spec
    assert [program.retry_delay_ms(dice, 1, number) for number in (0.0, 0.5, 0.999999)] == [500, 750, 1000]
    none = plan(**TRUE, retries={"initial_delay_seconds": 0, "factor": 100}).spec
    assert program.retry_delay_ms(none, 10**6, 0.5) == 0
    same = plan(**TRUE, retries={"factor": 1, "jitter": False}).spec
    assert program.retry_delay_ms(same, 10**9, 0.5) == 1000
