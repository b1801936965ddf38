"""Program that downloads a model into the folder `model`: `python3 fetching.py SOURCE [SHA256]`. It needs no packages.

SOURCE: the http(s) address of one file; `hf://ORG/REPO/FILE` for one file of Hugging Face, `hf://ORG/REPO` for all that
a model needs; `hf://ORG/REPO@REVISION` for a revision. It goes on where an earlier attempt in the same
CLUSTER_WORKSPACE stopped, and verifies length and hash as far as they are told. HF_TOKEN opens what is not public,
HF_ENDPOINT is another hub's address.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any, BinaryIO
from urllib import error, parse, request

FOLDER = "model"
SUFFIXES = (".gguf", ".safetensors", ".json", ".txt", ".model", ".jinja")
PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".h5", ".msgpack")
PIECE, SAY_SECONDS, TIMEOUT = 1 << 20, 5.0, 60
#: A file to get: its address, its path in the folder, and its SHA-256 where it is known.
Wanted = tuple[str, str, str]


class Refused(Exception):
    """It cannot be downloaded, however often it is tried."""


def main(words: list[str]) -> int:
    """Download what the words say; the exit code."""
    source, sha = words[0], (words[1:] or [""])[0].lower()
    try:
        for wanted in _wanted(source, sha):
            _get(*wanted)
    except (Refused, error.URLError, OSError) as wrong:
        print(f"cannot download {source}: {wrong}", file=sys.stderr, flush=True)
        return 1
    return 0


def _wanted(source: str, sha: str) -> list[Wanted]:
    parts = parse.urlsplit(source)
    if parts.scheme == "hf":
        return _of_hub(source.removeprefix("hf://"), sha)
    if parts.scheme not in ("http", "https"):
        raise Refused("the source must begin with https://, http:// or hf://")
    return [(source, _sound(Path(parse.unquote(parts.path)).name), sha)]


def _of_hub(words: str, sha: str) -> list[Wanted]:
    """Return the files of a repository that were asked for, with the hashes that the hub tells."""
    org, _, rest = words.partition("/")
    repo, _, file = rest.partition("/")
    repo, _, revision = repo.partition("@")
    revision = revision or "main"
    if not (org and repo):
        raise Refused("hf:// needs an organisation and a repository: hf://ORG/REPO or hf://ORG/REPO/FILE")
    hub, name = _hub(), f"{parse.quote(org)}/{parse.quote(repo)}"
    with _open(f"{hub}/api/models/{name}/revision/{parse.quote(revision, safe='')}?blobs=true") as answer:
        told = {each["rfilename"]: each for each in json.load(answer)["siblings"]}
    chosen = [file] if file else _needed(sorted(told))
    for path in chosen:
        if path not in told:
            raise Refused(f"the repository has no {path}; it has {', '.join(sorted(told)[:20])}")
    return [
        (f"{hub}/{name}/resolve/{parse.quote(revision, safe='')}/{parse.quote(path)}", _sound(path),
         sha if file and sha else (told[path].get("lfs") or {}).get("sha256", ""))
        for path in chosen
    ]  # fmt: skip


def _needed(paths: list[str]) -> list[str]:
    """Return the files of a model: one GGUF, or weights in safetensors and what describes them."""
    models = [path for path in paths if path.endswith(".gguf")]
    if len(models) > 1:
        raise Refused(f"the repository has {len(models)} files .gguf; name one, such as hf://ORG/REPO/{models[0]}")
    if models:
        return models
    if not any(path.endswith(".safetensors") for path in paths):
        raise Refused("the repository has neither .gguf nor .safetensors; pickled weights are code, and refused")
    return [path for path in paths if path.endswith(SUFFIXES) and not path.startswith(".")]


def _sound(path: str) -> str:
    """Return the path in the folder. Refused for one that leads out of it, and for pickled weights."""
    if not path or path.startswith("/") or any(part in ("", ".", "..") for part in path.split("/")) or "\\" in path:
        raise Refused(f"the address names no file: {path!r}")
    if path.lower().endswith(PICKLED):
        raise Refused(f"{path} has pickled weights, which are code; GGUF and safetensors are not")
    return path


def _hub() -> str:
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")


def _open(url: str, headers: dict[str, str] | None = None) -> Any:
    asked = request.Request(url, headers={"User-Agent": "threads-cluster", **(headers or {})})
    token = os.environ.get("HF_TOKEN")
    if token and url.startswith(_hub() + "/"):  # and not where the hub leads on to
        asked.add_unredirected_header("Authorization", f"Bearer {token}")
    return request.urlopen(asked, timeout=TIMEOUT)


def _get(url: str, path: str, sha: str) -> None:
    """Download one file beside its place, verify it, and put it there."""
    kept = Path(os.environ.get("CLUSTER_WORKSPACE", ".")) / hashlib.sha256(url.encode()).hexdigest()[:32]
    tag = kept.with_suffix(".tag")
    size = kept.stat().st_size if kept.exists() and tag.exists() else 0
    headers = {"Range": f"bytes={size}-", "If-Range": tag.read_text()} if size else {}
    try:
        answer = _open(url, headers)
    except error.HTTPError as wrong:
        if wrong.code != 416 or not size:
            raise
        kept.unlink()
        answer = _open(url)
        size = 0
    with answer:
        size = size if answer.status == 206 else 0
        _write(answer, kept, tag, path, size)
    _verify(kept, path, sha)
    place = Path(FOLDER) / path
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(kept, place)
    tag.unlink(missing_ok=True)


def _write(answer: Any, kept: Path, tag: Path, path: str, size: int) -> None:
    length = answer.headers.get("Content-Length")
    total = None if length is None else size + int(length)
    known = answer.headers.get("ETag", "")
    # A weak tag, or none, does not say that what follows belongs to what is there.
    tag.unlink(missing_ok=True) if not known or known.startswith("W/") else tag.write_text(known)
    began = said = time.monotonic()
    first = size
    with kept.open("ab" if size else "wb") as file:
        while piece := answer.read(PIECE):
            file.write(piece)
            size += len(piece)
            if time.monotonic() - said >= SAY_SECONDS:
                said = time.monotonic()
                rate = (size - first) / (said - began) / 1e6
                print(f"{path}: {size / 1e6:.0f} of {_megabytes(total)} MB, {rate:.1f} MB/s", flush=True)
    if total is not None and size != total:
        raise OSError(f"{path}: the connection broke after {size} of {total} bytes; the next attempt goes on there")
    print(f"{path}: {size} bytes, {first} of them from an earlier attempt", flush=True)


def _megabytes(total: int | None) -> str:
    return "?" if total is None else f"{total / 1e6:.0f}"


def _verify(kept: Path, path: str, sha: str) -> None:
    if not sha:
        return
    with kept.open("rb") as file:
        found = _digest(file)
    if found != sha:
        kept.unlink()
        raise OSError(f"{path}: has SHA-256 {found}, and should have {sha}")


def _digest(file: BinaryIO) -> str:
    sum_ = hashlib.sha256()
    while piece := file.read(PIECE):
        sum_.update(piece)
    return sum_.hexdigest()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
