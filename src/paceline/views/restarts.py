"""What restarts cost, as text and for programs."""

from typing import Any

from paceline.diagnosis.restart_costs import NotUsed, Restart, RestartTotals, Resumption
from paceline.findings import Finding, Severity
from paceline.spelling import plural
from paceline.views.units import counted, duration


def restart_finding(found: Restart) -> Finding | None:
    """The notice about an attempt that began again; None if nothing was lost by that, or nobody can say."""
    if not found.began_anew:
        return None
    if found.not_used == NotUsed.NOTHING_TAKEN:
        return Finding(
            code="F17",
            severity=Severity.WARNING,
            what=f"attempt {found.attempt} loaded {_file(found)}, and its model is as new",
            saw=f"{found.not_used}{_steps_before(found)}",
            next="edit the script: load_state_dict without strict=False names the parameters that do not fit",
            more="paceline help F17",
        )
    lost = "" if found.lost_steps is None else f"; {_lost(found.lost_steps)}"
    loaded = f"{_file(found)}: {found.not_used}" if found.not_used else "nothing"
    return Finding(
        code="F14",
        severity=Severity.WARNING,
        what=f"attempt {found.attempt} began again from the start of the script{lost}",
        saw=f"before its first step it loaded {loaded}",
        next="edit the script: load a checkpoint before the first step, and save one every some hundred steps",
        more="paceline help F14",
    )


def restart_line(found: Restart) -> str:
    """One restart in one line."""
    if found.loaded is None:
        return f"attempt {found.attempt}: whether the script went on from a checkpoint is not known"
    if found.not_used == NotUsed.NOTHING_TAKEN and found.began_anew:
        return f"attempt {found.attempt} loaded {_file(found)}: {found.not_used} (F17){_steps_before(found)}"
    lost = "how many steps it makes again is not known" if found.lost_steps is None else _lost(found.lost_steps)
    if found.loaded:
        return f"attempt {found.attempt} went on from a checkpoint{f', {found.file}' if found.file else ''}; {lost}"
    beside = f" beside {_file(found)}, which holds no step of it" if found.not_used else ""
    began = f"began again from the start of the script{beside}{' (F14)' * found.began_anew}"
    return f"attempt {found.attempt} {began}; {lost}"


def _file(found: Restart) -> str:
    return found.file or "a file"


def _steps_before(found: Restart) -> str:
    lost = found.lost_steps
    return "" if lost is None else f"; what {counted(lost, 'step')} before had learned is not in it"


def resumed_line(found: Resumption) -> str:
    """What one resume cost, in one line."""
    again = f"{counted(found.steps_again, 'step')} made again"
    seconds = f"{found.seconds:.2f} s" if found.seconds < 1 else duration(found.seconds)
    return f"resumed at step {found.step}: rank {found.rank} {_why_resumed(found)}; {seconds}, {again} (F01)"


def _why_resumed(found: Resumption) -> str:
    if found.hung:
        return "hung"
    return f"was killed ({found.signal})" if found.signal else "lost a loader worker"


def restart_lines(found: RestartTotals) -> list[str]:
    """Every restart in one line, in their order."""
    lines = {one.attempt: restart_line(one) for one in found.found}
    lines |= {one.attempt: f"attempt {one.attempt} {resumed_line(one)}" for one in found.resumed}
    return [lines[attempt] for attempt in sorted(lines)]


def restarts_text(found: RestartTotals) -> str:
    """All restarts in a few words; "" without one."""
    if not found.count:
        return ""
    resumed = f", {len(found.resumed)} resumed" if found.resumed else ""
    only_resumed = len(found.resumed) == found.count
    again = "" if found.lost_steps is None or only_resumed else f", {counted(found.lost_steps, 'step')} lost"
    anew = {"F17" if one.not_used == NotUsed.NOTHING_TAKEN else "F14" for one in found.found if one.began_anew}
    began = f", began again ({', '.join(sorted(anew))})" if anew else ""
    return f"{found.count} {plural(found.count, 'restart')}{resumed}{again}{began}"


def restarts_facts(found: RestartTotals | None) -> dict[str, Any]:
    """The same for a program; null: it is not known."""
    return {
        "restart_count": None if found is None else found.count,
        "resume_count": None if found is None else len(found.resumed),
        "lost_step_count": None if found is None else found.lost_steps,
    }


def _lost(steps: int) -> str:
    return f"{counted(steps, 'step')} {'is' if steps == 1 else 'are'} made again" if steps else "no step is lost"
