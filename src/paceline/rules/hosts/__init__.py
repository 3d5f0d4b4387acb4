"""Checks of the machines that will run a job: what each host says of itself, and what differs between hosts."""
