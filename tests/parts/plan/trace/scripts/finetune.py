"""A frozen backbone and a new head, a teacher without gradients: only what is trained has gradients and optimizer state.

DDP with find_unused_parameters, since one of the two heads is used in each batch.
"""

import copy
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset


class Backbone(nn.Module):
    def __init__(self, width=384):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, stride=8)
        layer = nn.TransformerEncoderLayer(width, 6, 4 * width, dropout=0.0, activation="gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)

    def forward(self, image):
        return self.layers(self.patches(image).flatten(2).transpose(1, 2)).mean(dim=1)


class Student(nn.Module):
    def __init__(self, backbone):
        super().__init__()
        self.backbone = backbone
        self.adapter = nn.Sequential(nn.Linear(384, 1024), nn.ReLU(), nn.Linear(1024, 384))
        self.heads = nn.ModuleDict({"coarse": nn.Linear(384, 10), "fine": nn.Linear(384, 1000)})

    def forward(self, image, task):
        features = self.backbone(image)
        return self.heads[task](features + self.adapter(features))


def main():
    on_gpu = torch.cuda.is_available()
    rank = int(os.environ.get("LOCAL_RANK", 0))
    device = torch.device(f"cuda:{rank}") if on_gpu else torch.device("cpu")
    dist.init_process_group("nccl" if on_gpu else "gloo")
    torch.manual_seed(0)
    backbone = Backbone()
    for parameter in backbone.parameters():
        parameter.requires_grad = False
    for parameter in backbone.layers.layers[-1].parameters():
        parameter.requires_grad_(True)
    student = Student(backbone).to(device)
    teacher = copy.deepcopy(student).eval()
    teacher.requires_grad_(False)
    trained = [p for p in student.parameters() if p.requires_grad]
    count = sum(p.numel() for p in trained)
    if dist.get_rank() == 0:
        print(f"{count:,} of {sum(p.numel() for p in student.parameters()):,} parameters are trained")
    model = DDP(student, device_ids=[rank] if on_gpu else None, find_unused_parameters=True)
    optimizer = torch.optim.AdamW(trained, lr=1e-4, amsgrad=True)
    data = TensorDataset(torch.randn(32, 3, 64, 64), torch.randint(0, 10, (32,)))
    for images, labels in DataLoader(data, batch_size=8):
        images, labels = images.to(device), labels.to(device)
        with torch.no_grad():
            wanted = teacher(images, "coarse")
        scores = model(images, "coarse")
        distilled = F.kl_div(scores.log_softmax(-1), wanted.softmax(-1), reduction="batchmean")
        loss = F.cross_entropy(scores, labels) + 0.5 * distilled
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    torch.save(student.state_dict(), os.devnull)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
