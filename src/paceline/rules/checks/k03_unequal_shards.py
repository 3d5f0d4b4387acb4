"""K03: the keys of a sharded channel do not divide evenly among the hosts."""

from collections.abc import Iterator

from paceline.contract.channels import FULLY_REPLICATED, SHARDED_BY_KEY
from paceline.findings import Finding, Rule, Severity, Unknown
from paceline.rules.job_facts import BeforeRun, ChannelKeys
from paceline.spelling import plural

PAGE = """\
The keys of a sharded channel do not divide among the hosts

What it means: SageMaker distributes a ShardedByS3Key channel by number of keys, not by bytes and not by ranks. Some
  hosts would get one key more than others. If there are fewer keys than hosts, some hosts get none.
Why it matters: Ranks with less data run out of batches first, and the others wait for them in an all_reduce until the
  timeout. It happens at the end of the first epoch, after hours. A host without any key fails at its start.
What to do: Write the data as a multiple of the number of hosts; a multiple of the number of ranks is better still. Or
  use FullyReplicated and let a DistributedSampler distribute the samples. The script can also join uneven ranks:
  `with model.join():`.
Source: SageMaker API, S3DataSource, S3DataDistributionType; paceline/contract/channels.py; paceline help M05.
"""


def find(before: BeforeRun) -> Iterator[Finding]:
    """A finding for each channel that would be distributed unevenly."""
    if before.hosts == 1:
        return
    sharded = [channel for channel in before.channels if channel.distribution == SHARDED_BY_KEY]
    findings = [found for channel in sharded if (found := _judged(channel, before.hosts)) is not None]
    uncounted = [channel.name for channel in sharded if channel.key_count is None]
    if uncounted and not findings:
        raise Unknown(f"the number of keys of channel {', '.join(uncounted)}")
    yield from findings


def _judged(channel: ChannelKeys, hosts: int) -> Finding | None:
    count = channel.key_count
    if count is None or (count >= hosts and count % hosts == 0):
        return None
    keys = f"{count} {plural(count, 'key')}"
    more, least = count % hosts, count // hosts
    replicated = f"distribution={FULLY_REPLICATED!r} for channel {channel.name!r}"
    if count < hosts:
        return Finding(
            code="K03",
            severity=Severity.ERROR,
            what=f"channel {channel.name!r}: {keys} for {hosts} hosts; {hosts - count} of them would get no data",
            saw=f"{SHARDED_BY_KEY} distributes whole keys",
            next=f"{replicated}, or at least {hosts} keys in it",
        )
    return Finding(
        code="K03",
        severity=Severity.WARNING,
        what=f"channel {channel.name!r}: {keys} do not divide among {hosts} hosts; the job is likely to hang at the end of its epoch",
        saw=f"{more} of {hosts} hosts would get {least + 1} keys, {hosts - more} would get {least}",
        next=f"{replicated}, or {count - more} or {count - more + hosts} keys in it",
    )


RULE = Rule(code="K03", page=PAGE, find=find)
