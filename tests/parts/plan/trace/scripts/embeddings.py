"""A small DLRM: embedding bags of several tables, dense and sparse features, Adagrad on dense gradients."""

import torch
from torch import nn


class Recommender(nn.Module):
    def __init__(self, tables=(1000, 500, 2000), width=16):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for rows in tables)
        self.bottom = nn.Sequential(nn.Linear(13, 32), nn.ReLU(), nn.Linear(32, width))
        pairs = (len(tables) + 1) * len(tables) // 2
        self.top = nn.Sequential(nn.Linear(width + pairs, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, dense, indices, offsets):
        rows = [self.bottom(dense)] + [
            table(index, offset) for table, index, offset in zip(self.tables, indices, offsets, strict=True)
        ]
        stacked = torch.stack(rows, dim=1)
        crossed = torch.bmm(stacked, stacked.transpose(1, 2))
        i, j = torch.tril_indices(len(rows), len(rows), offset=-1, device=crossed.device)
        return self.top(torch.cat([rows[0], crossed[:, i, j]], dim=1)).squeeze(1)


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = Recommender().to(device)
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)
for _ in range(3):
    dense = torch.randn(64, 13, device=device)
    indices = [torch.randint(0, 500, (64 * 4,), device=device) for _ in range(3)]
    offsets = [torch.arange(0, 64 * 4, 4, device=device) for _ in range(3)]
    loss = nn.functional.binary_cross_entropy_with_logits(model(dense, indices, offsets), torch.ones(64, device=device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
