"""Transports of bytes between ranks: shared memory on a host, gloo between hosts, both in two levels."""
