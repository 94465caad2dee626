"""The remote tier against a real Redis server, and against what is none."""

import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from mmspec.encoders.cache import Encoder, Keys, RedisTier, TieredStore, TierUnavailable
from mmspec.errors import MmspecError
from tests.unit.encoders.cache.clock import Clock, messages
from tests.unit.encoders.cache.entries import entry, is_right, key
from tests.unit.encoders.cache.redis_server import Server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed (Debian: apt install redis-server)")
    started = Server(tmp_path)
    yield started
    started.stop()


@pytest.fixture
def tier(server: Server) -> Iterator[RedisTier]:
    made = RedisTier(server.url, ttl_seconds=3600, seconds=10)
    yield made
    with suppress(TierUnavailable):
        made.close()


def test_what_goes_in_comes_out_on_another_machine(server: Server, tier: RedisTier) -> None:
    assert tier.get(key(1)) is None and not tier.contains(key(1))
    assert tier.put(key(1), entry(1)) and tier.put(key(1), entry(1))

    other = RedisTier(server.url, ttl_seconds=3600, seconds=10)
    found = other.get(key(1))
    assert other.contains(key(1)) and is_right(1, found)
    assert found is not None and not found.data.readonly
    other.close()


def test_entries_live_for_a_while(server: Server) -> None:
    tier = RedisTier(server.url, ttl_seconds=0.2, seconds=10)
    tier.put(key(1), entry(1))
    deadline = time.monotonic() + 30
    while tier.contains(key(1)) and time.monotonic() < deadline:
        time.sleep(0.05)

    assert tier.get(key(1)) is None
    tier.close()


def test_a_damaged_value_is_dropped(tier: RedisTier) -> None:
    tier.put(key(1), entry(1))
    (name,) = tier._client.keys()
    tier._client.setrange(name, 600, b"?")

    assert tier.get(key(1)) is None
    assert not tier.contains(key(1)) and tier.stats().corrupt == 1


def test_the_value_of_another_key_is_dropped(tier: RedisTier) -> None:
    tier.put(key(1), entry(1))
    (name,) = tier._client.keys()
    tier._client.rename(name, name.replace(key(1).name.encode(), key(2).name.encode()))

    assert tier.get(key(2)) is None and not tier.contains(key(2))


def test_purging_leaves_what_is_not_the_caches(tier: RedisTier) -> None:
    tier._client.set("mine", "1")
    other = Keys(Encoder("v", "bfloat16", 8), "another tenant").of_content("x")
    for number in range(1200):
        tier.put(key(number), entry(1))
    tier.put(other, entry(1))

    assert tier.purge(namespace=other.namespace) == 1
    assert tier.purge(encoder=other.encoder) == 0
    assert tier.purge() == 1200
    assert tier._client.keys() == [b"mine"]


def test_keys_that_are_not_persistable_stay_out(tier: RedisTier) -> None:
    by_id = Keys(Encoder("w", "float32", 1)).of_id("page")

    assert not tier.put(by_id, entry(1)) and not tier.contains(by_id)


def test_a_server_that_stops_and_comes_back(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    store = TieredStore([RedisTier(server.url, 3600, seconds=10)], clock=clock)
    store.put(key(1), entry(1))
    assert store.flush() and store.get(key(1)) is not None
    server.stop()
    for number in range(5):
        assert store.get(key(1)) is None and store.contains(key(1)) is None
        store.put(key(number), entry(number))
        assert store.flush()
    assert len(messages(caplog)) == 2  # reading, writing
    assert all(f"127.0.0.1:{server.port}" in said for said in messages(caplog))

    server.start()  # empty: it saved nothing
    clock.time = 60.0
    store.put(key(2), entry(2))
    assert store.flush()
    hit = store.get(key(2))
    assert hit is not None and is_right(2, hit.entry)
    assert [said[-11:] for said in messages(caplog)[2:]] == ["works again"] * 2
    store.close()


def test_a_server_that_hangs_costs_its_time_once(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    store = TieredStore([RedisTier(server.url, 3600, seconds=0.5)], clock=clock)
    store.put(key(1), entry(1))
    assert store.flush()
    server.process.send_signal(signal.SIGSTOP)
    started = time.monotonic()
    assert all(store.get(key(1)) is None for _ in range(50))
    assert time.monotonic() - started < 10  # 50 times half a second would be 25
    assert len(messages(caplog)) == 1

    server.process.send_signal(signal.SIGCONT)
    clock.time = 60.0
    hit = store.get(key(1))
    assert hit is not None and is_right(1, hit.entry)
    store.close()


def test_a_server_that_takes_nothing_more(server: Server, tier: RedisTier) -> None:
    tier._client.config_set("maxmemory", "1mb")

    with pytest.raises(TierUnavailable, match="maxmemory"):
        for number in range(200):
            tier.put(key(number), entry(number))
    assert not tier.contains(key(-1))  # reading goes on


def test_something_that_is_no_redis_server() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()

        def answer() -> None:
            connection, _ = listening.accept()
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            connection.close()

        threading.Thread(target=answer, daemon=True).start()
        tier = RedisTier(f"redis://127.0.0.1:{listening.getsockname()[1]}", 60, seconds=5)
        with pytest.raises(TierUnavailable):
            tier.get(key(1))


def test_passwords_are_not_told() -> None:
    tier = RedisTier("redis://user:geheim@127.0.0.1:1/0", 60, seconds=0.5)

    with pytest.raises(TierUnavailable) as caught:
        tier.get(key(1))
    assert "geheim" not in str(caught.value) and "127.0.0.1:1" in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "localhost:6379",
        "http://localhost",
        "redis://",
        "redis://localhost:port",
        "redis://localhost:99999",
        "",
    ],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(MmspecError, match=r"^encoder_cache.remote: expected an address like redis://"):
        RedisTier(url, 60)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)

    with pytest.raises(MmspecError, match=r"^encoder_cache.remote: .*pip install redis"):
        RedisTier("redis://localhost", 60)
