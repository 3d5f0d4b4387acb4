"""transformers' Trainer in a job that asked for SageMaker's library: nothing of it is in the script."""

import sys

import torch
import torch.distributed as dist
from transformers import Trainer, TrainingArguments


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, x, labels=None):
        out = self.layer(x)
        return {"loss": torch.nn.functional.mse_loss(out, labels), "logits": out}


arguments = TrainingArguments(
    output_dir=sys.argv[1],
    per_device_train_batch_size=2,
    max_steps=4,
    report_to=[],
    disable_tqdm=True,
    save_strategy="no",
    logging_strategy="no",
    dataloader_pin_memory=False,
)
data = [{"x": torch.randn(2), "labels": torch.randn(1)} for _ in range(16)]
Trainer(Model(), arguments, train_dataset=data).train()
print(
    "trained",
    arguments.process_index,
    "of",
    arguments.world_size,
    "by",
    dist.get_backend(),
    arguments.parallel_mode.value,
    flush=True,
)
