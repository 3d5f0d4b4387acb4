"""Pages and files for other viewers."""
