"""Names of the users of this machine."""

import pwd


def user_name(uid: int) -> str:
    """The name of a user as `sudo -u` takes it."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"'#{uid}'"
