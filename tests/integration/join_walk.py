"""Walk of three new machines that join a cluster with the line of `invite`, and follow an update: `make join-walk`.

Each machine is a network namespace with an empty home folder. It reaches only the cluster's machine, and installs
packages from a folder of wheels, which the walk downloads first.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

from deploy.release import tree
from tests.integration.live import TOP
from tests.integration.test_joining_behind_nat import Machine, ip
from tests.integration.test_local_cluster import START_SECONDS, Checkout, copied, until

MACHINES = ("m1", "m2", "m3")
ADDRESS = "10.78.0.1"
#: Version to which the cluster is updated.
VERSION = "0.2.0"


@contextmanager
def networks(mark: str) -> Iterator[None]:
    """Create a namespace for the cluster with a bridge, and one for each machine."""
    cluster = f"walk{mark}"
    try:
        ip("netns", "add", cluster)
        ip("-n", cluster, "link", "set", "lo", "up")
        ip("-n", cluster, "link", "add", "br0", "type", "bridge")
        ip("-n", cluster, "addr", "add", f"{ADDRESS}/24", "dev", "br0")
        ip("-n", cluster, "link", "set", "br0", "up")
        for number, name in enumerate(MACHINES, 2):
            machine = f"{name}{mark}"
            ip("netns", "add", machine)
            ip("-n", machine, "link", "set", "lo", "up")
            ip("link", "add", "up0", "netns", machine, "type", "veth", "peer", "name", name, "netns", cluster)
            ip("-n", machine, "addr", "add", f"10.78.0.{number}/24", "dev", "up0")
            ip("-n", machine, "link", "set", "up0", "up")
            ip("-n", cluster, "link", "set", name, "master", "br0", "up")
        yield
    finally:
        for name in ("walk", *MACHINES):
            subprocess.run(["ip", "netns", "del", f"{name}{mark}"], check=False, capture_output=True)


class NewMachine:
    """A machine without a checkout, with Python and bash."""

    def __init__(self, name: str, namespace: str, folder: Path, wheels: Path) -> None:
        self.name, self.namespace, self.folder = name, namespace, folder
        folder.mkdir()
        self.log = folder / "output"
        self.environment = {
            "PATH": f"{sys.base_prefix}/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(folder),
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(wheels),
            "PIP_CONFIG_FILE": os.devnull,
        }

    @property
    def script(self) -> str:
        return str((self.folder / ".local/share/threads-cluster/current").resolve() / "deploy-cluster.sh")

    def start(self, line: str, token: str) -> subprocess.Popen[str]:
        """Run the line like a user in a shell, with the token on stdin."""
        with self.log.open("w") as log:
            command = ["ip", "netns", "exec", self.namespace, "bash", "-c", f"{line} --name {self.name}"]
            process = subprocess.Popen(
                command, cwd=self.folder, env=self.environment, stdin=subprocess.PIPE, stdout=log, stderr=log, text=True
            )
        assert process.stdin is not None
        process.stdin.write(f"{token}\n")
        process.stdin.close()
        return process

    def call(self, *arguments: str) -> None:
        environment = self.environment | {"CLUSTER_HOME": str(self.folder / ".local/share/threads-cluster")}
        command = ["ip", "netns", "exec", self.namespace, self.script, *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        say(f"{self.name}: {' '.join(arguments)}: {done.stderr.strip()}")
        assert done.returncode == 0, done.stderr


def say(text: str) -> None:
    print(text, flush=True)


def find_in_processes(secret: str) -> list[str]:
    """Return the command lines of processes that contain a secret in their arguments."""
    return [text for process in psutil.process_iter(["cmdline"]) if secret in (text := str(process.info["cmdline"]))]


def join(here: Machine, machine: NewMachine) -> subprocess.Popen[str]:
    invited = here.script("invite", "--address", ADDRESS, "--runner")
    assert invited.returncode == 0, invited.stderr
    line, token = invited.stdout.splitlines()
    assert token not in line
    started = time.monotonic()
    process = machine.start(line, token)
    while "all workers are connected" not in machine.log.read_text():
        assert process.poll() is None and time.monotonic() - started < 600, machine.log.read_text()
        assert not find_in_processes(token), "a list of processes shows the token"
        time.sleep(1)
    say(f"{machine.name} joined after {time.monotonic() - started:.0f} s:\n{machine.log.read_text()}")
    return process


def run_program(here: Machine, machine: NewMachine) -> None:
    command = ["run", "--no-files", "--host", machine.name, "--", "ip", "-brief", "address", "show", "up0"]
    done = here.run(*here.checkout.client("--url", "http://127.0.0.1:3000", *command))
    assert done.returncode == 0 and "10.78.0." in done.stdout, (done.stdout, done.stderr)
    say(f"A program on {machine.name} prints: {done.stdout.strip()}")


def update_cluster(here: Machine, checkout: Path) -> None:
    """Give the code of the cluster another version, and update the running cluster to it."""
    (checkout / "jobs/VERSION").write_text(f"{VERSION}\n")
    updated = here.script("update")
    assert updated.returncode == 0, updated.stderr
    say(f"The cluster was updated:\n{updated.stderr}")


def kill_update(machine: NewMachine) -> None:
    """Kill the update of a machine while it is running. The machine tries again after ten minutes."""
    until(lambda: "updating this machine" in machine.log.read_text(), 120)
    [update] = [one for one in psutil.process_iter(["cmdline"]) if is_update(one, machine)]
    update.kill()
    until(lambda: "cannot update this machine" in machine.log.read_text(), 60)
    say(f"{machine.name}: its update was killed; its workers continue")


def is_update(process: psutil.Process, machine: NewMachine) -> bool:
    words = process.info["cmdline"] or []
    return "update" in words and any(str(machine.folder) in word for word in words)


def wait_for_release(machine: NewMachine) -> None:
    release = f"now runs the release {VERSION}-"
    until(lambda: release in machine.log.read_text(), 900)
    say(f"{machine.name} follows its cluster:\n{machine.log.read_text()}")


def complete_copy(folder: Path) -> Checkout:
    """Return a copy of the code with all files that the wheel contains."""
    made = copied(folder)
    for name in tree.list_files(TOP):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(TOP / name, folder / name)
    return made


def download_wheels(folder: Path) -> None:
    say("Downloading the wheels of requirements/local.txt ...")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--require-hashes", "--only-binary", ":all:"]
    subprocess.run([*command, "-r", str(TOP / "requirements/local.txt"), "-d", str(folder)], check=True)


def main() -> int:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="join-walk-")))
        download_wheels(folder / "wheels")
        mark = f"{os.getpid() % 100_000:05}"
        stack.enter_context(networks(mark))
        here = Machine(complete_copy(folder / "cluster"), f"walk{mark}")
        stack.callback(here.stop)
        here.start("local", "--no-samples", "--no-runner", "--port", "3000")
        until(lambda: here.says("cluster is up"), START_SECONDS)
        machines = [NewMachine(name, f"{name}{mark}", folder / name, folder / "wheels") for name in MACHINES]
        for machine in machines:
            process = join(here, machine)
            stack.callback(process.wait, 90)
            stack.callback(process.terminate)
        for machine in machines:
            run_program(here, machine)
        update_cluster(here, folder / "cluster")
        kill_update(machines[0])
        for machine in machines:
            wait_for_release(machine)
            run_program(here, machine)
        for machine in machines:
            machine.call("leave")
    return 0


if __name__ == "__main__":
    sys.exit(main())
