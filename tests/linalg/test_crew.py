from __future__ import annotations

import subprocess
import sys
import threading
from textwrap import dedent

import pytest
import scipy.linalg  # noqa: F401
import torch
from threadpoolctl import threadpool_info

from candid.linalg import crew as crew_module
from candid.linalg.crew import crew, crew_size, each_member, meanwhile, share_out


def blas_threads(of_process: bool = False) -> set[int]:
    """Of all libraries, or only of those whose number of threads is not each thread's own."""
    libraries = (library for library in threadpool_info() if library["user_api"] == "blas")
    return {own["num_threads"] for own in libraries if not (of_process and own["threading_layer"] == "openmp")}


@pytest.fixture(autouse=True)
def several_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def test_operations_in_a_crew_have_one_thread():
    before = blas_threads()
    with crew(2):
        assert torch.get_num_threads() == 1
        assert blas_threads() == {1}
        assert crew_size() == 2
    assert torch.get_num_threads() == 3
    assert blas_threads() == before
    assert crew_size() == 0


def test_threads_are_put_back_after_an_error():
    with pytest.raises(RuntimeError), crew(1):
        raise RuntimeError
    assert torch.get_num_threads() == 3
    assert crew_size() == 0


def test_no_crew_changes_nothing():
    with crew(None):
        assert torch.get_num_threads() == 3
        assert crew_size() == 0


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("size", [None, 1, 2, 3])
def test_every_part_is_done_once_and_in_order(size, count):
    with crew(size):
        runs = share_out(lambda run: list(range(count))[run], count)
    assert [part for run in runs for part in run] == list(range(count))
    assert len(runs) == min(size or 1, count)


def test_members_work_at_the_same_time_on_one_thread_each():
    """Each waits for the other, so neither would come to an end alone."""
    meeting = threading.Barrier(2, timeout=30)

    def work(run: slice) -> tuple[int, int, bool]:
        meeting.wait()
        return torch.get_num_threads(), crew_size(), torch.is_grad_enabled()

    with crew(2):
        # Whatever a member did before.
        share_out(lambda run: torch.set_num_threads(3) if run.start else None, 2)
        assert share_out(work, 2) == [(1, 1, False)] * 2
        # What the caller had is as it was.
        assert crew_size() == 2
        assert torch.is_grad_enabled()


def test_a_member_shares_nothing_out():
    with crew(2):
        inner = share_out(lambda run: share_out(lambda own: own, 5), 2)
    assert inner == [[slice(0, 5)]] * 2


@pytest.mark.parametrize("failing", [0, 1])
def test_errors_of_all_members_come_out(failing):
    finished = threading.Event()

    def work(run: slice) -> None:
        if run.start == failing:
            raise ValueError("out of chalk")
        finished.set()

    with crew(2), pytest.raises(ValueError, match="chalk"):
        share_out(work, 2)
    assert finished.is_set()


def test_a_crew_that_is_busy_does_not_keep_others_waiting():
    """Two fits in two threads of one process, say: the second does all of its runs by itself."""
    begun, may_end, found = threading.Event(), threading.Event(), []

    def wait(run: slice) -> slice:
        if run.start:
            begun.set()
            assert may_end.wait(30)
        return run

    def share_out_slowly() -> None:
        with crew(2):
            found.append(share_out(wait, 2))

    other = threading.Thread(target=share_out_slowly)
    other.start()
    try:
        assert begun.wait(30)
        with crew(2):
            assert share_out(lambda run: (run, threading.current_thread()), 4) == [
                (slice(0, 2), threading.current_thread()),
                (slice(2, 4), threading.current_thread()),
            ]
    finally:
        may_end.set()
        other.join()
    assert found == [[slice(0, 1), slice(1, 2)]]


def test_blas_has_its_threads_again_when_the_last_crew_is_over():
    before, begun, may_end = blas_threads(of_process=True), threading.Event(), threading.Event()

    def wait() -> None:
        with crew(1):
            begun.set()
            assert may_end.wait(30)

    other = threading.Thread(target=wait)
    with crew(1):
        other.start()
        assert begun.wait(30)
    try:
        assert blas_threads(of_process=True) == {1}
    finally:
        may_end.set()
        other.join()
    assert blas_threads(of_process=True) == before


def test_after_an_interruption_others_take_over(monkeypatch):
    """What a member hands in late must not be taken for the result of the next task."""
    before, may_end = threading.enumerate(), threading.Event()
    monkeypatch.setattr(crew_module, "_crews", {})

    def interrupt(begun):
        raise KeyboardInterrupt

    with crew(2):
        with monkeypatch.context() as patch:
            patch.setattr(crew_module._Begun, "end", interrupt)
            with pytest.raises(KeyboardInterrupt):
                share_out(lambda run: run.start and may_end.wait(30) and "late", 2)
        (interrupted,) = (
            thread for thread in threading.enumerate() if thread.name == "candid" and thread not in before
        )
        may_end.set()
        assert share_out(lambda run: run.start, 2) == [0, 1]
        # Nobody waits for ever for a task that does not come.
        interrupted.join(30)
        assert not interrupted.is_alive()


@pytest.mark.parametrize("size", [None, 1, 2, 3])
def test_each_member_does_its_share_of_every_task(size):
    with crew(size):
        found = each_member(lambda *own: ("first", *own), lambda *own: ("second", *own))
    members = size or 1
    assert found == [tuple((name, member, members) for member in range(members)) for name in ("first", "second")]


@pytest.mark.parametrize("size", [None, 1, 2])
def test_what_is_done_meanwhile_is_done_once(size):
    calls = []
    with crew(size):
        result = meanwhile(lambda: calls.append(crew_size()) or len(calls))
        # What comes later finds it done, or waits for it.
        assert share_out(lambda run: run.start, 2) == list(range(min(size or 1, 2)))
        assert [result(), result()] == [1, 1]
    assert len(calls) == 1
    assert calls[0] <= 1


def test_somebody_else_does_it_while_the_caller_goes_on():
    begun, may_end = threading.Event(), threading.Event()
    with crew(2):
        result = meanwhile(lambda: begun.set() or (may_end.wait(30) and threading.current_thread()))
        assert begun.wait(30)
        may_end.set()
        assert result() is not threading.current_thread()


@pytest.mark.parametrize("size", [1, 2])
def test_an_error_meanwhile_comes_out_with_the_result(size):
    def fail():
        raise KeyError("meanwhile")

    with crew(size):
        result = meanwhile(fail)
        assert len(share_out(lambda run: None, size)) == size
        for _ in range(2):
            with pytest.raises(KeyError, match="meanwhile"):
                result()


def test_what_nobody_has_begun_with_is_done_by_who_asks_for_it():
    may_end, first = threading.Event(), threading.Event()
    with crew(2):
        busy = meanwhile(lambda: first.set() or may_end.wait(30))
        assert first.wait(30)
        assert meanwhile(threading.current_thread)() is threading.current_thread()
        may_end.set()
        assert busy()


@pytest.mark.parametrize("size", [None, 1])
def test_who_does_it_after_the_crew_has_as_many_threads_as_before(size):
    with crew(size):
        result = meanwhile(torch.get_num_threads)
    assert result() == 1
    assert torch.get_num_threads() == 3


def test_an_interpreter_that_ends_waits_for_what_is_done_meanwhile():
    """A thread that torch is at work in must not be cut off."""
    script = """
        import time
        from candid.linalg.crew import crew, meanwhile
        with crew(2):
            meanwhile(lambda: time.sleep(0.5) or print("done"))
    """
    ran = subprocess.run([sys.executable, "-c", dedent(script)], capture_output=True, text=True, timeout=120)
    assert (ran.returncode, ran.stdout.split()) == (0, ["done"]), ran.stderr
