#!/bin/bash
# One rank: trains and keeps a copy of the output.
mkdir -p copies
python train_rows.py 2>&1 | tee "copies/rank${RANK:-0}.txt"
