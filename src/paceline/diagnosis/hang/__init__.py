"""Which ranks do not come while others wait, and when that is a hang."""
