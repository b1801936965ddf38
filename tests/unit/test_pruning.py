"""Scripts of Redis without what they never name."""

from __future__ import annotations

from jobs.store import Store, connection
from jobs.store.pruning import needed, statements, words

TEXT = """-- what a line says of `far` is no use of it
local near, late = 1, 2

local function far()
  return near
end

local table = {
  near,
}
function T.both(x)
  return far() + table[1]
end
print('always')
"""


def firsts(used: str) -> list[str]:
    """First lines of the statements that a text needs, in their order."""
    definitions = statements(TEXT)
    kept = needed(definitions, words(used))
    return [one.text.splitlines()[0] for one in definitions if one in kept]


def test_a_statement_begins_at_the_margin() -> None:
    assert [one.text.splitlines()[0] for one in statements(TEXT)] == [
        "local near, late = 1, 2", "local function far()", "local table = {", "function T.both(x)", "print('always')"
    ]  # fmt: skip
    assert statements(TEXT)[2].text == "local table = {\n  near,\n}"


def test_what_is_needed_through_others_is_kept_in_its_order() -> None:
    assert len(firsts("return T.both(1)")) == 5


def test_what_nothing_names_is_left_out() -> None:
    assert firsts("return late -- far") == ["local near, late = 1, 2", "print('always')"]
    assert firsts("return T.other()") == ["print('always')"]


def test_redis_takes_every_script(redis_url: str) -> None:
    """Lua lets a function name 60 things from outside, and have 200 of its own; scripts grow towards both."""
    loaded = Store(connection.connect(redis_url)).scripts
    assert all(loaded.load(script) == loaded.sha(script) for script in loaded.names())
