"""Data of the right shapes for public training scripts, made here: nothing is downloaded. Each maker writes below the job's directory."""

import csv
import random
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path

Maker = Callable[[Path], None]
WORDS = ("a", "the", "rank", "waits", "for", "its", "mates", "all", "step", "together", "into", "one", "epoch")


def mnist(root: str, *, train: int = 512, test: int = 128, name: str = "MNIST") -> Maker:
    """Files as MNIST and FashionMNIST have them, below root/name/raw."""
    return partial(_mnist, root=root, sizes={"train": train, "t10k": test}, name=name)


def _mnist(directory: Path, *, root: str, sizes: dict[str, int], name: str) -> None:
    raw = directory / root / name / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    draw = random.Random(0)
    for part, count in sizes.items():
        images = struct.pack(">IIII", 0x803, count, 28, 28) + draw.randbytes(count * 784)
        labels = struct.pack(">II", 0x801, count) + bytes(draw.randrange(10) for _ in range(count))
        (raw / f"{part}-images-idx3-ubyte").write_bytes(images)
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(labels)


def images(root: str, *, splits: tuple[str, ...], classes: int = 2, each: int = 32, pixels: int = 64) -> Maker:
    """A folder for each split and class, with JPEG files."""
    return partial(_images, root=root, splits=splits, classes=classes, each=each, pixels=pixels)


def _images(directory: Path, *, root: str, splits: tuple[str, ...], classes: int, each: int, pixels: int) -> None:
    # Only where an environment has it: the scripts that read images need it themselves.
    from PIL import Image

    draw = random.Random(0)
    for split in splits:
        for number in range(classes):
            folder = directory / root / split / f"class{number}"
            folder.mkdir(parents=True, exist_ok=True)
            for index in range(each):
                Image.frombytes("RGB", (pixels, pixels), draw.randbytes(3 * pixels * pixels)).save(
                    folder / f"{index}.jpg"
                )


def text(*paths: str, lines: int = 200) -> Maker:
    """Files of sentences."""
    return partial(_text, paths=paths, lines=lines)


def _text(directory: Path, *, paths: tuple[str, ...], lines: int) -> None:
    draw = random.Random(0)
    for path in paths:
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_text("".join(" ".join(draw.choices(WORDS, k=12)) + "\n" for _ in range(lines)))


def sentence_pairs(*paths: str, rows: int = 64) -> Maker:
    """Tables of two sentences and whether they mean the same."""
    return partial(_sentence_pairs, paths=paths, rows=rows)


def _sentence_pairs(directory: Path, *, paths: tuple[str, ...], rows: int) -> None:
    draw = random.Random(0)
    for path in paths:
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        with (directory / path).open("w", newline="") as file:
            table = csv.writer(file)
            table.writerow(("label", "sentence1", "sentence2"))
            for _ in range(rows):
                pair = [" ".join(draw.choices(WORDS, k=9)) for _ in range(2)]
                table.writerow((draw.choice(("equivalent", "not_equivalent")), *pair))


def tiny_bert(directory: Path) -> None:
    """A model and its tokenizer below the name that scripts ask the hub for; and a metric of the name `glue`."""
    # The scripts that want it need transformers themselves.
    import torch
    import transformers

    torch.manual_seed(0)
    folder = directory / "bert-base-cased"
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (folder / "vocab.txt").write_text("\n".join(dict.fromkeys(vocabulary)))
    transformers.BertTokenizer(str(folder / "vocab.txt"), do_lower_case=False).save_pretrained(folder)
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = transformers.BertConfig(vocab_size=64, num_labels=2, **shape)
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    (directory / "glue").mkdir(exist_ok=True)
    (directory / "glue" / "glue.py").write_text(METRIC)


METRIC = """
import datasets
import evaluate


class Glue(evaluate.Metric):
    def _info(self):
        whole = datasets.Value("int64")
        return evaluate.MetricInfo(
            description="accuracy", citation="", features=datasets.Features({"predictions": whole, "references": whole})
        )

    def _compute(self, predictions, references):
        return {"accuracy": sum(p == r for p, r in zip(predictions, references)) / len(references)}
"""
