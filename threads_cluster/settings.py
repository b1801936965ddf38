"""Address and token of the cluster from environment variables, which only this module of the client reads."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from pydantic import AliasChoices, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

#: Data folder of this checkout's local cluster. It contains the cluster's address and its token.
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

    #: Address of the API. If the setting is empty, clients use the cluster of this checkout or the selected context.
    coordinator_url: str = Field(default="", validation_alias=AliasChoices("cluster_url", "coordinator_url"))
    #: Token that permits everything. Two tokens are separated by a comma while one replaces the other.
    cluster_token: str = ""
    #: Folder in which the `cluster` command stores contexts and tokens. If the setting is empty, `~/.config` applies.
    xdg_config_home: str = ""

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
