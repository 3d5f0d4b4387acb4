"""The shape of nanoGPT's train.py: a memory-mapped token file, get_batch, a config of globals, cosine learning rate, torch.compile."""

import math
import os
import tempfile
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.nn import functional as F

batch_size, block_size, gradient_accumulation_steps = 4, 32, 2
n_layer, n_head, n_embd, vocab_size = 2, 2, 32, 128
max_iters, warmup_iters, learning_rate, eval_interval = 4, 2, 6e-4, 2
device = "cuda" if torch.cuda.is_available() else "cpu"
compile = device == "cuda"


@dataclass
class GPTConfig:
    n_layer: int = n_layer
    n_head: int = n_head
    n_embd: int = n_embd
    vocab_size: int = vocab_size
    block_size: int = block_size


class CausalSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd)
        self.n_head = config.n_head

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = (t.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) for t in self.c_attn(x).split(C, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(config.n_embd), CausalSelfAttention(config)
        self.ln_2 = nn.LayerNorm(config.n_embd)
        self.mlp = nn.Sequential(
            nn.Linear(config.n_embd, 4 * config.n_embd), nn.GELU(), nn.Linear(4 * config.n_embd, config.n_embd)
        )

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.wte, self.wpe = (
            nn.Embedding(config.vocab_size, config.n_embd),
            nn.Embedding(config.block_size, config.n_embd),
        )
        self.h = nn.ModuleList([Block(config) for _ in range(config.n_layer)])
        self.ln_f, self.lm_head = nn.LayerNorm(config.n_embd), nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.wte.weight = self.lm_head.weight

    def forward(self, idx, targets):
        pos = torch.arange(0, idx.size(1), dtype=torch.long, device=idx.device)
        x = self.wte(idx) + self.wpe(pos)
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


folder = tempfile.mkdtemp()
path = os.path.join(folder, "train.bin")
torch.randint(0, vocab_size, (10_000,), dtype=torch.int16).numpy().tofile(path)
tokens = torch.from_file(path, size=10_000, dtype=torch.int16)


def get_batch():
    ix = torch.randint(len(tokens) - block_size, (batch_size,))
    x = torch.stack([tokens[i : i + block_size].long() for i in ix])
    y = torch.stack([tokens[i + 1 : i + 1 + block_size].long() for i in ix])
    if device == "cuda":
        return x.pin_memory().to(device, non_blocking=True), y.pin_memory().to(device, non_blocking=True)
    return x, y


@torch.no_grad()
def estimate_loss():
    model.eval()
    losses = torch.zeros(2)
    for k in range(2):
        losses[k] = model(*get_batch())[1].item()
    model.train()
    return losses.mean()


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / warmup_iters
    return 0.5 * learning_rate * (1 + math.cos(math.pi * it / max_iters))


torch.manual_seed(1337)
torch.backends.cuda.matmul.allow_tf32 = True
raw = GPT(GPTConfig()).to(device)
decayed = [p for p in raw.parameters() if p.dim() >= 2]
others = [p for p in raw.parameters() if p.dim() < 2]
optimizer = torch.optim.AdamW(
    [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}], betas=(0.9, 0.95)
)
model = torch.compile(raw) if compile else raw
best_val_loss, started = 1e9, time.time()
X, Y = get_batch()
for iter_num in range(max_iters):
    for group in optimizer.param_groups:
        group["lr"] = get_lr(iter_num)
    if iter_num % eval_interval == 0:
        val_loss = estimate_loss()
        if val_loss < best_val_loss:
            best_val_loss = val_loss
            torch.save(
                {"model": raw.state_dict(), "optimizer": optimizer.state_dict()}, os.path.join(folder, "ckpt.pt")
            )
    for _ in range(gradient_accumulation_steps):
        with torch.amp.autocast(device_type=device, dtype=torch.bfloat16):
            logits, loss = model(X, Y)
            loss = loss / gradient_accumulation_steps
        X, Y = get_batch()
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    print(f"iter {iter_num}: loss {loss.item() * gradient_accumulation_steps:.4f}, time {time.time() - started:.1f}s")
