"""Programs that paceline starts itself, on this host or on another host. A user never types them."""
