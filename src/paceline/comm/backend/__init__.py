"""The process-group backend `paceline`: every collective of torch, carried by transports."""
