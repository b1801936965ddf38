"""Estimate of the memory that a replica needs for its model: weights, key-value cache and a margin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

#: Memory margin for buffers, code and the device's runtime, as a share of the weights.
#: Additional constant memory margin in bytes.
MARGIN_RATIO, MARGIN_BYTES = 0.05, 200 << 20
#: Size in bytes of a number in the key-value cache. The default format has 16 bits.
KEPT_BYTES = 2
_MOST, _MOST_TOKENS = 1 << 20, 1 << 30
#: Location of a model in memory: the host's memory, the GPUs, or both.
Where: TypeAlias = Literal["host", "gpus", "both"]
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True, kw_only=True)
class Cache:
    """Shape of the key-value cache, as the model's files describe it."""

    layers: int
    #: Total number of key-value heads in all layers.
    heads: int
    #: Number of values that a head stores per token, in its key and its value together.
    width: int

    @property
    def token_bytes(self) -> int:
        """Return the number of bytes that the key-value cache needs per token."""
        return self.heads * self.width * KEPT_BYTES


@dataclass(frozen=True, kw_only=True)
class Need:
    """Memory that a replica needs, in bytes."""

    weights: int
    #: Shape of the key-value cache, or None if the model's files do not describe it.
    cache: Cache | None
    #: Number of tokens for which the key-value cache has space.
    tokens: int
    where: Where
    #: Share of the memory of GPUs that the engine uses.
    share: float = 1.0

    @property
    def cache_bytes(self) -> int:
        """Return the size of the complete key-value cache in bytes."""
        return self.cache.token_bytes * self.tokens if self.cache else 0

    @property
    def margin_bytes(self) -> int:
        """Return the memory margin in bytes."""
        return MARGIN_BYTES + int(self.weights * MARGIN_RATIO)

    @property
    def bytes(self) -> int:
        """Return the total memory in bytes."""
        return self.weights + self.cache_bytes + self.margin_bytes

    @property
    def words(self) -> str:
        """Describe the total memory and its parts for users."""
        margin = f"{short(self.margin_bytes)} margin ({MARGIN_RATIO:.0%} and {short(MARGIN_BYTES)})"
        return f"{short(self.weights)} weights + {self._kept()} + {margin} = {short(self.bytes)}"

    def _kept(self) -> str:
        if self.cache is None:
            return "a key-value cache of unknown size"
        one = self.cache
        each = f"{one.heads} heads in {one.layers} layers x {one.width} x {KEPT_BYTES} bytes"
        return f"{short(self.cache_bytes)} for {self.tokens:,} tokens ({each})"


def short(count: int) -> str:
    """Format a size with a binary unit, such as 1.5 GiB."""
    value, unit = float(count), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} {_UNITS[unit]}" if unit == 0 or value >= 100 else f"{value:.1f} {_UNITS[unit]}"


def cache_from_gguf(known: Mapping[str, Any]) -> Cache | None:
    """Return the shape of the key-value cache from a GGUF file's metadata, or None if it is unknown."""
    kind = known.get("general.architecture")
    layers, width = _count(known.get(f"{kind}.block_count")), _count(known.get(f"{kind}.embedding_length"))
    all_heads = _count(known.get(f"{kind}.attention.head_count"))
    kept = known.get(f"{kind}.attention.head_count_kv", all_heads)
    each = width // all_heads if width and all_heads else 0
    key = _count(known.get(f"{kind}.attention.key_length")) or each
    value = _count(known.get(f"{kind}.attention.value_length")) or each
    heads = sum(map(_count, kept)) if isinstance(kept, list) else _count(kept) * layers
    return Cache(layers=layers, heads=heads, width=key + value) if layers and heads and key and value else None


def context_from_gguf(known: Mapping[str, Any]) -> int:
    """Return the maximum context length in tokens from a GGUF file's metadata, or 0 if it is unknown."""
    return _tokens(known.get(f"{known.get('general.architecture')}.context_length"))


def context_from_config(known: Mapping[str, Any]) -> int:
    """Return the maximum context length in tokens from a model's config.json, or 0 if it is unknown."""
    inner = known.get("text_config")
    return _tokens((inner if isinstance(inner, Mapping) else known).get("max_position_embeddings"))


def cache_from_config(known: Mapping[str, Any]) -> Cache | None:
    """Return the shape of the key-value cache from a model's config.json, or None if it is unknown."""
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
