"""What `--gradients` adds to a rank."""
