"""Address and token of the cluster from environment variables, which only this module of the client reads."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

#: Folder with the packages of this client: a checkout, or `site-packages` of an installation.
ROOT = Path(__file__).resolve().parent.parent
#: True if this client is in a checkout, which can start a cluster by itself.
IS_CHECKOUT = (ROOT / "deploy-cluster.sh").is_file()
#: Folder with secrets in files, such as cluster_token. Environment variables take precedence.
SECRETS_FOLDER = Path("/run/secrets")


def home() -> Path | None:
    """Return the user's home directory, or None if neither HOME nor the system defines one."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def _state_folder() -> Path:
    """Return the folder with the state of the cluster: CLUSTER_HOME, the checkout, or a folder in the user's home."""
    if named := os.environ.get("CLUSTER_HOME"):
        return Path(named).resolve()
    if IS_CHECKOUT:
        return ROOT
    data = os.environ.get("XDG_DATA_HOME") or (home() or ROOT) / ".local" / "share"
    return Path(data, "threads-cluster").resolve()


#: Folder with the state of the cluster. All releases of an installation share it.
STATE_FOLDER = _state_folder()
#: True if the code is in `site-packages` or in a release of an installation, instead of a checkout with the state.
IS_INSTALLED = STATE_FOLDER != ROOT
#: Data folder of the local cluster. It contains the cluster's address and its token.
LOCAL_FOLDER = STATE_FOLDER / ".cluster"


def read(*names: str) -> str:
    """Return the first setting that is not empty: from environment variables, else from files with secrets."""
    found = next((text for name in names if (text := os.environ.get(name.upper()))), None)
    return found or next((text for name in names if (text := _read_secret(SECRETS_FOLDER / name))), "")


def _read_secret(file: Path) -> str:
    return file.read_text().strip() if file.is_file() else ""


def _from(*names: str, **more: Any) -> Any:
    """Return a field that is read from the first of the settings. The metadata is for docs/settings.md."""
    return field(default_factory=partial(read, *names), metadata={"default": "", "names": names}, **more)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the client. It reads them without a library, because a library would start slower than a command."""

    #: Address of the API. If the setting is empty, clients use the cluster of this checkout or the selected context.
    coordinator_url: str = _from("cluster_url", "coordinator_url")
    #: Token that permits everything. Two tokens are separated by a comma while one replaces the other.
    cluster_token: str = _from("cluster_token", repr=False)
    #: Folder in which the `cluster` command stores contexts and tokens. If the setting is empty, `~/.config` applies.
    xdg_config_home: str = _from("xdg_config_home")

    def logins_file(self) -> Path | None:
        """Return the path of the file in which `cluster login` stores tokens, or None without a home directory."""
        return self._file("tokens.json")

    def contexts_file(self) -> Path | None:
        """Return the path of the file with the names of clusters, or None without a home directory."""
        return self._file("contexts.json")

    def _file(self, name: str) -> Path | None:
        mine = home()
        folder = Path(self.xdg_config_home) if self.xdg_config_home else mine and mine / ".config"
        return folder and folder / "threads-cluster" / name


def variable(name: str) -> str | None:
    """Return the value of an environment variable for a program, or None if the variable is not set."""
    return os.environ.get(name)


def python() -> str:
    """Return the path of the Python that runs this client."""
    return sys.executable


def environment() -> dict[str, str]:
    """Return the environment of this process, for a process that runs a command on its behalf."""
    return dict(os.environ)


@contextmanager
def replaced_environment(values: Mapping[str, str]) -> Iterator[None]:
    """Use the environment of another process."""
    before = environment()
    try:
        _set_environment(values)
        yield
    finally:
        _set_environment(before)


def _set_environment(values: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(values)
    load.cache_clear()


def disable_pydantic_plugins() -> None:
    """Let Pydantic skip its search for plugins in all installed packages. Call this function before it is imported."""
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")


@lru_cache
def load() -> Settings:
    return Settings()
