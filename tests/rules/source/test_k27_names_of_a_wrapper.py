"""K27: a checkpoint of a wrapped model is loaded into the plain one with strict=False."""

import pytest

HEAD = """\
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
net = nn.Linear(2, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
"""
SAVE = "torch.save({'model': model.state_dict(), 'optimizer': optimizer.state_dict()}, 'last.pt')\n"


@pytest.mark.parametrize(
    ("text", "line", "prefix"),
    [
        ("saved = torch.load('last.pt')\nnet.load_state_dict(saved['model'], strict=False)\nmodel = DDP(net)\n" + SAVE, 7, "module."),
        ("net.load_state_dict(torch.load('a.pt'), False)\nnet = DDP(net)\ntorch.save(net.state_dict(), 'a.pt')\n", 6, "module."),
        ("net.load_state_dict(torch.load(f'{out}/a.pt', map_location='cpu'), strict=False)\nmodel = nn.DataParallel(net)\n"
         "torch.save(model.state_dict(), f'{out}/a.pt')\n", 6, "module."),
        ("net = net.to('cpu')\nnet.load_state_dict(torch.load('a.pt'), strict=False)\nmodel = DDP(net).cuda()\n"
         "state = {'model': model.state_dict()}\ntorch.save(state, 'a.pt')\n", 7, "module."),
        ("net.load_state_dict(torch.load('a.pt'), strict=False)\nmodel = torch.compile(net)\n"
         "torch.save(model.state_dict(), 'a.pt')\n", 6, "_orig_mod."),
    ],
)  # fmt: skip
def test_names_that_cannot_fit(found, job, text, line, prefix):
    (finding,) = found("K27", job(HEAD + text, ranks_per_host=2))
    assert finding.line == line and prefix in finding.what and "strict=False" in finding.what


@pytest.mark.parametrize(
    "text",
    [
        # Without strict=False torch says so itself.
        "net.load_state_dict(torch.load('a.pt'))\nmodel = DDP(net)\ntorch.save(model.state_dict(), 'a.pt')\n",
        # Weights to begin with, which are another file.
        "net.load_state_dict(torch.load('pretrained.pt'), strict=False)\nmodel = DDP(net)\ntorch.save(model.state_dict(), 'a.pt')\n",
        # Saved without the wrapper, or loaded into it.
        "net.load_state_dict(torch.load('a.pt'), strict=False)\nmodel = DDP(net)\ntorch.save(model.module.state_dict(), 'a.pt')\n",
        "model = DDP(net)\nmodel.load_state_dict(torch.load('a.pt'), strict=False)\ntorch.save(model.state_dict(), 'a.pt')\n",
        "net = DDP(net)\nnet.load_state_dict(torch.load('a.pt'), strict=False)\ntorch.save(net.state_dict(), 'a.pt')\n",
        "net.load_state_dict(torch.load('a.pt'), strict=False)\ntorch.save(net.state_dict(), 'a.pt')\n",
        # Only one of two saves is of the wrapped model: which one is loaded is not known.
        "net.load_state_dict(torch.load('a.pt'), strict=False)\ntorch.save(net.state_dict(), 'a.pt')\nmodel = DDP(net)\n"
        "torch.save(model.state_dict(), 'a.pt')\n",
        # An optimizer's state has no such names; what a function was given is not known.
        "optimizer.load_state_dict(torch.load('a.pt'), strict=False)\nmodel = DDP(net)\ntorch.save(model.state_dict(), 'a.pt')\n",
        "def load(net):\n    net.load_state_dict(torch.load('a.pt'), strict=False)\n"
        "model = DDP(net)\ntorch.save(model.state_dict(), 'a.pt')\n",
        # The prefix is taken away, on the way.
        "saved = torch.load('a.pt')\nfor name in list(saved):\n    saved[name[7:]] = saved.pop(name)\n"
        "net.load_state_dict(saved, strict=False)\nmodel = DDP(net)\ntorch.save(model.state_dict(), 'a.pt')\n",
        "saved = torch.load('a.pt')\nnn.modules.utils.consume_prefix_in_state_dict_if_present(saved, 'module.')\n"
        "net.load_state_dict(saved, strict=False)\nmodel = DDP(net)\ntorch.save(model.state_dict(), 'a.pt')\n",
        # What is loaded may be another part of the file, or of another save.
        "net.load_state_dict(torch.load('a.pt')['model'], strict=False)\nmodel = DDP(net)\n"
        "torch.save({'ema': model.state_dict(), 'model': plain(model).state_dict()}, 'a.pt')\n",
        "net.load_state_dict(torch.load('a.pt'), strict=False)\nmodel = DDP(net)\ntorch.save(model.state_dict(), 'a.pt')\n"
        "state = made()\ntorch.save(state, 'a.pt')\n",
        "for path in ('pretrained.pt', 'more.pt'):\n    net.load_state_dict(torch.load(path), strict=False)\npath = 'last.pt'\n"
        "model = DDP(net)\ntorch.save(model.state_dict(), path)\n",
        # What a function gives may be a wrapper; a model that moves is the same.
        "other = wrapped(net)\nother.load_state_dict(torch.load('a.pt'), strict=False)\n"
        "model = DDP(net)\ntorch.save(model.state_dict(), 'a.pt')\n",
        "model = DDP(net)\nmodel = model.to('cpu')\nmodel.load_state_dict(torch.load('a.pt'), strict=False)\n"
        "torch.save(model.state_dict(), 'a.pt')\n",
        "net.load_state_dict(strip(torch.load('a.pt')), strict=False)\nmodel = DDP(net)\ntorch.save(model.state_dict(), 'a.pt')\n",
    ],
)  # fmt: skip
def test_names_that_may_fit(found, job, text):
    assert not found("K27", job(HEAD + text, ranks_per_host=2))
