"""Starts ranks, watches them and ends them: one agent per host, one pure state machine per job, in the first host's agent."""
