"""Programs that paceline starts itself, on this host or on another one. Nobody types them."""
