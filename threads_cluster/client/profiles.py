"""Profiles from Python: `Cluster().profiles`, and the telemetry of a block.

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

#: Seconds that workers have to bring what they recorded, once a profile is stopped.
_COLLECTED_SECONDS = 300.0


class Profiles(Resource):
    """Profiles of one connection."""

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
        """Have workers record the telemetry of their hosts and GPUs from now on; returns the profile.

        `hz`: samples a second, 1 to 100. `seconds`: after which it stops by itself. `hosts`: none for all. `job`: with
        whose end it stops.
        """
        given = {"hz": hz, "seconds": seconds, "hosts": list(hosts) or None, "job_id": job}
        body = {"name": name, **{field: value for field, value in given.items() if value is not None}}
        # A second attempt would find the profile of the first.
        return self._ask("POST", "", answers.Profile, body=body, patience=0)

    def list(self, *, tenant: str | None = None) -> Rows:
        """Profiles of one's tenant, newest first."""
        return self._read_list("profiles", answers.ProfileList, tenant=tenant)

    def get(self, name: str, *, tenant: str | None = None) -> Json:
        """One profile with its `recordings`: how far each is."""
        return self._ask("GET", f"/{_quoted(name)}", answers.Profile, tenant=tenant)

    def stop(self, name: str, *, tenant: str | None = None) -> Json:
        """Stop recording; workers bring what they recorded in the next seconds."""
        return self._ask("POST", f"/{_quoted(name)}/stop", answers.Profile, tenant=tenant)

    def recover(self, name: str, *, tenant: str | None = None) -> Json:
        """Collect once more what workers have of a profile that is done."""
        return self._ask("POST", f"/{_quoted(name)}/recover", answers.Profile, tenant=tenant)

    def delete(self, name: str, *, tenant: str | None = None) -> None:
        """Delete a profile with what was recorded."""
        self._ask("DELETE", f"/{_quoted(name)}", None, tenant=tenant)

    def follow(self, name: str, timeout: float = _COLLECTED_SECONDS, *, tenant: str | None = None) -> Iterator[Json]:
        """The profile as it is, again and again until it is done; TimedOut after `timeout` seconds."""

        def read() -> Json:
            return self.get(name, tenant=tenant)

        return polled(read, lambda profile: bool(profile["state"] == "done"), f"profile {name}", timeout)

    def wait(self, name: str, timeout: float = _COLLECTED_SECONDS) -> Json:
        """The profile once it is done, errors as `follow`."""
        *_, profile = self.follow(name, timeout)
        return profile

    def fetch(self, name: str, folder: str | Path) -> Json:
        """Download the recordings of a profile into a folder. Raises BadArgument if it is not done, or has none."""
        profile = self.get(name)
        if profile["state"] == "recording":
            raise BadArgument(f"profile {name} is recording; stop it first: cluster profile stop {name}")
        if profile["state"] != "done":
            raise BadArgument(f"profile {name} is {profile['state']}; see the progress: cluster profile status {name}")
        if not profile["artifact_id"]:
            raise BadArgument(f"no worker has brought a recording of {name}: cluster profile recover {name}")
        self._cluster.artifacts.fetch(profile["artifact_id"], folder)
        return profile

    def summary(self, name: str) -> Json:
        """Return the summary of a finished profile, made by `profiling.profile_analysis`. Errors as `fetch`."""
        from threads_cluster.profiling import profile_analysis

        with TemporaryDirectory() as folder:
            self.fetch(name, folder)
            return profile_analysis.summary(profile_analysis.read(Path(folder)))


def _quoted(name: str) -> str:
    return quoted(name, "name of a profile")


class Profile:
    """A profile around a block: it starts at its begin and stops at its end, whatever happens in between."""

    def __init__(self, profiles: Profiles, name: str, **how: Any) -> None:
        self._profiles, self.name, self._how = profiles, name, how

    def __enter__(self) -> Self:
        self._profiles.start(self.name, **self._how)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._profiles.stop(self.name)

    def status(self) -> Json:
        """The profile as it is now."""
        return self._profiles.get(self.name)

    def summary(self, timeout: float = _COLLECTED_SECONDS) -> Json:
        """Wait until workers have brought what they recorded, and analyse that. TimedOut after `timeout` seconds."""
        self._profiles.wait(self.name, timeout)
        return self._profiles.summary(self.name)
