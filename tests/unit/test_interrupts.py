"""Tests Ctrl-C, and Interrupt in notebooks, during calls that wait for jobs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.integration.live import until
from tests.unit.calling_fake import Calling
from tests.unit.cluster_fake import Fake, job
from threads_cluster import Cluster, ClusterExecutor, as_completed, errors
from threads_cluster.client import interrupts
from threads_cluster.client.calling import project
from threads_cluster.client.interrupts import CancelOnInterrupt


@pytest.fixture(autouse=True)
def interactive(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make the tests interactive, with Python's handler of SIGINT."""
    monkeypatch.setattr(interrupts, "is_interactive", lambda: True)
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, previous)


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def test_the_first_interrupt_asks_and_the_second_one_cancels(capsys: pytest.CaptureFixture[str]) -> None:
    cancelled: list[str] = []

    def interrupt_twice() -> None:
        interrupt()
        assert capsys.readouterr().err == "\nStill waiting. Interrupt again to cancel job j1.\n"
        assert cancelled == []
        interrupt()

    with pytest.raises(KeyboardInterrupt), CancelOnInterrupt(lambda: "job j1", lambda: cancelled.append("j1")):
        interrupt_twice()
    assert cancelled == ["j1"]
    assert capsys.readouterr().err == "Cancelled job j1.\n"


def test_a_block_that_ends_after_one_interrupt_cancels_nothing() -> None:
    cancelled: list[str] = []
    with CancelOnInterrupt(lambda: "job j1", lambda: cancelled.append("j1")):
        interrupt()
    assert cancelled == []


def test_several_blocks_ask_once() -> None:
    cancelled: list[str] = []
    blocks = CancelOnInterrupt(lambda: "job j1", lambda: cancelled.append("j1"))
    with blocks:
        interrupt()
    with pytest.raises(KeyboardInterrupt), blocks:
        interrupt()
    assert cancelled == ["j1"]


def test_without_a_terminal_the_first_interrupt_raises_and_cancels_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "is_interactive", lambda: False)
    cancelled: list[str] = []
    with pytest.raises(KeyboardInterrupt), CancelOnInterrupt(lambda: "job j1", lambda: cancelled.append("j1")):
        interrupt()
    assert cancelled == []


def test_a_handler_of_the_program_stays_in_place() -> None:
    seen: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _frame: seen.append(number))
    with CancelOnInterrupt(lambda: "job j1", lambda: None):
        interrupt()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    assert seen == [signal.SIGINT]


def test_other_threads_set_no_handler() -> None:
    failed: list[BaseException] = []

    def wait() -> None:
        try:
            with CancelOnInterrupt(lambda: "job j1", lambda: None):
                pass
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join()
    assert failed == []


def test_an_error_while_cancelling_does_not_hide_the_interrupt() -> None:
    def refuse() -> None:
        raise errors.ClientError("no cluster")

    blocks = CancelOnInterrupt(lambda: "job j1", refuse)
    with blocks:
        interrupt()
    with pytest.raises(KeyboardInterrupt), blocks:
        interrupt()


def test_two_interrupts_of_run_cancel_the_job_that_it_submitted() -> None:
    fake = Fake()
    submitted: dict[str, Any] = {"job_id": "j1", "status": "running", "estimated_wait_seconds": 0.0, "notes": []}

    def interrupted(_request: httpx.Request) -> httpx.Response:
        interrupt()
        interrupt()
        raise AssertionError("the second interrupt raises")

    fake.on("POST", "/api/submit", httpx.Response(202, json=submitted))
    fake.on("GET", "/api/jobs/j1", interrupted)
    fake.on("POST", "/api/jobs/j1/cancel", job("cancelling"))
    with (
        Cluster("http://cluster.test", "", transport=httpx.MockTransport(fake)) as cluster,
        pytest.raises(KeyboardInterrupt),
    ):
        cluster.run("sums", {"start": 1})
    assert [request.url.path for request in fake.asked][-1] == "/api/jobs/j1/cancel"
    first, second = fake.bodies("/api/submit")
    assert first["idempotency_key"] == second["idempotency_key"]


def test_an_interrupt_during_later_jobs_asks_again(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = CancelOnInterrupt(lambda: "job j1", lambda: None)
    with blocks:
        interrupt()
    blocks.forget()
    with blocks:
        interrupt()
    assert capsys.readouterr().err.count("Interrupt again to cancel job j1.") == 2


def leave(executor: ClusterExecutor) -> None:
    with executor:
        executor.submit(abs, -1)


WAITS: dict[str, Callable[[ClusterExecutor], Any]] = {
    "result": lambda executor: executor.submit(abs, -1).result(),
    "exception": lambda executor: executor.submit(abs, -1).exception(),
    "map": lambda executor: list(executor.map(abs, [-1])),
    "as_completed": lambda executor: list(as_completed([executor.submit(abs, -1)])),
    "with": leave,
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS.keys())
def test_two_interrupts_of_a_wait_for_a_call_cancel_its_job(
    wait: Callable[[ClusterExecutor], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    monkeypatch.setattr(interrupts, "write_line", lines.append)
    monkeypatch.setattr(project, "PROJECT", project.Project({}))
    fake = Calling()
    fake.holds = True

    def interrupt_twice() -> None:
        until(lambda: bool(fake.submitted) and signal.getsignal(signal.SIGINT) is not signal.default_int_handler)
        signal.pthread_kill(main, signal.SIGINT)
        until(lambda: bool(lines))
        assert not fake.cancelled
        signal.pthread_kill(main, signal.SIGINT)

    main = threading.get_ident()
    thread = threading.Thread(target=interrupt_twice)
    with fake.cluster() as cluster:
        executor = cluster.executor()
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            wait(executor)
        thread.join()
        executor.shutdown()
    assert fake.cancelled == {"j1"}
    assert lines == ["\nStill waiting. Interrupt again to cancel 1 call.", "Cancelled 1 call."]
