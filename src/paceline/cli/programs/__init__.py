"""Programs that paceline itself starts. Users do not type them."""
