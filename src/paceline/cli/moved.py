"""What was a verb or an option and is another word now: the whole command line that does the same."""

from collections.abc import Sequence

_VERBS = {
    "prune": ("ps", "--prune"),
    "explain": ("help",),
    "completion": ("help", "--completion"),
    "instances": ("plan", "--instances"),
    "rehearse": ("bench", "--rehearse"),
    "metrics": ("report", "--format", "prometheus"),
    "metrics --tensorboard": ("report", "--format", "tensorboard", "-o"),
    "timeline": ("report", "--format", "trace"),
    "timeline --format json": ("report", "--format", "trace", "--json"),
    "timeline --format pftrace": ("report", "--format", "trace"),
}
"""A former verb, alone or with an option behind it -> the words that stand in its place."""


_NETWORK = {
    "--link-rate": "",
    "--link-delay": "",
    "--link-loss": "loss=",
    "--zones": "zones=",
    "--zone-delay": "zone-delay=",
    "--host-cpus": "cpus=",
    "--host-memory": "memory=",
}
"""A former option for the network of local hosts -> what stands before its value in `--network`."""


def with_network(argv: Sequence[str]) -> list[str]:
    """The words of `paceline run` with `--network` in place of the former options before the script; [] if there is none of them.

    Holds:   ["--link-rate", "1gbit", "--link-loss=1%", "a.py"] -> ["--network", "1gbit,loss=1%", "a.py"]
    """
    said: list[str] = []
    others: list[str] = []
    words = iter(argv)
    for word in words:
        name, equals, value = word.partition("=")
        if name in _NETWORK:
            said.append(_NETWORK[name] + (value if equals else next(words, "")))
            continue
        others.append(word)
        if word in ("-m", "--") or word.endswith((".py", ".sh")):
            break
    return ["--network", ",".join(said), *others, *words] if said else []


def moved(verb: str, words: Sequence[str]) -> list[str]:
    """The command line, without `paceline`, in place of the former verb with these words; []: it never was a verb.

    Holds:   moved("prune", ["--keep", "2"]) -> ["ps", "--prune", "--keep", "2"]
    """
    given = [part for word in words for part in (word.split("=", 1) if word.startswith("--") else [word])]
    for former, now in reversed(_VERBS.items()):
        name, *option = former.split()
        ends = [place + len(option) for place in range(len(given)) if given[place : place + len(option)] == option]
        if name == verb and option and ends:
            place = ends[0] - len(option)
            # What stands before the option goes behind: `-o` of the new words takes the value.
            return [*now, *given[ends[0] :], *given[:place]]
    return [*_VERBS[verb], *words] if verb in _VERBS else []
