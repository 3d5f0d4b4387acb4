"""A job on hosts that are reached by the user's own ssh: checked, given the code, held on a leash. Used by engines/ssh.py."""
