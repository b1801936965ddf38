"""Memory that a replica needs for its model: weights, what it keeps of tokens, a margin. An estimate, with its sum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

#: Share of the weights, and bytes, that an engine takes beside them: buffers, code, the runtime of its device.
MARGIN_RATIO, MARGIN_BYTES = 0.05, 200 << 20
#: Bytes of a number that an engine keeps of a token: 16 bits, unless it is told otherwise.
KEPT_BYTES = 2
_MOST, _MOST_TOKENS = 1 << 20, 1 << 30
#: Where it lies: in the host's memory, on the GPUs, or in both together.
Where: TypeAlias = Literal["host", "gpus", "both"]
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True, kw_only=True)
class Cache:
    """Keys and values that an engine keeps of a token, as the model's description has them."""

    layers: int
    #: Heads whose keys and values are kept, of all layers together.
    heads: int
    #: Numbers of a key and a value of one head.
    width: int

    @property
    def token_bytes(self) -> int:
        """Return the bytes that are kept of a token."""
        return self.heads * self.width * KEPT_BYTES


@dataclass(frozen=True, kw_only=True)
class Need:
    """Memory of one replica, in bytes."""

    weights: int
    #: None: the model's description does not say how large a token is.
    cache: Cache | None
    #: Tokens that are kept at once.
    tokens: int
    where: Where
    #: Share of the GPUs' memory that the engine takes.
    share: float = 1.0

    @property
    def cache_bytes(self) -> int:
        """Return the bytes of all tokens that are kept."""
        return self.cache.token_bytes * self.tokens if self.cache else 0

    @property
    def margin_bytes(self) -> int:
        """Return the bytes beside weights and tokens."""
        return MARGIN_BYTES + int(self.weights * MARGIN_RATIO)

    @property
    def bytes(self) -> int:
        """Return all of it."""
        return self.weights + self.cache_bytes + self.margin_bytes

    @property
    def words(self) -> str:
        """Return the sum in words."""
        margin = f"{short(self.margin_bytes)} beside ({MARGIN_RATIO:.0%} and {short(MARGIN_BYTES)})"
        return f"{short(self.weights)} weights + {self._kept()} + {margin} = {short(self.bytes)}"

    def _kept(self) -> str:
        if self.cache is None:
            return "an unknown size of what is kept of tokens"
        one = self.cache
        each = f"{one.heads} heads in {one.layers} layers x {one.width} x {KEPT_BYTES} bytes"
        return f"{short(self.cache_bytes)} for {self.tokens:,} tokens ({each})"


def short(count: int) -> str:
    """Return bytes in a unit that people read."""
    value, unit = float(count), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} {_UNITS[unit]}" if unit == 0 or value >= 100 else f"{value:.1f} {_UNITS[unit]}"


def of_gguf(known: Mapping[str, Any]) -> Cache | None:
    """Return what is kept of a token by the metadata of a GGUF file; None where it does not say."""
    kind = known.get("general.architecture")
    layers, width = _count(known.get(f"{kind}.block_count")), _count(known.get(f"{kind}.embedding_length"))
    all_heads = _count(known.get(f"{kind}.attention.head_count"))
    kept = known.get(f"{kind}.attention.head_count_kv", all_heads)
    each = width // all_heads if width and all_heads else 0
    key = _count(known.get(f"{kind}.attention.key_length")) or each
    value = _count(known.get(f"{kind}.attention.value_length")) or each
    heads = sum(map(_count, kept)) if isinstance(kept, list) else _count(kept) * layers
    return Cache(layers=layers, heads=heads, width=key + value) if layers and heads and key and value else None


def context_of_gguf(known: Mapping[str, Any]) -> int:
    """Return the longest context, in tokens, in a GGUF file's metadata; 0 if it names none."""
    return _tokens(known.get(f"{known.get('general.architecture')}.context_length"))


def context_of_config(known: Mapping[str, Any]) -> int:
    """Return the longest context, in tokens, in a folder's config.json; 0 if it names none."""
    inner = known.get("text_config")
    return _tokens((inner if isinstance(inner, Mapping) else known).get("max_position_embeddings"))


def of_config(known: Mapping[str, Any]) -> Cache | None:
    """Return what is kept of a token by the config.json of a folder; None where it does not say."""
    inner = known.get("text_config")
    known = inner if isinstance(inner, Mapping) else known
    layers, all_heads = _count(known.get("num_hidden_layers")), _count(known.get("num_attention_heads"))
    heads, hidden = _count(known.get("num_key_value_heads")) or all_heads, _count(known.get("hidden_size"))
    each = _count(known.get("head_dim")) or (hidden // all_heads if all_heads else 0)
    return Cache(layers=layers, heads=heads * layers, width=2 * each) if layers and heads and each else None


def _tokens(value: Any) -> int:
    return value if type(value) is int and 0 < value <= _MOST_TOKENS else 0


def _count(value: Any) -> int:
    return value if type(value) is int and 0 < value <= _MOST else 0
