"""Several hosts on one machine, for people and tests: names, addresses and one agent per host."""
