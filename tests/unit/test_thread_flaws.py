"""Tests that each text in which `tests.contract.thread_mutations` injects an error occurs once in the kernel."""

from __future__ import annotations

import pytest

from tests.contract.thread_mutations import FLAWS, KIND, TOP, Flaw


@pytest.mark.parametrize("flaw", FLAWS, ids=lambda flaw: flaw.name)
def test_the_text_of_a_flaw_is_in_the_kernel_once(flaw: Flaw) -> None:
    text = (TOP / KIND / flaw.file).read_text()
    assert text.count(flaw.old) == 1 and flaw.new != flaw.old
