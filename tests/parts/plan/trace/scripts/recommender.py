"""DLRM's form: bags of categorical values with sparse gradients beside dense networks, one optimizer for each kind."""

import itertools

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

ROWS, WIDTH, TABLES, DENSE = (1000, 4000, 250), 16, 3, 13
device = "cuda" if torch.cuda.is_available() else "cpu"


class Clicks(Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        bags = [torch.randint(0, rows, (1 + index % 4,), generator=generator) for rows in ROWS]
        return torch.rand(DENSE, generator=generator), bags, float(index % 2)


def collate(samples):
    dense = torch.stack([sample[0] for sample in samples])
    values, offsets = [], []
    for table in range(TABLES):
        bags = [sample[1][table] for sample in samples]
        values.append(torch.cat(bags))
        sizes = torch.tensor([0] + [len(bag) for bag in bags[:-1]])
        offsets.append(sizes.cumsum(0))
    return dense, values, offsets, torch.tensor([[sample[2]] for sample in samples])


def mlp(*widths):
    layers = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class DLRM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, WIDTH, mode="sum", sparse=True) for rows in ROWS)
        self.bottom = mlp(DENSE, 64, WIDTH)
        pairs = (TABLES + 1) * TABLES // 2
        self.top = mlp(WIDTH + pairs, 64, 1)

    def forward(self, dense, values, offsets):
        x = self.bottom(dense)
        looked_up = [table(v, o) for table, v, o in zip(self.tables, values, offsets, strict=True)]
        features = torch.stack([x, *looked_up], dim=1)
        products = torch.bmm(features, features.transpose(1, 2))
        rows, columns = torch.tril_indices(TABLES + 1, TABLES + 1, offset=-1, device=products.device)
        return self.top(torch.cat([x, products[:, rows, columns]], dim=1))


model = DLRM().to(device)
sparse = [p for table in model.tables for p in table.parameters()]
dense = [*model.bottom.parameters(), *model.top.parameters()]
optimizers = [torch.optim.SparseAdam(sparse, lr=1e-3), torch.optim.Adagrad(dense, lr=1e-2)]
loss_fn = nn.BCEWithLogitsLoss()
for numbers, values, offsets, clicked in DataLoader(Clicks(), batch_size=64, collate_fn=collate):
    scores = model(numbers.to(device), [v.to(device) for v in values], [o.to(device) for o in offsets])
    loss = loss_fn(scores, clicked.to(device))
    for optimizer in optimizers:
        optimizer.zero_grad()
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()
    print(f"loss {loss.item():.4f}")
