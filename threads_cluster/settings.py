"""Where the cluster is and what opens it, by the environment. The only module of the client that reads it."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from pydantic import AliasChoices, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

#: Holds the data of the local cluster of this checkout, if this is one; the cluster leaves its address there.
LOCAL_FOLDER = Path(__file__).resolve().parent.parent / ".cluster"
#: Secrets in files: cluster_token. A variable wins over a file.
SECRETS_FOLDER = Path("/run/secrets")


class Settings(BaseSettings):
    model_config = SettingsConfigDict(
        frozen=True, extra="ignore", env_ignore_empty=True, populate_by_name=True,
        secrets_dir=SECRETS_FOLDER if SECRETS_FOLDER.is_dir() else None,
    )  # fmt: skip

    #: Where clients find the API.
    coordinator_url: str = Field(default="", validation_alias=AliasChoices("cluster_url", "coordinator_url"))
    #: The API's port on this machine, where no address is stated.
    coordinator_port: int = Field(default=3000, ge=1, le=65535)
    #: When set, sent as a bearer token with every call; else that of a login is.
    cluster_token: str = ""
    #: The user's folder of configuration; empty: ~/.config.
    xdg_config_home: str = ""

    def logins_file(self) -> Path:
        """Where `cluster login` keeps tokens."""
        folder = Path(self.xdg_config_home) if self.xdg_config_home else Path.home() / ".config"
        return folder / "threads-cluster" / "tokens.json"

    def url(self) -> str:
        """The API's address: stated, else the local cluster's, else the default port on this machine."""
        if self.coordinator_url:
            return self.coordinator_url.rstrip("/")
        left = LOCAL_FOLDER / "url"
        if left.is_file():
            return left.read_text().strip()
        return f"http://127.0.0.1:{self.coordinator_port}"


def variable(name: str) -> str | None:
    """Return a variable of this environment for that of a program; None where it is not set."""
    return os.environ.get(name)


@lru_cache
def load() -> Settings:
    return Settings()
