"""A fake engine without hosts, for tests."""
