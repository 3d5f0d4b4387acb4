"""Where a user's own files lie: configuration, state and cache, as the XDG variables and the platform have it."""

import os
from collections.abc import Callable
from pathlib import Path

# Where there is no home directory nothing lies, and nothing can be made there: whoever tries has an OSError with this name in it.
_NOWHERE = Path(os.devnull) / "no-home-directory"


def user_config_folder() -> Path:
    """~/.config/paceline, or where XDG_CONFIG_HOME leads."""
    import platformdirs

    return _of_a_user(platformdirs.user_config_path)


def user_state_folder() -> Path:
    """~/.local/state/paceline, or where XDG_STATE_HOME leads."""
    import platformdirs

    return _of_a_user(platformdirs.user_state_path)


def user_cache_folder() -> Path:
    """~/.cache/paceline, or where XDG_CACHE_HOME leads."""
    import platformdirs

    return _of_a_user(platformdirs.user_cache_path)


def _of_a_user(folder: Callable[[str], Path]) -> Path:
    try:
        return folder("paceline")
    except RuntimeError:
        # A container may run as a number that has no entry in passwd, and without HOME.
        return _NOWHERE
