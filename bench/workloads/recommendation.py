"""NCF on MovieLens-20M, whose script keeps the whole dataset on the device and prepares each epoch there."""

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

USERS, ITEMS, RATINGS, NEGATIVES, TESTED = 138_493, 26_744, 19_861_770, 4, 101


class NeuMF(nn.Module):
    """Source: DeepLearningExamples PyTorch/Recommendation/NCF, neumf.py and the defaults of ncf.py."""

    def __init__(self) -> None:
        super().__init__()
        self.embeddings = nn.ModuleList(
            [nn.Embedding(USERS, 64), nn.Embedding(ITEMS, 64), nn.Embedding(USERS, 128), nn.Embedding(ITEMS, 128)]
        )
        self.layers = nn.ModuleList([nn.Linear(256, 256), nn.Linear(256, 128), nn.Linear(128, 64)])
        self.final = nn.Linear(128, 1)

    def forward(self, user: torch.Tensor, item: torch.Tensor) -> torch.Tensor:
        factors = self.embeddings[0](user) * self.embeddings[1](item)
        x = torch.cat([self.embeddings[2](user), self.embeddings[3](item)], 1)
        for layer in self.layers:
            x = F.dropout(F.relu(layer(x)), 0.5)
        return self.final(torch.cat([factors, x], 1))


def rating(model: nn.Module, batch: int) -> torch.Tensor:
    """A step on `batch` pairs of a user and an item."""
    pairs = torch.zeros(batch, dtype=torch.long)
    out = model(pairs, pairs)
    return F.binary_cross_entropy_with_logits(out.float(), torch.zeros(batch, 1), reduction="none").float().mean()


def epoch(devices: int) -> Any:
    """What `prepare_epoch_train_data` of the script does on each of `devices` devices; returns all that stays alive while training."""
    ratings = torch.zeros(RATINGS, 2, dtype=torch.long)
    tested = [torch.zeros(USERS * TESTED // devices, dtype=torch.long) for _ in range(2)]
    mask = torch.zeros(USERS * TESTED // devices, dtype=torch.bool)
    label = torch.cat([torch.ones(RATINGS), torch.zeros(RATINGS).repeat(NEGATIVES)])
    users, items = ratings[:, 0], ratings[:, 1]
    more_users = users.repeat(NEGATIVES)
    more_items = torch.empty_like(more_users)
    users, items = torch.cat([users, more_users]), torch.cat([items, more_items])
    del more_users, more_items
    order = torch.randperm(users.size(0) // devices)
    users = users[order]
    items = items[order]
    return ratings, tested, mask, users, items, label[order]
