"""Leader task that stops profiles, stores the parts of their recordings, and commits an artifact for each profile."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from functools import partial

from coordinator.artifacts.trees import Trees
from coordinator.profiles import serializers
from jobs import errors
from jobs.store import Store
from jobs.store.profiles import PART_BYTES, SILENT_MS, KnownRecording, Order, Profile
from threads_protocol import manifest
from threads_protocol.manifest import Entry

log = logging.getLogger(__name__)

#: Time in milliseconds for workers to report their recordings after a profile stops.
SETTLE_MS = 4000
_ENDED = ("done", "failed", "cancelled", "skipped", None)


class Collection:
    """Leader task that processes all active profiles in rounds."""

    def __init__(self, store: Store, trees: Trees) -> None:
        self._store, self._trees = store, trees

    def run_once(self) -> float | None:
        """Check all active profiles. Return 0 if parts were stored, so that the next check follows at once, otherwise
        None.
        """
        orders = self._store.profiles.orders()
        if not orders:
            return None
        known = {one.profile_id: one for one in self._store.profiles.read([order.profile_id for order in orders])}
        now = self._store.profiles.now_ms()
        for order in orders:
            if order.state == "recording" and order.profile_id in known:
                self._stop(known[order.profile_id], now)
        stored = self._store_parts(known)
        for order in orders:
            if order.state == "collecting" and order.profile_id in known:
                self._attempt(known[order.profile_id], lambda profile: self._bring_to_end(profile, now))
        self._forget(orders, known)
        return 0.0 if stored else None

    def _forget(self, orders: Sequence[Order], known: dict[str, Profile]) -> None:
        """Delete the orders of profiles whose Redis hash is corrupt."""
        for order in orders:
            if order.profile_id not in known:
                self._store.profiles.forget(order.profile_id)

    def _stop(self, profile: Profile, now: int) -> None:
        over = bool(profile.job) and self._store.job_reads.states([profile.job])[0] in _ENDED
        if over or now >= profile.until:
            self._store.profiles.stop(profile.profile_id, profile.actor)

    # -- parts ------------------------------------------------------------------------------------------------------

    def _store_parts(self, known: dict[str, Profile]) -> bool:
        stored = False
        for profile_id, name, number in self._store.profiles.parts():
            if profile := known.get(profile_id):
                stored |= self._attempt(profile, partial(self._part, name=name, number=number))
        return stored

    def _attempt(self, profile: Profile, work: Callable[[Profile], bool]) -> bool:
        """Process a profile. If an error occurs, record the error in the profile; the next round tries again."""
        try:
            done = work(profile)
            if done and profile.trouble:
                self._store.profiles.trouble(profile.profile_id, "")
            return done
        except errors.ClusterError as error:
            if profile.trouble != error.detail:
                log.warning("profile %s: %s", profile.name, error.detail)
                self._store.profiles.trouble(profile.profile_id, error.detail)
            return False

    def _part(self, profile: Profile, name: str, number: int) -> bool:
        """Move one part of a recording from Redis to the artifact store. Return False if Redis does not contain the
        part.
        """
        calls = self._store.profiles
        recording = next((one for one in calls.recordings(profile.profile_id) if one.name == name), None)
        data = calls.part(profile.profile_id, name, number)
        if data is None or recording is None:
            return False
        try:
            self._trees.transfers.put_part(profile.tenant, recording.sha, recording.size, number, data)
        except errors.InvalidRequest as error:
            self._schedule_retry(profile, recording, error)
        calls.keep_part(profile.profile_id, name, number, recording.sha)
        return True

    def _settle(self, profile: Profile, recording: KnownRecording) -> None:
        """Combine the parts of a complete recording into one file."""
        try:
            if recording.size > PART_BYTES:
                self._trees.transfers.complete(profile.tenant, recording.sha)
        except (errors.InvalidRequest, errors.NotFound, errors.Conflict) as error:
            self._schedule_retry(profile, recording, error)
            return
        self._store.profiles.settle(profile.profile_id, recording.name, "kept", recording.sha)

    def _schedule_retry(self, profile: Profile, recording: KnownRecording, error: errors.ClusterError) -> None:
        how = self._store.profiles.settle(profile.profile_id, recording.name, "again", recording.sha)
        log.warning("recording %s of profile %s, %s: %s", recording.name, profile.name, how, error.detail)

    # -- completion ------------------------------------------------------------------------------------------------

    def _bring_to_end(self, profile: Profile, now: int) -> bool:
        """Commit the recordings if no more are expected. Return True if the profile is done."""
        for one in self._store.profiles.recordings(profile.profile_id):
            if one.whole and not one.end:
                self._settle(profile, one)
        recordings = self._store.profiles.recordings(profile.profile_id)
        if abs(now - profile.collecting) < SETTLE_MS or any(_is_expected(one, now) for one in recordings):
            return False
        kept = [one for one in recordings if one.end == "kept"]
        artifact = self._artifact(profile, kept, now) if kept else ""
        return self._store.profiles.end(profile.profile_id, artifact)

    def _artifact(self, profile: Profile, kept: Sequence[KnownRecording], now: int) -> str:
        about = json.dumps(serializers.serialize_profile(profile, kept, now), indent=1).encode()
        sha = hashlib.sha256(about).hexdigest()
        self._trees.transfers.put_part(profile.tenant, sha, len(about), 0, about)
        paths = [Entry(kind="f", path="profile.json", size=len(about), sha=sha)]
        paths += [Entry(kind="f", path=f"{one.name}.jsonl.gz", size=one.size, sha=one.sha) for one in kept]
        text = manifest.serialize(paths)
        return self._trees.commit(profile.tenant, text, f"profile-{profile.name}", profile.actor)[1].id


def _is_expected(one: KnownRecording, now: int) -> bool:
    return not one.end and abs(now - one.heard) < SILENT_MS
