"""A salt for each pruned request, and the user's own inside it."""

import pytest

from mmspec.encoders.fastv.salt import given_salt, own_salt


@pytest.mark.parametrize("given", [None, "tenant", "two\nlines", "fastv-"])
def test_the_users_salt_comes_out_again(given: str | None) -> None:
    assert given_salt(own_salt(given)) == given_salt(given) == given
    assert own_salt(given) != own_salt(given)
