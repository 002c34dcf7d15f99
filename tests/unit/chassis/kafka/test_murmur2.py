"""The partition of a key is the one that every other Kafka client finds."""

from aiokafka.partitioner import murmur2 as clients
from hypothesis import given
from hypothesis import strategies as st

from services.chassis.kafka.murmur2 import murmur2


@given(st.binary(max_size=80))
def test_the_hash_is_the_clients(key: bytes) -> None:
    assert murmur2(key) == clients(key) & 0xFFFF_FFFF


def test_the_hash_of_known_keys() -> None:
    # From the tests of Kafka's own Utils.murmur2, which tells them signed.
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    assert {key: murmur2(key) for key in known} == {key: value & 0xFFFF_FFFF for key, value in known.items()}
