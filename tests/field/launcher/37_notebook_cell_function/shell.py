"""What a notebook does: cells that IPython runs in __main__, which has no file."""

from IPython.core.interactiveshell import InteractiveShell

CELLS = [
    """
import torch
import paceline

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

def train(lr):
    import torch.distributed as dist
    dist.init_process_group("gloo")
    net = Net()
    return float(lr)
""",
    """
try:
    run = paceline.run_function(train, (3e-4,), nproc_per_node=2)
    print("exit", run.wait())
    print(run.results())
except Exception as error:
    print(type(error).__name__, error)
    for name in ("code", "what", "saw", "next"):
        print("  ", name, "=", getattr(error, name, None))
""",
]
shell = InteractiveShell.instance()
for cell in CELLS:
    shell.run_cell(cell)
