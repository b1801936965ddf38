"""Expand model and data actions into steps: programs, and steps that the leader executes. Functions here are pure.

The last step keeps the action's ID, so dependent actions and references need no change. Earlier steps have IDs of the
form `ID--STEP`, and types that contain a dot, so a workflow text cannot name them.
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

#: Number of characters of the action ID that step IDs keep.
#: Separator between the action ID and the step name in a step ID.
_ID_LENGTH, _SEPARATOR = 22, "--"
#: Output folders of model, data and answers, as paths in the artifact of the program's unit.
_MODEL, _DATA, _ANSWERS = "outputs/0/model", "outputs/0/data", "outputs/0/answers"
_PYTHON = ("python3", "-c")
_RETRIES = {"max": 5, "initial_delay_seconds": 2}
#: Program that reads all files of its folder to load them onto the host's disk and into its page cache.
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


def read_fetch_program() -> str:
    """Return the source text of the download program."""
    return (Path(__file__).parent / "fetching.py").read_text(encoding="utf-8")


def steps_of(action: Action) -> list[Action]:
    """Return the steps of an action in order. The last step has the action's ID.

    Most actions are their only step.
    """
    make = EXPANSIONS.get(action.type)
    return list(make(_Steps(action))) if make else [action]


def expand(whole: Document) -> tuple[Document, list[str]]:
    """Return the document with each action replaced by its steps, and the IDs that two steps share.

    The last step of a move, which removes the source, follows all actions that read the source.
    """
    steps = [one for action in whole.actions.values() for one in steps_of(action)]
    steps += [end for action in whole.actions.values() if (end := _end_of_move(action, whole))]
    twice = [name for name, count in Counter(one.id for one in steps).items() if count > 1]
    return replace(whole, actions={one.id: one for one in steps}), twice


def step_id(action: str, step: str) -> str:
    """Return the ID of a step of an action."""
    if len(action) > _ID_LENGTH:
        action = f"{action[: _ID_LENGTH - 7]}-{hashlib.sha256(action.encode()).hexdigest()[:6]}"
    return f"{action}{_SEPARATOR}{step}"


def _end_of_move(action: Action, whole: Document) -> Action | None:
    """Return the step that removes a moved model from its source after all readers, or None if it is not needed."""
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
    """Builds the steps of one action. Each step depends on the previous one."""

    def __init__(self, action: Action) -> None:
        self.action = action
        self.parameters = action.parameters
        self._last = ""

    def step(self, name: str, kind: str, parameters: Parameters) -> Action:
        """Return the next step. The first step has the action's dependencies."""
        made = self._after(step_id(self.action.id, name), kind, parameters)
        self._last = made.id
        return made

    def last(self, **more: Any) -> Action:
        """Return the action itself as the last step, with additional parameters."""
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
        """Return a reference to a result field of a step."""
        return f"${{{step_id(self.action.id, step)}.{field}}}"

    def program(self, name: str, host: str, **parameters: Any) -> Action:
        """Return a step that runs a program, on `host` if it is not empty."""
        needs = {**(parameters.pop("requirements", None) or {}), **({"host": host} if host else {})}
        required = {"requirements": needs} if needs else {}
        return self.step(name, "command", {"retries": _RETRIES, **parameters, **required})

    def transfer_steps(self, place: Location, artifact: str) -> Iterator[Action]:
        """Yield a step that copies an artifact to a host. The cluster's store has all artifacts and needs no step."""
        if not place.is_store:
            yield self.program("bring", place.host, command=[*_PYTHON, literal(_READ)], files=artifact)

    def fetch_step(self, folder: str, place: Location) -> Action:
        """Return the step that downloads the files on the host that will hold them."""
        source, sha = self.of("source", "source"), self.of("source", "sha256")
        command = [*_PYTHON, literal(read_fetch_program()), source, sha, folder]
        # Downloads of the same source on the same host share a workspace, so an interrupted download can resume.
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
    yield steps.fetch_step("model", place)
    kept = {"model_name": given["model_name"], "artifact": steps.of("fetch", "artifact"), "folder": _MODEL}
    yield steps.step("keep", "model.keep", {**kept, "source": steps.of("source", "source")})
    yield from steps.transfer_steps(place, steps.of("keep", "artifact"))
    yield steps.last(artifact=steps.of("keep", "artifact"))


def _transfer_of_model(steps: _Steps) -> Iterator[Action]:
    """Yield the steps of copy and move. A replica loads a model onto a GPU; other locations receive its files."""
    given, place = steps.parameters, _parse_location(steps.parameters["target_device"])
    yield steps.step("from", "model.at", {name: given[name] for name in ("model_name", "source_device")})
    if place.kind != "gpu":
        yield from steps.transfer_steps(place, steps.of("from", "artifact"))
    yield steps.last(artifact=steps.of("from", "artifact"))


def _data_create(steps: _Steps) -> Iterator[Action]:
    given, place = steps.parameters, _parse_location(steps.parameters["target_device"])
    yield steps.step("source", "data.source", {name: given[name] for name in ("source", "secrets") if name in given})
    yield steps.fetch_step("data", place)
    yield from _store_chunk_steps(steps, steps.of("fetch", "artifact"), _DATA, place, given.get("chunk_id"))


def _store_chunk_steps(
    steps: _Steps, artifact: str, folder: str, place: Location, chunk: str | None = None
) -> Iterator[Action]:
    """Yield the steps that store a folder of an artifact as a chunk of data at a location."""
    chunk = chunk or new_chunk()
    yield steps.step("keep", "data.keep", {"chunk_id": chunk, "artifact": artifact, "folder": folder})
    yield from steps.transfer_steps(place, steps.of("keep", "artifact"))
    yield steps.last(chunk_id=chunk, artifact=steps.of("keep", "artifact"))


def new_chunk() -> str:
    """Return a new random chunk ID."""
    return f"{CHUNK}{secrets.token_hex(6)}"


def _data_transfer(steps: _Steps) -> Iterator[Action]:
    place = _parse_location(steps.parameters["target_device"])
    yield steps.step("from", "data.at", {"data_id": steps.parameters["data_id"]})
    yield from steps.transfer_steps(place, steps.of("from", "artifact"))
    yield steps.last(chunk_id=steps.of("from", "chunk_id"), artifact=steps.of("from", "artifact"))


def _inference(steps: _Steps) -> Iterator[Action]:
    """Yield the steps of a batch: combine files and program in one artifact, run the program, delete the artifact."""
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
