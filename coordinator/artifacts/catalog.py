"""Models of tenants: named artifacts with weight files, or with a file that names the source of the weights."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from coordinator import locations
from coordinator.artifacts import weights
from coordinator.artifacts.trees import Trees
from jobs import errors
from jobs.models import Actor
from jobs.store.artifacts import Artifact, Artifacts
from jobs.store.files import PART_BYTES
from threads_protocol import manifest
from threads_protocol.manifest import Entry
from threads_protocol.numbers import short

#: Suffixes of weight files that can contain code.
PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".h5", ".msgpack")
#: URL schemes of model sources.
SCHEMES = ("https://", "http://", "hf://", "s3://")
#: Maximum size in bytes of the file that describes a model.
_MAX_ABOUT = 16 << 10
#: Name prefixes of data chunks and running batches, which are not models.
CHUNK, BATCH = "chunk-", "batch-"
#: Maximum size in bytes of a parsed manifest.
#: Maximum number of cached models.
#: Maximum number of concurrent reads.
_MAX_MANIFEST, _KEPT, _AT_ONCE = 256 << 10, 10_000, 8
_MAX_SOURCE, _MAX_TYPE = 2048, 32
_WITH_PASSWORD = re.compile(r"[a-z0-9]+://[^/]*@")


@dataclass(frozen=True, kw_only=True)
class Model:
    """Model of a tenant: a named artifact with weights or with a source."""

    name: str
    artifact: Artifact
    #: Paths of the model's weight files. Empty if the model is registered but not downloaded.
    weights: tuple[str, ...]
    #: Model type and source as set by the owner, or empty.
    type: str = ""
    source: str = ""

    @property
    def places(self) -> list[str]:
        """Return the locations of this model other than the cluster's store."""
        return locations.list_locations(self.artifact.holders)


def check_source(source: Any, *, pickled: bool = False) -> str:
    """Validate and return a source URL. Raise ValueError if models cannot be downloaded from it."""
    if not isinstance(source, str) or not 1 <= len(source) <= _MAX_SOURCE or not source.isprintable():
        raise ValueError(f"must be a string of 1 to {_MAX_SOURCE} characters; got {short(source)}")
    if not source.startswith(SCHEMES) or " " in source:
        raise ValueError(f"must start with one of {', '.join(SCHEMES)}; got {short(source)}")
    if _WITH_PASSWORD.match(source) and not source.startswith("hf://"):
        raise ValueError(
            "must not contain a user or password, because others can read the source; use a secret instead"
        )
    if not pickled and source.lower().partition("?")[0].endswith(PICKLED):
        raise ValueError(
            f"is a file with pickled weights, which can contain code; use GGUF or safetensors: {short(source)}"
        )
    return source


class Catalog:
    """Models in one artifact store. Artifacts never change, so each is read once and cached."""

    def __init__(self, store: Artifacts, trees: Trees) -> None:
        self._store, self._trees = store, trees
        self._kept: OrderedDict[tuple[str, str], Model] = OrderedDict()
        self._lock = threading.Lock()

    def page(self, tenant: str, after: str, most: int) -> tuple[list[Model], str]:
        """Return one page of a tenant's models, and the name after which the next page starts.

        A page covers the next `most` artifact names. The returned name is empty on the last page.
        """
        names = sorted(self._store.names(tenant).items())
        asked = [one for one in names if one[0] > after][:most]
        rows = self._store.read(tenant, [artifact for _, artifact in asked])
        there = [(name, row) for (name, _), row in zip(asked, rows, strict=True) if row]
        self._read_ahead(tenant, there)
        found = [self._as_model(tenant, name, row) for name, row in there]
        last = asked[-1][0] if asked and asked[-1] != names[-1] else ""
        return [one for one in found if one], last

    def find(self, tenant: str, name: str) -> Model:
        """Return a model by name. Raise NotFound if no artifact has this name or the artifact is not a model."""
        found = self.get_or_none(tenant, name)
        if found is None:
            detail = f"model {name} does not exist; list models with GET /api/v1/models"
            raise errors.NotFound(detail, field="model_name")
        return found

    def get_or_none(self, tenant: str, name: str) -> Model | None:
        """Return a model by name, or None if it does not exist."""
        artifact = self._store.named(tenant, name)
        [row] = self._store.read(tenant, [artifact]) if artifact else [None]
        return self._as_model(tenant, name, row) if row else None

    def _as_model(self, tenant: str, name: str, row: Artifact) -> Model | None:
        """Return the model in an artifact, or None if the artifact is not a model."""
        if not _can_be_model(name, row):
            return None
        known = self._get_cached(tenant, row) or self._load(tenant, name, row)
        return replace(known, name=name, artifact=row) if known.weights or known.source else None

    def _get_cached(self, tenant: str, row: Artifact) -> Model | None:
        with self._lock:
            return self._kept.get((tenant, row.id))

    def _load(self, tenant: str, name: str, row: Artifact) -> Model:
        known = self._parse(tenant, name, row)
        with self._lock:
            self._kept[tenant, row.id] = known
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return known

    def _read_ahead(self, tenant: str, rows: Sequence[tuple[str, Artifact]]) -> None:
        """Read manifests that are not cached, several at once."""
        new = {
            row.id: (name, row)
            for name, row in rows
            if _can_be_model(name, row) and self._get_cached(tenant, row) is None
        }
        if len(new) > 1:
            with ThreadPoolExecutor(min(_AT_ONCE, len(new))) as pool:
                list(pool.map(lambda one: self._load(tenant, *one), new.values()))

    def _parse(self, tenant: str, name: str, row: Artifact) -> Model:
        entries = self._trees.entries(tenant, row)
        there = tuple(one.path for one in entries if one.is_file and weights.is_weight_file(one.path))
        noted = next(
            (one for one in entries if one.path == weights.ABOUT and one.is_file and one.size <= _MAX_ABOUT), None
        )
        about = self._parse_about(tenant, noted) if noted else {}
        return Model(name=name, artifact=row, weights=there, **about)

    def _parse_about(self, tenant: str, entry: Entry) -> dict[str, str]:
        try:
            row = json.loads(b"".join(self._trees.transfers.open(tenant, entry.sha, "").pieces))
            source = check_source(row["source"]) if row.get("source") else ""
            return {"type": str(row.get("type") or "")[:_MAX_TYPE], "source": source}
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, errors.NotFound):
            return {}  # ignore a file that no coordinator wrote

    # -- changes ----------------------------------------------------------------------------------------------------

    def register(self, tenant: str, name: str, kind: str, source: str, actor: Actor) -> Model:
        """Register a model with its source. Raise Conflict if an artifact without weights has the same name."""
        known = self.get_or_none(tenant, name)
        if known is None and self._store.named(tenant, name):
            detail = f"model_name: {name} is an artifact without weights; choose another name"
            raise errors.Conflict(detail, field="model_name")
        entries = self._trees.entries(tenant, known.artifact) if known else []
        made = self._commit(tenant, name, [*_without_about(entries), self._store_about(tenant, kind, source)], actor)
        for place in known.places if known else ():  # the weight files are unchanged, so the locations remain valid
            self._store.hold(tenant, made.id, f"{locations.HOLDER_PREFIX}{place}")
        return self.find(tenant, name)

    def keep(self, tenant: str, name: str, artifact: str, folder: str, actor: Actor, *, source: str) -> Artifact:
        """Save an artifact's folder as a named model. Raise Conflict if the folder has no weights."""
        known = self.get_or_none(tenant, name)
        entries = self._trees.entries(tenant, self._trees.find(tenant, artifact))
        inner = _files_in_folder(entries, folder)
        if not any(weights.is_weight_file(one.path) for one in inner):
            raise errors.Conflict(f"{source} has no file that ends in {' or '.join(weights.WEIGHTS)}", field="source")
        about = self._store_about(tenant, known.type if known else "", source)
        return self._commit(tenant, name, [*_without_about(inner), about], actor)

    def keep_folder(self, tenant: str, name: str, artifact: str, folder: str, actor: Actor) -> Artifact:
        """Save an artifact's folder as a named artifact. Raise Conflict if the folder is empty."""
        inner = _files_in_folder(self._trees.entries(tenant, self._trees.find(tenant, artifact)), folder)
        if not inner:
            raise errors.Conflict(f"folder {folder} of artifact {artifact[:12]} is empty", field="artifact")
        return self._commit(tenant, name, inner, actor)

    def put_batch(
        self, tenant: str, name: str, model: Artifact, prompts: Artifact, texts: Mapping[str, str], actor: Actor
    ) -> Artifact:
        """Create the artifact of a batch, with a model in `model`, prompts in `input`, and text files."""
        both = (("model", model), ("input", prompts))
        entries = [
            replace(one, path=f"{folder}/{one.path}")
            for folder, row in both
            for one in self._trees.entries(tenant, row)
            if one.is_file and one.path != weights.ABOUT
        ]
        written = [self.store(tenant, path, text.encode()) for path, text in texts.items() if text]
        return self._commit(tenant, name, [*entries, *written], actor)

    def store(self, tenant: str, path: str, data: bytes) -> Entry:
        """Store a small file, and return its manifest entry."""
        if len(data) > PART_BYTES:
            raise errors.TooLarge(f"{path} has {len(data)} bytes; the maximum is {PART_BYTES}", field="value")
        sha = hashlib.sha256(data).hexdigest()
        self._trees.transfers.put_part(tenant, sha, len(data), 0, data)
        return Entry(kind="f", path=path, size=len(data), sha=sha)

    def _store_about(self, tenant: str, kind: str, source: str) -> Entry:
        row = {"type": kind or "llm", "source": source}
        return self.store(tenant, weights.ABOUT, json.dumps(row, separators=(",", ":")).encode() + b"\n")

    def _commit(self, tenant: str, name: str, entries: Sequence[Entry], actor: Actor) -> Artifact:
        return self._trees.commit(tenant, manifest.serialize(entries), name, actor)[1]


def _can_be_model(name: str, row: Artifact) -> bool:
    """Return False if an artifact cannot be a model, without reading its manifest."""
    return row.is_model is not False and not name.startswith((CHUNK, BATCH)) and row.manifest_bytes <= _MAX_MANIFEST


def _without_about(entries: Sequence[Entry]) -> list[Entry]:
    return [one for one in entries if one.path != weights.ABOUT]


def _files_in_folder(entries: Sequence[Entry], folder: str) -> list[Entry]:
    """Return the files in a folder, with paths relative to it."""
    inner = (one for one in entries if one.is_file and one.path.startswith(f"{folder}/"))
    return [replace(one, path=one.path[len(folder) + 1 :]) for one in inner]
