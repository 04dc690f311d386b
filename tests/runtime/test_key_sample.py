"""The heaviest keys of a task, from a sample of its buffers."""

from penstock.runtime.key_sample import KeySample
from penstock.state.key_groups import key_group_of
from penstock.state.keys import encode_key


def test_a_key_of_most_records_is_named_with_its_group_and_share():
    sample = KeySample()
    heavy = encode_key("popular")
    for number in range(100):
        sample.add([heavy] * 90 + [encode_key(f"{number}-{each}") for each in range(10)])
    (found,) = sample.heaviest(128)
    assert (found.key, found.group) == (heavy, key_group_of(heavy, 128))
    assert 80 < found.percent < 97


def test_keys_with_even_shares_are_not_named():
    sample = KeySample()
    for number in range(100):
        sample.add([encode_key(100 * number + each) for each in range(100)])
    assert sample.heaviest(128) == []


def test_few_records_say_nothing():
    sample = KeySample()
    sample.add([encode_key("only")] * 16)
    assert sample.heaviest(128) == []


def test_keys_in_a_cycle_have_even_shares():
    """A sample of every n-th record would see only one of them."""
    sample = KeySample()
    for _ in range(50):
        sample.add([encode_key(each % 3) for each in range(64)])
    shares = [each.percent for each in sample.heaviest(128)]
    assert len(shares) == 3
    assert max(shares) < 45


def test_a_long_key_is_known_by_its_group_only():
    sample = KeySample()
    for _ in range(10):
        sample.add([encode_key("x" * 300)] * 10)
    (found,) = sample.heaviest(128)
    assert (found.key, found.percent) == (b"", 100)


def test_the_memory_of_a_sample_is_bounded():
    sample = KeySample()
    for number in range(10_000):
        sample.add([encode_key(10 * number + each) for each in range(10)])
    assert len(sample._counts) <= 2048 + 16
