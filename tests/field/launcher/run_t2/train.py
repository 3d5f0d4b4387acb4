import os
import signal
import sys
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

os.environ["MASTER_ADDR"] = "127.0.0.1"
os.environ["MASTER_PORT"] = str(random.randint(20000, 40000))
from datetime import timedelta

dist.init_process_group("gloo", timeout=timedelta(seconds=25))
dist.all_reduce(torch.ones(1))
