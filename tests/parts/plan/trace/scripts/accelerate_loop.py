"""Hugging Face Accelerate's loop: prepare, accumulate, backward through the accelerator, gather for the metric."""

import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def get_dataloaders(batch_size):
    images = torch.randn(160, 1, 28, 28)
    labels = torch.randint(0, 10, (160,))
    train, held_out = TensorDataset(images[:128], labels[:128]), TensorDataset(images[128:], labels[128:])
    return DataLoader(train, shuffle=True, batch_size=batch_size), DataLoader(held_out, batch_size=2 * batch_size)


def training_function(config, args):
    accelerator = Accelerator(
        mixed_precision=args.mixed_precision, gradient_accumulation_steps=args.gradient_accumulation_steps
    )
    set_seed(config["seed"])
    train_dataloader, eval_dataloader = get_dataloaders(config["batch_size"])
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(784, 800), nn.ReLU(), nn.Linear(800, 400), nn.ReLU(), nn.Linear(400, 10)
    )
    model = model.to(accelerator.device)
    optimizer = torch.optim.AdamW(params=model.parameters(), lr=config["lr"])
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=100)
    model, optimizer, train_dataloader, eval_dataloader, schedule = accelerator.prepare(
        model, optimizer, train_dataloader, eval_dataloader, schedule
    )
    for epoch in range(config["num_epochs"]):
        model.train()
        for batch in train_dataloader:
            with accelerator.accumulate(model):
                images, labels = batch
                loss = nn.functional.cross_entropy(model(images), labels)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
        model.eval()
        right = 0
        for images, labels in eval_dataloader:
            with torch.no_grad():
                predictions = model(images).argmax(dim=-1)
            predictions, references = accelerator.gather_for_metrics((predictions, labels))
            right += (predictions == references).sum().item()
        accelerator.print(f"epoch {epoch}: accuracy {right / 32:.3f}")
    accelerator.end_training()


def main():
    parser = argparse.ArgumentParser(description="Simple example of training script.")
    parser.add_argument("--mixed_precision", type=str, default="no", choices=["no", "fp16", "bf16"])
    parser.add_argument("--gradient_accumulation_steps", type=int, default=2)
    args = parser.parse_args()
    training_function({"lr": 2e-5, "num_epochs": 1, "seed": 42, "batch_size": 16}, args)


if __name__ == "__main__":
    main()
