"""Flaws that `tests.contract.thread_mutations` plants are still in the kernel's text: each where it was, and once."""

from __future__ import annotations

import pytest

from tests.contract.thread_mutations import FLAWS, KIND, TOP, Flaw


@pytest.mark.parametrize("flaw", FLAWS, ids=lambda flaw: flaw.name)
def test_the_text_of_a_flaw_is_in_the_kernel_once(flaw: Flaw) -> None:
    text = (TOP / KIND / flaw.file).read_text()
    assert text.count(flaw.old) == 1 and flaw.new != flaw.old
