"""Tests secrets over HTTP: users who may run programs set them, they are stored encrypted, and no response has them."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from coordinator import app
from coordinator.secrets import keys
from coordinator.secrets.keys import Keys, UnusableKey
from coordinator.secrets.vault import Vault
from jobs import errors
from jobs.models import ANONYMOUS
from jobs.settings import Settings
from jobs.store import Store
from jobs.store.server import connection
from jobs.store.tenancy.secrets import MAX_BYTES, MAX_SECRETS, Sealed
from jobs.store.tenancy.tenants import Tenant

TOKEN = "a-long-secret-of-the-tests"
FIRST, SECOND, THIRD = ("1" * 32, "2" * 32, "3" * 32)
#: A value that appears only in the request that sets it.
VALUE = "hunter2-hunter2"
#: Size in bytes of a value in Redis, from docs/secrets.md.
MAX_STORED = 88 << 10


class Api:
    """A coordinator application without a server, and its responses."""

    def __init__(self, redis_url: str, secrets_key: str = FIRST) -> None:
        self.store = Store(connection.connect(redis_url))
        self.app = app.create(Settings(redis_url=redis_url, cluster_token=TOKEN, secrets_key=secrets_key))
        self.answers: list[str] = []

    def ask(self, method: str, path: str, body: Any = None, token: str = TOKEN) -> httpx.Response:
        content = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        answer = asyncio.run(self._ask(method, path, content, token))
        self.answers.append(f"{answer.text} {answer.headers}")
        return answer

    async def _ask(self, method: str, path: str, content: bytes | None, token: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as client:
            return await client.request(method, path, content=content)

    def put(self, name: str, value: str = VALUE, **more: Any) -> httpx.Response:
        return self.ask("PUT", f"/api/secrets/{name}", {"value": value}, **more)

    def listed(self, query: str = "", **more: Any) -> Any:
        return self.ask("GET", f"/api/secrets{query}", **more).json()["secrets"]

    def token(self, *scopes: str, tenant: str = "default") -> str:
        body = {"name": "test", "scopes": list(scopes), "tenant": tenant}
        return str(self.ask("POST", "/api/tokens", body).json()["token"])

    def values(self, tenant: str, *names: str) -> dict[str, str]:
        """Return the values that a run of a program gets."""
        return self.app.state.coordinator.cluster.secrets.values(tenant, names)

    def logged(self) -> list[dict[str, Any]]:
        """Return the bodies of audit log entries about secrets."""
        lines = self.ask("GET", "/api/audit?after=0").json()["lines"]
        return [entry for entry in map(json.loads, lines) if "secret" in entry.get("action", "")]


@pytest.fixture
def api(any_redis_url: str) -> Iterator[Api]:
    api = Api(any_redis_url)
    yield api
    api.store.client.close()


def everything(store: Store) -> bytes:
    """Return all bytes in Redis, like its backup."""
    return b"".join(name + (store.client.dump(name) or b"") for name in store.client.scan_iter("*"))


def test_a_value_is_given_to_runs_and_stands_nowhere_else(
    api: Api, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    for value in (VALUE, f"{VALUE}2"):
        row = api.put("KEY", value).json()
        assert row == {**row, "tenant": "default", "name": "KEY", "readable": True}
    assert api.listed() == [row]
    assert api.values("default", "KEY") == {"KEY": f"{VALUE}2"}
    assert api.ask("GET", "/api/secrets/KEY").status_code == 405
    exporter = api.ask("GET", "/api/snapshot")
    assert exporter.status_code == 200
    shown = capsys.readouterr()
    for place in (*api.answers, caplog.text, shown.out, shown.err, everything(api.store).decode("latin-1")):
        assert VALUE not in place
    assert VALUE not in repr(Settings(secrets_key=VALUE * 3)) and FIRST not in caplog.text


def test_the_audit_log_names_secrets_and_a_repeated_call_writes_nothing(api: Api) -> None:
    for _ in range(3):
        api.put("KEY")
    api.put("KEY", "other")
    assert api.ask("DELETE", "/api/secrets/KEY").status_code == 204
    assert api.ask("DELETE", "/api/secrets/KEY").status_code == 404
    entries = [(entry["action"], entry["subject"], entry["outcome"]) for entry in api.logged()]
    assert entries == [
        ("set secret", "default/KEY", "new"),
        ("set secret", "default/KEY", "changed"),
        ("delete secret", "default/KEY", "ok"),
    ]


def test_a_wrong_body_is_refused_by_field_and_bound_and_not_repeated(api: Api) -> None:
    wrong: list[tuple[Any, str, str]] = [
        ({"value": ""}, "value", "non-empty"),
        ({"value": f"{VALUE}\0"}, "value", "NUL"),
        ({"value": [VALUE]}, "value", "text"),
        ({"value": 7}, "value", "text"),
        ({"value": None}, "value", "text"),
        ({"value": "é" * (MAX_BYTES // 2 + 1)}, "value", f"{MAX_BYTES + 2} bytes in UTF-8; the maximum is {MAX_BYTES}"),
        ({VALUE: "a"}, "body", "without other fields"),
        ({"value": "a", VALUE: VALUE}, "body", "without other fields"),
        ([VALUE], "body", "without other fields"),
        (VALUE, "body", "without other fields"),
        (b'{"value": "' + VALUE.encode(), "body", "not JSON"),
        (b"", "body", "not JSON"),
        (b'{"value": "\\ud800"}', "", ""),
        (b'{"value": NaN, "' + VALUE.encode() + b'": 1}', "body", "not JSON"),
    ]
    for body, field, part in wrong:
        answer = api.ask("PUT", "/api/secrets/KEY", body)
        assert answer.status_code in (400, 422) and answer.json()["field"].startswith(field), body
        assert part in answer.json()["detail"] and VALUE not in answer.text, answer.text
    for name in ("1A", "A-B", "A" * 65, "A%20B", "%C3%A9"):
        assert api.put(name).status_code == 422
    assert api.listed() == []
    for value in ("x" * MAX_BYTES, "é", " \n", "\U0001f600"):
        assert api.put("A" * 64, value).status_code == 200
        assert api.values("default", "A" * 64) == {"A" * 64: value}


def test_a_value_of_65_536_commas_is_a_value(api: Api) -> None:
    assert api.put("KEY", "," * 65_536).status_code == 200
    assert api.put("KEY", "," * 65_537).status_code == 422


def test_a_tenant_has_at_most_100_secrets(api: Api) -> None:
    for number in range(MAX_SECRETS):
        assert api.put(f"KEY_{number}").status_code == 200
    full = api.put("ONE_MORE")
    assert full.status_code == 409 and f"{MAX_SECRETS} secrets" in full.json()["detail"]
    assert api.put("KEY_7", "another").status_code == 200 and api.ask("DELETE", "/api/secrets/KEY_8").status_code == 204
    assert api.put("ONE_MORE").status_code == 200


def test_secrets_are_a_tenants_own_and_need_run(api: Api) -> None:
    for tenant in ("red", "blue"):
        api.store.tenants.put(Tenant(name=tenant))
    red, blue = (api.token("run", tenant=tenant) for tenant in ("red", "blue"))
    others = api.token("read", "submit", "infer", "operate", tenant="red")
    assert api.put("KEY", token=red).json()["tenant"] == "red"
    assert api.listed(token=blue) == api.listed() == []
    assert [row["name"] for row in api.listed("?tenant=red")] == ["KEY"]
    for method, path in (("GET", ""), ("PUT", "/KEY"), ("DELETE", "/KEY")):
        assert api.ask(method, f"/api/secrets{path}", {"value": "x"}, token=others).status_code == 403
        refused = api.ask(method, f"/api/secrets{path}?tenant=red", {"value": "x"}, token=blue)
        assert refused.status_code == 403 and "needs the scope admin" in refused.json()["detail"]
    assert api.ask("DELETE", "/api/secrets/KEY", token=blue).status_code == 404
    assert api.values("red", "KEY") == {"KEY": VALUE}
    with pytest.raises(errors.NotFound, match="tenant blue has no secret KEY"):
        api.values("blue", "KEY")
    unknown = api.put("KEY?tenant=green")
    assert unknown.status_code == 422 and "PUT /api/tenants/green" in unknown.json()["detail"]


def test_a_later_tenant_of_the_same_name_has_neither_secrets_nor_tokens_of_the_first(api: Api) -> None:
    api.store.tenants.put(Tenant(name="red"))
    api.put("KEY?tenant=red")
    token = api.token("run", tenant="red")
    refused = api.ask("DELETE", "/api/tenants/red")
    assert refused.status_code == 409 and "tenant red has valid tokens" in refused.json()["detail"]
    assert [row["name"] for row in api.listed(token=token)] == ["KEY"]
    assert api.ask("DELETE", f"/api/tokens/{token.split('_')[1]}").status_code == 204
    assert api.ask("DELETE", "/api/tenants/red").status_code == 204
    api.store.tenants.put(Tenant(name="red"))
    assert api.listed("?tenant=red") == [] and VALUE.encode() not in everything(api.store)


def test_without_a_key_nothing_is_stored_and_the_answer_says_what_to_set(any_redis_url: str) -> None:
    api = Api(any_redis_url, secrets_key="")
    for answer in (api.put("KEY"), api.ask("POST", "/api/rotate-secrets")):
        assert answer.status_code == 500 and answer.json()["field"] == "SECRETS_KEY"
        assert "openssl rand -hex 32" in answer.json()["detail"]
    assert api.ask("GET", "/api/secrets").json() == {"secrets": [], "key": None}


def test_a_backup_is_closed_to_a_coordinator_with_another_key(any_redis_url: str) -> None:
    Api(any_redis_url).put("KEY")
    other = Api(any_redis_url, secrets_key=SECOND)
    [row] = other.listed()
    assert row["readable"] is False
    with pytest.raises(errors.MissingSetting, match=f"encrypted with key {row['key']}, which SECRETS_KEY lacks"):
        other.values("default", "KEY")
    assert other.ask("POST", "/api/rotate-secrets").json()["unreadable"] == ["default/KEY"]
    assert other.put("KEY", "anew").json()["readable"] is True
    assert other.values("default", "KEY") == {"KEY": "anew"}


def test_a_key_is_replaced_without_a_stop(any_redis_url: str) -> None:
    old = Api(any_redis_url)
    for number in range(3):
        old.put(f"KEY_{number}", f"value {number}")
    changed = [row["changed"] for row in old.listed()]
    both, reverse = Api(any_redis_url, f"{FIRST},{SECOND}"), Api(any_redis_url, f"{SECOND}\n{FIRST}\n")
    reverse.put("KEY_3", "value 3")
    assert both.values("default", "KEY_3") == {"KEY_3": "value 3"}
    rotated = [reverse.ask("POST", "/api/rotate-secrets").json() for _ in range(2)]
    assert [each["rotated"] for each in rotated] == [3, 0] and rotated[0]["unreadable"] == []
    new = Api(any_redis_url, SECOND)
    names = [f"KEY_{number}" for number in range(4)]
    assert new.values("default", *names) == {name: f"value {number}" for number, name in enumerate(names)}
    assert [row["changed"] for row in new.listed()][:3] == changed and {row["key"] for row in new.listed()} == {
        rotated[0]["key"]
    }
    assert [entry["action"] for entry in new.logged()].count("rotate secret") == 3


def test_a_value_is_bound_to_its_tenant_and_name(api: Api) -> None:
    """A user with write access to Redis cannot give a tenant another tenant's secret."""
    store = api.store.secrets
    api.put("KEY")
    sealed = store.sealed("default", ["KEY"])["KEY"]
    store.put("default", "OTHER", sealed)
    for broken in ("", "x", "\ufffd", sealed.text[:-4], sealed.text[:50] + "A" + sealed.text[51:]):
        store.put("default", "BROKEN", type(sealed)(key=sealed.key, text=broken))
        with pytest.raises(errors.Broken, match="the stored value of secret BROKEN was changed"):
            api.values("default", "BROKEN")
    with pytest.raises(errors.Broken, match="set it again"):
        api.values("default", "OTHER")
    assert api.put("OTHER", "mine").status_code == 200 and api.values("default", "OTHER") == {"OTHER": "mine"}


def test_a_secret_that_was_set_meanwhile_is_not_put_back(api: Api) -> None:
    vault = Vault(api.store.secrets, Keys([SECOND, FIRST]))
    api.put("KEY")
    before = api.store.secrets.sealed("default", ["KEY"])["KEY"]
    api.put("KEY", "newer")
    assert not api.store.secrets.reseal("default", "KEY", before, vault.keys.seal("default", "KEY", VALUE))
    assert vault.rotate(["default"], ANONYMOUS).rotated == 1
    assert vault.values("default", ["KEY"]) == {"KEY": "newer"}


def test_the_same_value_is_encrypted_to_another_text_each_time() -> None:
    one = Keys([FIRST])
    assert one.seal("default", "KEY", VALUE) != one.seal("default", "KEY", VALUE)
    assert Keys([FIRST]).current == one.current != Keys([SECOND]).current
    assert not one.has(Keys([THIRD]).current or "")


def test_a_stored_value_takes_at_most_a_third_more_than_it_has_bytes() -> None:
    """JSON once stored control characters with six bytes each: 512 KiB in Redis for a value of 64 KiB."""
    one = Keys([FIRST])
    for value in ("\x01" * MAX_BYTES, '"' * MAX_BYTES, "\n" * MAX_BYTES, "é" * (MAX_BYTES // 2), "a\r\nb", "[]\n"):
        sealed = one.seal("t" * 32, "N" * 64, value)
        assert len(sealed.text) <= MAX_STORED and one.open("t" * 32, "N" * 64, sealed) == value


def test_a_value_that_was_stored_as_json_is_read() -> None:
    one = Keys([FIRST])
    _, fernet = keys.create_key(FIRST)
    before = Sealed(key=one.current or "", text=fernet.encrypt(json.dumps(["red", "KEY", "a\nb"]).encode()).decode())
    assert one.open("red", "KEY", before) == "a\nb"
    with pytest.raises(errors.Broken):
        one.open("blue", "KEY", before)


def test_a_short_key_is_refused_at_the_start_and_not_shown() -> None:
    for text in ("short", f"{FIRST},short"):
        with pytest.raises(UnusableKey, match="fewer than 32 characters") as refused:
            keys.check(Settings(secrets_key=text))
        assert "short" not in str(refused.value)
    keys.check(Settings(secrets_key=f"{FIRST},{SECOND}"))
