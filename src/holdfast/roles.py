"""Roles: what somebody is in an organization, or the service itself, which stands above all of them."""

from __future__ import annotations

from enum import IntEnum


class Role(IntEnum):
    """Each may do what the ones below it may."""

    VIEWER = 1
    MEMBER = 2
    ADMIN = 3
    OWNER = 4
    SERVICE = 9

    @property
    def word(self) -> str:
        return self.name.lower()


MEMBER_ROLES = {role.word: role for role in Role if role is not Role.SERVICE}
"""What a member or a tenant's key can be, by the word that people write."""
ROLES = {role.word: role for role in Role}
