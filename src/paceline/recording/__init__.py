"""What ranks and agents wrote about a run, and how it is read back. Judges nothing and prints nothing."""
