"""The loop is the one of the Trainer of Transformers."""

import argparse
import os

import torch
from fingerprint import digest, draws, pause
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments


class Data(Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(1)
        self.x = torch.randn(240, 8, generator=generator)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"x": self.x[i], "labels": self.x[i].sum()}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, x, labels):
        return {"loss": nn.functional.mse_loss(self.layers(x).squeeze(1), labels)}


class Lines(TrainerCallback):
    def __init__(self, out):
        self.out = out

    def on_step_end(self, args, state, control, model=None, optimizer=None, **kwargs):
        total = sum(p.double().sum().item() for p in model.parameters())
        with open(os.path.join(self.out, f"rank{args.process_index}.log"), "a") as log:
            log.write(f"step {state.global_step} {state.epoch!r} {total!r} {draws()}\n")
        pause()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    torch.manual_seed(9)
    model = Model()
    args = TrainingArguments(
        output_dir=os.path.join(options.out, "trainer"),
        per_device_train_batch_size=4,
        num_train_epochs=2,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        seed=9,
    )
    trainer = Trainer(model=model, args=args, train_dataset=Data(), callbacks=[Lines(options.out)])
    trainer.train()
    with open(os.path.join(options.out, f"rank{args.process_index}.log"), "a") as log:
        log.write(f"final {digest(model.state_dict())} {digest(trainer.optimizer.state_dict())}\n")


if __name__ == "__main__":
    main()
