"""The salt that keeps what a pruned prompt leaves in the KV cache apart, and the user's own inside it.

Only blocks of the KV cache depend on pruning: who keeps other things apart by a request's salt, such as features of
pictures, wants the user's.
"""

import re
import uuid

_OWN = re.compile(r"(.*)fastv-[0-9a-f]{32}", re.DOTALL)


def own_salt(given: str | None) -> str:
    """A salt that no other request has.

    Args:
        given: what the user wants kept apart from others.
    """
    return f"{given or ''}fastv-{uuid.uuid4().hex}"


def given_salt(salt: str | None) -> str | None:
    """The user's part of a request's salt.

    Whoever sends a salt of this form himself gets what the part in front of it would have got him.
    """
    own = _OWN.fullmatch(salt or "")
    return (own[1] if own else salt) or None
