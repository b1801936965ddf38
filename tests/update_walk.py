"""Update a cluster from one wheel to another under load, and back: `python -m tests.update_walk [--from COMMIT]`.

Wheel A contains this checkout, or another commit of it. Wheel B contains this checkout with a higher version. While
2,000 programs and Collatz jobs are running, the cluster is updated from A to B and rolled back to A. No unit may be
lost or counted twice.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

import httpx

from tests.ports import free_port

TOP = Path(__file__).resolve().parents[1]
UNITS, SECONDS_PER_UNIT = 2000, 0.1
#: Numbers of each Collatz job, and the sum of their delays (README.md).
NUMBERS, DELAYS = 10**9, 203234783374
#: Programs of a unit write the unit's item here, so that executions can be counted.
_PROGRAM = 'sleep {seconds}; echo {{item}} >>"{log}"'
_WAIT_SECONDS = 900.0


class Walk:
    """Installation in a temporary folder, whose cluster is updated."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home, self.log = folder, folder / "home", folder / "executed"
        self.home.mkdir()
        self.port = free_port()
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("CLUSTER_")}
        self.environment |= {"CLUSTER_HOME": str(self.home), "HOME": str(folder), "XDG_DATA_HOME": str(folder / "data")}
        self.environment.setdefault("NUMBA_CACHE_DIR", str(TOP / ".cluster/cache/numba"))

    # -- releases --------------------------------------------------------------------------------------------------

    def build(self, name: str, commit: str = "", version: str = "") -> Path:
        """Build the wheel of this checkout or of a commit, with another version if one is given."""
        tree = self.folder / name
        tree.mkdir()
        listed = ["git", "archive", commit] if commit else ["bash", "-c", _LIST]
        archive = subprocess.run(listed, cwd=TOP, stdout=subprocess.PIPE, check=True).stdout
        subprocess.run(["tar", "-xf", "-", "-C", tree], input=archive, check=True)
        if (TOP / "web/dist").is_dir():
            shutil.copytree(TOP / "web/dist", tree / "web/dist", dirs_exist_ok=True)
        if version:
            (tree / "jobs/VERSION").write_text(f"{version}\n")
        wheels = self.folder / f"wheel-{name}"
        wheels.mkdir()
        self.call(str(TOP / ".venv/bin/python"), "-m", "deploy.release", "wheel", str(wheels), cwd=tree)
        return next(wheels.glob("*.whl"))

    def unpack(self, wheel: Path) -> Path:
        """Install the first release, as `cluster start` does."""
        return Path(self.call(sys.executable, "-c", _UNPACK, str(wheel), cwd=TOP).strip())

    # -- cluster ---------------------------------------------------------------------------------------------------

    def call(self, *command: str, cwd: Path | None = None) -> str:
        """Run a command and return its stdout. Raises CalledProcessError."""
        done = subprocess.run(command, cwd=cwd, env=self.environment, stdout=subprocess.PIPE, text=True, check=True)
        return done.stdout

    def start(self, release: Path) -> subprocess.Popen[bytes]:
        command = [str(release / "deploy-cluster.sh"), "local", "--port", str(self.port), "--no-samples"]
        started = subprocess.Popen(command, env=self.environment, start_new_session=True)
        self.until("the cluster is ready", (self.home / ".cluster/url").is_file)
        return started

    def ask(self, path: str, body: Any = None) -> Any:
        token = (self.home / ".cluster/token").read_text().strip()
        answer = httpx.request(
            "POST" if body else "GET",
            f"http://127.0.0.1:{self.port}{path}",
            json=body,
            headers={"Authorization": f"Bearer {token}"},
            timeout=30,
        )
        answer.raise_for_status()
        return answer.json()

    def submit(self, kind: str, **parameters: Any) -> str:
        return str(self.ask("/api/submit", {"type": kind, "parameters": parameters})["job_id"])

    def until(self, what: str, is_true: Any) -> None:
        deadline = time.monotonic() + _WAIT_SECONDS
        while not is_true():
            assert time.monotonic() < deadline, f"not within {_WAIT_SECONDS:.0f} s: {what}"
            time.sleep(0.2)

    def done(self, job: str) -> int:
        return int(self.ask(f"/api/jobs/{job}")["done"])

    def report(self, programs: str, when: str) -> None:
        workers = self.ask("/api/workers")["workers"]
        versions = {row["id"]: row["versions"]["threads_cluster"] for row in workers if row["live"]}
        coordinator = self.ask("/health")["version"]
        print(f"{when}: {self.done(programs)} of {UNITS} programs are done; coordinator {coordinator}, {versions}")


#: Shell command that writes the files of this checkout, including uncommitted ones, to a tar archive on stdout.
_LIST = "git ls-files -z --cached --others --exclude-standard | tar --null --ignore-failed-read -T - -cf -"
_UNPACK = """
import sys
from pathlib import Path
from deploy.local import wheel_file
print(wheel_file.unpack(Path(sys.argv[1])))
"""


def walk(steps: Walk, commit: str) -> None:
    first = steps.build("a", commit)
    major, minor = version_in(first).split(".")[:2]
    second = steps.build("b", version=f"{major}.{int(minor) + 1}.0")
    release = steps.unpack(first)
    starter = steps.start(release)
    try:
        check(steps, release, second)
    finally:
        starter.send_signal(signal.SIGTERM)
        starter.wait(90)


def version_in(wheel: Path) -> str:
    with (
        zipfile.ZipFile(wheel) as archive,
        archive.open("threads_cluster/server.tar") as tree,
        tarfile.open(fileobj=tree) as files,
    ):
        found = files.extractfile("jobs/VERSION")
        assert found
        return found.read().decode().strip()


def check(steps: Walk, release: Path, second: Path) -> None:
    """Update and roll back under load, and compare the results of all jobs with the expected ones."""
    script = _PROGRAM.format(seconds=SECONDS_PER_UNIT, log=steps.log)
    programs = steps.submit("command", command=["sh", "-c", script], items=[str(number) for number in range(UNITS)])
    kernels = [steps.submit("collatz", start_number=1, number_count=NUMBERS) for _ in range(10)]
    steps.until("some programs are done", lambda: steps.done(programs) > 20)
    steps.report(programs, "before")
    script_of = str(release / "deploy-cluster.sh")
    print(steps.call(script_of, "update", "--check", "--from", str(second)), end="", flush=True)
    steps.call(script_of, "update", str(second), "--drain", "10")
    steps.report(programs, "updated")
    kernels += [steps.submit("collatz", start_number=1, number_count=NUMBERS) for _ in range(10)]
    assert steps.done(programs) < UNITS, "the programs ended before the rollback"
    steps.call(str(steps.home / "current/deploy-cluster.sh"), "rollback", "--drain", "10")
    steps.report(programs, "rolled back")
    jobs = [programs, *kernels]
    steps.until("all jobs are done", lambda: all(steps.ask(f"/api/jobs/{job}")["state"] == "done" for job in jobs))
    result = steps.ask(f"/api/jobs/{programs}/result")["result"]
    executed = [int(line) for line in steps.log.read_text().split()]
    lost = sorted(set(range(UNITS)) - set(executed))
    sums = [steps.ask(f"/api/jobs/{job}/result")["result"] for job in kernels]
    wrong = [each for each in sums if (each["count"], each["delay"]["sum"]) != (NUMBERS, DELAYS)]
    print(f"programs: {result['units']} of {UNITS} counted, {len(lost)} lost, {len(executed) - UNITS} executed again")
    print(f"collatz:  {len(kernels)} jobs with {NUMBERS:,} numbers each, {len(wrong)} wrong results")
    assert result["units"] == UNITS and not lost and not wrong


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.update_walk")
    parser.add_argument("--from", dest="commit", default="", help="commit of wheel A; default: this checkout")
    commit = parser.parse_args().commit
    with tempfile.TemporaryDirectory(prefix="update-") as folder:
        began = time.monotonic()
        walk(Walk(Path(folder)), commit)
        print(json.dumps({"seconds": round(time.monotonic() - began), "from": commit or "this checkout"}))


if __name__ == "__main__":
    main()
