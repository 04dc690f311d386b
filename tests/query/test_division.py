"""The division of blocks among state servers."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.query.division import divide

SERVERS = st.sets(st.sampled_from("abcdefghijklmnopqrst"), min_size=1, max_size=20)
BLOCKS = st.integers(1, 40)


@st.composite
def any_claims(draw):
    blocks = draw(BLOCKS)
    claim = st.sets(st.integers(0, blocks - 1))
    return blocks, {server: draw(claim) for server in draw(SERVERS)}


def is_complete_and_balanced(division, blocks):
    owned = sorted(block for each in division.values() for block in each)
    sizes = [len(each) for each in division.values()]
    return owned == list(range(blocks)) and max(sizes) - min(sizes) <= 1


def least_moves(claims, blocks):
    """Return how many blocks that one server has must leave it, so that the result is balanced."""
    least, larger = divmod(blocks, len(claims))
    above = sum(len(each) > least for each in claims.values())
    kept = sum(min(len(each), least) for each in claims.values()) + min(larger, above)
    return sum(map(len, claims.values())) - kept


@given(any_claims())
def test_every_block_has_one_server_and_no_server_has_two_more_than_another(drawn):
    blocks, claims = drawn
    assert is_complete_and_balanced(divide(claims, blocks), blocks)


@given(BLOCKS, st.lists(st.tuples(st.booleans(), st.sampled_from("abcdefghijklmnopqrst")), max_size=30))
def test_after_joins_and_deaths_only_the_blocks_that_must_move_do(blocks, events):
    division = divide({"a": ()}, blocks)
    for joins, server in events:
        if joins:
            claims = {server: frozenset()} | division
        elif len(division) > 1:
            claims = {each: owned for each, owned in division.items() if each != server}
        else:
            continue
        division = divide(claims, blocks)
        assert is_complete_and_balanced(division, blocks)
        moved = sum(len(owned - division[each]) for each, owned in claims.items())
        assert moved == least_moves(claims, blocks)
        assert divide(division, blocks) == division


@given(any_claims(), st.sets(st.sampled_from("abcdefghijklmnopqrst")))
def test_servers_that_have_adopted_the_division_do_not_change_it_for_the_others(drawn, adopted):
    blocks, claims = drawn
    # Claims of servers that agreed before: some have joined or died since.
    before = divide(claims, blocks)
    for joined in [{}, {"0": frozenset()}, {"m5": frozenset(), "z": frozenset()}]:
        for dead in [None, min(before)]:
            now = {server: owned for server, owned in (before | joined).items() if server != dead}
            after = divide(now, blocks)
            partly = {server: after[server] if server in adopted else owned for server, owned in now.items()}
            assert divide(partly, blocks) == after


@given(any_claims(), st.permutations(list("abcdefghijklmnopqrst")))
def test_servers_that_decide_one_after_the_other_agree_after_two_rounds(drawn, order):
    blocks, claims = drawn
    now = dict(claims)
    for server in [each for each in order * 2 if each in claims]:
        now[server] = divide(now, blocks)[server]
    assert divide(now, blocks) == now
    assert is_complete_and_balanced(now, blocks)


def test_a_division_without_servers_is_empty():
    assert divide({}) == {}
