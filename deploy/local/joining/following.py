"""Update of a machine that has joined a cluster: its workers follow the release of the cluster.

The HTTPS endpoint of the cluster serves its wheel, also after an update or a rollback. This machine trusts only the
authority of the cluster, as for the installation.
"""

from __future__ import annotations

import ast
import hashlib
import re
import shutil
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from pathlib import Path

import httpx

from deploy.local import program_logs, release_file
from deploy.local.joining import membership
from deploy.local.joining.membership import CannotReach, Membership
from deploy.local.outcome import say
from jobs.settings import CHECKOUT, LOCAL_FOLDER, STATE_FOLDER, child_environment

#: Interval in seconds between two questions for the release of the cluster, and the pause after a failed update.
CHECK_SECONDS, RETRY_SECONDS = 30.0, 600.0
#: Maximum size of an installer and of a wheel in bytes.
_MAX_INSTALLER, _MAX_WHEEL = 1 << 20, 1 << 30
#: Maximum duration of a download in seconds.
_DOWNLOAD_SECONDS = 900.0
#: Folder for the wheel while an update is running.
FOLDER = LOCAL_FOLDER / "following"
LOG = program_logs.FOLDER / "update.log"
_OFFER = re.compile(r"^WHEEL, SHA256, SIZE, RELEASE = (\(.{1,1000}\))$", re.MULTILINE)
_WHEEL_NAME = re.compile(r"[A-Za-z0-9_.+-]{1,200}\.whl")


@dataclass(frozen=True, kw_only=True)
class Offer:
    """Wheel that the cluster serves."""

    wheel: str
    sha256: str
    size: int
    #: Name of the folder of the release in this wheel.
    release: str


def parse(installer: str) -> Offer | None:
    """Return the wheel that an installer installs, or None if the text is not an installer."""
    found = _OFFER.search(installer)
    if found is None:
        return None
    try:
        wheel, sha256, size, release = ast.literal_eval(found[1])
    except (ValueError, SyntaxError):
        return None
    texts = all(isinstance(text, str) for text in (wheel, sha256, release)) and isinstance(size, int)
    if not texts or not _WHEEL_NAME.fullmatch(wheel) or not 0 < size <= _MAX_WHEEL:
        return None
    return Offer(wheel=wheel, sha256=sha256, size=size, release=release)


def find_offer(joined: Membership) -> Offer | None:
    """Return the wheel of the cluster, or None if it serves none. Raises CannotReach."""
    with _get(joined, "/join") as answer:
        if answer.status_code != HTTPStatus.OK:
            return None
        return parse(b"".join(_pieces(answer, _MAX_INSTALLER)).decode(errors="replace"))


def download(joined: Membership, offer: Offer) -> Path:
    """Download the wheel of the cluster. Raises CannotReach and OSError, also if its digest is wrong."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    path, digest = FOLDER / offer.wheel, hashlib.sha256()
    with _get(joined, f"/join/{offer.wheel}") as answer, path.open("wb") as file:
        for piece in _pieces(answer, offer.size):
            digest.update(piece)
            file.write(piece)
    if digest.hexdigest() != offer.sha256:
        raise OSError(f"{joined.url} sent a wheel with another digest than its installer names")
    return path


@contextmanager
def _get(joined: Membership, path: str) -> Iterator[httpx.Response]:
    """Yield a response of the cluster whose body is not read yet. Raises CannotReach."""
    try:
        with (
            membership.open_http(ssl.create_default_context(cafile=joined.authority or None)) as http,
            http.stream("GET", f"{joined.url}{path}") as answer,
        ):
            yield answer
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise CannotReach(str(error) or type(error).__name__) from error


def _pieces(answer: httpx.Response, most: int) -> Iterator[bytes]:
    """Yield the body of a response. Raises OSError if it is longer than `most` bytes or takes too long."""
    deadline, size = time.monotonic() + _DOWNLOAD_SECONDS, 0
    for piece in answer.iter_raw():
        size += len(piece)
        if size > most or time.monotonic() > deadline:
            raise OSError(f"{answer.url} sent more than {most} bytes, or took longer than {_DOWNLOAD_SECONDS:g} s")
        yield piece


class Follower:
    """Updates this machine when the cluster serves another release. Only an installation can be updated."""

    def __init__(self, joined: Membership) -> None:
        self._joined = joined
        self._next_check = time.monotonic() + CHECK_SECONDS
        self._update: subprocess.Popen[bytes] | None = None
        self._release = ""

    def check(self) -> None:
        """Start an update if one is needed, and report how the last one ended. Call this about once per second."""
        if self._update is not None:
            self._report(self._update.poll())
        elif STATE_FOLDER != CHECKOUT and time.monotonic() > self._next_check:
            self._next_check = time.monotonic() + CHECK_SECONDS
            with suppress(CannotReach, OSError):  # The workers report that the cluster is away
                offer = find_offer(self._joined)
                if offer is not None and offer.release != _own_release():
                    self._follow(offer)

    def _follow(self, offer: Offer) -> None:
        _say(f"the cluster has another release, {offer.release}; updating this machine ...")
        try:
            wheel = download(self._joined, offer)
        except (CannotReach, OSError) as error:
            self._fail(str(error))
            return
        self._release = offer.release
        with LOG.open("ab") as log:
            self._update = subprocess.Popen(
                update_command(wheel),
                cwd=STATE_FOLDER,
                env=child_environment(CLUSTER_HOME=str(STATE_FOLDER)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _report(self, code: int | None) -> None:
        if code is None:
            return
        self._update = None
        shutil.rmtree(FOLDER, ignore_errors=True)
        if code:
            self._fail(f"exit code {code}; see {program_logs.relative_path(LOG)}")
        else:
            _say(f"this machine now runs the release {self._release}")

    def _fail(self, reason: str) -> None:
        """Report why this machine cannot follow the cluster. Its workers continue, and the update is tried again."""
        self._next_check = time.monotonic() + RETRY_SECONDS
        _say(f"cannot update this machine to the release of the cluster: {reason}")

    def stop(self) -> None:
        """Stop a running update. It continues after the next start."""
        if self._update is not None and self._update.poll() is None:
            self._update.terminate()
            self._update.wait()


def update_command(wheel: Path) -> list[str]:
    """Return the command that updates the workers of this machine to a wheel."""
    return [sys.executable, "-m", "deploy.local", "update", str(wheel)]


def _own_release() -> str:
    """Return the name of the folder of the release that the workers of this machine run."""
    selected = release_file.read()
    return (selected.folder if selected else CHECKOUT).name


def _say(text: str) -> None:
    say(f"  {datetime.now():%H:%M:%S}  {text}")
