"""Who does not come while others wait, and when that is a hang."""
