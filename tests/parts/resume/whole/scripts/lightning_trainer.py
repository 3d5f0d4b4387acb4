"""The loop is the one of Lightning's Trainer."""

import argparse
import os

import lightning
import torch
from fingerprint import digest, draws, pause
from torch.utils.data import DataLoader, TensorDataset


class Model(lightning.LightningModule):
    def __init__(self, out):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
        self.out = out

    def training_step(self, batch, index):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.layers(x), y)
        self.last = loss.item(), x.sum().item()
        return loss

    def on_train_batch_end(self, outputs, batch, index):
        with open(os.path.join(self.out, f"rank{self.global_rank}.log"), "a") as log:
            log.write(f"step {self.global_step} {self.current_epoch} {index} {self.last!r} {draws().split()[2]}\n")
        pause()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    lightning.seed_everything(1)
    x = torch.randn(240, 8)
    model = Model(args.out)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=int(os.environ["LOCAL_WORLD_SIZE"]),
        strategy="ddp",
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=4, shuffle=True))
    with open(os.path.join(args.out, f"rank{trainer.global_rank}.log"), "a") as log:
        log.write(f"final {digest(model.state_dict())} {digest(trainer.optimizers[0].state_dict())}\n")


if __name__ == "__main__":
    main()
