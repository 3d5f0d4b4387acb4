"""The verb `paceline web`, and exports."""
