"""An engine without hosts, for tests."""
