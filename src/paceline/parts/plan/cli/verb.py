"""Say before it is started what a job needs, how fast it goes, when it ends and what it costs, on any machines; which ones to take."""

import argparse
import json
import sys
from collections.abc import Sequence

from paceline.cli.picture_file import refuse_impossible, write_picture
from paceline.cli.progress import ProgressLine
from paceline.cli.values import fail_on
from paceline.errors import UsageError
from paceline.parts.plan.cli.options import VERB, form, parse_plan
from paceline.parts.plan.planner.evaluate import Plan

__all__ = ["VERB", "form", "parse", "run"]
_FAIL_ON = ("P10", "memory", "warning", "any")


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The options before the script. Words after the script belong to the script."""
    return parse_plan(argv)


def run(args: argparse.Namespace) -> int:
    """Print the plan, or the machine types.

    Raises:  UsageError U03: of --fail-on and --svg; as question_of, hold_against and instances.show
    """
    if args.instances:
        from paceline.parts.plan.cli.instances import show

        return show(args)
    wanted = fail_on(args.fail_on, _FAIL_ON)
    refuse_impossible(args.svg)
    if args.against:
        _refuse_picture(args)
        from paceline.parts.plan.cli.against import hold_against

        plan = hold_against(args)
    else:
        from paceline.parts.plan.cli.question import question_of
        from paceline.parts.plan.planner.evaluate import evaluate

        question = question_of(args)
        with ProgressLine("judging machines", unit="rows", shown=not args.json) as progress:
            plan = evaluate(question, progress.at)
        _show(plan, args)
        if args.svg:
            from paceline.parts.plan.views.plan_picture import plan_svg

            write_picture(args.svg, plan_svg(plan), as_json=args.json)
    return 1 if wanted & _found(plan) else 0


def _refuse_picture(args: argparse.Namespace) -> None:
    if args.svg:
        raise UsageError(
            "U03",
            "--svg draws a plan, and --against asks for a comparison",
            saw=f"--against {args.against} --svg {args.svg}",
            next="leave --svg out",
        )


def _show(plan: Plan, args: argparse.Namespace) -> None:
    if args.json:
        from paceline.parts.plan.views.plan_json import plan_json

        print(json.dumps(plan_json(plan, explain=args.explain)))
        return
    from paceline.cli.terminal import ascii_only, columns, use_color
    from paceline.parts.plan.views.plan import PlanPage, plan_text

    page = PlanPage(
        width=columns(sys.stdout),
        color=use_color(args.color, sys.stdout),
        ascii_only=ascii_only(sys.stdout),
        everything=args.all,
    )
    print(plan_text(plan, page))
    if args.explain:
        from paceline.parts.plan.views.plan_explain import explain_text

        print("\n" + explain_text(plan, page))


def _found(plan: Plan) -> set[str]:
    """The words of --fail-on that apply to this answer."""
    from paceline.parts.plan.planner.answer import Fit

    found = {plan.choice.code} if plan.choice.code else set()
    live = [row for row in plan.rows if not row.refused]
    if not any(row.memory.verdict in (Fit.FITS, Fit.NOT_JUDGED) for row in live):
        found.add("memory")
    if plan.warnings:
        found.add("warning")
    return found | {"any"} if found else found
