"""What the hosts of a run cost, as their agents noted it when the run began."""

from collections.abc import Sequence

from paceline.recording.layout import RunDirectory
from paceline.recording.runs import read_document


def host_price(directories: Sequence[RunDirectory], hosts: Sequence[str]) -> tuple[float, str] | None:
    """The mean price of these hosts in US dollars an hour, and where it is from; None: of one of them it is not known."""
    prices, sources = [], []
    for host in hosts:
        found = next(filter(None, (read_document(one.environment_file(host)) for one in directories)), {})
        price = found.get("usd_per_hour")
        if not isinstance(price, int | float) or isinstance(price, bool) or not 0 < price < float("inf"):
            return None
        prices.append(price)
        sources.append(str(found.get("price_from")))
    return (sum(prices) / len(prices), ", ".join(dict.fromkeys(sources))) if prices else None
