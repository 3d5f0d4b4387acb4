"""What `paceline resume --export` has written."""

from typing import Any

from paceline.parts.resume.recording.exported_state import ExportedState
from paceline.views.table import table
from paceline.views.units import size

SCHEMA = "paceline.resume_export/1"


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


def exported_facts(exported: ExportedState) -> dict[str, Any]:
    """The same for a program."""
    content, manifest = exported.content, exported.manifest
    return {
        "schema": SCHEMA,
        "file": exported.path,
        "size_bytes": content.size_bytes,
        "run_id": manifest.job.run_id,
        "step": manifest.step,
        "saved_ns": manifest.saved_ns,
        "damaged_steps": list(exported.damaged),
        "models": [{"name": name, "tensor_count": count} for name, count in content.models.items()],
        "optimizers": list(content.optimizers),
        "schedulers": list(content.schedulers),
        "values": list(content.values),
        "left_out": list(content.left_out),
    }
