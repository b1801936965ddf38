"""Address and token of the cluster from environment variables, which only this module of the client reads."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from pydantic import AliasChoices, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from threads_cluster.errors import Misconfigured

#: Data folder of this checkout's local cluster. It contains the cluster's address.
LOCAL_FOLDER = Path(__file__).resolve().parent.parent / ".cluster"
#: Folder with secrets in files, such as cluster_token. Environment variables take precedence.
SECRETS_FOLDER = Path("/run/secrets")


class Settings(BaseSettings):
    model_config = SettingsConfigDict(
        frozen=True,
        extra="ignore",
        env_ignore_empty=True,
        populate_by_name=True,
        secrets_dir=SECRETS_FOLDER if SECRETS_FOLDER.is_dir() else None,
    )

    #: Address of the API. If the setting is empty, clients use the local cluster of this checkout.
    coordinator_url: str = Field(default="", validation_alias=AliasChoices("cluster_url", "coordinator_url"))
    #: Port of the API.
    coordinator_port: int = Field(default=3000, ge=1, le=65535)
    #: Token that permits everything. Two tokens are separated by a comma while one replaces the other.
    cluster_token: str = ""
    #: Folder in which `cluster login` stores tokens. If the setting is empty, `~/.config` applies.
    xdg_config_home: str = ""

    def logins_file(self) -> Path | None:
        """Return the path of the file in which `cluster login` stores tokens, or None without a home directory."""
        mine = home()
        folder = Path(self.xdg_config_home) if self.xdg_config_home else mine and mine / ".config"
        return folder and folder / "threads-cluster" / "tokens.json"

    def url(self) -> str:
        """Return the URL of the API: the configured URL, the local cluster's URL, or the default port of this machine.

        Raises Misconfigured if this user cannot read the local cluster's address.
        """
        if self.coordinator_url:
            return self.coordinator_url.rstrip("/")
        try:
            return of_local_cluster() or f"http://127.0.0.1:{self.coordinator_port}"
        except OSError as error:
            raise _closed(error) from None


def of_local_cluster() -> str:
    """Return the URL of this checkout's local cluster, or an empty string if the local cluster is not running.

    Raises OSError if the file with the URL is not readable.
    """
    left = LOCAL_FOLDER / "url"
    return left.read_text().strip() if left.is_file() else ""


def _closed(error: OSError) -> Misconfigured:
    refused = Misconfigured(
        f"the address of this checkout's cluster cannot be read: {error.filename}: {error.strerror}"
    )
    refused.next = "run the command as the user who started the cluster, or set CLUSTER_URL and CLUSTER_TOKEN"
    return refused


def home() -> Path | None:
    """Return the user's home directory, or None if neither HOME nor the system defines one."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def variable(name: str) -> str | None:
    """Return the value of an environment variable for a program, or None if the variable is not set."""
    return os.environ.get(name)


@lru_cache
def load() -> Settings:
    return Settings()
