"""Pool of worker containers that Compose created. It is controlled with the Docker SDK through a proxy."""

from __future__ import annotations

from dataclasses import dataclass

import docker
import docker.errors

ENGINE = "tcp://engine-proxy:2375"
#: API version in the path of requests. The proxy ignores it, and a fixed version saves one request.
_API_VERSION = "1.41"
#: Timeout of a request in seconds. The proxy's timeout for the Docker engine is shorter.
SECONDS = 60
_STOPPED = {"created", "exited"}
_GOING = {"removing", "dead"}


class EngineError(Exception):
    """The Docker engine or its proxy rejected or failed a request. The message contains the reason."""


@dataclass(frozen=True)
class Containers:
    """IDs of the running and the stopped containers in the pool."""

    running: list[str]
    stopped: list[str]


class Pool:
    """Lists, starts and stops the worker containers of the pool."""

    def __init__(self, engine: str = ENGINE) -> None:
        self._client = docker.APIClient(base_url=engine, version=_API_VERSION, timeout=SECONDS)
        # The client must ignore proxy settings for the internet, which Docker can pass to containers.
        self._client.trust_env = False

    def containers(self) -> Containers:
        """Return the IDs of the running and the stopped containers, sorted."""
        try:
            rows = sorted((each["Id"], each["State"]) for each in self._client.containers(all=True))
        except (docker.errors.DockerException, OSError, LookupError, TypeError, ValueError) as error:
            raise _engine_error(error) from None
        return Containers(
            running=[container for container, state in rows if state not in _STOPPED | _GOING],
            stopped=[container for container, state in rows if state in _STOPPED],
        )

    def start(self, container: str) -> None:
        """Start a stopped container of the pool."""
        try:
            self._client.start(container)
        except (docker.errors.DockerException, OSError) as error:
            raise _engine_error(error) from None

    def stop(self, container: str) -> None:
        """Stop a container of the pool, and wait until it has exited."""
        try:
            self._client.stop(container)
        except (docker.errors.DockerException, OSError) as error:
            raise _engine_error(error) from None


def _engine_error(error: Exception) -> EngineError:
    """Convert an error into an EngineError whose message is the same for each attempt."""
    if isinstance(error, docker.errors.APIError):
        return EngineError(str(error.explanation or error))
    return EngineError(f"the Docker engine's proxy does not answer ({type(error).__name__})")
