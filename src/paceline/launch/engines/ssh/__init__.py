"""Hosts over the user's own ssh as a place to run a job: checked, given the code, one agent on each, ended when we end."""
