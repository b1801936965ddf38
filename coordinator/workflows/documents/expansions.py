"""Actions about models and data as the steps that carry them out: programs, and what the leader does. Pure.

An action keeps its id for its last step, so that what comes after it, and what refers to it, need not know. The steps
before it have ids made of its own, `ID--STEP`, and types with a dot, which no text can name.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from coordinator import locations
from coordinator.artifacts.catalog import CHUNK
from coordinator.locations import Location
from coordinator.workflows.documents.document import Action, Document
from jobs.kinds.program_arguments import literal

#: Characters of an action's id that ids of its steps begin with, and between these and the step.
_MOST, _BETWEEN = 22, "--"
#: Folders in which programs leave models, data and answers, as the artifact of their unit has them.
_MODEL, _DATA, _ANSWERS = "outputs/0/model", "outputs/0/data", "outputs/0/answers"
_PYTHON = ("python3", "-c")
_RETRIES = {"max": 5, "initial_delay_seconds": 2}
#: Reads all files of its folder, so that this host has them on its disk and in its memory.
_READ = """\
import pathlib
size = 0
for path in sorted(pathlib.Path(".").rglob("*")):
    if path.is_file() and not path.is_symlink():
        with path.open("rb") as file:
            while piece := file.read(1 << 20):
                size += len(piece)
        print(f"{path}: {size} bytes so far", flush=True)
"""
Parameters: TypeAlias = Mapping[str, Any]


def fetching() -> str:
    """Return the program that downloads."""
    return (Path(__file__).parent / "fetching.py").read_text(encoding="utf-8")


def steps_of(action: Action) -> list[Action]:
    """Return the steps of an action in their order, one with its own id; the action itself where it has none."""
    make = EXPANSIONS.get(action.type)
    return list(make(_Steps(action))) if make else [action]


def expand(whole: Document) -> tuple[Document, list[str]]:
    """Return the document with steps in the place of actions, and ids that two of them have.

    The end of each move comes behind all that reads its source.
    """
    steps = [one for action in whole.actions.values() for one in steps_of(action)]
    steps += [end for action in whole.actions.values() if (end := _end_of_move(action, whole))]
    twice = [name for name, count in Counter(one.id for one in steps).items() if count > 1]
    return replace(whole, actions={one.id: one for one in steps}), twice


def step_id(action: str, step: str) -> str:
    """Return the id of a step of an action."""
    if len(action) > _MOST:
        action = f"{action[: _MOST - 7]}-{hashlib.sha256(action.encode()).hexdigest()[:6]}"
    return f"{action}{_BETWEEN}{step}"


def _end_of_move(action: Action, whole: Document) -> Action | None:
    """Return the step in which a model leaves the place that it was moved from, once no other action reads it there."""
    parameters = action.parameters
    if action.type != "move" or parameters.get("keep_source") or parameters["source_device"] == "disk":
        return None
    model, source = parameters["model_name"], parameters["source_device"]
    readers = (
        one.id
        for one in whole.actions.values()
        if one.id != action.id
        and one.type in ("copy", "move")
        and one.parameters["model_name"] == model
        and one.parameters["source_device"] == source
    )
    return Action(
        id=step_id(action.id, "leave"),
        type="model.leave",
        dependencies=(action.id,),
        after_any=tuple(readers),
        parameters={"model_name": model, "source_device": source},
        place=action.place,
    )


class _Steps:
    """Steps of one action, each after the one before."""

    def __init__(self, action: Action) -> None:
        self.action = action
        self.parameters = action.parameters
        self._last = ""

    def step(self, name: str, kind: str, parameters: Parameters) -> Action:
        """Return the next step; the first waits for what its action waits for."""
        made = self._after(step_id(self.action.id, name), kind, parameters)
        self._last = made.id
        return made

    def last(self, **more: Any) -> Action:
        """Return the action itself as the last step, with more parameters."""
        return self._after(self.action.id, self.action.type, {**self.parameters, **more})

    def _after(self, name: str, kind: str, parameters: Parameters) -> Action:
        own = self.action
        return replace(
            own,
            id=name,
            type=kind,
            parameters=dict(parameters),
            late=True,
            dependencies=(self._last,) if self._last else own.dependencies,
            after_any=() if self._last else own.after_any,
        )

    def of(self, step: str, field: str) -> str:
        """Return the reference to what a step gave."""
        return f"${{{step_id(self.action.id, step)}.{field}}}"

    def program(self, name: str, host: str, **parameters: Any) -> Action:
        """Return a step that runs a program, on a host where one is named."""
        needs = {**(parameters.pop("requirements", None) or {}), **({"host": host} if host else {})}
        required = {"requirements": needs} if needs else {}
        return self.step(name, "command", {"retries": _RETRIES, **parameters, **required})

    def brought(self, place: Location, artifact: str) -> Iterator[Action]:
        """Yield the step in which a host gets an artifact; none for the cluster's store, where all of them lie."""
        if not place.is_store:
            yield self.program("bring", place.host, command=[*_PYTHON, literal(_READ)], files=artifact)

    def fetched(self, folder: str, place: Location) -> Action:
        """Return the step that downloads, on the host where it will lie."""
        source, sha = self.of("source", "source"), self.of("source", "sha256")
        command = [*_PYTHON, literal(fetching()), source, sha, folder]
        # Of the same source on the same host: what broke off goes on there.
        of = f"{self.parameters.get('model_name')} {self.parameters.get('source')}"
        return self.program(
            "fetch",
            place.host,
            command=command,
            outputs=[folder],
            secrets=self.of("source", "secrets"),
            workspace=f"fetch-{hashlib.sha256(of.encode()).hexdigest()[:16]}",
        )


def _download(steps: _Steps) -> Iterator[Action]:
    given, place = steps.parameters, _parse_location(steps.parameters["target_device"])
    names = ("model_name", "source", "sha256", "secrets")
    asked: dict[str, Any] = {name: given[name] for name in names if name in given}
    yield steps.step("source", "model.source", asked)
    yield steps.fetched("model", place)
    kept = {"model_name": given["model_name"], "artifact": steps.of("fetch", "artifact"), "folder": _MODEL}
    yield steps.step("keep", "model.keep", {**kept, "source": steps.of("source", "source")})
    yield from steps.brought(place, steps.of("keep", "artifact"))
    yield steps.last(artifact=steps.of("keep", "artifact"))


def _transfer_of_model(steps: _Steps) -> Iterator[Action]:
    """Yield the steps of copy and move: to a GPU by a replica of an engine, elsewhere by the files."""
    given, place = steps.parameters, _parse_location(steps.parameters["target_device"])
    yield steps.step("from", "model.at", {name: given[name] for name in ("model_name", "source_device")})
    if place.kind != "gpu":
        yield from steps.brought(place, steps.of("from", "artifact"))
    yield steps.last(artifact=steps.of("from", "artifact"))


def _data_create(steps: _Steps) -> Iterator[Action]:
    given, place = steps.parameters, _parse_location(steps.parameters["target_device"])
    yield steps.step("source", "data.source", {name: given[name] for name in ("source", "secrets") if name in given})
    yield steps.fetched("data", place)
    yield from _store_chunk_steps(steps, steps.of("fetch", "artifact"), _DATA, place, given.get("chunk_id"))


def _store_chunk_steps(
    steps: _Steps, artifact: str, folder: str, place: Location, chunk: str | None = None
) -> Iterator[Action]:
    """Yield the steps in which a folder of an artifact becomes a chunk of data at a place."""
    chunk = chunk or new_chunk()
    yield steps.step("keep", "data.keep", {"chunk_id": chunk, "artifact": artifact, "folder": folder})
    yield from steps.brought(place, steps.of("keep", "artifact"))
    yield steps.last(chunk_id=chunk, artifact=steps.of("keep", "artifact"))


def new_chunk() -> str:
    """Return an id of a chunk that nobody has."""
    return f"{CHUNK}{secrets.token_hex(6)}"


def _data_transfer(steps: _Steps) -> Iterator[Action]:
    place = _parse_location(steps.parameters["target_device"])
    yield steps.step("from", "data.at", {"data_id": steps.parameters["data_id"]})
    yield from steps.brought(place, steps.of("from", "artifact"))
    yield steps.last(chunk_id=steps.of("from", "chunk_id"), artifact=steps.of("from", "artifact"))


def _inference(steps: _Steps) -> Iterator[Action]:
    """Yield the steps of a batch: files and program in one artifact, their run, and the end of that artifact."""
    given, place = steps.parameters, _parse_location(steps.parameters["output_device"])
    batch = f"batch-{secrets.token_hex(6)}"
    asked = {name: value for name, value in given.items() if name not in ("output_device", "requirements")}
    yield steps.step("batch", "model.batch", {**asked, "name": batch})
    run = steps.program(
        "run",
        place.host,
        command=steps.of("batch", "command"),
        files=steps.of("batch", "artifact"),
        outputs=["answers"],
        python=steps.of("batch", "python"),
        requirements=given.get("requirements"),
    )
    yield run
    yield from _store_chunk_steps(steps, steps.of("run", "artifact"), _ANSWERS, place)
    yield replace(
        run,
        id=step_id(steps.action.id, "clear"),
        type="batch.clear",
        parameters={"name": batch},
        dependencies=(),
        after_any=(run.id,),
        late=False,
    )


def _parse_location(text: str) -> Location:
    return locations.parse(text, ("disk", "dram", "gpu"))


EXPANSIONS: dict[str, Callable[[_Steps], Iterator[Action]]] = {
    "download": _download,
    "copy": _transfer_of_model,
    "move": _transfer_of_model,
    "data_create": _data_create,
    "data_move": _data_transfer,
    "data_transfer": _data_transfer,
    "inference": _inference,
}
