"""Reads by a loader whose workers outlive the script."""

import torch
from torch.utils.data import DataLoader, TensorDataset
from way_out import stage, train

loader = DataLoader(TensorDataset(torch.randn(64, 16)), batch_size=8, num_workers=1, persistent_workers=True)
train(data=(batch for epoch in range(2) for (batch,) in loader))
stage("end")
