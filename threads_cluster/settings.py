"""Where the cluster is and what opens it, by the environment. The only module of the client that reads it."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from pydantic import AliasChoices, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from threads_cluster.errors import Misconfigured

#: Holds the data of the local cluster of this checkout, if this is one; the cluster leaves its address there.
LOCAL_FOLDER = Path(__file__).resolve().parent.parent / ".cluster"
#: Secrets in files: cluster_token. A variable wins over a file.
SECRETS_FOLDER = Path("/run/secrets")


class Settings(BaseSettings):
    model_config = SettingsConfigDict(
        frozen=True,
        extra="ignore",
        env_ignore_empty=True,
        populate_by_name=True,
        secrets_dir=SECRETS_FOLDER if SECRETS_FOLDER.is_dir() else None,
    )

    #: Address of the API for clients. Empty: the local cluster of this checkout.
    coordinator_url: str = Field(default="", validation_alias=AliasChoices("cluster_url", "coordinator_url"))
    #: Port of the API.
    coordinator_port: int = Field(default=3000, ge=1, le=65535)
    #: If set, every API call needs a token, and this token permits everything. Separate two by a comma while you
    #: replace one.
    cluster_token: str = ""
    #: Folder in which `cluster login` stores tokens, in `threads-cluster`; empty: `~/.config`.
    xdg_config_home: str = ""

    def logins_file(self) -> Path | None:
        """Where `cluster login` keeps tokens; None for a user without a folder."""
        mine = home()
        folder = Path(self.xdg_config_home) if self.xdg_config_home else mine and mine / ".config"
        return folder and folder / "threads-cluster" / "tokens.json"

    def url(self) -> str:
        """The API's address: stated, else the local cluster's, else the default port on this machine.

        Misconfigured where this user may not look at the local cluster's.
        """
        if self.coordinator_url:
            return self.coordinator_url.rstrip("/")
        try:
            return of_local_cluster() or f"http://127.0.0.1:{self.coordinator_port}"
        except OSError as error:
            raise _closed(error) from None


def of_local_cluster() -> str:
    """Return the address of the local cluster of this checkout; empty while none is up. OSError where it is closed."""
    left = LOCAL_FOLDER / "url"
    return left.read_text().strip() if left.is_file() else ""


def _closed(error: OSError) -> Misconfigured:
    refused = Misconfigured(
        f"the address of this checkout's cluster cannot be read: {error.filename}: {error.strerror}"
    )
    refused.next = "run this as the user who started it, or set CLUSTER_URL, and CLUSTER_TOKEN where it needs a token"
    return refused


def home() -> Path | None:
    """Return this user's folder; None where neither HOME nor the system names one."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def variable(name: str) -> str | None:
    """Return a variable of this environment for that of a program; None where it is not set."""
    return os.environ.get(name)


@lru_cache
def load() -> Settings:
    return Settings()
