"""Decides which host uploads a file when several hosts share one prefix: the first host to claim the name."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """The answer to a host that wants to send files. Names in neither field belong to this host."""

    same: frozenset[str] = frozenset()
    """Names that are in the store already with this content."""
    taken: Mapping[str, str] = field(default_factory=dict)
    """Names that belong to another host -> that host."""


@dataclass(slots=True)
class OwnershipLedger:
    """Which host owns each name below a shared prefix. The coordinator keeps the ledger, every host asks it."""

    owners: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Name -> (host, SHA-256 of the content)."""
    _refused: dict[str, dict[str, str]] = field(default_factory=dict)
    """Name -> host -> SHA-256 of its content, for hosts that were refused."""

    def claim(self, host: str, digests: Mapping[str, str]) -> ClaimResult:
        """Answer a host that wants to send files of these SHA-256.

        Holds:   a name is sent by one host only, the first that claimed it
        """
        same, taken = set(), {}
        for name, digest in digests.items():
            owner, known = self.owners.setdefault(name, (host, digest))
            if owner == host:
                self.owners[name] = (host, digest)
            elif known == digest:
                same.add(name)
                self._refused.get(name, {}).pop(host, None)
            else:
                taken[name] = owner
                self._refused.setdefault(name, {})[host] = digest
        return ClaimResult(frozenset(same), taken)

    def clashes(self) -> dict[str, tuple[str, list[str]]]:
        """name -> its host, and the hosts that have other content under it. Used after every host has sent its last claim."""
        return {
            name: (
                self.owners[name][0],
                sorted(host for host, digest in others.items() if digest != self.owners[name][1]),
            )
            for name, others in self._refused.items()
            if any(digest != self.owners[name][1] for digest in others.values())
        }
