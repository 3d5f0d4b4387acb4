"""Programs that paceline starts itself; nobody types them."""
