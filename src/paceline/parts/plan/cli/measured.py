"""Reads measured step times from the options of `paceline plan`."""

import argparse
from collections.abc import Sequence

from paceline.cli.values import above_zero, counted, impossible, measured_at
from paceline.errors import UsageError
from paceline.parts.plan.planner.workload import Assumption, Measurement
from paceline.spelling import plural


def measurements_given(
    args: argparse.Namespace, devices_per_host: int
) -> tuple[tuple[Measurement, ...], tuple[Assumption, ...]]:
    """Every measured step on the command line, and the assumptions made to read it.

    `devices_per_host`: devices of a whole host.

    Holds:   one step and nothing else -> 1 device on 1 host; beside --measured-step-ms-at -> a whole host, unless that one is given too
    Raises:  UsageError U03: devices that cannot be divided among the hosts; a count without a step
    """
    batch = counted("--measured-batch", args.measured_batch) if args.measured_batch else None
    found, assumptions = [], []
    if args.measured_step_ms:
        seconds = above_zero("--measured-step-ms", args.measured_step_ms) / 1e3
        hosts, devices, taken = _shape(args, devices_per_host)
        assumptions += taken
        found.append(Measurement(hosts=hosts, devices=devices, step_seconds=seconds, batch=batch))
    elif args.measured_devices or args.measured_hosts:
        raise UsageError(
            "U03",
            "hosts or devices of a measured step, and no step",
            saw="no --measured-step-ms",
            next="--measured-step-ms MS",
        )
    for text in args.measured_step_ms_at:
        hosts, each, seconds = measured_at(text)
        found.append(
            Measurement(hosts=hosts, devices=hosts * (each or devices_per_host), step_seconds=seconds, batch=batch)
        )
    return tuple(found), tuple(assumptions)


def each_size_once(measurements: Sequence[Measurement]) -> None:
    """Refuse two steps of one size, whatever their sources.

    Raises:  UsageError U03: a size has two steps
    """
    for measured in measurements:
        alike = [one for one in measurements if (one.hosts, one.devices) == (measured.hosts, measured.devices)]
        if len(alike) > 1:
            raise UsageError(
                "U03",
                f"a step of {_some(measured.devices, 'device')} on {_some(measured.hosts, 'host')} is given {len(alike)} times",
                saw=", ".join(f"{one.step_seconds * 1e3:.4g} ms ({one.source})" for one in alike),
                next="leave out all but one, or name another size: --measured-step-ms-at HOSTSxDEVICES=MS",
            )


def _shape(args: argparse.Namespace, devices_per_host: int) -> tuple[int, int, list[Assumption]]:
    hosts = counted("--measured-hosts", args.measured_hosts) if args.measured_hosts else 1
    if not args.measured_devices:
        others = [measured_at(text)[:2] for text in args.measured_step_ms_at]
        whole = hosts > 1 or (bool(others) and not {(1, None), (1, devices_per_host)} & set(others))
        devices = hosts * devices_per_host if whole else 1
        on = f"{_some(devices, 'device')} of {_some(hosts, 'host')}"
        return hosts, devices, [Assumption(what=f"the step was measured on {on} (--measured-devices)")]
    devices = counted("--measured-devices", args.measured_devices)
    if hosts > 1 and devices == devices_per_host:
        taken = Assumption(
            what=f"--measured-devices {devices} is what one host has, so it was taken for each of the {hosts} hosts"
        )
        return hosts, devices * hosts, [taken]
    if devices % hosts:
        raise impossible(
            "--measured-devices", str(devices), f"a multiple of the {hosts} hosts: the devices of all of them together"
        )
    return hosts, devices, []


def _some(count: int, noun: str) -> str:
    return f"{count} {plural(count, noun)}"
