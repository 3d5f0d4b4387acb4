"""Takes a snapshot of a suspect from outside its process."""
