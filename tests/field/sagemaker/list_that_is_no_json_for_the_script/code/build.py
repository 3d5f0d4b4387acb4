"""Builds a small net from a list of its layers."""

import argparse
import json

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--layers", type=json.loads, default=["dense"])
parser.add_argument("--widths", type=json.loads, default=[16])
parser.add_argument("--rate", type=float, default=0.1)
options = parser.parse_args()
parts = []
width = 8
for kind, size in zip(options.layers, options.widths):
    parts.append(nn.Linear(width, size))
    if kind == "relu":
        parts.append(nn.ReLU())
    width = size
net = nn.Sequential(*parts)
print("net of", options.layers, options.widths, "gives", tuple(net(torch.ones(1, 8)).shape))
