"""Profiles of hosts and GPUs, as provided by `Cluster().profiles`, and a context manager that records a block.

with cluster.profile("night") as profile:
    cluster.run("collatz", {"start_number": 1, "number_count": 10**12})
print(profile.summary()["devices"])
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

from threads_cluster.client.resource import Json, Resource, Rows, polled, quoted
from threads_cluster.errors import BadArgument
from threads_protocol.answers import profiles as answers

#: Seconds that workers get to send their recordings after a profile stops.
_COLLECTED_SECONDS = 300.0


class Profiles(Resource):
    """Profiles of hosts and GPUs that a connection can access."""

    path = "/api/profiles"

    def start(
        self,
        name: str,
        *,
        hz: int | None = None,
        seconds: int | None = None,
        hosts: Sequence[str] = (),
        job: str | None = None,
    ) -> Json:
        """Start to record measurements of hosts and GPUs as the profile `name`, and return the profile.

        `hz`: samples per second, 1 to 100. `seconds`: maximum duration. `hosts`: hosts to record, all by default.
        `job`: the profile stops when this job finishes.

        Example:
            cluster.profiles.start("noon", hz=10, seconds=60, hosts=["gpu1"])
        """
        given = {"hz": hz, "seconds": seconds, "hosts": list(hosts) or None, "job_id": job}
        body = {"name": name, **{field: value for field, value in given.items() if value is not None}}
        # A retry would fail if the first attempt had created the profile.
        return self._ask("POST", "", answers.Profile, body=body, patience=0)

    def list(self, *, tenant: str | None = None) -> Rows:
        """Return all profiles of a tenant, newest first.

        Example:
            for profile in cluster.profiles.list():
                print(profile["name"], profile["state"])
        """
        return self._read_list("profiles", answers.ProfileList, tenant=tenant)

    def get(self, name: str, *, tenant: str | None = None) -> Json:
        """Return the profile `name` with the progress of its `recordings`.

        Example:
            print(cluster.profiles.get("noon", tenant="team-a")["recordings"])
        """
        return self._ask("GET", f"/{_quoted(name)}", answers.Profile, tenant=tenant)

    def stop(self, name: str, *, tenant: str | None = None) -> Json:
        """Stop the profile `name`. Workers send their recordings within the next seconds.

        Example:
            cluster.profiles.stop("noon", tenant="team-a")
        """
        return self._ask("POST", f"/{_quoted(name)}/stop", answers.Profile, tenant=tenant)

    def recover(self, name: str, *, tenant: str | None = None) -> Json:
        """Collect the recordings of the finished profile `name` again, for example from workers that were offline.

        Example:
            cluster.profiles.recover("noon", tenant="team-a")
        """
        return self._ask("POST", f"/{_quoted(name)}/recover", answers.Profile, tenant=tenant)

    def delete(self, name: str, *, tenant: str | None = None) -> None:
        """Delete the profile `name` and its recordings.

        Example:
            cluster.profiles.delete("noon", tenant="team-a")
        """
        self._ask("DELETE", f"/{_quoted(name)}", None, tenant=tenant)

    def follow(self, name: str, timeout: float = _COLLECTED_SECONDS, *, tenant: str | None = None) -> Iterator[Json]:
        """Yield the profile `name` repeatedly until its recordings are collected.

        Raises TimedOut after `timeout` seconds.

        Example:
            for profile in cluster.profiles.follow("noon", tenant="team-a"):
                print(profile["state"])
        """

        def read() -> Json:
            return self.get(name, tenant=tenant)

        return polled(read, lambda profile: bool(profile["state"] == "done"), f"profile {name}", timeout)

    def wait(self, name: str, timeout: float = _COLLECTED_SECONDS) -> Json:
        """Wait until the recordings of the profile `name` are collected, and return it.

        Raises TimedOut after `timeout` seconds.

        Example:
            cluster.profiles.wait("noon", timeout=60)
        """
        *_, profile = self.follow(name, timeout)
        return profile

    def fetch(self, name: str, folder: str | Path) -> Json:
        """Download the recordings of the profile `name` into a folder.

        Raises BadArgument if the profile is not done or has none.

        Example:
            cluster.profiles.fetch("noon", "recordings")
        """
        profile = self.get(name)
        if profile["state"] == "recording":
            raise BadArgument(f"profile {name} is still recording; stop it with: cluster profile stop {name}")
        if profile["state"] != "done":
            raise BadArgument(f"profile {name} is {profile['state']}; see cluster profile status {name}")
        if not profile["artifact_id"]:
            raise BadArgument(f"no worker has uploaded a recording of {name}; try: cluster profile recover {name}")
        self._cluster.artifacts.fetch(profile["artifact_id"], folder)
        return profile

    def summary(self, name: str) -> Json:
        """Return a summary of the finished profile `name`. Raises the errors of `fetch`.

        Example:
            print(cluster.profiles.summary("noon"))
        """
        from threads_cluster.profiling import profile_analysis

        with TemporaryDirectory() as folder:
            self.fetch(name, folder)
            return profile_analysis.summary(profile_analysis.read(Path(folder)))


def _quoted(name: str) -> str:
    return quoted(name, "name of a profile")


class Profile:
    """Context manager that records a profile during a block. It stops the profile even if the block raises."""

    def __init__(self, profiles: Profiles, name: str, **how: Any) -> None:
        self._profiles, self.name, self._how = profiles, name, how

    def __enter__(self) -> Self:
        self._profiles.start(self.name, **self._how)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._profiles.stop(self.name)

    def status(self) -> Json:
        """Return the profile with its current state."""
        return self._profiles.get(self.name)

    def summary(self, timeout: float = _COLLECTED_SECONDS) -> Json:
        """Wait until workers have sent their recordings, and return a summary of the profile.

        Raises TimedOut after `timeout` seconds.
        """
        self._profiles.wait(self.name, timeout)
        return self._profiles.summary(self.name)
