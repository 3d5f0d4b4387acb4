"""What a rank does, by the names on its stack: known long work that one rank does alone. Pure."""

from paceline.diagnosis.snapshots import Frame
from paceline.diagnosis.stacks import has_any

# Part of a library's file -> the work, most telling first.
_BY_FILE = {
    "torch/serialization.py": "saves or loads a checkpoint",
    "torch/distributed/checkpoint/": "saves or loads a checkpoint",
    "safetensors/": "saves or loads a checkpoint",
    "huggingface_hub/": "downloads",
    "urllib/request.py": "downloads",
    "urllib3/": "downloads",
    "requests/": "downloads",
    "http/client.py": "downloads",
    "botocore/": "downloads",
    "fsspec/": "reads remote files",
    "datasets/": "prepares a dataset",
    "tokenizers/": "tokenises",
    "sentencepiece": "tokenises",
    "tarfile.py": "unpacks an archive",
    "zipfile": "unpacks an archive",
    "shutil.py": "copies files",
}
# Part of the name of one of the user's own functions -> the work.
_BY_WORD = {
    "save": "saves",
    "checkpoint": "saves or loads a checkpoint",
    "evaluat": "evaluates",
    "validat": "evaluates",
    "eval": "evaluates",
    "token": "tokenises",
    "preprocess": "prepares data",
    "prepare": "prepares data",
    "download": "downloads",
    "export": "exports",
    "generat": "generates",
}


def what_it_does(frames: tuple[Frame, ...]) -> str | None:
    """The work as text, from a file of a known library or a word in the name of one of the user's functions."""
    for part, words in _BY_FILE.items():
        if has_any(frames, (part,)) is not None:
            return words
    for frame in frames:
        if frame.users:
            named = next((text for word, text in _BY_WORD.items() if word in frame.function.lower()), None)
            if named is not None:
                return named
    return None
