"""Keys at run time: none in doubt, others for other weights, namespaces and salts."""

from itertools import combinations

from mmspec.encoders.cache import Encoder, namespace_digest
from mmspec.encoders.cache.connector.keyring import Keyring
from mmspec.encoders.cache.identity import by_content, by_id, identifier_of

PICTURE = identifier_of(by_content("a picture"))
NAMED = identifier_of(by_id("a picture"))


def keyring(weights: str = "weights", namespace: str = "", *, trust_ids: bool = False) -> Keyring:
    return Keyring(Encoder(weights, "float32", 8), namespace, trust_ids=trust_ids)


def test_everything_that_features_depend_on_is_in_the_key() -> None:
    settled = keyring("")
    settled.settle(["a rank's", "another's"])
    keys = [
        keyring().key(PICTURE, None),
        keyring().key(NAMED, None),
        keyring("others").key(PICTURE, None),
        keyring(namespace="a tenant").key(PICTURE, None),
        keyring().key(PICTURE, "a salt"),
        keyring(namespace="a salt").key(PICTURE, None),
        settled.key(PICTURE, None),
    ]
    assert all(first is not None and second is not None for first, second in combinations(keys, 2))
    assert len({key.name for key in keys if key}) == len(keys)
    assert keyring().key(PICTURE, None) == keys[0]


def test_a_namespace_can_be_purged_by_its_name() -> None:
    key = keyring(namespace="a tenant").key(PICTURE, None)
    assert key is not None and key.namespace == namespace_digest("a tenant")


def test_only_trusted_ids_outlive_the_engine() -> None:
    untrusted, trusted = keyring().key(NAMED, None), keyring(trust_ids=True).key(NAMED, None)
    assert untrusted is not None and not untrusted.persistable
    assert trusted is not None and trusted.persistable


def test_in_doubt_there_are_no_keys() -> None:
    ring = keyring()
    before = ring.key(PICTURE, None)
    ring.doubt()
    assert ring.in_doubt and ring.key(PICTURE, None) is None

    ring.settle(["what is in memory"])
    after = ring.key(PICTURE, None)
    assert not ring.in_doubt and after is not None and before is not None
    assert after.persistable and after.name != before.name

    again = keyring("")
    again.settle(["what is in memory"])
    assert again.key(PICTURE, None) == after


def test_weights_that_cannot_be_read_are_like_no_others() -> None:
    names = set()
    for _ in range(2):
        ring = keyring()
        ring.settle(["a rank's", None])
        key = ring.key(PICTURE, None)
        assert key is not None and not key.persistable
        names.add(key.name)
    assert len(names) == 2
