"""The folders of a user's own files: configuration, state and cache, as the XDG variables and the platform define them."""

import os
from collections.abc import Callable
from pathlib import Path

# The folder without a home directory. It does not exist and cannot be created: code that tries gets an OSError with this name.
_NOWHERE = Path(os.devnull) / "no-home-directory"


def user_config_folder() -> Path:
    """~/.config/paceline, or the folder below XDG_CONFIG_HOME."""
    import platformdirs

    return _of_a_user(platformdirs.user_config_path)


def user_state_folder() -> Path:
    """~/.local/state/paceline, or the folder below XDG_STATE_HOME."""
    import platformdirs

    return _of_a_user(platformdirs.user_state_path)


def user_cache_folder() -> Path:
    """~/.cache/paceline, or the folder below XDG_CACHE_HOME."""
    import platformdirs

    return _of_a_user(platformdirs.user_cache_path)


def _of_a_user(folder: Callable[[str], Path]) -> Path:
    try:
        return folder("paceline")
    except RuntimeError:
        # A container may run with a user id that has no entry in passwd, and without HOME.
        return _NOWHERE
