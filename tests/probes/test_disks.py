"""What the disks of a machine have moved."""

import pytest

from paceline.probes.disks import parse_diskstats, read_disks

TEXT = """\
   8       0 sda 1200 3 64000 900 800 40 32000 700 0 1500 1600 0 0 0 0
   8       1 sda1 1100 3 60000 880 800 40 32000 700 0 1400 1580
 259       0 nvme0n1 5 0 40 1 0 0 0 0 0 1 1 0 0 0 0 0 0
"""


def test_bytes_are_sectors_read_and_written():
    assert parse_diskstats(TEXT) == {"8:0": 96000 * 512, "8:1": 92000 * 512, "259:0": 40 * 512}


@pytest.mark.parametrize("text", ["", "8 0 sda", "8 0 sda a b c d e f g h i", "\0" * 40, "nothing here\n" * 3])
def test_what_is_no_line_of_it_is_left_out(text):
    assert parse_diskstats(text) == {}


def test_this_machines_are_read():
    assert all(key.replace(":", "").isdigit() and moved >= 0 for key, moved in read_disks().items())
