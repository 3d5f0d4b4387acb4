"""Checks of a source file: the script, and each file of the user's own that it imports. Asked before every run, they import little."""
