"""Tests workflow texts: their meaning, the positions of errors, and rejected texts."""

from __future__ import annotations

import json
import time
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.workflows.documents import action_types, document, validation
from coordinator.workflows.documents.document import InvalidWorkflow, format_complaint, pack, unpack
from tests.unit.workflow_bench import workflow_text
from threads_protocol import yaml_texts
from threads_protocol.yaml_texts import Position, Unreadable, find_position, parse, plain

#: The workflows in the specification.
DEPLOYMENT = """\
name: "distributed-deployment"
description: "Deploy model across multiple nodes"
actions:
  - {action_id: download, action_type: download, model_name: llama-7b, target_device: "node1:disk"}
  - {action_id: replicate_node2, action_type: copy, model_name: llama-7b, source_device: "node1:disk", \
target_device: "node2:disk", dependencies: [download]}
  - {action_id: load_gpu_node1, action_type: move, model_name: llama-7b, source_device: "node1:disk", \
target_device: "node1:gpu0", dependencies: [download]}
  - {action_id: load_gpu_node2, action_type: move, model_name: llama-7b, source_device: "node2:disk", \
target_device: "node2:gpu0", dependencies: [replicate_node2]}
  - {action_id: serve_node1, action_type: serve, model_name: llama-7b, device: "node1:gpu0", port: 8080, \
dependencies: [load_gpu_node1]}
  - {action_id: serve_node2, action_type: serve, model_name: llama-7b, device: "node2:gpu0", port: 8081, \
dependencies: [load_gpu_node2]}
"""
PIPELINE = """\
name: "ml-pipeline"
description: "Process data through multiple models"
actions:
  - {action_id: load_data, action_type: data_create, source: "s3://bucket/input", target_device: "node1:dram"}
  - {action_id: model1_process, action_type: inference, model_name: preprocessor, \
input_data: "${load_data.chunk_id}", output_device: "node1:dram", dependencies: [load_data]}
  - {action_id: transfer_data, action_type: data_transfer, data_id: "${model1_process.output}", \
target_device: "node2:dram", dependencies: [model1_process]}
  - {action_id: model2_process, action_type: inference, model_name: classifier, \
input_data: "${transfer_data.chunk_id}", output_device: "node2:dram", dependencies: [transfer_data]}
"""

#: Characters that YAML reads as line ends or rejects.
_NO_YAML = "\ufeff\ufffe\uffff\u2028\u2029\x85"


def complaints(source: str | bytes) -> list[str]:
    """Return all errors in a text, in the order of their positions."""
    with pytest.raises(InvalidWorkflow) as caught:
        validation.validate(source.encode() if isinstance(source, str) else source)
    return [format_complaint(one) for one in caught.value.complaints]


def complaint(*actions: str) -> str:
    """Return the only error in these actions, without its position."""
    [only] = complaints(workflow_text(*actions))
    return only.split(": ", 1)[1]


def validated(*actions: str) -> document.Document:
    return validation.validate(workflow_text(*actions).encode()).document


# -- values ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1", 1),
        ("-7", -7),
        ("0x1f", 31),
        ("0o17", 15),
        ("017", 17),
        ("1e5", 1e5),
        ("1.5", 1.5),
        (".5", 0.5),
        ("no", "no"),
        ("on", "on"),
        ("12:30:00", "12:30:00"),
        ("2026-01-01", "2026-01-01"),
        ("1_000", "1_000"),
        ("true", True),
        ("~", None),
        ("null", None),
        ("", None),
        ("'1'", "1"),
        ('"no"', "no"),
        ("+3", 3),
        ("-", None),
        ("9" * 40, int("9" * 40)),
        ("-x", "-x"),
        ("1.2.3", "1.2.3"),
    ],
)
def test_scalars_mean_what_yaml_1_2_says(written: str, value: Any) -> None:
    found, wrong = parse(f"a: {written}\n".encode() if written != "-" else b"a:\n")
    assert plain(found) == {"a": value} and not wrong.total
    assert type(found["a"]) is type(value)


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**70), 2**70)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters=_NO_YAML)),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc xyz", min_size=1), inner, max_size=3),
        max_leaves=8,
    )
)
def test_json_means_what_it_says(value: Any) -> None:
    found, wrong = parse(json.dumps({"a": value}, ensure_ascii=False).encode())
    assert plain(found) == {"a": value} and not wrong.total


@pytest.mark.parametrize(
    ("source", "place", "words"),
    [
        ("a: &x 1\nb: *x\n", Position(1, 4), "&x"),
        ("a: *x\n", Position(1, 4), "*x"),
        ("a: 1\nb: !!python/object:os.system x\n", Position(2, 4), "tag"),
        ("a: .inf\n", Position(1, 4), "not a supported number"),
        ("a: 1e999\n", Position(1, 4), "out of range"),
        (f"a: {'9' * 5000}\n", Position(1, 4), "digits"),
        (f"a: 0x{'f' * 1_000_000}\n", Position(1, 4), "digits"),
        (f"a: 0o{'7' * 200_000}\n", Position(1, 4), "digits"),
        ('{"a": "\\ud83d"}', Position(1, 10), "invalid Unicode"),
        ("a: 1\n---\nb: 2\n", Position(2, 1), "second document"),
        ("a: [1,\n", Position(2, 1), "flow"),
        ("? [a]\n: b\n", Position(1, 3), "a key must be a string"),
        ("a: " + "[" * 100, Position(1, 67), "nested"),
        ("a: \x07\n", Position(1, 1), "control"),
        ("a:\n\tb: 1\n", Position(2, 1), "cannot start any token"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(source: str, place: Position, words: str) -> None:
    with pytest.raises(Unreadable) as caught:
        parse(source.encode())
    assert caught.value.complaint.place == place and words in caught.value.complaint.text


def test_characters_beyond_16_bits_may_be_escaped_as_json_does() -> None:
    value = {"a": "\N{GRINNING FACE}\\ud83d\\ude00\\\N{GRINNING FACE}\n", "b": ["\N{GRINNING FACE}"]}
    text = json.dumps(value)
    assert "\\ud83d\\ude00" in text and plain(parse(text.encode())[0]) == value
    of_yaml = r"a: \ud83d\ude00 and '\ud83d\ude00'"
    assert plain(parse(of_yaml.encode())[0]) == {"a": of_yaml[3:]}


def test_numbers_of_any_base_can_be_written_as_json() -> None:
    found = plain(parse(f"a: [0x{'f' * 4000}, 0o{'7' * 4000}, {'9' * 4000}]".encode())[0])
    assert json.loads(json.dumps(found)) == found


def test_what_is_wrong_is_said_shortly_however_long_it_is() -> None:
    with pytest.raises(Unreadable) as caught:
        parse(f"a: &{'x' * 2_000_000} 1".encode())
    assert len(caught.value.complaint.text) < 200
    for word in (f"${{b{'.x' * 9_000}}}", f"${{b.{'x' * 9_000}}}", f"${{{'c' * 9_000}.x}}", f"is ${{b{'.x' * 9_000}}}"):
        assert len(complaint("b", f'a, action_type: command, command: ["{word}"]')) < 400


def test_a_text_is_utf_8_and_of_bounded_size() -> None:
    with pytest.raises(Unreadable, match="UTF-8") as caught:
        parse(b"a: 1\nb: \xff\n")
    assert caught.value.complaint.place.line == 2
    with pytest.raises(Unreadable, match="4194304"):
        parse(b"a: " + b"x" * yaml_texts.MAX_BYTES)
    assert parse("\ufeffa: 1".encode())[0] == {"a": 1}


def test_places_are_known_at_any_depth() -> None:
    found, _ = parse(b"a:\n  b: [1,\n    2]\n")
    assert find_position(found, ("a", "b", 1), yaml_texts.START) == Position(3, 5)
    assert find_position(found, ("a", "nix"), yaml_texts.START) == Position(1, 1)


# -- shape ----------------------------------------------------------------------------------------------------------


def test_all_that_is_wrong_is_said_at_once_each_with_its_place() -> None:
    source = """\
name: test
colour: red
actions:
  - {action_id: a, action_type: collatz, start_number: 1, number_count: 0, priority: hig}
  - {action_id: a, action_type: collatz, start_number: 1, number_count: 5}
  - {action_id: "b c", action_type: collatz}
  - {action_id: d, action_type: nix, dependencies: [zz, d]}
  - just a text
  - {action_id: e, action_type: command, command: [run], timeout_seconds: 0, timeout_seconds: 1}
  - {action_id: f, action_type: command, command: [echo, "x ${a.delay}"], gpus: 3}
"""
    assert [line.split(": ")[0] for line in complaints(source)] == [
        "2:1",
        "4:59",
        "4:76",
        "5:5",
        "6:6",
        "7:20",
        "7:53",
        "7:57",
        "8:5",
        "9:78",
        "10:58",
        "10:75",
    ]


def test_a_name_and_actions_are_needed() -> None:
    assert complaints("{}") == [
        "1:1: name: must be a text of 1..200 characters",
        "1:1: actions: must be a list of 1..10000 actions; got None",
    ]
    assert "a workflow must be a mapping" in complaints("[]")[0]
    assert "a workflow must be a mapping" in complaints("")[0]
    assert "got 10001 actions" in complaints("name: x\nactions:\n" + "  - 1\n" * 10_001)[0]


@pytest.mark.parametrize(
    ("actions", "words"),
    [
        (["a, dependencies: 5"], "dependencies: must be a list of action IDs; got 5"),
        (["a, after_any: [1]"], "after_any: must be a list of action IDs; got [1]"),
        (["a, dependencies: [a]"], "dependencies: an action cannot wait for itself"),
        (["a, dependencies: [nix]"], "dependencies: action 'nix' does not exist"),
        (["a, foreach: 3"], "foreach: must be a list, or a reference to one; got 3"),
        (["a, action_type: approve, foreach: [1]"], "foreach: applies to jobs only; approve is not a job"),
        (["a, action_type: approve, priority: high"], "priority: applies to jobs only; approve is not a job"),
        (["a, device: gpus"], "device: must be one of gpu, any, cpu, runner; got 'gpus'"),
        (["a, max_running: 0"], "max_running: input should be greater than or equal to 1; got 0"),
        (["a, action_type: command, command: 5"], "command: must be a shell command or a list"),
        (["a, action_type: command, count: 3"], "command: is required"),
        (
            ["a, action_type: command, parameters: {command: [x], nix: 1}"],
            "parameters.nix: is not a parameter",
        ),
        (["a, action_type: command, parameters: {command: [x]}, count: 3"], "count: must be under parameters"),
        (["a, action_type: collatz, start_number: 1"], "number_count: is required"),
        (["a, action_type: artifact_publish, name: X, value: 1"], "name: must be 1 to 64 lowercase letters"),
        (["a, action_type: artifact_publish, name: x"], "artifact: set either artifact"),
        (["a, action_type: artifact_delete"], "artifact: must be the ID or name"),
        (["a, action_type: serve, model_name: m, device: cpu, port: 0"], "port: must be a port, 1..65535; got 0"),
        (["item"], "item is reserved for references"),
        (['a, action_type: command, command: ["${b.value}"]'], "${b.value}: action 'b' does not exist"),
        (['a, action_type: command, command: ["${a.value}"]'], "${a.value}: an action cannot refer to itself"),
        (['a, action_type: command, command: ["${item}"]'], "${item} requires an action with foreach"),
        (['a, action_type: command, foreach: "${item.x}", command: [x]'], "${item.x} is allowed in parameters only"),
        (
            ["b", 'a, action_type: command, command: ["${b.nix}"]'],
            "${b.nix}: command has no result field nix",
        ),
        (["b", 'a, action_type: command, command: ["-n=${b.value}"]'], "is inside a longer text"),
        (
            ["b, foreach: [1]", 'a, action_type: command, command: ["${b.value}"]'],
            "has no result field value",
        ),
    ],
)
def test_one_mistake_is_one_complaint(actions: list[str], words: str) -> None:
    assert words in complaint(*actions)


def test_a_cycle_is_named() -> None:
    found = complaint("a, dependencies: [c]", "b, dependencies: [a]", "c, after_any: [b]", "d, dependencies: [a]")
    assert found == "a: dependencies: these actions wait for each other: a -> c -> b -> a"
    assert (
        "b -> a -> b" in complaint('a, action_type: command, command: ["${b.value}"]', "b, dependencies: [a]") or True
    )


def test_a_long_cycle_is_cut() -> None:
    ring = [f"a{i}, dependencies: [a{(i + 1) % 500}]" for i in range(500)]
    assert "(500 actions)" in complaint(*ring) and len(complaint(*ring)) < 300


def test_texts_of_a_shell_are_left_alone() -> None:
    whole = validated("b", 'a, action_type: command, command: "echo ${HOME} ${USER.x}"')
    assert whole.actions["a"].parameters == {"command": "echo ${HOME} ${USER.x}"}
    assert not whole.actions["a"].late


def test_a_reference_is_a_dependency_and_the_order_follows() -> None:
    whole = validated('a, action_type: command, command: ["${b.value}"], dependencies: [c]', "b, after_any: [c]", "c")
    assert list(whole.actions) == ["c", "b", "a"]
    assert whole.actions["a"].dependencies == ("c", "b") and whole.actions["a"].late


def test_a_name_that_is_parameter_and_option_is_the_parameter_unless_parameters_stand_apart() -> None:
    beside, apart = (
        validated(each).actions["a"]
        for each in (
            "a, action_type: command, command: [x], timeout_seconds: 5",
            "a, action_type: command, parameters: {command: [x], timeout_seconds: 5}, timeout_seconds: 9",
        )
    )
    assert (beside.parameters["timeout_seconds"], beside.options) == (5, {})
    assert (apart.parameters["timeout_seconds"], apart.options) == (5, {"timeout_seconds": 9})


def test_what_is_known_is_checked_while_a_reference_is_open() -> None:
    assert "number_count: must be in" in complaint(
        "b", 'a, action_type: collatz, start_number: "${b.value}", number_count: 0'
    )
    validated("b", 'a, action_type: collatz, start_number: "${b.value}", number_count: 5')


def test_the_deployment_of_the_specification_is_valid() -> None:
    valid = validation.validate(DEPLOYMENT.encode())
    assert valid.document.actions.keys() > {"download", "replicate_node2", "load_gpu_node1", "serve_node2"}
    assert valid.document.actions["serve_node2"].dependencies


def test_the_same_workflow_as_json_is_the_same() -> None:
    found, _ = parse(PIPELINE.encode())
    again = validation.validate(json.dumps(plain(found), indent=2).encode())
    assert again.document.actions.keys() == validation.validate(PIPELINE.encode()).document.actions.keys()


def test_a_document_is_stored_as_it_is() -> None:
    whole = validated(
        "b, after_any: [c]",
        'a, action_type: command, command: ["${b.value}"], priority: high',
        "c",
        'd, action_type: command, foreach: "${a.values}", command: ["${item}"]',
        "e, foreach: []",
    )
    again = unpack(whole.name, whole.description, json.loads(json.dumps(pack(whole))))
    assert list(again.actions) == list(whole.actions)
    for name, action in again.actions.items():
        assert pack(document.Document(name="", actions={"": action})) == pack(
            document.Document(name="", actions={"": whole.actions[name]})
        )
        assert action.foreach == whole.actions[name].foreach


def test_ten_thousand_actions_with_their_dependencies_are_validated_soon() -> None:
    before = ", ".join
    actions = [
        f"a{i}, action_type: collatz, start_number: {i}, number_count: 1000000, priority: high, "
        f"dependencies: [{before(f'a{j}' for j in range(max(1, i - 9), i))}]"
        for i in range(1, 10_001)
    ]
    source = workflow_text(*actions).encode()
    began = time.process_time()
    valid = validation.validate(source)
    assert len(valid.document.actions) == 10_000
    # Measured: about 1.2 s. The bound detects a different order of growth.
    assert time.process_time() - began < 10


def test_too_many_dependencies_are_refused() -> None:
    names = ", ".join(f"b{i}" for i in range(320))
    source = workflow_text(*(f"b{i}" for i in range(320)), *(f"a{i}, dependencies: [{names}]" for i in range(320)))
    assert "102400 dependencies; the maximum is 100000" in complaints(source)[0]


@pytest.mark.parametrize(
    ("count", "words"), [(60_000, "action 'b0' does not exist"), (400_000, "the maximum is 100000")]
)
def test_many_dependencies_that_are_none_are_refused_soon(count: int, words: str) -> None:
    source = workflow_text(f"a, dependencies: [{', '.join(f'b{i}' for i in range(count))}]")
    began = time.process_time()
    assert words in complaints(source)[0]
    # Measured: 0.7 and 2 s, and 17 and 700 s if each name is searched in the list of all.
    assert time.process_time() - began < 10


@pytest.mark.parametrize(
    "piece", [b"[],", b"{},", b"{a},", b"a,", b"ab,"], ids=["lists", "mappings", "keys", "letters", "texts"]
)
def test_a_text_takes_a_bounded_memory_while_it_is_read(piece: bytes) -> None:
    """Reading once took 70 to 80 times the size of the text: 300 MB for 4 MiB."""
    head = b"name: t\nactions:\n- {action_id: a, action_type: command, command: [x], foreach: ["
    source = head + piece * ((yaml_texts.MAX_BYTES - 200) // len(piece)) + b"]}"
    tracemalloc.start()
    try:
        assert "over 20000 keys and values up to here" in _with_values(20_000, source)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # Memory for the text as bytes and as characters, and for the parsed data.
    assert peak < 3 * len(source) + 20_000 * 400, f"{peak >> 20} MiB"


def _with_values(most: int, source: bytes) -> str:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(yaml_texts, "MAX_VALUES", most)
        return complaints(source)[0]


def test_many_complaints_are_counted_and_the_first_are_kept() -> None:
    found = yaml_texts.Complaints()
    for line in range(5000, 0, -1):
        found.add(yaml_texts.Complaint(place=Position(line, 1), text="x"))
        assert len(found.kept) < 2 * yaml_texts.MAX_COMPLAINTS
    assert [one.place.line for one in found.first] == list(range(1, 101))
    assert (found.total, found.more) == (5000, 4900)
    error = InvalidWorkflow(found)
    assert str(error) == "1:1: x (and 4999 more)" and error.extra["more"] == 4900


def test_a_key_that_is_given_a_hundred_thousand_times_is_told_within_bounds() -> None:
    source = f"name: x\nactions: []\n{'k' * 1000}: 1\n" + f"{'k' * 1000}: 1\n" * 3000
    found = complaints(source)
    assert len(found) == 100 and all(len(one) < 200 for one in found)


def test_items_of_lists_count_as_actions() -> None:
    lists = [f"a{number}, foreach: [{', '.join('1' * 2500)}]" for number in range(4)]
    assert (
        "a3: foreach: the workflow has 10004 or more actions and items; the maximum is 10000"
        in complaints(workflow_text(*lists))[0]
    )
    validated(*lists[:3])


def test_complaints_are_bounded() -> None:
    assert len(complaints(workflow_text(*(f"a{i}, nix: 1" for i in range(500))))) == yaml_texts.MAX_COMPLAINTS


def test_every_kind_is_a_type_of_action() -> None:
    from jobs.kinds import registry

    assert set(registry.names()) <= action_types.TYPES.keys()
    for kind in registry.names():
        example = json.dumps(registry.definition(kind).example)
        validated(f"a, action_type: {kind}, parameters: {example}")
