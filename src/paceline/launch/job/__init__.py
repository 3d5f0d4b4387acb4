"""The state of a job, and the messages between its agents. Everything except the connection is pure."""
