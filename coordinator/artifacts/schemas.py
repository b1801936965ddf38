"""Answers about files under the name by which the routes of workers import them."""

from __future__ import annotations

from threads_protocol.answers.artifacts import MissingFiles as MissingFiles
from threads_protocol.answers.artifacts import StoredFiles as StoredFiles
from threads_protocol.answers.artifacts import StoredPart as StoredPart
