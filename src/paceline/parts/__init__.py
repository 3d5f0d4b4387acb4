"""The parts. Each folder can be removed; the others and the kernel go on without it, see `paceline.part`."""
