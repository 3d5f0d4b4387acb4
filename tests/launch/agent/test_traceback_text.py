"""What can be read out of the text of a traceback."""

from paceline.launch.agent.exit_reason import last_exception

PLAIN = """\
epoch 0
Traceback (most recent call last):
  File "/home/me/train.py", line 40, in <module>
    main()
  File "/home/me/train.py", line 31, in main
    loss = model(x)
  File "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1773, in _call_impl
    return forward_call(*args, **kwargs)
RuntimeError: mat1 and mat2 shapes cannot be multiplied (16x64 and 32x4)
"""
CHAINED = """\
Traceback (most recent call last):
  File "a.py", line 2, in <module>
    first()
KeyError: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "b.py", line 9, in run
    second()
package.module.CustomError: the second one
"""


def test_the_users_own_last_frame_is_taken_not_the_librarys():
    error = last_exception(PLAIN, 5)
    assert error is not None
    assert (error.type, error.file, error.line, error.function) == ("RuntimeError", "/home/me/train.py", 31, "main")
    assert error.source == "loss = model(x)"
    assert error.message.startswith("mat1 and mat2")


def test_of_chained_exceptions_the_last_one_counts_without_its_package():
    error = last_exception(CHAINED, 5)
    assert error is not None and (error.type, error.file, error.line) == ("CustomError", "b.py", 9)


def test_an_exception_without_a_message_has_an_empty_one():
    error = last_exception(
        'Traceback (most recent call last):\n  File "t.py", line 1, in <module>\n    f()\nKeyboardInterrupt\n', 1
    )
    assert error is not None and (error.type, error.message) == ("KeyboardInterrupt", "")


def test_text_without_a_traceback_says_nothing():
    assert last_exception("Segmentation fault (core dumped)\n", 1) is None


def test_a_traceback_that_was_cut_off_says_nothing():
    assert last_exception(PLAIN[: PLAIN.index("RuntimeError")], 1) is None
