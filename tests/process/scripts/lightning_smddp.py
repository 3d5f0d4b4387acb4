"""Lightning with the library's backend, as AWS described it: an environment that reads RANK, and the backend's name."""

import os

import lightning
import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401
import torch
import torch.distributed as dist
from lightning.pytorch.plugins.environments import LightningEnvironment
from lightning.pytorch.strategies import DDPStrategy
from torch.utils.data import DataLoader, TensorDataset


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, index):
        x, y = batch
        return torch.nn.functional.mse_loss(self.layer(x), y)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


environment = LightningEnvironment()
environment.world_size = lambda: int(os.environ["WORLD_SIZE"])
environment.global_rank = lambda: int(os.environ["RANK"])
trainer = lightning.Trainer(
    accelerator="auto",
    devices=int(os.environ["LOCAL_WORLD_SIZE"]),
    strategy=DDPStrategy(cluster_environment=environment, process_group_backend="smddp"),
    max_epochs=1,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Model(), DataLoader(TensorDataset(torch.randn(64, 8), torch.randn(64, 1)), batch_size=4))
# Lightning has taken WORLD_SIZE out of the environment by now.
print("trained", dist.get_rank(), "of", dist.get_world_size(), "by", dist.get_backend(), flush=True)
