"""What `paceline resume --export` has written."""

import msgspec

from paceline.parts.resume.recording.exported_state import ExportedState
from paceline.views.table import table
from paceline.views.units import size


class ModelInFile(msgspec.Struct, frozen=True):
    """The state dict of a model."""

    name: str
    """The variable."""
    tensor_count: int
    """Number of tensors in its state dict."""


class ExportDocument(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="paceline.resume_export/1"):
    """What was written, for programs."""

    file: str
    """The file that was written."""
    size_bytes: int
    """Its size."""
    run_id: str
    """The run that saved the state."""
    step: int
    """The step after which the state was taken."""
    saved_ns: int
    """When it was saved."""
    damaged_steps: tuple[int, ...]
    """Newer saved steps, which are damaged and passed over."""
    models: tuple[ModelInFile, ...]
    """The state dicts of models, by the names of the script's variables."""
    optimizers: tuple[str, ...]
    """Names of the optimizers whose state dicts are in the file."""
    schedulers: tuple[str, ...]
    """Names of the schedulers whose state dicts are in the file."""
    values: tuple[str, ...]
    """Names of the other variables that are in the file: plain values and tensors."""
    left_out: tuple[str, ...]
    """Names of variables that hold anything else."""


def exported_text(exported: ExportedState, *, width: int | None = 100, ascii_only: bool = False) -> str:
    """One line per kind of content, then what was passed over, then one line that sums it up."""
    content = exported.content
    models = ", ".join(f"{name} ({count} tensors)" for name, count in content.models.items())
    rows = [
        (kind, names)
        for kind, names in (
            ("models", models),
            ("optimizers", ", ".join(content.optimizers)),
            ("schedulers", ", ".join(content.schedulers)),
            ("values", ", ".join(content.values)),
            ("left out", ", ".join(content.left_out)),
        )
        if names
    ]
    lines = [table(("KEY", "NAMES"), rows, width=width, ascii_only=ascii_only)] if rows else []
    lines += [f"the saved state of step {step} is damaged and passed over (F04)" for step in exported.damaged]
    manifest = exported.manifest
    written = f"wrote {exported.path}: step {manifest.step} of run {manifest.job.run_id}, {size(content.size_bytes)}"
    return "\n".join([*lines, f"{written}; torch.load reads it"])


def exported_facts(exported: ExportedState) -> ExportDocument:
    """The same for a program."""
    content, manifest = exported.content, exported.manifest
    return ExportDocument(
        file=exported.path,
        size_bytes=content.size_bytes,
        run_id=manifest.job.run_id,
        step=manifest.step,
        saved_ns=manifest.saved_ns,
        damaged_steps=tuple(exported.damaged),
        models=tuple(ModelInFile(name, count) for name, count in content.models.items()),
        optimizers=content.optimizers,
        schedulers=content.schedulers,
        values=content.values,
        left_out=content.left_out,
    )
