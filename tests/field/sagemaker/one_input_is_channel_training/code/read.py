"""Reads rows of numbers and prints their mean."""

import argparse
import csv
import os
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--rows", default=os.environ["SM_CHANNEL_TRAIN"])
options = parser.parse_args()
values = []
for file in sorted(Path(options.rows).glob("*.csv")):
    with file.open(newline="") as lines:
        values.extend(float(cell) for row in csv.reader(lines) for cell in row)
print("mean", sum(values) / len(values), "of", len(values))
