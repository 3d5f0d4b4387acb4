"""How much others may ask of the coordinator before they are admitted."""

from paceline.launch.coordinator.limits import MOST, MOST_OF_ONE_ADDRESS, MOST_TOLD, ConnectionLimit


def test_of_a_crowd_from_many_addresses_the_oldest_connections_are_closed():
    limit, closed = ConnectionLimit(), []
    for number in range(MOST + 3):
        limit.enter(f"10.0.0.{number}", lambda number=number: closed.append(number))
    assert closed == [0, 1, 2]


def test_of_a_crowd_from_one_address_its_own_oldest_connections_are_closed():
    limit, closed = ConnectionLimit(), []
    limit.enter("10.0.0.1", lambda: closed.append("another's"))
    for number in range(MOST_OF_ONE_ADDRESS + 2):
        limit.enter("10.0.0.2", lambda number=number: closed.append(number))
    assert closed == [0, 1]


def test_who_was_admitted_is_not_closed_by_a_crowd():
    limit, closed = ConnectionLimit(), []
    limit.leave(limit.enter("10.0.0.1", lambda: closed.append("admitted")))
    for _ in range(MOST_OF_ONE_ADDRESS + 1):
        limit.enter("10.0.0.1", lambda: closed.append("stranger"))
    assert closed == ["stranger"]


def test_only_the_first_refused_connections_are_told():
    limit = ConnectionLimit()
    assert [limit.is_worth_telling() for _ in range(MOST_TOLD + 2)] == [True] * MOST_TOLD + [False] * 2
