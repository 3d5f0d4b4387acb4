"""The programs that measure, run as ranks."""
