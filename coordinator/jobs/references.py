"""Check the permission, artifacts and secrets that a submitted program needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from pydantic import BaseModel

from coordinator.access.principal import Principal, Scope
from coordinator.artifacts.trees import Trees
from coordinator.secrets.vault import Vault
from jobs import errors
from jobs.kinds.program_kind import ProgramKind
from jobs.store.artifacts import Artifact

#: Parameters whose artifact must consist of one file, unless the program is persistent.
_ONE_FILE = ("items_artifact",)


class References:
    """Resolves the references of all submissions in one request. Artifacts and secrets are read only once."""

    def __init__(self, principal: Principal, trees: Trees, vault: Vault, *, leads: bool = False) -> None:
        #: Whether the leader submits the job. Only the leader can submit some kinds.
        self.leads = leads
        self._principal = principal
        self._trees = trees
        self._vault = vault
        self._artifacts: dict[str, Artifact | errors.ClusterError] = {}

    def resolve(self, programs: ProgramKind, parameters: BaseModel) -> tuple[BaseModel, tuple[str, ...]]:
        """Return the parameters with artifact names replaced by IDs, and these IDs without duplicates.

        Raises Forbidden unless the principal can run programs. NotFound and Conflict name the parameter.
        """
        self._check_principal()
        self._check_secrets(programs.secrets(parameters))
        one_file = () if getattr(parameters, "persistent", False) else _ONE_FILE
        ids = {
            name: self._artifact(name, asked, one_file=name in one_file)
            for name, asked in programs.artifacts(parameters).items()
        }
        return parameters.model_copy(update=ids), tuple(dict.fromkeys(ids.values()))

    def _check_principal(self) -> None:
        if self._principal.token and self._principal.has(Scope.RUN):
            return
        owned = ", ".join(sorted(self._principal.scopes)) or "none"
        have = f"the token has {owned}" if self._principal.token else "this request has no token"
        raise errors.Forbidden(
            f"programs require a token with the scope run; {have}. An admin creates one with: "
            "cluster token create NAME --scopes read,submit,run; then log in with: cluster login",
            field="Authorization",
        )

    def _check_secrets(self, names: Sequence[str]) -> None:
        lacking = [name for name in names if name not in self._secrets]
        if lacking:
            raise errors.NotFound(
                f"parameters.secrets: tenant {self._principal.tenant} has no secret {', '.join(lacking)}; "
                f"set it with: cluster secret set {lacking[0]}",
                field="parameters.secrets",
            )

    @cached_property
    def _secrets(self) -> frozenset[str]:
        return frozenset(secret.name for secret in self._vault.all(self._principal.tenant))

    def _artifact(self, name: str, asked: str, *, one_file: bool) -> str:
        found = self._artifacts.get(asked) or self._artifacts.setdefault(asked, self._find(asked))
        field = f"parameters.{name}"
        if isinstance(found, errors.ClusterError):
            raise type(found)(f"{field}: {found.detail}", field=field)
        if one_file and found.files != 1:
            raise errors.InvalidRequest(
                f"{field}: must be an artifact with one file; {asked} has {found.files}", field=field
            )
        return found.id

    def _find(self, asked: str) -> Artifact | errors.ClusterError:
        try:
            return self._trees.find(self._principal.tenant, asked)
        except (errors.NotFound, errors.Conflict) as error:
            return error


def artifact_deleted(fields: Mapping[str, Any], artifact: str) -> errors.NotFound:
    """Return the error for a job whose artifact was deleted between validation and submission."""
    name = next((name for name, value in fields.items() if value == artifact), "files")
    return errors.NotFound(
        f"parameters.{name}: artifact {artifact} was deleted; upload it again", field=f"parameters.{name}"
    )
