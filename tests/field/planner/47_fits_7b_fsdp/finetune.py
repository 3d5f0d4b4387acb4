"""Llama 7B, all parameters, FSDP2, bf16, AdamW, batch 1 x 2048, activation checkpointing."""

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from transformers import LlamaConfig, LlamaForCausalLM

dist.init_process_group()
config = LlamaConfig(
    hidden_size=4096,
    intermediate_size=11008,
    num_hidden_layers=32,
    num_attention_heads=32,
    vocab_size=32000,
    max_position_embeddings=4096,
)
torch.set_default_dtype(torch.bfloat16)
model = LlamaForCausalLM(config).cuda()
model.gradient_checkpointing_enable()
for layer in model.model.layers:
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
ids = torch.randint(0, 32000, (1, 2048)).cuda()
loss = model(input_ids=ids, labels=ids).loss
loss.backward()
optimizer.step()
