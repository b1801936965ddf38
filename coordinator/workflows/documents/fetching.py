"""Download a model or data: `python3 fetching.py SOURCE [SHA256 [FOLDER]]`. Needs only the standard library.

SOURCE is one of:

- an http(s) URL of one file
- `hf://ORG/REPO/FILE` for one file of Hugging Face, or `hf://ORG/REPO` for all files that a model needs;
  `hf://ORG/REPO@REVISION` selects a revision
- `s3://BUCKET/KEY` for one object, or for all objects below KEY

SHA256 is `-` if the hash is unknown. FOLDER is `model`, which rejects pickled weights, or `data`. The program resumes
an earlier download in the same CLUSTER_WORKSPACE, and verifies length and hash if they are known. HF_TOKEN grants
access to private repositories, and HF_ENDPOINT selects another hub. AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
AWS_SESSION_TOKEN, AWS_REGION and AWS_ENDPOINT_URL have their usual meaning.
"""

from __future__ import annotations

import hashlib
import hmac
import html
import json
import os
import re
import shutil
import sys
import time
from http import client
from pathlib import Path
from typing import Any, BinaryIO
from urllib import error, parse, request

MODEL, DATA = "model", "data"
SUFFIXES = (".gguf", ".safetensors", ".json", ".txt", ".model", ".jinja")
PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".h5", ".msgpack")
PIECE, SAY_SECONDS, TIMEOUT = 1 << 20, 5.0, 60
#: Maximum size of a file listing in bytes.
#: Maximum number of files below a key.
MOST_LIST, MOST_FILES = 64 << 20, 100_000
#: A file to download: URL, path in the folder, and SHA-256 (empty if unknown).
Wanted = tuple[str, str, str]


class DownloadRefused(Exception):
    """The source cannot be downloaded, even on a later attempt."""


def main(words: list[str]) -> int:
    """Download the source that the command-line arguments name and return the exit code."""
    source, sha, folder = [*words, *("", "-", MODEL)[len(words) :]]
    try:
        for wanted in _list_wanted(source, sha.lower().strip("-"), folder):
            _download(folder, *wanted)
    except (DownloadRefused, error.URLError, OSError) as wrong:
        return _report_failure(source, str(wrong))
    except (client.HTTPException, ValueError, LookupError, TypeError, AttributeError, RecursionError) as wrong:
        return _report_failure(source, f"the server sent an invalid response: {type(wrong).__name__}: {wrong}")
    return 0


def _report_failure(source: str, why: str) -> int:
    print(f"cannot download {source}: {why[:1000]}", file=sys.stderr, flush=True)
    return 1


def _list_wanted(source: str, sha: str, folder: str) -> list[Wanted]:
    parts = parse.urlsplit(source)
    if parts.scheme == "hf" and folder == MODEL:
        return _list_hub(source.removeprefix("hf://"), sha)
    if parts.scheme == "s3":
        return _list_bucket(parts.netloc, parts.path.strip("/"), sha, folder)
    if parts.scheme not in ("http", "https"):
        raise DownloadRefused("the source must start with https://, http://, s3:// or, for a model, hf://")
    return [(source, _check_path(Path(parse.unquote(parts.path)).name, folder), sha)]


def _list_bucket(bucket: str, key: str, sha: str, folder: str) -> list[Wanted]:
    """Return one object of a bucket, or all objects below a key with their paths relative to the key."""
    place, keys, more = f"{_s3()}/{parse.quote(bucket)}", list[str](), ""
    while True:
        query = {"list-type": "2", "prefix": key, **({"continuation-token": more} if more else {})}
        with _open(f"{place}?{parse.urlencode(query, quote_via=parse.quote)}") as answer:
            page = _read_listing(answer).decode()
        keys += map(html.unescape, re.findall(r"<Key>([^<]*)</Key>", page))
        if len(keys) > MOST_FILES:
            raise DownloadRefused(f"there are more than {MOST_FILES} files below {key}")
        found = re.search(r"<NextContinuationToken>([^<]*)<", page)
        if not found:
            break
        if more == (more := html.unescape(found[1])):
            raise DownloadRefused("the bucket repeats the same page of its listing")
    below = [each for each in keys if each.startswith(f"{key}/") or not key]
    paths = {key: key.rpartition("/")[2]} if key in keys else {each: each[len(key) :].strip("/") for each in below}
    if not any(paths.values()):
        raise DownloadRefused(f"the bucket {bucket} has no object {key} and no objects below it")
    if sha and len(paths) > 1:
        raise DownloadRefused(
            f"a SHA-256 covers one file, but {key} has {len(paths)}; name one of them, or omit the SHA-256"
        )
    return [
        (f"{place}/{parse.quote(each, safe='/~')}", _check_path(path, folder), sha)
        for each, path in paths.items()
        if path and not each.endswith("/")
    ]


def _s3() -> str:
    region = _region()
    return os.environ.get("AWS_ENDPOINT_URL", f"https://s3.{region}.amazonaws.com").rstrip("/")


def _region() -> str:
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"


def signature(url: str, moment: str) -> dict[str, str]:
    """Return the headers that sign a GET request with AWS Signature Version 4.

    `moment` is the time in the format 20261123T170000Z.
    """
    parts, region, none = parse.urlsplit(url), _region(), hashlib.sha256().hexdigest()
    headers = {"host": parts.netloc, "x-amz-content-sha256": none, "x-amz-date": moment}
    if token := os.environ.get("AWS_SESSION_TOKEN"):
        headers["x-amz-security-token"] = token
    names, query = ";".join(headers), "&".join(sorted(parts.query.split("&")))
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    asked = "\n".join(("GET", parts.path or "/", query, lines, names, none))
    scope = f"{moment[:8]}/{region}/s3/aws4_request"
    signed = "\n".join(("AWS4-HMAC-SHA256", moment, scope, hashlib.sha256(asked.encode()).hexdigest()))
    key = f"AWS4{os.environ['AWS_SECRET_ACCESS_KEY']}".encode()
    for word in (*scope.split("/"), signed):
        key = hmac.new(key, word.encode(), "sha256").digest()
    credential = f"{os.environ['AWS_ACCESS_KEY_ID']}/{scope}"
    words = f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={key.hex()}"
    return {name: value for name, value in headers.items() if name != "host"} | {"Authorization": words}


def _list_hub(words: str, sha: str) -> list[Wanted]:
    """Return the requested files of a Hugging Face repository, with the hashes from its file listing."""
    org, _, rest = words.partition("/")
    repo, _, file = rest.partition("/")
    repo, _, revision = repo.partition("@")
    revision = revision or "main"
    if not (org and repo):
        raise DownloadRefused("hf:// needs an organization and a repository: hf://ORG/REPO or hf://ORG/REPO/FILE")
    hub, name = _hub(), f"{parse.quote(org)}/{parse.quote(repo)}"
    with _open(f"{hub}/api/models/{name}/revision/{parse.quote(revision, safe='')}?blobs=true") as answer:
        files = {each["rfilename"]: each for each in json.loads(_read_listing(answer))["siblings"]}
    chosen = [file] if file else _select_files(sorted(files))
    for path in chosen:
        if path not in files:
            raise DownloadRefused(f"the repository has no {path}; it has {', '.join(sorted(files)[:20])}")
    return [
        (
            f"{hub}/{name}/resolve/{parse.quote(revision, safe='')}/{parse.quote(path)}",
            _check_path(path, MODEL),
            sha if file and sha else (files[path].get("lfs") or {}).get("sha256", ""),
        )
        for path in chosen
    ]


def _select_files(paths: list[str]) -> list[str]:
    """Select the files of a model: its GGUF file, or the safetensors weights with their configuration files."""
    models = [path for path in paths if path.endswith(".gguf")]
    if len(models) > 1:
        raise DownloadRefused(
            f"the repository has {len(models)} .gguf files; name one, such as hf://ORG/REPO/{models[0]}"
        )
    if models:
        return models
    if not any(path.endswith(".safetensors") for path in paths):
        raise DownloadRefused(
            "the repository has no .gguf or .safetensors files; pickled weights can contain code and are rejected"
        )
    return [path for path in paths if path.endswith(SUFFIXES) and not path.startswith(".")]


def _check_path(path: str, folder: str) -> str:
    """Return a path if it is safe. Reject paths outside the folder, and pickled weights of models."""
    if not path or path.startswith("/") or any(part in ("", ".", "..") for part in path.split("/")) or "\\" in path:
        raise DownloadRefused(f"the URL does not name a file: {path!r}")
    if folder == MODEL and path.lower().endswith(PICKLED):
        raise DownloadRefused(f"{path} is rejected because pickled weights can contain code; use GGUF or safetensors")
    return path


def _hub() -> str:
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")


def _open(url: str, headers: dict[str, str] | None = None) -> Any:
    asked = request.Request(url, headers={"User-Agent": "threads-cluster", **(headers or {})})
    token = os.environ.get("HF_TOKEN")
    if token and url.startswith(_hub() + "/"):  # do not send the token to hosts that the hub redirects to
        asked.add_unredirected_header("Authorization", f"Bearer {token}")
    if os.environ.get("AWS_ACCESS_KEY_ID") and url.startswith(_s3() + "/"):
        for name, value in signature(url, time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())).items():
            asked.add_unredirected_header(name, value)
    return request.urlopen(asked, timeout=TIMEOUT)


def _read_listing(answer: Any) -> bytes:
    listed: bytes = answer.read(MOST_LIST + 1)
    if len(listed) > MOST_LIST:
        raise DownloadRefused(f"the file listing exceeds {MOST_LIST >> 20} MiB")
    return listed


def _download(folder: str, url: str, path: str, sha: str) -> None:
    """Download one file into the workspace, verify it, and move it to its destination."""
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
        if answer.status == 206 and not answer.headers.get("Content-Range", "").startswith(f"bytes {size}-"):
            kept.unlink(missing_ok=True)
            raise OSError(f"{path}: the server sent another byte range than requested; the next attempt starts over")
        if (encoding := answer.headers.get("Content-Encoding", "identity")) != "identity":
            raise OSError(f"{path}: the server sent the encoding {encoding}, which was not requested")
        size = size if answer.status == 206 else 0
        _write(answer, kept, tag, path, size)
    _verify(kept, path, sha)
    place = Path(folder) / path
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(kept, place)
    tag.unlink(missing_ok=True)


def _write(answer: Any, kept: Path, tag: Path, path: str, size: int) -> None:
    length = answer.headers.get("Content-Length")
    total = None if length is None else size + int(length)
    known = answer.headers.get("ETag", "")
    # Delete a weak or missing ETag: such a tag cannot prove that later bytes belong to the same file.
    tag.unlink(missing_ok=True) if not known or known.startswith("W/") else tag.write_text(known)
    began = said = time.monotonic()
    first = size
    with kept.open("ab" if size else "wb") as file:
        while piece := answer.read1(PIECE):  # read1 returns early, so slow downloads report progress
            file.write(piece)
            size += len(piece)
            if time.monotonic() - said >= SAY_SECONDS:
                said = time.monotonic()
                rate = (size - first) / (said - began) / 1e6
                print(f"{path}: {size / 1e6:.0f} of {_megabytes(total)} MB, {rate:.1f} MB/s", flush=True)
    if total is not None and size != total:
        raise OSError(f"{path}: the connection broke after {size} of {total} bytes; the next attempt resumes there")
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
        raise OSError(f"{path}: SHA-256 is {found}, expected {sha}")


def _digest(file: BinaryIO) -> str:
    sum_ = hashlib.sha256()
    while piece := file.read(PIECE):
        sum_.update(piece)
    return sum_.hexdigest()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
