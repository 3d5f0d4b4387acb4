"""The process-group backend `paceline`: transports carry out every collective of torch."""
