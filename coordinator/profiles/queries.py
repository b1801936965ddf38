"""Read profiles from the store, and serialize them."""

from __future__ import annotations

from coordinator.profiles import serializers
from jobs import errors
from jobs.store import Store
from jobs.store.profiles import Profile
from threads_protocol.answers import profiles as answers


def profile_list(store: Store, tenant: str) -> list[answers.Profile]:
    """Return a tenant's profiles, newest first."""
    return [_row(store, profile) for profile in store.profiles.of_tenant(tenant)]


def find_row(store: Store, tenant: str, name: str) -> answers.Profile:
    """Return a serialized profile. Raises NotFound if it does not exist."""
    return _row(store, find(store, tenant, name))


def find(store: Store, tenant: str, name: str) -> Profile:
    """Return a profile. Raises NotFound if it does not exist or belongs to another tenant."""
    profile = store.profiles.one(tenant, name)
    if profile is None:
        raise errors.missing("profile", name, "name")
    return profile


def _row(store: Store, profile: Profile) -> answers.Profile:
    recordings = store.profiles.recordings(profile.profile_id)
    return serializers.serialize_profile(profile, recordings, int(store.clock.now() * 1000))
