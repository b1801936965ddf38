"""Command line that writes a bundle: `python -m deploy.bundle FILE`. `./deploy-cluster.sh bundle` runs it."""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from deploy.bundle import archive, targets
from deploy.bundle.targets import Selection, Target
from deploy.local.outcome import FAILED, INTERRUPTED, OK, USAGE, CommandError, command_error_from_os_error, say
from deploy.release import wheel
from engines import registry
from engines.texts import PACKAGES
from jobs.settings import CHECKOUT

#: Requirements of every cluster, and of GPU workers.
_CLUSTER, _GPU = "requirements/local.txt", "requirements/gpu-worker.txt"
#: Number of characters from the end of pip's output that an error message contains.
_SHOWN = 1500


def main(words: Sequence[str] | None = None) -> int:
    try:
        return write_bundle(_parse(words))
    except wheel.BuildError as error:
        say(f"error: {error}")
        return FAILED
    except CommandError as error:
        say(f"error: {error}")
        return error.code
    except OSError as error:
        say(f"error: {command_error_from_os_error(error)}")
        return FAILED
    except KeyboardInterrupt:
        say("\nInterrupted. The same command continues with the packages that are already there.")
        return INTERRUPTED


def _parse(words: Sequence[str] | None) -> argparse.Namespace:
    here = targets.this_target
    parser = argparse.ArgumentParser(prog="./deploy-cluster.sh bundle")
    parser.add_argument("file", type=Path)
    parser.add_argument("--platform", default="")
    parser.add_argument("--python", default="")
    parser.add_argument("--engine", default="")
    parser.add_argument("--gpu", action="store_true")
    given = parser.parse_args(words)
    given.targets = targets.parse(given.platform or here().platform, given.python or here().python)
    return given


def write_bundle(given: argparse.Namespace) -> int:
    """Download all packages, and write them with the cluster's own wheel into one file. Return the exit code."""
    files = [CHECKOUT / name for name in (_CLUSTER, *([_GPU] if given.gpu else []))]
    files += [_engine_requirements(name, given.targets) for name in filter(None, given.engine.split(","))]
    # After an interruption, the next call finds the packages that are already there.
    partial = given.file.with_name(f"{given.file.name}.partial")
    wheels: dict[str, Path] = {}
    for number, target in enumerate(given.targets, 1):
        say(f"[{number}/{len(given.targets)}] Downloading the packages for {target} ...")
        for file in files:
            for selection in targets.select(file.read_text(), target):
                wheels |= {path.name: path for path in download(file, selection, partial)}
    say("Building the wheel of the cluster ...")
    with tempfile.TemporaryDirectory() as built:
        digest = archive.write(given.file, given.targets, [wheel.build(Path(built)), *wheels.values()])
    shutil.rmtree(partial)
    say(f"Wrote {given.file}: {len(wheels) + 1} packages, {given.file.stat().st_size >> 20} MiB\nSHA-256: {digest}")
    return OK


def _engine_requirements(name: str, wanted: Sequence[Target]) -> Path:
    """Return the requirements of an engine. Raises CommandError if its packages cannot be downloaded for a target."""
    known = [engine for engine in registry.names() if registry.packages(engine)]
    if name not in known:
        raise CommandError(USAGE, f"engine {name!r} does not exist or has no packages; choose from {', '.join(known)}")
    file = CHECKOUT / "engines" / name / PACKAGES
    is_pinned = targets.select(file.read_text(), wanted[0])[0].is_pinned
    if not is_pinned and list(wanted) != [targets.this_target()]:
        raise CommandError(
            USAGE,
            f"the engine {name} does not pin its dependencies, which pip can only resolve on the same platform and"
            f" Python.\n  Create a bundle for {targets.this_target()} without --platform and --python",
        )
    return file


def download(file: Path, selection: Selection, partial: Path) -> list[Path]:
    """Download the wheels of the requirements selected from a file, and return their paths. Raises CommandError."""
    # Each selection has its own folder, so that packages of other versions cannot get into the bundle.
    folder = partial / hashlib.sha256(f"{selection}".encode()).hexdigest()[:12]
    folder.mkdir(parents=True, exist_ok=True)
    listed = folder / file.name
    listed.write_text(selection.text)
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--progress-bar", "off"]
    command += [*selection.pip_options(), "-d", str(folder), "-r", str(listed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CommandError(
            FAILED,
            f"pip cannot download the packages of {file.relative_to(CHECKOUT)} for {selection.target}:\n"
            f"{done.stderr.strip()[-_SHOWN:]}\n"
            "  Check the network or set PIP_INDEX_URL. The same command continues with the packages that are there.",
        )
    return sorted(folder.glob("*.whl"))


if __name__ == "__main__":
    sys.exit(main())
