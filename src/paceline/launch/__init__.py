"""Starts ranks, watches them and ends them. Each host has an agent, and each job has a pure state machine in the coordinator."""
