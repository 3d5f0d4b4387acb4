"""The engine that runs a job on hosts over the user's own ssh: it checks the hosts, ships the code and runs one agent on each."""
