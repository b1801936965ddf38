"""The pool of workers that Compose created, controlled with the Docker SDK through the proxy."""

from __future__ import annotations

from dataclasses import dataclass

import docker
import docker.errors

ENGINE = "tcp://engine-proxy:2375"
#: API version in the request path. The proxy ignores the version, and a fixed one saves the SDK a request.
_API_VERSION = "1.41"
#: Timeout of a request in seconds, longer than the proxy's timeout for the Docker engine.
SECONDS = 60
_STOPPED = {"created", "exited"}
_GOING = {"removing", "dead"}


class EngineError(Exception):
    """The Docker engine or its proxy did not execute a request; the message gives the reason."""


@dataclass(frozen=True)
class Containers:
    """Container IDs of the pool."""

    running: list[str]
    stopped: list[str]


class Pool:
    """Lists, starts and stops the pool's containers."""

    def __init__(self, engine: str = ENGINE) -> None:
        self._client = docker.APIClient(base_url=engine, version=_API_VERSION, timeout=SECONDS)
        # Ignore proxy settings that Docker passes to containers; they are meant for the internet.
        self._client.trust_env = False

    def containers(self) -> Containers:
        """Return the running and the stopped containers, sorted by ID."""
        try:
            rows = sorted((each["Id"], each["State"]) for each in self._client.containers(all=True))
        except (docker.errors.DockerException, OSError, LookupError, TypeError, ValueError) as error:
            raise _engine_error(error) from None
        return Containers(
            running=[container for container, state in rows if state not in _STOPPED | _GOING],
            stopped=[container for container, state in rows if state in _STOPPED],
        )

    def start(self, container: str) -> None:
        """Start a stopped container."""
        try:
            self._client.start(container)
        except (docker.errors.DockerException, OSError) as error:
            raise _engine_error(error) from None

    def stop(self, container: str) -> None:
        """Stop a container and wait until it has exited."""
        try:
            self._client.stop(container)
        except (docker.errors.DockerException, OSError) as error:
            raise _engine_error(error) from None


def _engine_error(error: Exception) -> EngineError:
    """Return an EngineError whose message does not change between attempts."""
    if isinstance(error, docker.errors.APIError):
        return EngineError(str(error.explanation or error))
    return EngineError(f"the Docker engine's proxy does not answer ({type(error).__name__})")
