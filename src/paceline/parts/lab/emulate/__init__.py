"""Emulates several hosts on one machine, for users and tests: each has a name, an address and an agent."""
