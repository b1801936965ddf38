"""The pool of workers that Compose created, through the proxy, with the docker SDK."""

from __future__ import annotations

from dataclasses import dataclass

import docker
import docker.errors

ENGINE = "tcp://engine-proxy:2375"
#: The proxy ignores it; one that is named saves the SDK to ask.
_API_VERSION = "1.41"
#: Longer than the proxy waits for the engine.
SECONDS = 60
_STOPPED = {"created", "exited"}
_GOING = {"removing", "dead"}


class EngineAway(Exception):
    """The engine, or the proxy before it, did not do what it was asked; the message says why."""


@dataclass(frozen=True)
class Containers:
    """Ids of the pool's containers."""

    running: list[str]
    stopped: list[str]


class Pool:
    """Lists, starts and stops the pool's containers."""

    def __init__(self, engine: str = ENGINE) -> None:
        self._client = docker.APIClient(base_url=engine, version=_API_VERSION, timeout=SECONDS)
        # A proxy that Docker sets for containers is for the internet.
        self._client.trust_env = False

    def containers(self) -> Containers:
        """Return those that run and those that do not, in the order of their ids."""
        try:
            rows = sorted((each["Id"], each["State"]) for each in self._client.containers(all=True))
        except (docker.errors.DockerException, OSError, LookupError, TypeError, ValueError) as error:
            raise _away(error) from None
        return Containers(
            running=[container for container, state in rows if state not in _STOPPED | _GOING],
            stopped=[container for container, state in rows if state in _STOPPED],
        )

    def start(self, container: str) -> None:
        """Start one that is stopped."""
        try:
            self._client.start(container)
        except (docker.errors.DockerException, OSError) as error:
            raise _away(error) from None

    def stop(self, container: str) -> None:
        """Stop one, and wait until it has ended."""
        try:
            self._client.stop(container)
        except (docker.errors.DockerException, OSError) as error:
            raise _away(error) from None


def _away(error: Exception) -> EngineAway:
    """Return the reason in words that stay the same from one attempt to the next."""
    if isinstance(error, docker.errors.APIError):
        return EngineAway(str(error.explanation or error))
    return EngineAway(f"the engine's proxy does not answer ({type(error).__name__})")
