"""What tells a picture by its content from one by an id: in names that vLLM hands from process to process.

Where vLLM names a request's pictures (`mm_hash`), the hash of a content gets a prefix that only this process knows, and
an id becomes a hash that says it is one. Where vLLM turns names into what the engine sees (`identifier`), that prefix
decides. So whatever text a user sends, it is not taken for the hash of a content.
"""

import hashlib
import secrets

from mmspec.encoders.cache.keys import framed

_BY_CONTENT = "mmspec:content:"
_BY_ID = "mmspec:id:"
_GIVEN = "mmspec:given:"  # features that came with the request: there is nothing to spare
_SECRET = f"{secrets.token_hex(16)}:"


def by_content(digest: str) -> str:
    """The name, in this process, of a picture with this content."""
    return _SECRET + digest


def by_id(user_id: str) -> str:
    """The name of a picture by an id, whatever the id holds and however long it is."""
    return _BY_ID + hashlib.sha256(framed("id", user_id)).hexdigest()


def given_features(digest: str) -> str:
    """The name of features that a request brings itself."""
    return _GIVEN + digest


def identifier_of(name: str) -> str:
    """What the engine sees of a picture's name."""
    if name.startswith(_SECRET):
        return _BY_CONTENT + name.removeprefix(_SECRET)
    return name if name.startswith(_GIVEN) else by_id(name)


def parse(identifier: str) -> tuple[str, str] | None:
    """`("content", hash)` or `("id", hash)`; None for what is not to be kept, or was not named here."""
    for prefix, kind in ((_BY_CONTENT, "content"), (_BY_ID, "id")):
        if identifier.startswith(prefix):
            return kind, identifier.removeprefix(prefix)
    return None
