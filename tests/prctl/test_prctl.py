from paceline.prctl import Prctl, is_subreaper, set_process


def test_what_was_set_can_be_asked_for_and_taken_back():
    before = is_subreaper()
    try:
        for wanted in (True, False):
            set_process(Prctl.SET_CHILD_SUBREAPER, int(wanted))
            assert is_subreaper() is wanted
    finally:
        set_process(Prctl.SET_CHILD_SUBREAPER, int(before))
