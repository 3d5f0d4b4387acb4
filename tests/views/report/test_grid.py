"""One byte for each rank and part of the time: what it means, and what it never says."""

from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.recording.step_columns import StepColumns, TimeAxis
from paceline.views.report.grid import NOT_JUDGED, NOTHING, STOOD, cells_of, grid_facts, value_of
from paceline.views.report.notes import marks

SECOND = 10**9
COLUMNS = 20
AXIS = TimeAxis(0, COLUMNS * SECOND, COLUMNS)


def steps(rank, counts, seconds=1.0, attempt=0):
    """This many steps in each part, each of so many seconds."""
    each = round(seconds * SECOND)
    counts = [*counts, *[0] * (COLUMNS - len(counts))]
    return StepColumns(
        "algo-1", rank, attempt, counts, [count * each for count in counts], [each if count else 0 for count in counts]
    )


def life(rank, begin, end=None, code=0, attempt=0):
    """The events of one process of a rank, in seconds."""
    yield {"t_ns": begin * SECOND, "event": "rank_started", "host": "algo-1", "rank": rank, "attempt": attempt}
    if end is not None:
        yield {
            "t_ns": end * SECOND,
            "event": "rank_exited",
            "host": "algo-1",
            "rank": rank,
            "attempt": attempt,
            "code": code,
        }


def row(plane, *made, events=(), late=()):
    return list(cells_of(grid_facts(made, late, events, AXIS), plane, COLUMNS)[0])


def test_a_part_without_a_step_after_the_last_one_of_a_rank_that_lives_is_where_it_stood():
    cells = row("late", steps(0, [2] * 5, 0.5), events=life(0, 0))
    assert cells == [NOT_JUDGED] * 5 + [STOOD] * 15


def test_a_rank_that_has_ended_by_itself_did_not_stand():
    assert STOOD not in row("late", steps(0, [2] * 5, 0.5), events=life(0, 0, 19))


def test_after_it_was_told_to_end_nobody_expects_a_step():
    told = {"t_ns": 14 * SECOND, "event": "stopping"}
    cells = row(
        "late", steps(0, [2] * 5, 0.5), events=sorted([*life(0, 0, 19, -15), told], key=lambda event: event["t_ns"])
    )
    assert [place for place, cell in enumerate(cells) if cell == STOOD] == list(range(5, 15))


def test_before_the_first_step_nothing_is_recorded():
    assert row("step", steps(0, [0, 0, 0, *[1] * 17]), events=life(0, 0))[:2] == [NOTHING] * 2


def test_a_rank_was_not_late_before_its_first_step_and_after_its_last():
    late = [{"rank": 0, "host": "algo-1", "share": [0.5] * COLUMNS}]
    cells = row("late", steps(0, [0, 0, 0, *[1] * 10]), events=life(0, 0, 19), late=late)
    assert [place for place, cell in enumerate(cells) if cell != NOTHING] == list(range(3, 13))
    # Of a host whose steps are not here, what the others know of it is shown.
    assert row("late", events=life(0, 0, 19), late=late) == [cells[5]] * COLUMNS


def test_a_long_step_is_seen_in_the_parts_through_which_it_went():
    counts = [1] * 5 + [0] * 3 + [1] * 12
    made = steps(0, counts)
    made.totals_ns[8] = made.longest_ns[8] = 4 * SECOND
    cells = row("slowest", made)
    assert len(set(cells[5:9])) == 1 and cells[5] > cells[0] and STOOD not in cells


def test_the_worst_rank_of_a_run_is_the_one_that_was_late():
    late = [{"rank": rank, "host": "algo-1", "share": [0.4 if rank == 1 else 0.01] * COLUMNS} for rank in range(3)]
    grid = grid_facts([steps(rank, [1] * COLUMNS) for rank in range(3)], late, (), AXIS)
    values = [value_of(grid, "late", cells[3]) for cells in cells_of(grid, "late", COLUMNS)]
    assert [round(value, 2) for value in values] == [0.01, 0.4, 0.01]
    # Every rank of a synchronous job has the same step.
    assert len({bytes(cells) for cells in cells_of(grid, "step", COLUMNS)}) == 1


def test_where_nobody_is_late_beyond_chance_the_latest_part_is_pale():
    late = [{"rank": rank, "host": "algo-1", "share": [0.4] * COLUMNS} for rank in range(2)]
    made = [steps(rank, [1] * COLUMNS) for rank in range(2)]
    healthy, uneven = (grid_facts(made, late, (), AXIS, ranks)["darkest_share"] for ranks in ((), [1]))
    assert 0.4 / healthy <= 0.25 and 0.4 / uneven == 1
    assert grid_facts(made, (), (), AXIS)["darkest_share"] == 1


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.lists(st.integers(0, 3), min_size=COLUMNS, max_size=COLUMNS), min_size=1, max_size=4),
    st.lists(st.none() | st.floats(0, 2), min_size=COLUMNS, max_size=COLUMNS),
    st.integers(0, 19),
)
def test_each_plane_has_a_cell_for_each_part_and_stands_at_the_same_places(counts, share, end):
    made = [steps(rank, one) for rank, one in enumerate(counts)]
    events = [event for rank in range(len(counts)) for event in life(rank, 0, end, -9)]
    grid = grid_facts(made, [{"rank": 0, "host": "algo-1", "share": share}], events, AXIS)
    planes = [cells_of(grid, name, COLUMNS) for name in grid["planes"]]
    assert all(len(cells) == COLUMNS for plane in planes for cells in plane) and {len(plane) for plane in planes} == {
        len(grid["rows"])
    }
    for rows in zip(*planes, strict=True):
        assert len({tuple(cell == STOOD for cell in cells) for cells in rows}) == 1
    for one, cells in zip(counts, cells_of(grid, "step", COLUMNS), strict=True):
        # A step that ended is never lost, and nothing is drawn where nothing was.
        assert all(cell not in (NOTHING, STOOD) for count, cell in zip(one, cells, strict=True) if count)
        assert any(one) or set(cells) <= {NOTHING}


def test_a_stall_is_marked_until_it_is_over_and_a_lost_host_names_its_ranks():
    hosts = [{"host": name, "first_rank": first, "ranks": 2} for name, first in (("a", 0), ("b", 2))]
    events = [
        {"t_ns": 1, "event": "attempt_started", "hosts": hosts},
        {"t_ns": 5, "event": "standstill", "standstill": {"since_ns": 3, "late": [1]}},
        {"t_ns": 6, "event": "standstill", "standstill": {"since_ns": 3, "late": [1]}},
        {"t_ns": 7, "event": "standstill_over"},
        {"t_ns": 8, "event": "host_lost", "host": "b"},
    ]
    assert list(marks(events, 9)) == [
        {"kind": "standstill", "t_ns": 3, "until_ns": 7, "ranks": [1]},
        {"kind": "host_lost", "t_ns": 8, "until_ns": None, "ranks": [2, 3]},
    ]
    assert next(iter(marks(events[:2], 9)))["until_ns"] == 9
