"""Tests webhooks: permitted addresses, signatures, deliveries, and the API."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import ssl
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from coordinator import app, destinations
from coordinator.destinations import ForbiddenAddress, Guard, UnusableNetworks
from coordinator.secrets.keys import Keys
from coordinator.webhooks import attempt, sender, signing
from coordinator.webhooks.attempt import Outcome
from coordinator.webhooks.sender import ATTEMPTS, PER_PLACE, WAITS, Sender
from jobs import errors
from jobs.settings import Settings
from jobs.store import Store, keys
from jobs.store.server import connection
from jobs.store.webhooks import Delivery, Limits
from tests.integration.live import until
from tests.ports import free_port
from tests.unit import receiver
from tests.unit.receiver import Receiver, answers

FIRST, SECOND = "1" * 32, "2" * 32
TOKEN = "a-long-secret-of-the-tests"
LOOPBACK = "127.0.0.0/8, ::1/128"


def post(url: str, guard: Guard | None = None, *, resolve: Any = attempt.look_up, seconds: float = 60.0) -> Outcome:
    return asyncio.run(
        attempt.post(
            url,
            {"webhook-id": "msg_1"},
            b"{}",
            guard or Guard(LOOPBACK),
            resolve=resolve,
            connect_seconds=seconds,
            total_seconds=seconds,
        )
    )


def resolves(*addresses: str, asked: list[str] | None = None) -> Any:
    async def resolve(host: str, port: int) -> Sequence[str]:
        if asked is not None:
            asked.append(host)
        return addresses

    return resolve


# -- the guard ------------------------------------------------------------------------------------------------------

NOT_PUBLIC = (
    "127.0.0.1",
    "127.8.9.1",
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "192.0.0.8",
    "192.0.2.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.1.1.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::127.0.0.1",
    "fe80::1",
    "fe80::1%eth0",
    "fc00::1",
    "fd12:3456::1",
    "fec0::1",
    "ff02::1",
    "64:ff9b::7f00:1",
    "64:ff9b:1::1",
    "2002:7f00:1::1",
    "2001::1",
    "2001:db8::1",
    "::ffff:0:7f00:1",
)
PUBLIC = ("1.1.1.1", "8.8.8.8", "93.184.216.34", "2606:4700::1111", "::ffff:8.8.8.8")


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_an_address_that_is_not_public_is_refused_and_the_message_names_it(address: str) -> None:
    with pytest.raises(ForbiddenAddress, match=f"^{address.partition('%')[0]}.* is .*WEBHOOK_ALLOW"):
        Guard().check([address])


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_reached(address: str) -> None:
    Guard().check([address])


def test_a_name_with_a_public_and_a_private_address_is_refused_and_nothing_is_sent() -> None:
    with Receiver() as taken:
        outcome = post(taken.url(host="both.example"), Guard(), resolve=resolves("8.8.8.8", "127.0.0.1"))
        assert not outcome.is_delivered and taken.got == []
        assert "both.example has an address that is not public" in outcome.error and "127.0.0.1" not in outcome.error


def test_allowed_networks_open_no_others() -> None:
    guard = Guard("10.1.0.0/16, 64:ff9b::/96")
    guard.check(["10.1.2.3", "::ffff:10.1.2.3", "64:ff9b::a01:203", "8.8.8.8"])
    for address in ("10.2.0.1", "127.0.0.1", "::1", "169.254.169.254"):
        with pytest.raises(ForbiddenAddress):
            guard.check([address])
    for wrong in ("10.0.0.1/8", "localhost", "10.0.0.0/33"):
        with pytest.raises(UnusableNetworks, match="WEBHOOK_ALLOW"):
            Guard(wrong)


METADATA = (
    "169.254.169.254",
    "168.63.129.16",
    "100.100.100.200",
    "fd00:ec2::254",
    "fd20:ce::254",
    "::ffff:168.63.129.16",
)


@pytest.mark.parametrize("address", [*METADATA, "64:ff9b::a83f:8110", "2002:a83f:8110::1"])
def test_metadata_of_clouds_is_reached_by_nobody_whose_operator_does_not_name_it(address: str) -> None:
    for guard in (Guard(), Guard("0.0.0.0/0, ::/0, 100.64.0.0/10, fd00::/8, 169.254.0.0/16")):
        with pytest.raises(ForbiddenAddress, match=r" is .*metadata"):
            guard.check([address])
    Guard("168.63.129.16/32").check(["168.63.129.16", "::ffff:168.63.129.16"])


def test_what_an_internal_name_stands_for_is_told_to_the_log_alone(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "coordinator.webhooks.attempt"):
        outcome = post("http://db.internal/", Guard(), resolve=resolves("10.3.2.1"))
    assert "db.internal has an address that is not public" in outcome.error and "10.3" not in outcome.error
    assert "10.3.2.1 is a private address" in caplog.text
    # One that the operator allows, where nothing listens.
    refused = post("http://db.internal:1/", resolve=resolves("127.0.0.77"))
    assert refused.error == "Connection refused"


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://169.254.169.254/latest/meta-data",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "https://[fd00::1]:8443/x",
        "http://0/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://127.1/",
        "http://localhost/",
        "http://LOCALHOST./",
        "http://0x7f.1/",
        "http://127.0.0.1./",
        "http://0177.0.0.1/",
        "http://[::ffff:7f00:1]/",
        "http://[0:0:0:0:0:ffff:127.0.0.1]/",
    ],
)
def test_no_spelling_of_this_machine_is_reached(url: str) -> None:
    outcome = post(destinations.normalize_url(url), Guard())
    assert not outcome.is_delivered and outcome.status is None and outcome.error


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("ftp://host/", "https://HOST"),
        ("https:///path", "https://HOST"),
        ("//host/", "https://HOST"),
        ("host", "https://"),
        ("https://user:word@host/", "user or password"),
        ("https://user@host/", "user or password"),
        ("https://host:0/", "port"),
        ("https://host:/", "port"),
        ("https://host:65536/", "not a URL"),
        ("https://host/#x", "#"),
        ("https://host:x/", "not a URL"),
        ("http://127.0.0.1:80.invalid/", "not a URL"),
        ("https://ho st/", "characters"),
        ("https://h\n/", "characters"),
        ("https://m\N{LATIN SMALL LETTER U WITH DIAERESIS}ller.example/", "xn--"),
        ("https://host/\x00", "characters"),
        ("https://[fe80::1%25eth0]/", "interface"),
        ("https://[::1/", "not a URL"),
        ("https://-host/", "neither a host name"),
        ("https://a..b" + "c" * 300 + "/", "neither a host name"),
        ("https://host\\@evil/", "characters"),
        ("https://host/" + "x" * 2048, "the maximum is 2048"),
        ("javascript:alert(1)", "https://HOST"),
    ],
)
def test_a_url_of_another_form_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        destinations.normalize_url(text)


def test_a_url_keeps_its_path_and_loses_the_capitals_of_its_host() -> None:
    assert destinations.normalize_url("HTTPS://Hooks.Example:8443/A/b?C=D") == "https://hooks.example:8443/A/b?C=D"
    assert destinations.normalize_url("http://[2606:4700::1111]:80") == "http://[2606:4700::1111]:80"
    assert destinations.redact_path("https://hooks.example/services/KEY") == "https://hooks.example/..."
    assert destinations.redact_path("https://hooks.example?k=KEY") == "https://hooks.example/..."
    assert destinations.redact_path("https://hooks.example/") == "https://hooks.example/"


# -- an attempt -----------------------------------------------------------------------------------------------------


def test_a_name_is_looked_up_once_and_its_address_is_what_is_connected_to() -> None:
    """DNS rebinding: the name is not looked up again, whatever it resolves to later."""
    asked: list[str] = []
    with Receiver() as taken:
        outcome = post(taken.url("/a?b=c", host="hooks.example"), resolve=resolves("127.0.0.1", asked=asked))
        assert outcome.is_delivered and asked == ["hooks.example"]
        [got] = taken.got
        assert got.line == "POST /a?b=c HTTP/1.1" and got.headers["host"] == f"hooks.example:{taken.port}"
        assert (got.headers["webhook-id"], got.headers["content-type"], got.body) == (
            "msg_1",
            "application/json",
            b"{}",
        )


def test_a_dead_address_of_a_name_is_followed_by_its_next() -> None:
    with Receiver() as taken:
        outcome = post(taken.url(host="two.example"), resolve=resolves("127.0.0.9", "127.0.0.1"))
        assert outcome.is_delivered


def test_a_redirect_is_not_followed() -> None:
    with Receiver() as other, Receiver(answers(307, f"Location: {other.url('/')}")) as taken:
        outcome = post(taken.url())
        assert (outcome.is_delivered, outcome.status, outcome.gone) == (False, 307, False)
        assert len(taken.got) == 1 and other.got == []


def test_no_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with Receiver() as proxy, Receiver() as taken:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url("/"))
        assert post(taken.url()).is_delivered and proxy.got == []


@pytest.mark.parametrize(
    ("answer", "status", "error"),
    [
        (answers(200, body=b"thanks"), 200, ""),
        (answers(204), 204, ""),
        (answers(299), 299, ""),
        (answers(500), 500, ""),
        (answers(410), 410, ""),
        (answers(300), 300, ""),
        (receiver.for_ever, 200, ""),
        (receiver.in_drops, None, "within 0.6 s"),
        (receiver.silence, None, "within 0.6 s"),
        (receiver.nonsense, None, "is not valid HTTP"),
        (answers(200, *["X-Many: y"] * 9000), None, "closed the connection without a response"),
        (receiver.go_on_for_ever, None, "closed the connection without a response"),
        (answers(200, "Content-Encoding: gzip", body=b"\x1f\x8b" + b"\0" * 60_000), 200, ""),
    ],
)
def test_an_answer_is_bounded_in_bytes_and_time(answer: Any, status: int | None, error: str) -> None:
    with Receiver(answer) as taken:
        began = time.monotonic()
        outcome = post(taken.url(), seconds=0.6 if "0.6" in error else 60.0)
        assert (outcome.status, outcome.gone) == (status, status == 410) and error in outcome.error
        assert outcome.is_delivered == (status in (200, 204, 299)) and time.monotonic() - began < 50


def test_a_receiver_may_ask_to_be_left_alone_for_an_hour_at_most() -> None:
    soon = (datetime.now(UTC) + timedelta(seconds=300)).strftime("%a, %d %b %Y %H:%M:%S GMT")
    for text, least, most in (
        ("120", 120, 120),
        ("999999", 3600, 3600),
        ("-5", 0, 0),
        ("x", 0, 0),
        (soon, 250, 300),
        ("Mon, 01 Jan 2024 00:00:00 +99999999999999999999", 0, 0),
    ):
        with Receiver(answers(429, f"Retry-After: {text}")) as taken:
            assert least <= post(taken.url()).wait_seconds <= most
    assert sender.wait_seconds(1, Outcome(status=503, wait_seconds=600)) == 600


def certificate(folder: Path, name: str) -> Path:
    """Return a self-signed certificate for a name, with its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    who = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    made = (
        x509.CertificateBuilder()
        .subject_name(who)
        .issuer_name(who)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file = folder / "receiver.pem"
    file.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return file


def test_encryption_asks_for_the_name_and_its_certificate_must_be_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = certificate(tmp_path, "hooks.example")
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(file)
    serving.sni_callback = lambda shared, name, _: setattr(shared, "asked_name", name)
    trusting = ssl.create_default_context(cafile=str(file))
    to_loopback = resolves("127.0.0.1")
    with Receiver(encryption=serving) as taken:
        assert "certificate is not valid" in post(taken.url(host="hooks.example"), resolve=to_loopback).error
        monkeypatch.setattr(attempt, "encryption_context", lambda: trusting)
        assert post(taken.url(host="hooks.example"), resolve=to_loopback).is_delivered
        assert taken.got[-1].name == "hooks.example"
        assert "certificate is not valid" in post(taken.url(host="evil.example"), resolve=to_loopback).error
        assert len(taken.got) == 1


# -- signatures -----------------------------------------------------------------------------------------------------


def verified(secret: str, headers: dict[str, str], body: bytes) -> bool:
    """Verify a delivery like a receiver, according to the Standard Webhooks specification."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    wanted = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return any(one == f"v1,{wanted}" for one in headers["webhook-signature"].split(" "))


def test_a_name_that_is_not_found_is_said() -> None:
    assert post("http://nowhere.invalid/").error.startswith("cannot resolve the name nowhere.invalid: ")


def test_a_signature_is_that_of_the_tenant_and_outlives_a_change_of_the_key() -> None:
    old, both, new = Keys([FIRST]), Keys([SECOND, FIRST]), Keys([SECOND])
    before, after = signing.export_key(old, "a"), signing.export_key(new, "a")
    assert before != after == signing.export_key(both, "a") and before != signing.export_key(old, "b")
    headers = signing.headers(both, "a", "msg_1", 1_700_000_000, b"{}")
    assert verified(before, headers, b"{}") and verified(after, headers, b"{}")
    assert not verified(signing.export_key(both, "b"), headers, b"{}") and not verified(after, headers, b"[]")
    assert not verified(after, {**headers, "webhook-timestamp": "1700000001"}, b"{}")
    assert len(base64.b64decode(after.removeprefix("whsec_"))) == 32 and FIRST not in before
    with pytest.raises(errors.Conflict, match="SECRETS_KEY"):
        signing.export_key(Keys([]), "a")


def test_a_tenant_of_a_name_that_another_had_has_a_key_of_its_own(api: Api) -> None:
    def key_of(tenant: str) -> str:
        return str(api.ask("GET", f"/api/webhooks/key?tenant={tenant}").json()["key"])

    unchanged = key_of("default")
    keys_of_a = []
    for _ in range(3):
        assert api.ask("PUT", "/api/tenants/a", {"weight": 1}).status_code == 200
        keys_of_a.append(key_of("a"))
        assert api.ask("DELETE", "/api/tenants/a").status_code == 204
    assert len(set(keys_of_a)) == 3 and key_of("default") == unchanged
    api.ask("PUT", "/api/tenants/a", {"weight": 1})
    token, started = api.token("read", "submit", tenant="a"), api.sender()
    started.start()
    try:
        with Receiver() as taken:
            end_jobs(api, taken.url(), token=token)
            until(lambda: taken.got)
            [got] = taken.got
            assert verified(key_of("a"), got.headers, got.body)
            assert not any(verified(key, got.headers, got.body) for key in keys_of_a)
            assert api.ask("POST", "/api/webhooks/test", {"url": taken.url()}, token).json()["delivered"]
            assert verified(key_of("a"), taken.got[1].headers, taken.got[1].body)
    finally:
        started.stop()
        started.join(30)


def test_attempts_wait_longer_each_time_and_end() -> None:
    waits = [sender.wait_seconds(number, Outcome(status=500)) for number in range(1, ATTEMPTS)]
    for wait, planned in zip(waits, WAITS, strict=True):
        assert wait is not None and planned <= wait <= planned * 1.25
    assert sender.wait_seconds(ATTEMPTS, Outcome(error="x")) is None
    assert sender.wait_seconds(1, Outcome(status=410)) is None
    assert max(WAITS) * 1.25 * 1000 < 7_200_000, "take_deliveries.lua takes later ones for those of a wrong clock"


# -- the sender -----------------------------------------------------------------------------------------------------


def end_jobs(api: Api, url: str, count: int = 1, **more: Any) -> list[str]:
    jobs = [{"type": "collatz", "parameters": {"start_number": 1, "number_count": 10}, "notify": url}] * count
    ids = [one["job_id"] for one in api.ask("POST", "/api/submit-batch", {"jobs": jobs}, **more).json()["answers"]]
    for job in ids:
        assert api.ask("POST", f"/api/jobs/{job}/cancel", **more).status_code == 200
    return ids


class Api:
    """A coordinator application without a server."""

    def __init__(self, redis_url: str, secrets_key: str = FIRST, allow: str = LOOPBACK) -> None:
        self.redis_url = redis_url
        self.store = Store(connection.connect(redis_url))
        self.settings = Settings(redis_url=redis_url, cluster_token=TOKEN, secrets_key=secrets_key, webhook_allow=allow)
        self.app = app.create(self.settings)

    def ask(self, method: str, path: str, body: Any = None, token: str = TOKEN) -> httpx.Response:
        return asyncio.run(self._ask(method, path, body, token))

    async def _ask(self, method: str, path: str, body: Any, token: str) -> httpx.Response:
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as client:
            return await client.request(method, path, json=body)

    def token(self, *scopes: str, tenant: str = "default") -> str:
        body = {"name": "test", "scopes": list(scopes), "tenant": tenant}
        return str(self.ask("POST", "/api/tokens", body).json()["token"])

    def sender(self, **more: Any) -> Sender:
        return Sender(self.store.webhooks, Keys([FIRST]), Guard(LOOPBACK), **more)

    def listed(self, state: str = "") -> list[dict[str, Any]]:
        return self.ask("GET", f"/api/webhooks{f'?state={state}' if state else ''}").json()["deliveries"]


@pytest.fixture
def api(any_redis_url: str) -> Iterator[Api]:
    api = Api(any_redis_url)
    yield api
    api.store.client.close()


@pytest.fixture
def sending(api: Api) -> Iterator[Sender]:
    started = api.sender()
    started.start()
    yield started
    started.stop()
    started.join(30)


def test_an_end_is_delivered_signed_and_once(api: Api, sending: Sender) -> None:
    with Receiver() as taken:
        [job] = end_jobs(api, taken.url())
        until(lambda: [one["state"] for one in api.listed()] == ["delivered"])
        [got] = taken.got
        told = json.loads(got.body)
        assert told["id"] == got.headers["webhook-id"] and told["type"] == "job.cancelled"
        assert told["job"] == {
            "id": job,
            "kind": "collatz",
            "state": "cancelled",
            "tenant": "default",
            "error": None,
            "result": None,
        }
        assert abs(int(got.headers["webhook-timestamp"]) - time.time()) < 60
        assert verified(api.ask("GET", "/api/webhooks/key").json()["key"], got.headers, got.body)
        [row] = api.listed("delivered")
        assert row["url"] == f"http://127.0.0.1:{taken.port}/..." and row["attempts"] == 1 and row["job_id"] == job


def test_the_timestamp_is_of_redis_and_not_of_a_coordinators_wrong_clock(
    api: Api, sending: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = time.time()
    monkeypatch.setattr(time, "time", lambda: 1e9)
    with Receiver() as taken:
        end_jobs(api, taken.url())
        until(lambda: taken.got)
        assert abs(int(taken.got[0].headers["webhook-timestamp"]) - right) < 60


def test_a_failure_is_tried_again_with_the_same_id_and_body(
    api: Api, sending: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(sender, "WAITS", (0.05,) * (ATTEMPTS - 1))
    with Receiver(answers(500)) as taken:
        end_jobs(api, taken.url())
        until(lambda: [one["state"] for one in api.listed()] == ["dead"])
        assert len(taken.got) == ATTEMPTS
        assert len({(got.headers["webhook-id"], got.body) for got in taken.got}) == 1
        [row] = api.listed("dead")
        assert row["last_outcome"] == "the receiver responded with HTTP status 500" and row["attempts"] == ATTEMPTS
        taken.answer = answers(200)
        again = api.ask("POST", f"/api/webhooks/{row['id']}/retry")
        assert again.status_code == 200, again.text
        until(lambda: [one["state"] for one in api.listed()] == ["delivered"])
        assert len(taken.got) == ATTEMPTS + 1


def test_a_receiver_that_is_gone_is_not_asked_again(api: Api, sending: Sender) -> None:
    with Receiver(answers(410)) as taken:
        end_jobs(api, taken.url())
        until(lambda: [one["state"] for one in api.listed()] == ["dead"])
        assert len(taken.got) == 1


def test_a_silent_receiver_holds_up_no_other_and_has_few_connections(api: Api, sending: Sender) -> None:
    with Receiver(receiver.silence) as slow, Receiver() as quick:
        end_jobs(api, slow.url(), 60)
        end_jobs(api, quick.url(), 20)
        until(lambda: len(api.listed("delivered")) == 20)
        assert slow.most <= PER_PLACE and len(quick.got) == 20


def test_what_a_killed_sender_had_is_sent_by_another(api: Api) -> None:
    """The first sender dies before recording the delivery. Its lease expires, and the second sender delivers it."""
    short = Limits(lease_ms=300, attempts=ATTEMPTS, per_place=4, per_host=8, per_tenant=16)
    with Receiver() as taken:
        end_jobs(api, taken.url())
        _, [lost] = api.store.webhooks.take(1, short, {})
        second = api.sender()
        second.start()
        until(lambda: taken.got)
        until(lambda: api.listed("delivered"))
        second.stop()
        second.join(30)
        assert taken.got[0].headers["webhook-id"] == lost.delivery_id and api.listed()[0]["attempts"] == 2


def test_a_redis_that_is_silent_for_a_while_costs_no_delivery(api: Api, sending: Sender) -> None:
    with Receiver() as taken:
        end_jobs(api, taken.url(), 3)
        api.store.client.execute_command("CLIENT", "PAUSE", 1500, "ALL")
        until(lambda: len({got.headers["webhook-id"] for got in taken.got}) == 3)
        until(lambda: len(api.listed("delivered")) == 3)


def test_without_a_key_a_coordinator_leaves_deliveries_to_others(api: Api) -> None:
    idle = Sender(api.store.webhooks, Keys([]), Guard(LOOPBACK))
    idle.start()
    idle.join(30)
    assert not idle.is_alive()


# -- the API --------------------------------------------------------------------------------------------------------


def submit(api: Api, url: Any, **more: Any) -> httpx.Response:
    body = {"type": "collatz", "parameters": {"start_number": 1, "number_count": 10}, "notify": url}
    return api.ask("POST", "/api/submit", body, **more)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ftp://x/", "https://HOST"),
        ("https://a:b@x/", "password"),
        ("", "at least 1"),
        (7, "string"),
        ("https://x/" + "y" * 3000, "2048"),
        ("http://169.254.169.254/", "metadata"),
        ("http://10.0.0.1/", "private"),
        ("http://[::1]:99999/", "URL"),
        ("http://[fd00::1]/", "private"),
    ],
)
def test_a_wrong_url_is_refused_at_submit_by_field(api: Api, url: Any, why: str) -> None:
    answer = submit(api, url)
    assert answer.status_code == 422 and answer.json()["field"] == "notify" and why in answer.text, answer.text
    assert api.store.client.zcard(keys.JOBS) == 0


def test_without_a_key_a_webhook_is_refused_with_the_setting_to_set(any_redis_url: str) -> None:
    api = Api(any_redis_url, secrets_key="")
    refused = (
        (422, submit(api, "https://x.example/")),
        (409, api.ask("GET", "/api/webhooks/key")),
        (409, api.ask("POST", "/api/webhooks/test", {"url": "https://x.example/"})),
    )
    for status, answer in refused:
        assert answer.status_code == status and "SECRETS_KEY, which is not set" in answer.text
    assert submit(api, None).status_code == 202


def test_a_webhook_is_part_of_what_an_idempotency_key_stands_for(api: Api) -> None:
    body = {"type": "collatz", "parameters": {"start_number": 1, "number_count": 10}, "idempotency_key": "k"}
    url = "https://x.example/"
    first = api.ask("POST", "/api/submit", {**body, "notify": url}).json()["job_id"]
    assert api.ask("POST", "/api/submit", {**body, "notify": url}).json()["job_id"] == first
    assert api.ask("POST", "/api/submit", body).status_code == 409


def test_tenants_see_and_retry_their_own_and_the_key_is_for_submitters_and_noted(api: Api) -> None:
    assert api.ask("PUT", "/api/tenants/a", {}).status_code in (200, 201)
    mine, theirs, reader = api.token("submit", "read", tenant="a"), api.token("submit", "read"), api.token("read")
    end_jobs(api, "http://127.0.0.1:1/", token=mine)
    [row] = api.ask("GET", "/api/webhooks", token=mine).json()["deliveries"]
    assert api.ask("GET", "/api/webhooks", token=theirs).json() == {
        "deliveries": [],
        "counts": {"pending": 0, "delivered": 0, "dead": 0},
    }
    assert api.ask("POST", f"/api/webhooks/{row['id']}/retry", token=theirs).status_code == 404
    assert api.ask("GET", "/api/webhooks?tenant=a", token=theirs).status_code == 403
    assert len(api.ask("GET", "/api/webhooks?tenant=a").json()["deliveries"]) == 1
    assert api.ask("POST", f"/api/webhooks/{row['id']}/retry", token=mine).status_code == 200
    shown = api.ask("GET", "/api/webhooks/key", token=mine)
    assert shown.json()["tenant"] == "a" and shown.headers["cache-control"] == "no-store"
    assert shown.json()["key"] != api.ask("GET", "/api/webhooks/key", token=theirs).json()["key"]
    for path in ("key", "key?tenant=a"):
        assert api.ask("GET", f"/api/webhooks/{path}", token=reader).status_code == 403
    assert api.ask("GET", "/api/webhooks/key?tenant=a", token=theirs).status_code == 403
    logged = [json.loads(line) for line in api.ask("GET", "/api/audit?after=0").json()["lines"]]
    assert [(one["subject"], one["tenant"]) for one in logged if one["action"] == "show webhook key"] == [
        ("a", "a"),
        ("default", "default"),
    ]


def test_a_receiver_is_tried_once_and_the_answer_says_what_came_of_it(api: Api) -> None:
    def tried(url: str) -> Any:
        return api.ask("POST", "/api/webhooks/test", {"url": url}).json()

    with Receiver() as taken:
        assert {**tried(taken.url()), "seconds": 0} == {"delivered": True, "status": 204, "error": None, "seconds": 0}
        assert json.loads(taken.got[0].body)["type"] == "webhook.test"
        taken.answer = answers(404)
        assert (tried(taken.url())["delivered"], tried(taken.url())["status"]) == (False, 404)
    assert tried(f"http://127.0.0.1:{free_port()}/")["error"]
    assert "private" in tried("http://10.0.0.1/")["error"]
    for body, field in (({"url": "x"}, "url"), ({}, "url"), ({"url": "https://x/", "more": 1}, "more")):
        answer = api.ask("POST", "/api/webhooks/test", body)
        assert answer.status_code == 422 and answer.json()["field"] == field


def test_a_delivery_with_a_text_of_any_kind_is_one_line_of_json() -> None:
    row = Delivery(
        delivery_id="msg_1",
        tenant="a",
        url="https://x/",
        type="job.failed",
        job="j",
        kind="sum",
        error='"\n\N{SNOWMAN}\ud800',
        state="pending",
        created=1,
        ended=0,
        due=0,
        attempts=1,
        said="",
    )
    assert json.loads(sender.body(row))["job"]["error"].startswith('"\n\N{SNOWMAN}')


def test_a_tenant_that_tries_receivers_leaves_places_to_others(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    api.ask("PUT", "/api/tenants/a", {"weight": 1})
    tokens = [TOKEN, api.token("submit", tenant="a")]

    async def tried() -> tuple[list[int], list[int]]:
        go_on = asyncio.Event()

        async def waits(*_: Any, **__: Any) -> Outcome:
            await go_on.wait()
            return Outcome(status=204)

        monkeypatch.setattr(attempt, "post", waits)
        body = {"url": "https://x.example/"}
        calls = [asyncio.create_task(api._ask("POST", "/api/webhooks/test", body, token)) for token in tokens * 3]
        refused = [(await call).status_code for call in [await first(calls), await first(calls)]]
        go_on.set()
        return refused, [(await call).status_code for call in calls]

    async def first(calls: list[asyncio.Task[httpx.Response]]) -> asyncio.Task[httpx.Response]:
        done, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        call = done.pop()
        calls.remove(call)
        return call

    assert asyncio.run(tried()) == ([429, 429], [200] * 4)
