"""A file that is cut and goes on: every line that was ever in it is seen."""

from watching import FollowedFile


def test_lines_that_were_cut_and_written_again_are_seen_twice(tmp_path):
    path = tmp_path / "rank0.log"
    file = FollowedFile(path)
    file.look()
    with path.open("ab", buffering=0) as log:
        log.write(b"step 1 a\nstep 2 b\n")
        file.look()
        log.write(b"step 3 c\nstep")
        file.look()
        log.truncate(len(b"step 1 a\n"))
        file.look()
        log.write(b"step 2 b\nstep 3 c\n")
        file.look()
    assert file.written == ["step 1 a", "step 2 b", "step 3 c", "step 2 b", "step 3 c"]


def test_a_line_that_was_written_again_with_another_text_is_seen_although_nobody_looked_between(tmp_path):
    path = tmp_path / "rank0.log"
    path.write_text("step 1 a\nstep 2 b\n")
    file = FollowedFile(path)
    file.look()
    path.write_text("step 1 a\nstep 2 bb\nstep 3 c\n")
    file.look()
    assert file.written == ["step 1 a", "step 2 b", "step 2 bb", "step 3 c"]
