"""The file of --svg: refused before anything is measured, written when the answer is known."""

from pathlib import Path

from paceline.cli.output_file import write_output
from paceline.errors import UsageError
from paceline.option import Option

SVG = Option(
    "svg", "Draw the answer into this file as well: a picture (SVG) that needs no script and no network.", "FILE"
)


def refuse_impossible(name: str | None) -> None:
    """Refuse a file that cannot be written, before work of minutes. None: no picture is wanted.

    Raises:  UsageError U03: "-", where the table is; U22: there is no such directory
    """
    if name == "-":
        raise UsageError(
            "U03", "--svg writes a file, and standard output has the answer", saw="--svg -", next="--svg picture.svg"
        )
    if name is not None and not Path(name).resolve().parent.is_dir():
        raise UsageError(
            "U22",
            f"{name} cannot be written",
            saw=f"there is no directory {Path(name).parent}",
            next="--svg picture.svg",
        )


def write_picture(name: str | None, svg: str, *, as_json: bool) -> None:
    """Write the picture if one is wanted. Its name is printed, unless standard output has JSON.

    Raises:  UsageError U22: the file cannot be written
    """
    if name is not None:
        write_output(name, svg.encode(), "--svg /tmp/picture.svg", is_told=not as_json)
