"""Explains a job that runs already and that paceline did not start. It reads what runs, and changes nothing."""
